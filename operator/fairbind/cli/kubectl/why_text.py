"""The command `kubectl fairbind why`, and its answer as lines for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from math import isfinite
from typing import Final

from fairbind.cli.documents import format_document
from fairbind.cli.kubectl.conditions import NOT_LOOKED_AT, ConditionGroup, split_message
from fairbind.cli.kubectl.durations import format_duration
from fairbind.cli.kubectl.hints import find_hints
from fairbind.cli.kubectl.scope import Scope
from fairbind.cli.kubectl.targets import parse_target
from fairbind.cli.kubectl.terminal import Terminal, find_terminal
from fairbind.cli.kubectl.why_answer import MOST_CHANGES, Why, find_why
from fairbind.cli.mechanisms.tables import write_text
from fairbind.cli.pod_groups import name_first, name_some
from fairbind.cluster.cache.tenant_ranking import Standing
from fairbind.cluster.objects.convert import parse_time
from fairbind.kube.client.own_namespace import ReportedPods, ReportStatus
from fairbind.model import FairnessReason, Precedence
from fairbind.what_if.explanation import Explained, list_refusals
from fairbind.what_if.wait_estimate import WaitEstimate

MOST_GROUPS: Final = 10
MOST_REFUSALS: Final = 8
MARGIN: Final = "  "
LABELS: Final = 14
STATES: Final = {"run": ("runs", "run"), "wait": ("waits", "wait"), "end": ("is ending", "are ending")}


def print_why(scope: Scope, word: str | None, run_times: Mapping[str, Sequence[float]] | None, output: str) -> None:
    """Look and print. run_times: for an estimate of waits; None: there is none. Raises FairbindError."""
    found = find_why(scope, parse_target(word), run_times)
    if output in {"json", "yaml"}:
        write_text(format_document(found.describe(), output))
    else:
        write_text("\n".join(format_why(found, find_terminal())))


def format_why(found: Why, terminal: Terminal) -> list[str]:
    """Return the answer as lines."""
    lines = terminal.wrap(_format_header(found))
    groups = [_format_explained(group, found, terminal) for group in found.explained[:MOST_GROUPS]]
    groups += [_format_conditions(group, found, terminal) for group in found.by_conditions[: MOST_GROUPS - len(groups)]]
    for group in groups:
        lines += ["", *group]
    left = len(found.explained) + len(found.by_conditions) - len(groups)
    if left > 0:
        lines += ["", f"and {left} more kinds of pods; -o json has all"]
    if found.target.name is None and found.explained:
        lines += ["", *terminal.wrap("Name a pod or its Job to learn what would help: kubectl fairbind why POD|JOB")]
    if found.unseen:
        lines += ["", *terminal.wrap(f"Not seen: {found.unseen}.")]
    return lines


def _format_header(found: Why) -> str:
    where = "all namespaces" if found.namespace is None else f"namespace {found.namespace}"
    tenants = sorted({group.tenant for group in found.explained} | {one.tenant for one in found.reports.values()})
    whose = f", tenant {tenants[0]}" if len(tenants) == 1 else ""
    if found.target.name is None:
        waiting = len(found.pods)
        return (
            f"{where[:1].upper()}{where[1:]}{whose}: {waiting or 'no'} {'pod waits' if waiting == 1 else 'pods wait'}."
        )
    if len(found.pods) == 1:
        (pod,) = found.pods
        since = format_duration(found.now - parse_time(pod.metadata.creation_timestamp))
        state = {
            "run": f"runs on {pod.spec.node_name}",
            "wait": f"waits for {since}",
            "end": "is being deleted",
            "ended": f"has ended ({pod.status.phase})",
        }
        (word,) = found.count_states()
        return f"Pod {pod.metadata.name} in {where}{whose}: {state[word]}."
    counts = ", ".join(f"{count} {_word_state(state, count)}" for state, count in found.count_states().items())
    return f"{found.target.word} in {where}{whose}: {len(found.pods)} pods; {counts}."


def _word_state(state: str, count: int) -> str:
    one, several = STATES.get(state, ("has ended", "have ended"))
    return one if count == 1 else several


# --- groups ---


def _format_explained(group: Explained, found: Why, terminal: Terminal) -> list[str]:
    if group.node is not None:
        lines = _title(group.pods, "starts now", "start now", group.namespace, group.requests, found, terminal)
        rest = "fairbind places such pods within seconds. If they wait on, see whether it runs and leads"
        return [*lines, *_label("On", [f"{group.node}. {rest}"], terminal)]
    lines = _title(group.pods, "waits", "wait", group.namespace, group.requests, found, terminal)
    refusals = list_refusals(group)
    wait = group.wait
    if refusals:
        lines += _format_refusals(group.node_count, refusals, terminal)
    else:
        lines += terminal.wrap(f"{MARGIN}{group.reason}", MARGIN)
    if wait is not None and wait.is_too_large:
        lines += _label("Size", ["no node that admits such a pod is large enough, even when empty"], terminal)
    if wait is not None and wait.at_limit is not None:
        lines += _label("Limit", [f"for {wait.at_limit.subject} is reached, whatever is free"], terminal)
    lines += _label("Before", _list_before(group), terminal)
    if wait is not None and wait.reserved_on:
        which = "the first" if wait.group is None else "all of it"
        expected = "" if wait.expected is None else f", {which} expected free at {_format_moment(wait.expected)}"
        lines += _label("Reserved", [f"capacity of {wait.reserved_on} node(s){expected}"], terminal)
    lines += _label("Would help", _list_help(group, found), terminal)
    return lines + _label("Start", _list_start(group, found), terminal)


def _list_before(group: Explained) -> list[str]:
    if group.wait is None or group.wait.blocked is not None or group.wait.at_limit is not None:
        return []
    lines = []
    if group.wait.fairness is not None:
        lines.append(_format_next(group.tenant, group.wait.fairness))
        if len(group.tenants_before) > 1:
            names = name_some(map(_word_standing, group.tenants_before))
            lines.append(f"{len(group.tenants_before)} tenants that wait come first; their weighted shares: {names}")
    if group.own_before:
        pods = "pod of its own tenant goes" if group.own_before == 1 else "pods of its own tenant go"
        lines.append(f"{group.own_before} {pods} first, by priority and age")
    return lines or ["no tenant and no pod: the next free capacity that suits is theirs"]


def _word_standing(standing: Standing) -> str:
    if standing.compared is None:
        return f"{standing.tenant} {standing.share:.3g}"
    other, own, own_share = standing.compared
    whose = "" if other == standing.tenant else f" of {other}"
    return f"{standing.tenant} ({standing.share:.3g}{whose} to {own_share:.3g} of {own})"


def _format_next(tenant: str, fairness: FairnessReason) -> str:
    own, other = fairness.compared or (tenant, fairness.next_tenant)
    whose = "its" if other == fairness.next_tenant else f"of {other}, which it is below, the"
    compared = f"{whose} {fairness.measure} is {fairness.next_share:.3g}, that of {own} {fairness.share:.3g}"
    if fairness.by is not Precedence.LEVEL:
        compared = f"{other} comes before {own} by its {fairness.by}"
    return f"{fairness.next_tenant} takes the next free capacity: {compared}"


def _list_help(group: Explained, found: Why) -> list[str]:
    if group.change is not None:
        option = group.change.details.get("option")
        command = f" (kubectl fairbind what-if {option})" if option else ""
        start = "" if len(group.pods) == 1 else f"for all {len(group.pods)} to start now: "
        return [f"{start}{group.change.text}{command}"]
    hints = find_hints(group.reason)
    tried = found.explained.index(group) < MOST_CHANGES and found.target.name is not None
    if tried and group.wait is not None and group.wait.blocked is None:
        return ["no single change was found that lets all start now", *hints]
    return hints


def _list_start(group: Explained, found: Why) -> list[str]:
    if group.wait is None or group.wait.blocked is not None or group.wait.is_too_large:
        return []
    if found.not_estimated:
        return [found.not_estimated]
    if group.estimate is None:
        return ["unknown: it may never start, or the run times of what runs are not known (--run-time)"]
    return [_format_estimate(group.estimate)]


def _format_estimate(estimate: WaitEstimate) -> str:
    early, middle, late = (
        format_duration(seconds) if isfinite(seconds) else "never"
        for seconds in (estimate.p10, estimate.median, estimate.p90)
    )
    return f"all run in {middle} (10 % within {early}, 90 % within {late}), if nothing else arrives"


def _format_conditions(group: ConditionGroup, found: Why, terminal: Terminal) -> list[str]:
    lines = _title(group.pods, "waits", "wait", group.namespace, group.requests, found, terminal)
    if not found.unseen:
        return [
            *lines,
            *_label("Scheduler", [f"{group.scheduler}, and not fairbind, places it. {group.message}"], terminal),
        ]
    if group.reason == NOT_LOOKED_AT:
        text = f"no scheduler has looked at it yet; it names {group.scheduler}"
        return [*lines, *_label("Scheduler", [text], terminal)]
    nodes, refusals, rest = split_message(group.message)
    if refusals:
        lines += _format_refusals(nodes or 0, refusals, terminal)
    if rest:
        lines += terminal.wrap(f"{MARGIN}{rest}", MARGIN)
    report = found.reports.get(group.namespace)
    lines += _label("Before", _list_reported(report, group.reported), terminal)
    lines += _label("You can", ["; ".join(find_hints(group.message))], terminal)
    if group.reported is not None and report is not None:
        lines += _label("Start", [_format_expected(group.reported, report)], terminal)
    return lines


def _list_reported(report: ReportStatus | None, reported: ReportedPods | None) -> list[str]:
    lines = []
    if report is not None and report.tenants_before is not None:
        count = report.tenants_before
        tenants = "1 tenant that waits comes" if count == 1 else f"{count or 'no'} tenants that wait come"
        lines.append(f"{tenants} before yours, whose weighted share is {report.weighted_share}")
    if reported is not None and reported.position is not None:
        lines.append(f"among your tenant's own kinds of pods they are number {reported.position}")
    return lines


def _format_expected(reported: ReportedPods, report: ReportStatus) -> str:
    expected, updated = reported.expected_start, parse_time(report.updated)
    if expected is None or not updated:
        return f"unknown: {reported.expected_start_unknown or 'no run times are known'}"
    early, late = (_format_moment(updated + each) for each in (expected.earliest_seconds, expected.latest_seconds))
    return f"between {early} and {late}"


# --- parts ---


def _title(
    pods: Sequence[str],
    one: str,
    several: str,
    namespace: str,
    requests: Mapping[str, str],
    found: Why,
    terminal: Terminal,
) -> list[str]:
    verb = f"Pod {one}" if len(pods) == 1 else f"{len(pods)} pods {several}"
    where = f"{namespace}/" if found.namespace is None else ""
    asked = ", ".join(f"{resource} {amount}" for resource, amount in requests.items())
    each = f" ({asked}{' each' if len(pods) > 1 else ''})" if asked else ""
    title = f"{verb}: {where}{name_first(pods)}"
    first, *others = terminal.wrap(f"{title}{each}", MARGIN)
    return [first.replace(title, terminal.bold(title), 1), *others]


def _format_refusals(nodes: int, refusals: Sequence[tuple[int, str]], terminal: Terminal) -> list[str]:
    width = len(str(refusals[0][0]))
    lines = [f"{MARGIN}0 of {nodes} nodes can take it:"]
    for count, words in refusals[:MOST_REFUSALS]:
        lines += terminal.wrap(f"{MARGIN * 2}{count:>{width}}  {words}", " " * (len(MARGIN) * 3 + width))
    if len(refusals) > MOST_REFUSALS:
        lines.append(f"{MARGIN * 2}and {len(refusals) - MOST_REFUSALS} more reasons; -o json has all")
    return lines


def _label(label: str, texts: Iterable[str], terminal: Terminal) -> list[str]:
    lines: list[str] = []
    for text in texts:
        start = f"{MARGIN}{label if not lines else '':<{LABELS - len(MARGIN)}}"
        if text:
            lines += terminal.wrap(f"{start}{text}", " " * LABELS)
    return lines


def _format_moment(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M UTC}"
