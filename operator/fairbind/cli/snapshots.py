"""The commands `fairbind snapshot` and `fairbind replay`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from fairbind.cli.cluster_listing import Source, read_objects
from fairbind.cli.documents import format_document
from fairbind.cli.exit_status import EXIT_FAILURE
from fairbind.cli.mechanisms.reading import STANDARD_INPUT, read_text
from fairbind.cli.mechanisms.tables import find_width, lay_out, wrap, write_text
from fairbind.cli.pod_groups import PodKind, choose_tenants, group_equal, lay_out_kinds, name_some
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
        raise InvalidProblemError(f"--out: {target!r} must be a file that can be written: {reason}") from error


def print_replay(source: Source, journal: str | None, output: str) -> int:
    """Replay and print; return the exit status. Raises InvalidProblemError for invalid input."""
    if journal is not None and source.file is None:
        raise InvalidProblemError("FILE: must be there beside --journal: a snapshot from before the journal's cycles")
    if journal is not None and source.tenants:
        raise InvalidProblemError("--tenant: must be left out beside --journal, whose operator knew no such tenant")
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
    width = find_width()
    waiting = trial.list_waiting()
    lines = wrap(f"Policy {policy}. Node: {POLICIES[policy].server}.", width=width)
    lines += [f"{len(trial.decisions)} pods start now, and {len(waiting)} wait.", ""]
    starts = Counter(decision.bind.tenant for decision in trial.decisions)
    waits = Counter(pod.tenant for pod in waiting)
    names, others = choose_tenants(sorted(starts | waits), lambda name: (-waits[name], name), "most waiting")
    if names:
        rows = [["tenant", "start", "wait"], *([name, str(starts[name]), str(waits[name])] for name in names)]
        lines += [*lay_out(rows), *others, ""]
    started = []
    for decisions in group_equal(trial.decisions, lambda decision: trial.find_kind(decision.bind.task.uid)):
        bind = decisions[0].bind
        nodes = name_some(decision.bind.server for decision in decisions)
        text = f"on {nodes}: {explain_decision(decisions[0])}"
        started.append(PodKind(bind.task.name, bind.tenant, len(decisions), text))
    lines += lay_out_kinds("starts, in this order", started) if started else ["Nothing that waits fits anywhere."]
    waited = [
        PodKind(f"{pods[0].namespace}/{pods[0].name}", pods[0].tenant, len(pods), pods[0].reason)
        for pods in group_equal(waiting, lambda pod: (trial.find_kind(pod.uid), pod.reason))
    ]
    waited.sort(key=lambda kind: -kind.pods)
    lines += ["", *(lay_out_kinds("waits", waited) if waited else ["No pod waits."])]
    return lines if comparison is None else [*lines, "", *wrap(_format_comparison(comparison), width=width)]


def _format_comparison(comparison: Comparison) -> str:
    compared = f"{comparison.cycles} cycles with {comparison.decisions} decisions are equal"
    if comparison.difference is not None:
        return f"Journal: {compared}, then: {comparison.difference}."
    if comparison.changed is not None:
        return f"Journal: {compared}; then the cluster changed: {comparison.changed}."
    return f"Journal: all {compared}."
