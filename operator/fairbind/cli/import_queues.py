"""The command `fairbind import`: files of queues in, a file of Tenants out, and lines about what is left out."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
import yaml

from fairbind.cli.mechanisms.reading import STANDARD_INPUT, name_file, read_document, read_documents
from fairbind.cli.mechanisms.tables import find_width, lay_out, wrap, write_text
from fairbind.cli.mechanisms.yaml_text import read_yaml
from fairbind.importing.documents import Document
from fairbind.importing.systems import READERS
from fairbind.importing.tenants import find_unclaiming, make_tenants
from fairbind.model.errors import InvalidProblemError

MOST_NAMED: Final = 10


def write_tenants(system: str, files: Sequence[str], out: str, snapshot: str | None) -> None:
    """Read queues, write Tenants, print what has no counterpart. Raises InvalidProblemError for invalid input."""
    _check_files(files, out, snapshot)
    documents = [document for file in files for document in _read_file(file)]
    reading = READERS[system](documents, _parse_text)
    tenants = make_tenants(reading)
    lines = [str(note) for note in reading.notes]
    if snapshot is not None:
        lines += ["", *_compare(snapshot, tenants)] if lines else _compare(snapshot, tenants)
    _write(out, format_tenants(tenants))
    fields = len(reading.notes)
    ending = "1 setting has no counterpart" if fields == 1 else f"{fields} settings have no counterpart"
    lines += [""] if lines else []
    where = "standard output" if out == STANDARD_INPUT else name_file(out)
    lines.append(f"{len(tenants)} {'Tenant' if len(tenants) == 1 else 'Tenants'} in {where}; {ending}.")
    unclaiming = find_unclaiming(tenants)
    if unclaiming:
        shown = ", ".join(unclaiming[:MOST_NAMED])
        others = f" and {len(unclaiming) - MOST_NAMED} others" if len(unclaiming) > MOST_NAMED else ""
        lines.append(f"No file says which namespaces belong to {shown}{others}: add spec.namespaces.")
    text = "\n".join(lines)
    if out == STANDARD_INPUT:
        click.echo(text, err=True)
    else:
        write_text(text)


def _check_files(files: Sequence[str], out: str, snapshot: str | None) -> None:
    read = [*files, *([] if snapshot is None else [snapshot])]
    if read.count(STANDARD_INPUT) > 1:
        raise InvalidProblemError("FILE: standard input must be named once")
    if out != STANDARD_INPUT and any(Path(out).absolute() == Path(file).absolute() for file in read):
        raise InvalidProblemError(f"--out: {name_file(out)} must be another file than those that are read")


def _read_file(file: str) -> list[Document]:
    name = name_file(file)
    try:
        values = read_documents(file)
    except InvalidProblemError as error:  # a repeated key is told by its path alone
        message = str(error)
        raise InvalidProblemError(message if message.startswith(name) else f"{name}: {message}") from error
    return [Document(f"{name}, document {n}", value) for n, value in enumerate(values, 1) if value is not None]


def _parse_text(text: str, name: str) -> object:
    try:
        return read_yaml(text, name)
    except InvalidProblemError as error:
        message = str(error)
        raise InvalidProblemError(message if message.startswith(name) else f"{name}: {message}") from error


def _write(out: str, text: str) -> None:
    if out == STANDARD_INPUT:
        click.echo(text, nl=False)
        return
    try:
        Path(out).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidProblemError(f"--out: {out!r} must be a file that can be written: {reason}") from error


class _Dumper(yaml.SafeDumper):
    """Quotes texts that a reader of YAML 1.2 could take for numbers, and never writes an alias."""

    def ignore_aliases(self, data: object) -> bool:
        """Tell that each value is written where it stands."""
        del data
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if text[:1].isalpha() else '"')


_Dumper.add_representer(str, _represent_text)


def format_tenants(tenants: Sequence[Mapping[str, Any]]) -> str:
    """Return Tenants as YAML, a document each."""
    return "---\n".join(
        yaml.dump(dict(tenant), Dumper=_Dumper, sort_keys=False, width=sys.maxsize) for tenant in tenants
    )


def _compare(snapshot: str, tenants: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return which namespaces hold more or less in the next hour of a snapshot."""
    from fairbind.cluster.objects.quantity import find_unit  # noqa: PLC0415 - with what follows
    from fairbind.simulator.next_hour import TOLERATED, compare_next_hour  # noqa: PLC0415 - numpy and the scheduler
    from fairbind.what_if.snapshot_file import parse_snapshot  # noqa: PLC0415 - as above

    listed = parse_snapshot(read_document(snapshot))
    try:
        hours, known = compare_next_hour(listed, tenants)
    except InvalidProblemError as error:
        hint = "`fairbind snapshot --scheduler-name NAME` writes whose pods they are"
        raise InvalidProblemError(f"--snapshot: {name_file(snapshot)}: {error}; {hint}") from error
    changed = [hour for hour in hours if hour.is_changed]
    about = f"The next hour of {name_file(snapshot)}, before: under its own Tenants, after: under these. {known}."
    lines = wrap(about, width=find_width())
    if not changed:
        return [*lines, f"No namespace of {len(hours)} changes by more than {TOLERATED:.0%}."]
    rows = [["namespace", "tenant", "resource", "before", "after", "change"]]
    for hour in changed:
        unit = 1000 if find_unit(hour.resource) == "core" else 2**30 if find_unit(hour.resource) == "byte" else 1
        change = "new" if hour.before == 0 else f"{hour.after / hour.before - 1:+.0%}"
        shown = f"{hour.resource} (GiB)" if unit == 2**30 else hour.resource
        amounts = [f"{amount / unit:.2f}" for amount in (hour.before, hour.after)]
        rows.append([hour.namespace, hour.tenant, shown, *amounts, change])
    lines.append(f"{len(changed)} of {len(hours)} namespaces change by more than {TOLERATED:.0%} (mean over the hour):")
    return [*lines, *lay_out(rows, numbers_from=3)]
