"""Reasons in words: why a pod waits, in the words and the order of kube-scheduler, then the reason of fairness.

"0/60 nodes are available: 12 Insufficient cpu, 48 node(s) had untolerated taint(s). tenant a waits: its weighted share
0.31 is above 0.12 of b, which takes the next free capacity." Users, dashboards and autoscalers have read the first part
for years, so it is theirs to the letter: the parts sorted as texts, their counts included. Taints are one reason
without keys and values, as kube-scheduler has it since 1.34: they may say what other tenants keep to themselves. The
operator may be told to show them, each as a reason of its own.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Hashable, Mapping

from fairbind.cluster.objects.facts import PODS
from fairbind.cluster.objects.quantity import format_quantity
from fairbind.model import FairnessReason, GroupWait, Precedence, Rejection, RejectionKind, Rejections, Wait

MAX_CHARACTERS = 1024
"""No message is longer: it is stored in each of the pods, and events hold no more."""
MAX_REASONS = 16
"""A message gives at most so many reasons and counts the rest."""

_NOT_FOR_THIS_POD = frozenset(
    {
        RejectionKind.TAINT,
        RejectionKind.SELECTOR,
        RejectionKind.OUTSIDE,
        RejectionKind.CORDONED,
        RejectionKind.NOT_READY,
    }
)
"""Why a node is not for the pod at all. What other nodes lack comes first: there the pod, or time, can help."""

_MAX_SHARE_DIGITS = 6
UNSCHEDULABLE = "Unschedulable"
"""Autoscalers add a node for each pod whose condition has this reason."""
_TOO_LARGE = "no node is large enough, even when empty, among those that admit the pod."
_TAINTS = Rejection(RejectionKind.TAINT)
_TOO_MANY_PODS = Rejection(RejectionKind.INSUFFICIENT, "pods")
_WORDS_OF_ONE: Mapping[Rejection, str] = {
    _TOO_MANY_PODS: "Too many pods",
    _TAINTS: "node(s) had untolerated taint(s)",
}
_WORDS: Mapping[RejectionKind, str] = {
    RejectionKind.INSUFFICIENT: "Insufficient {}",
    RejectionKind.PORT_CONFLICT: "node(s) didn't have free ports for the requested pod ports",
    RejectionKind.TAINT: "node(s) had untolerated taint {{{}}}",
    RejectionKind.SELECTOR: "node(s) didn't match Pod's node affinity/selector",
    RejectionKind.ANTI_AFFINITY: "node(s) didn't satisfy existing pods anti-affinity rules",
    RejectionKind.OWN_ANTI_AFFINITY: "node(s) didn't match pod anti-affinity rules",
    RejectionKind.AFFINITY: "node(s) didn't match pod affinity rules",
    RejectionKind.SPREAD: "node(s) didn't match pod topology spread constraints{}",
    RejectionKind.VOLUME_AFFINITY: "node(s) didn't match PersistentVolume's node affinity",
    RejectionKind.VOLUME_ZONE: "node(s) had no available volume zone",
    RejectionKind.VOLUME_LIMIT: "node(s) exceed max volume count",
    RejectionKind.VOLUME_DRIVER: "{} CSI driver is not installed on the node",
    RejectionKind.VOLUME_BINDING: "node(s) didn't find available persistent volumes to bind",
    RejectionKind.VOLUME_SPACE: "node(s) did not have enough free storage",
    RejectionKind.FEATURE: "node(s) didn't match Pod's required features",
    RejectionKind.OUTSIDE: "node(s) didn't match the scheduler's node selector",
    RejectionKind.CORDONED: "node(s) were unschedulable",
    RejectionKind.NOT_READY: "node(s) were not ready",
    RejectionKind.REFUSED: "node(s) refused such pods a moment ago",
    RejectionKind.UNCLAIMED: "a namespace that no Tenant claims",
    RejectionKind.CLAIM: "{}",
    RejectionKind.VOLUME_IN_USE: "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
    "already in-use by another pod",
    RejectionKind.NOT_SUPPORTED: "{}",
    RejectionKind.UNREADABLE: "unreadable fields",
    RejectionKind.AT_LIMIT: "node(s) at the limit for {}",
    RejectionKind.KEPT_BACK: "node(s) had only {}",
    RejectionKind.GANG_INCOMPLETE: "{}",
    RejectionKind.LATER: "other pods of its tenant, with too many different constraints or requests, come first",
}

MAX_KINDS = 4
"""A message says of so many kinds of a group's pods how many do not fit."""

