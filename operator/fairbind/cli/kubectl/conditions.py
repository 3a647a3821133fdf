"""Why pods wait as their own members see it: from the pods' conditions and the namespace's ShareReport."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairbind.cli.kubectl.hints import find_hints
from fairbind.cluster.messages import compute_gist
from fairbind.cluster.objects import wire
from fairbind.cluster.objects.convert import convert_pod, parse_time
from fairbind.kube.client.own_namespace import ReportedPods, ReportStatus
from fairbind.what_if.explanation import format_requests

NOT_LOOKED_AT: Final = "NotLookedAt"
NODES: Final = re.compile(r"0/(\d+) nodes are available: (.*?)\.(?: |$)(.*)", re.DOTALL)
REFUSAL: Final = re.compile(r"(\d+) (.+)")


@dataclass(frozen=True, slots=True)
class ConditionGroup:
    """Equal pods that wait, as far as they say it themselves.

    pods: their names, the oldest first. scheduler: that they name. reason, message: of the condition PodScheduled.
    reported: what the ShareReport says of them. since: when the oldest was made, seconds since the epoch.
    """

    namespace: str
    pods: tuple[str, ...]
    requests: Mapping[str, str]
    scheduler: str
    reason: str
    message: str
    since: float
    reported: ReportedPods | None

    def describe(self) -> dict[str, Any]:
        """Return it as plain values."""
        nodes, refusals, _ = split_message(self.message)
        reported = self.reported
        expected = None if reported is None else reported.expected_start
        return {
            "namespace": self.namespace,
            "pods": list(self.pods),
            "requests": dict(self.requests),
            "schedulerName": self.scheduler,
            "reason": self.reason,
            "message": self.message,
            "nodes": nodes,
            "nodesByReason": [{"nodes": count, "reason": words} for count, words in refusals],
            "position": None if reported is None else reported.position,
            "expectedStart": None
            if expected is None
            else {"earliestSeconds": expected.earliest_seconds, "latestSeconds": expected.latest_seconds},
            "expectedStartUnknown": None if reported is None else reported.expected_start_unknown,
            "hints": find_hints(self.message),
        }


def split_message(message: str) -> tuple[int | None, list[tuple[int, str]], str]:
    """Return all nodes, how many refuse for what, and the rest of a condition's message.

    >>> split_message("0/3 nodes are available: 1 Too many pods, 2 Insufficient cpu. tenant a waits.")
    (3, [(2, 'Insufficient cpu'), (1, 'Too many pods')], 'tenant a waits.')
    >>> split_message("0/3 nodes are available: pod has host users, which fairbind does not honour yet.")
    (3, [], 'pod has host users, which fairbind does not honour yet.')
    """
    found = NODES.fullmatch(message)
    if found is None:
        return None, [], message
    parts = [REFUSAL.fullmatch(part) for part in found[2].split(", ")]
    if not all(parts):
        return int(found[1]), [], message.partition(": ")[2]
    refusals = [(int(part[1]), part[2]) for part in parts if part is not None]
    return int(found[1]), sorted(refusals, key=lambda pair: (-pair[0], pair[1])), found[3]


def group_by_condition(pods: Sequence[wire.Pod], reports: Mapping[str, ReportStatus]) -> list[ConditionGroup]:
    """Return the waiting pods in groups. reports: by namespace."""
    groups: dict[Hashable, list[wire.Pod]] = {}
    for pod in sorted(pods, key=lambda pod: (parse_time(pod.metadata.creation_timestamp), pod.metadata.name)):
        reason, message = _read_condition(pod)
        facts = convert_pod(pod)
        key = pod.metadata.namespace, facts.demand, facts.scheduler, reason, compute_gist(message)
        groups.setdefault(key, []).append(pod)
    return [_make_group(members, reports.get(members[0].metadata.namespace)) for members in groups.values()]


def _make_group(members: Sequence[wire.Pod], report: ReportStatus | None) -> ConditionGroup:
    first, facts = members[0], convert_pod(members[0])
    reason, message = _read_condition(first)
    names = tuple(pod.metadata.name for pod in members)
    waiting = () if report is None else report.waiting or ()
    return ConditionGroup(
        namespace=first.metadata.namespace,
        pods=names,
        requests=format_requests(facts.demand),
        scheduler=facts.scheduler,
        reason=reason,
        message=message,
        since=facts.created,
        reported=next((each for each in waiting if each.example in names), None),
    )


def _read_condition(pod: wire.Pod) -> tuple[str, str]:
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason or "", condition.message or ""
    return NOT_LOOKED_AT, ""
