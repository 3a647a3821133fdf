"""The commands `fairbind snapshot` and `fairbind replay`."""

from __future__ import annotations

from pathlib import Path

import click

from fairbind.cli.cluster_listing import Source, read_objects
from fairbind.cli.documents import format_document
from fairbind.cli.exit_status import EXIT_FAILURE
from fairbind.cli.mechanisms.reading import STANDARD_INPUT, read_text
from fairbind.cli.mechanisms.tables import find_width, lay_out_wrapped, write_text
from fairbind.cli.pod_groups import group_equal, name_first, name_some
from fairbind.cluster.loop.journal import CycleRecord, parse_journal
from fairbind.model import InvalidProblemError
from fairbind.scheduling import POLICIES
from fairbind.what_if.anonymise import anonymise
from fairbind.what_if.replay import Comparison, compare_with_journal, describe_replay, replay
from fairbind.what_if.snapshot_file import format_snapshot
from fairbind.what_if.trial import Trial, explain_decision


def write_snapshot(source: Source, target: str, *, is_anonymous: bool) -> None:
    """List a cluster and write it. target: a path, or - for standard output.

    Raises FairbindError when it cannot be listed, PermanentClusterError for an invalid kubeconfig.
    """
    listed = read_objects(source)
    text = format_snapshot(anonymise(listed) if is_anonymous else listed)
    if target == STANDARD_INPUT:
        click.echo(text, nl=False)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidProblemError(f"--output: {target!r} must be a file that can be written: {reason}") from error


def print_replay(source: Source, journal: str | None, output: str) -> int:
    """Replay and print; return the exit status. Raises InvalidProblemError for invalid input."""
    listed = read_objects(source)
    records = None if journal is None else _read_journal(journal)
    trial = replay(listed)
    comparison = None if records is None else compare_with_journal(listed, records)
    if output in {"json", "yaml"}:
        document = describe_replay(trial)
        if comparison is not None:
            document["journal"] = comparison.describe()
        write_text(format_document(document, output))
    else:
        write_text("\n".join(_format_replay(trial, comparison)))
    return 0 if comparison is None or comparison.is_equal else EXIT_FAILURE


def _read_journal(source: str) -> list[CycleRecord]:
    records, broken = parse_journal(read_text(source).splitlines())
    if not records:
        raise InvalidProblemError(f"--journal: {source!r} must be a journal of the operator, but no line is a cycle")
    if broken:
        click.echo(f"fairbind: {source}: {len(broken)} lines are no cycles, the first is line {broken[0]}", err=True)
    return records


def _format_replay(trial: Trial, comparison: Comparison | None) -> list[str]:
    policy = trial.cache.settings.policy
    lines = [f"Policy {policy}. Node: {POLICIES[policy].server}.", ""]
    numbered = list(enumerate(trial.decisions, start=1))
    decisions = []
    for group in group_equal(numbered, lambda pair: trial.find_kind(pair[1].bind.task.uid)):
        number, first = group[0]
        names = name_first([decision.bind.task.name for _, decision in group])
        nodes = name_some(decision.bind.server for _, decision in group)
        decisions.append([str(number), names, nodes, explain_decision(first)])
    lines += _lay_out(["", "pod", "node", "why now"], decisions, "Nothing that waits fits anywhere.")
    waiting = [
        [name_first([f"{pod.namespace}/{pod.name}" for pod in group]), group[0].tenant, group[0].reason]
        for group in group_equal(trial.list_waiting(), lambda pod: (trial.find_kind(pod.uid), pod.reason))
    ]
    lines += ["", *_lay_out(["waits", "tenant", "why"], waiting, "No pod waits.")]
    return lines if comparison is None else [*lines, "", *_format_comparison(comparison)]


def _lay_out(headings: list[str], rows: list[list[str]], nothing: str) -> list[str]:
    return lay_out_wrapped([headings, *rows], width=find_width()) if rows else [nothing]


def _format_comparison(comparison: Comparison) -> list[str]:
    compared = f"{comparison.cycles} cycles with {comparison.decisions} decisions are equal"
    if comparison.difference is not None:
        return [f"Journal: {compared}, then: {comparison.difference}."]
    if comparison.changed is not None:
        return [f"Journal: {compared}; then the cluster changed: {comparison.changed}."]
    return [f"Journal: all {compared}."]