SCHEDULER_ERROR = "SchedulerError"
"""The reason of the condition of a pod whose binding was not accepted; kube-scheduler has the same word."""

_BLOCKED_REASONS: Mapping[RejectionKind, str] = {
    RejectionKind.UNCLAIMED: "UnclaimedNamespace",
    RejectionKind.CLAIM: "ClaimNotReady",
    RejectionKind.VOLUME_IN_USE: "ClaimNotReady",
    RejectionKind.NOT_SUPPORTED: "NotSupported",
    RejectionKind.UNREADABLE: "InvalidSpec",
    RejectionKind.AT_LIMIT: "AtLimit",
    RejectionKind.GANG_INCOMPLETE: "GangIncomplete",
    RejectionKind.LATER: "Queued",
}


def word_rejection(rejection: Rejection) -> str:
    """Return one reason in words that follow a count, or "pod has" where nothing is counted.

    >>> word_rejection(Rejection(RejectionKind.TAINT, "gpu: true"))
    'node(s) had untolerated taint {gpu: true}'
    """
    return _WORDS_OF_ONE.get(rejection) or _WORDS[rejection.kind].format(rejection.subject)


def compute_condition_reason(wait: Wait) -> str:
    """Return the reason of a waiting pod's condition PodScheduled=False, the word that other programs read.

    Autoscalers add a node for each pod that is "Unschedulable", so a pod that no further node could help has another
    reason.
    """
    rejection = wait.blocked or wait.at_limit
    if rejection is not None and not rejection.kind.one_more_server_could_help:
        return _BLOCKED_REASONS[rejection.kind]
    return UNSCHEDULABLE


def format_refusal(deed: str, answer: str) -> str:
    """Return the message for a pod's condition and events when the API server did not accept what a decision asks for.

    deed: what was asked for. answer: the API server's words, or why there was no answer.

    >>> format_refusal("binding to n1", "500 InternalError: no endpoints")
    'binding to n1 failed: 500 InternalError: no endpoints'
    """
    return shorten(f"{deed} failed: {answer}")


def format_unschedulable(
    wait: Wait,
    node_count: int,
    *,
    blocked_detail: str | None = None,
    shows_taints: bool = False,
    shows_others: bool = True,
) -> str:
    """Return the message for a pod's condition and events.

    node_count: all nodes of the cluster. blocked_detail: for a blocked class, the very thing that this pod carries.
    shows_taints: whether it names each taint with its key and value. shows_others: whether it names the tenant that
    comes before.

    >>> from fairbind.model import Placement, Task, TaskClass
    >>> import numpy as np
    >>> task = Task("u1", "ns/p", 0, 0.0)
    >>> task_class = TaskClass("a", (1,), (1,), Placement(np.zeros(3, dtype=bool)), (task,))
    >>> cpu, pods = (Rejection(RejectionKind.INSUFFICIENT, resource) for resource in ("cpu", "pods"))
    >>> rejections = (Rejection(RejectionKind.CORDONED), 1), (cpu, 2), (pods, 1)
    >>> format_unschedulable(Wait(task_class, task, 1, rejections), 3)
    '0/3 nodes are available: 1 Too many pods, 1 node(s) were unschedulable, 2 Insufficient cpu.'
    """
    if node_count == 0 and wait.blocked is None:
        return "no nodes available to schedule pods"
    message = f"0/{node_count} nodes are available"
    if wait.blocked is not None:
        return shorten(f"{message}: {_format_blocked(wait.blocked, blocked_detail, node_count)}.")
    of_group = "" if wait.group is None else f"{_format_group(wait.group)}; "
    ending = _format_ending(wait, shows_others=shows_others)
    rejections = wait.rejections if shows_taints else _merge_taints(wait.rejections)
    reasons = _format_rejections(rejections, MAX_CHARACTERS - len(message) - len(of_group) - len(": .") - len(ending))
    told = f"{of_group}{reasons}".removesuffix("; ")
    return shorten(f"{message}: {told}.{ending}" if told else f"{message}.{ending}")


