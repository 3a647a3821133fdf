"""The command `fairbind what-if`."""

from __future__ import annotations

from collections.abc import Sequence

from fairbind.cli.cluster_listing import Source, create_on_cluster_trial, read_objects
from fairbind.cli.documents import format_document
from fairbind.cli.mechanisms.reading import read_documents
from fairbind.cli.mechanisms.tables import find_width, lay_out_columns, wrap, write_text
from fairbind.cli.options import gather_run_times
from fairbind.cli.pod_groups import PodKind, choose_tenants, group_equal, lay_out_kinds, name_some
from fairbind.what_if.answers import Answer, GroupAnswer, Submission, answer
from fairbind.what_if.changes import add_nodes, cordon, remove_node, set_field, set_policy
from fairbind.what_if.comparison import State, TenantState
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.submission import read_manifests
from fairbind.what_if.submission import submit as submit_manifests

MOST_NAMED = 5
HEADINGS = ("weight", "running", "pending", "share", "fair share", "could run more")
CHANGED = " -> "


def print_answer(
    source: Source,
    output: str,
    *,
    settings: Sequence[tuple[str, str, str]],
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
        settings: Sequence[tuple[str, str, str]],
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
        for tenant, field, value in self._settings:
            listed = set_field(listed, tenant, field, value)
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
    width = find_width()
    policy = before.policy if before.policy == after.policy else f"{before.policy}, then {after.policy}"
    lines = wrap(f"Policy {policy}. Now {_count(before)}; after the changes {_count(after)}.", width=width)
    lines += ["", *_lay_out_tenants(before, after, width), ""]
    started = {bind.task.name for bind in before.starts}
    starting = [bind for bind in after.starts if bind.task.name not in started]
    starts = [
        PodKind(binds[0].task.name, binds[0].tenant, len(binds), f"on {name_some(bind.server for bind in binds)}")
        for binds in group_equal(starting, lambda bind: after.kinds[bind.task.uid])
    ]
    lines += [*_list_kinds("starts only after the changes", starts), ""]
    waited = {(pod.namespace, pod.name) for pod in before.waits}
    waiting = [pod for pod in after.waits if (pod.namespace, pod.name) not in waited]
    waits = [
        PodKind(f"{pods[0].namespace}/{pods[0].name}", pods[0].tenant, len(pods), pods[0].reason)
        for pods in group_equal(waiting, lambda pod: (after.kinds[pod.uid], pod.reason))
    ]
    lines += _list_kinds("waits only after the changes", waits)
    if found.submission is not None:
        lines.append("")
        for line in _format_submission(found.submission):
            lines += wrap(line, width=width)
    return lines


def _count(state: State) -> str:
    return f"{len(state.starts)} pods start and {len(state.waits)} wait"


def _lay_out_tenants(before: State, after: State, width: int) -> list[str]:
    """Return tables of all tenants, inner ones with all that is below them, or of those first that change."""
    pairs = [
        *((before.inner.get(name), after.inner.get(name)) for name in before.inner.keys() | after.inner.keys()),
        *((before.tenants.get(name), after.tenants.get(name)) for name in before.tenants.keys() | after.tenants.keys()),
    ]
    unsorted = {_name(*pair): _compute_cells(*pair) for pair in pairs}
    cells = {name: unsorted[name] for name in sorted(unsorted)}
    names, others = choose_tenants(list(cells), lambda name: (not _is_changed(cells[name]), name), "changed ones")
    columns = [[heading, *(cells[name][place] for name in names)] for place, heading in enumerate(HEADINGS)]
    lines = []
    for table in lay_out_columns(["tenant", *names], columns, width=width):
        lines += [*table, ""]
    return [*lines[:-1], *others]


def _is_changed(cells: Sequence[str]) -> bool:
    return any(CHANGED in cell for cell in cells)


def _name(before: TenantState | None, after: TenantState | None) -> str:
    """Return the path of a tenant, or both where it moves."""
    return CHANGED.join(dict.fromkeys(one.path for one in (before, after) if one is not None))


def _compute_cells(before: TenantState | None, after: TenantState | None) -> list[str]:
    cells = [["-"] * len(HEADINGS) if one is None else _format_tenant(one) for one in (before, after)]
    return [old if old == new else f"{old}{CHANGED}{new}" for old, new in zip(*cells, strict=True)]


def _format_tenant(tenant: TenantState) -> list[str]:
    return [
        f"{tenant.weight:g}",
        str(tenant.running),
        str(tenant.pending),
        f"{tenant.dominant_share:.3f}",
        "-" if tenant.fair_share is None else f"{tenant.fair_share:.3f}",
        "-" if tenant.could_run_more is None else str(tenant.could_run_more),
    ]


def _list_kinds(heading: str, kinds: Sequence[PodKind]) -> list[str]:
    return lay_out_kinds(heading, kinds) if kinds else [f"{heading.capitalize()}: no pod."]


def _format_submission(found: Submission) -> list[str]:
    left_out = [f"Not applied to the pods: {'; '.join(found.not_applied)}."] if found.not_applied else []
    return [*_format_start(found), *_format_groups(found.groups), *left_out]


def _format_groups(groups: Sequence[GroupAnswer]) -> list[str]:
    """Return how many groups start, and what becomes of the first of the others."""
    if not groups:
        return []
    waiting = [group for group in groups if group.starting < (group.minimum or group.pods)]
    line = f"Of {len(groups)} groups {len(groups) - len(waiting)} start now."
    if not waiting:
        return [line]
    first = waiting[0]
    return [f"{line} {first.name} waits: {first.minimum or first.pods} of its {first.pods} pods must start together."]


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
