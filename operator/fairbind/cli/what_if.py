"""The command `fairbind what-if`."""

from __future__ import annotations

from collections.abc import Sequence

from fairbind.cli.cluster_listing import Source, create_on_cluster_trial, read_objects
from fairbind.cli.documents import format_document
from fairbind.cli.mechanisms.reading import read_documents
from fairbind.cli.mechanisms.tables import find_width, lay_out, lay_out_wrapped, write_text
from fairbind.cli.options import gather_run_times
from fairbind.cli.pod_groups import group_equal, name_first, name_some
from fairbind.what_if.answers import Answer, Submission, answer
from fairbind.what_if.changes import add_nodes, cordon, remove_node, set_policy, set_weight
from fairbind.what_if.comparison import State
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.submission import read_manifests
from fairbind.what_if.submission import submit as submit_manifests

MOST_NAMED = 5
MOST_ROWS = 20
"""A table shows so many kinds of pods; JSON and YAML have all."""


def print_answer(
    source: Source,
    output: str,
    *,
    settings: Sequence[tuple[str, str]],
    add_nodes: Sequence[tuple[str, str | None]],
    remove_node: Sequence[str],
    cordon: Sequence[str],
    uncordon: Sequence[str],
    policy: str | None,
    submit: str | None,
    run_times: Sequence[tuple[str, str]],
) -> None:
    """Answer and print. Raises InvalidProblemError for invalid input, FairbindError when a cluster cannot be listed."""
    manifests = None if submit is None else read_manifests(read_documents(submit))
    before = read_objects(source)
    after = _Changes(settings, add_nodes, remove_node, cordon, uncordon, policy).apply(before)
    submitted = None
    if manifests is not None:
        submitted = submit_manifests(manifests, after, create_on_cluster_trial(source, manifests))
    found = answer(before, after, submitted, gather_run_times(run_times))
    if output in {"json", "yaml"}:
        write_text(format_document(found.describe(), output))
    else:
        write_text("\n".join(format_answer(found)))


class _Changes:
    """What the options ask for."""

    def __init__(
        self,
        settings: Sequence[tuple[str, str]],
        new_nodes: Sequence[tuple[str, str | None]],
        removed: Sequence[str],
        cordoned: Sequence[str],
        uncordoned: Sequence[str],
        policy: str | None,
    ) -> None:
        self._settings = settings
        self._new_nodes = new_nodes
        self._removed = removed
        self._cordoned = cordoned
        self._uncordoned = uncordoned
        self._policy = policy

    def apply(self, listed: ListedObjects) -> ListedObjects:
        """Return the objects with all changes. Nodes come before nodes go, so one can be replaced by its like."""
        for tenant, weight in self._settings:
            listed = set_weight(listed, tenant, weight)
        for like, count in self._new_nodes:
            listed = add_nodes(listed, like, int(count or 1))
        for name in self._removed:
            listed = remove_node(listed, name)
        for name in self._cordoned:
            listed = cordon(listed, name, is_cordoned=True)
        for name in self._uncordoned:
            listed = cordon(listed, name, is_cordoned=False)
        return listed if self._policy is None else set_policy(listed, self._policy)


def format_answer(found: Answer) -> list[str]:
    """Return the answer as lines for a terminal."""
    before, after = found.before, found.after
    policy = before.policy if before.policy == after.policy else f"{before.policy}, then {after.policy}"
    lines = [f"Policy {policy}. Now {_count(before)}; after the changes {_count(after)}.", ""]
    lines += [*lay_out(_compute_rows(before, after)), ""]
    started = {bind.task.name for bind in before.starts}
    starting = [bind for bind in after.starts if bind.task.name not in started]
    starts = [
        [name_first([bind.task.name for bind in group]), group[0].tenant, name_some(bind.server for bind in group)]
        for group in group_equal(starting, lambda bind: after.kinds[bind.task.uid])
    ]
    lines += [*_list_rows(["starts only after the changes", "tenant", "node"], starts), ""]
    waited = {(pod.namespace, pod.name) for pod in before.waits}
    waiting = [pod for pod in after.waits if (pod.namespace, pod.name) not in waited]
    waits = [
        [name_first([f"{pod.namespace}/{pod.name}" for pod in group]), group[0].tenant, group[0].reason]
        for group in group_equal(waiting, lambda pod: (after.kinds[pod.uid], pod.reason))
    ]
    lines += _list_rows(["waits only after the changes", "tenant", "why"], waits)
    return lines if found.submission is None else [*lines, "", *_format_submission(found.submission)]


def _count(state: State) -> str:
    return f"{len(state.starts)} pods start and {len(state.waits)} wait"


def _compute_rows(before: State, after: State) -> list[list[str]]:
    rows = [["tenant", "weight", "running", "pending", "share", "fair share", "could run more"]]
    for name in sorted(before.tenants.keys() | after.tenants.keys()):
        pair = before.tenants.get(name), after.tenants.get(name)
        cells = [
            [
                f"{one.weight:g}",
                str(one.running),
                str(one.pending),
                f"{one.dominant_share:.3f}",
                "-" if one.fair_share is None else f"{one.fair_share:.3f}",
                "-" if one.could_run_more is None else str(one.could_run_more),
            ]
            if one is not None
            else ["-"] * 6
            for one in pair
        ]
        rows.append([name, *(old if old == new else f"{old} -> {new}" for old, new in zip(*cells, strict=True))])
    return rows


def _list_rows(headings: list[str], rows: list[list[str]]) -> list[str]:
    if not rows:
        return [f"{headings[0].capitalize()}: no pod."]
    more = [f"and {len(rows) - MOST_ROWS} more; -o json has all"] if len(rows) > MOST_ROWS else []
    return [*lay_out_wrapped([headings, *rows[:MOST_ROWS]], width=find_width()), *more]


def _format_submission(found: Submission) -> list[str]:
    left_out = [f"Not applied to the pods: {'; '.join(found.not_applied)}."] if found.not_applied else []
    return [*_format_start(found), *left_out]


def _format_start(found: Submission) -> list[str]:
    word = "tenant" if len(found.tenants) == 1 else "tenants"
    whose = f"{found.pods} pods of {word} {', '.join(found.tenants)}"
    if found.starts_now:
        return [f"Submitted: all {whose} start now, on {', '.join(sorted(set(found.nodes)))}."]
    lines = [f"Submitted: {len(found.nodes)} of {whose} start now. The others wait: {found.reason}"]
    if found.change is None:
        lines.append("No single change was found that would let all start now.")
    else:
        lines.append(f"The smallest single change that would let all start now: {found.change.text}.")
    known = ", ".join(f"{count} of {tenant}" for tenant, count in found.known_run_times.items()) or "none"
    if len(found.known_run_times) > MOST_NAMED:
        known = f"{sum(found.known_run_times.values())} of {len(found.known_run_times)} tenants"
    if found.wait is None:
        lines.append(f"No estimate of the wait: it may never start. Known run times: {known} (see --run-time).")
    else:
        times = {name: "never" if value is None else f"{value:.0f} s" for name, value in found.wait.describe().items()}
        lines.append(
            f"Estimated wait until all run: {times['median']} (10 % within {times['p10']}, 90 % within "
            f"{times['p90']}), if nothing else arrives. Known run times: {known}."
        )
    return lines