def _format_ending(wait: Wait, *, shows_others: bool) -> str:
    """Return what follows the reasons of the nodes, with a space before it."""
    if wait.is_too_large:
        return f" {_TOO_LARGE}"
    if wait.at_limit is not None:
        return f" The limit for {wait.at_limit.subject} is reached."
    if wait.fairness is None:
        return _format_reserved(wait)
    fairness = f" {_format_fairness(wait.task_class.tenant, wait.fairness, shows_others=shows_others)}"
    return fairness + _format_reserved(wait)


def _format_reserved(wait: Wait) -> str:
    """Return what is reserved for a task. The time is absolute, as a message is not written again every second."""
    if not wait.reserved_on:
        return ""
    moment = None if wait.expected is None else dt.datetime.fromtimestamp(wait.expected, dt.UTC)
    which = "the first" if wait.group is None else "all of it"
    expected = "" if moment is None else f", {which} expected at {moment:%H:%M:%S} UTC"
    return f" Capacity of {wait.reserved_on} node(s) is reserved for it{expected}."


def compute_signature(wait: Wait, *, shows_taints: bool = False) -> Hashable:
    """Return what makes two messages tell the same but for numbers that change from cycle to cycle.

    shows_taints: as for `format_unschedulable`.
    The reason of fairness is left out: who is next alternates among tenants that are served fairly.
    """
    rejections = wait.rejections if shows_taints else _merge_taints(wait.rejections)
    reasons = frozenset(rejection for rejection, _ in rejections)
    group = None if wait.group is None else (wait.group.name, wait.group.note)
    return wait.blocked, wait.at_limit, wait.is_too_large, wait.reserved_on > 0, group, reasons


def compute_gist(message: str) -> str:
    """Return what stays of a message when its numbers, the order that follows from them and fairness are left out.

    >>> compute_gist("0/3 nodes are available: 1 Too many pods, 2 Insufficient cpu. tenant a waits: its weighted ...")
    '# Insufficient cpu; # Too many pods; #/# nodes are available'
    >>> compute_gist("0/12 nodes are available: 11 Insufficient cpu, 2 Too many pods.") == compute_gist(
    ...     "0/9 nodes are available: 1 Too many pods, 8 Insufficient cpu."
    ... )
    True
    """
    unfair = message.partition(". tenant ")[0].rstrip(".")
    return "; ".join(sorted(re.split(r"[,:.] ", re.sub(r"\d+", "#", unfair))))


def _format_rejections(rejections: Rejections, most_characters: int) -> str:
    """Return the first reasons, sorted as texts, and how many more there are.

    What nodes lack that are for the pod comes before why others are not; then come those of the most nodes.

    >>> lacks = [(Rejection(RejectionKind.INSUFFICIENT, f"a.b/{n:02}"), n) for n in range(1, 19)]
    >>> _format_rejections(tuple(lacks), 62)
    '17 Insufficient a.b/17, 18 Insufficient a.b/18 and 16 more'
    """
    ranked = sorted(rejections, key=lambda pair: (pair[0].kind in _NOT_FOR_THIS_POD, -pair[1], pair[0]))
    parts: list[str] = []
    left = most_characters
    for rejection, count in ranked[:MAX_REASONS]:
        part = f"{count} {word_rejection(rejection)}"
        left -= len(part) + len(", ")
        if left < len(f" and {len(rejections)} more") and len(rejections) > 1:
            break
        parts.append(part)
    rest = len(rejections) - len(parts)
    if not parts:
        return f"{rest} reasons" if rest else ""
    return f"{', '.join(sorted(parts))} and {rest} more" if rest else ", ".join(sorted(parts))


def _merge_taints(rejections: Rejections) -> Rejections:
    """Return the rejections with one for all taints.

    >>> one, other = (Rejection(RejectionKind.TAINT, subject) for subject in ("gpu: true", "pool: a"))
    >>> [(str(rejection.kind), count) for rejection, count in _merge_taints(((one, 2), (other, 3)))]
    [('taint', 5)]
    """
    tainted = sum(count for rejection, count in rejections if rejection.kind is RejectionKind.TAINT)
    others = tuple(pair for pair in rejections if pair[0].kind is not RejectionKind.TAINT)
    return (*others, (_TAINTS, tainted)) if tainted else others


def shorten(message: str) -> str:
    """Return the message, cut where it is too long."""
    return message if len(message) <= MAX_CHARACTERS else f"{message[: MAX_CHARACTERS - 3]}..."


def _format_blocked(blocked: Rejection, detail: str | None, node_count: int) -> str:
    words = detail or word_rejection(blocked)
    match blocked.kind:
        case RejectionKind.LATER:
            return f"pod waits: {word_rejection(blocked)}"
        case RejectionKind.CLAIM | RejectionKind.GANG_INCOMPLETE:
            return words
        case RejectionKind.VOLUME_IN_USE:
            return f"{node_count} {words}"
        case RejectionKind.UNREADABLE:
            return f"pod has {words}"
        case RejectionKind.UNCLAIMED:
            return f"pod has {words}, which the SchedulingPolicy refuses (unclaimedNamespaces)"
        case _:
            return f"pod has {words}, which fairbind does not honour yet"


def _format_group(group: GroupWait) -> str:
    """Return what of a group's minimum fits, and what the rest asks for; a group is short of a few kinds at most.

    >>> _format_group(GroupWait("team/g", 50, 37, (((0, 1, 1), 13),), (), (), ("cpu", "nvidia.com/gpu", "pods")))
    'group team/g: 37 of 50 fit; short of 13 x {nvidia.com/gpu: 1}'
    >>> _format_group(GroupWait("team/g", 1, 0, (), (2000, 0), (), ("cpu", "pods")))
    'group team/g: short of {cpu: 2} that must be free before it starts'
    >>> _format_group(GroupWait("team/g", 50, 0, is_tried=False))
    'group team/g: it is tried when its turn comes, as many groups of its tenant fit nowhere'
    """
    note = f"; {group.note}" if group.note else ""
    if not group.is_tried:
        return f"group {group.name}: it is tried when its turn comes, as many groups of its tenant fit nowhere{note}"
    if any(group.lacking_r):
        least = _format_demand(group, group.lacking_r)
        return f"group {group.name}: short of {least} that must be free before it starts{note}"
    kinds = [f"{count} x {_format_demand(group, demand_r)}" for demand_r, count in group.short[:MAX_KINDS]]
    more = f" and {len(group.short) - MAX_KINDS} more" if len(group.short) > MAX_KINDS else ""
    short = f"; short of {', '.join(kinds)}{more}" if kinds else ""
    return f"group {group.name}: {group.fitting} of {group.lacking} fit{short}{note}"


def _format_demand(group: GroupWait, demand_r: tuple[int, ...]) -> str:
    amounts = [(r, amount) for r, amount in zip(group.resources, demand_r, strict=True) if amount and r != PODS]
    return f"{{{', '.join(f'{r}: {format_quantity(r, amount)}' for r, amount in amounts)}}}"


def _format_fairness(tenant: str, reason: FairnessReason, *, shows_others: bool) -> str:
    takes = reason.next_tenant if shows_others else "another tenant"
    reserved = f"; free capacity on {reason.reserved_on} node(s) is reserved for it" if reason.reserved_on else ""
    own, other = reason.compared or (tenant, reason.next_tenant)
    other = other if shows_others else "another tenant"
    if reason.by is Precedence.LEVEL and reason.compared is None:
        share, next_share = _format_shares(reason.share, reason.next_share)
        return (
            f"tenant {tenant} waits: its {reason.measure} {share} is above {next_share} of {other}, "
            f"which takes the next free capacity{reserved}."
        )
    match reason.by:
        case Precedence.LEVEL:
            share, next_share = _format_shares(reason.share, reason.next_share)
            compared = f"the {reason.measure} {share} of {own} is above {next_share} of {other}"
        case Precedence.PRIORITY:
            compared = f"{other} has a higher priority than {own}"
        case Precedence.GUARANTEE:
            compared = f"{other} comes before {own} by its guarantee"
    below = "" if other == takes else f" and {takes} is next there"
    return f"tenant {tenant} waits: {compared}{below}, so it takes the next free capacity{reserved}."


def _format_shares(share: float, next_share: float) -> tuple[str, str]:
    """Two digits, and more where the two would look equal."""
    for digits in range(2, _MAX_SHARE_DIGITS + 1):
        texts = f"{share:.{digits}f}", f"{next_share:.{digits}f}"
        if texts[0] != texts[1]:
            break
    return texts
