"""Groups of pods, as pods say to which one they belong: six formats, and what they have in common.

A pod says in one of several ways to which group it belongs. Where it says so in several, the first counts of
`scheduling.k8s.io`, Volcano, `scheduling.x-k8s.io`, Kueue, LeaderWorkerSet and `fairbind.io/gang`. In the first three
the minimum is in a PodGroup of that name, in the others pods say it themselves, or their Job does.

`fairbind.io/gang` of a pod of a LeaderWorkerSet says the minimum of that group in place of its size: one whose workers
are made when the leader runs would otherwise wait for ever. So would one with an exclusive topology, which is no group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from fairbind.cluster.objects import group_wire, wire

MAX_SHARED_MARKS = 4_096
ALL = -1
"""A minimum of all pods that the Job runs at a time."""

GROUP_LABEL = "scheduling.x-k8s.io/pod-group"
"""The label of the coscheduling plugin and of others that followed it."""
KUEUE_LABEL = "kueue.x-k8s.io/pod-group-name"
LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
LWS_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
GANG = "fairbind.io/gang"
ONCE = "once"

OF_YUNIKORN = "task groups of YuniKorn: use a PodGroup of scheduling.x-k8s.io or the annotation fairbind.io/gang"
OF_KAI = "pod groups of KAI: use a PodGroup of scheduling.x-k8s.io or the annotation fairbind.io/gang"


class GroupFormat(StrEnum):
    """By what a pod says to which group it belongs. The first three have PodGroups."""

    NATIVE = "scheduling.k8s.io"
    VOLCANO = "scheduling.volcano.sh"
    COSCHEDULING = "scheduling.x-k8s.io"
    KUEUE = "Kueue"
    LWS = "LeaderWorkerSet"
    JOB = "Job"


POD_GROUP_FORMATS = (GroupFormat.NATIVE, GroupFormat.VOLCANO, GroupFormat.COSCHEDULING)
"""In the order in which a PodGroup counts, where there are several of one name."""


@dataclass(frozen=True, slots=True)
class TopologyKey:
    """The label of nodes whose values are the domains of which a group should be in one."""

    key: str
    is_required: bool


@dataclass(frozen=True, slots=True)
class GroupMark:
    """What a pod, or its Job, says about the group of the pod.

    name: of the group in its namespace, as people call it; equal names are one group. role: what the pod is in it.
    size: the minimum; `ALL`: as many as its Job runs at a time; None: a PodGroup says it.
    is_once: whether pods go on one by one after the minimum stood once. preemption: the pod's preemption policy.
    """

    format: GroupFormat
    name: str
    role: str = ""
    size: int | None = None
    is_once: bool = False
    topology: TopologyKey | None = None
    preemption: str = ""

    @property
    def has_pod_group(self) -> bool:
        """Whether a PodGroup says the minimum."""
        return self.format in POD_GROUP_FORMATS


@lru_cache(maxsize=MAX_SHARED_MARKS)
def make_mark(
    kind: GroupFormat,
    name: str,
    role: str = "",
    size: int | None = None,
    is_once: bool = False,  # noqa: FBT001, FBT002 - a part of the key
    topology: TopologyKey | None = None,
    preemption: str = "",
) -> GroupMark:
    """Return one object for equal marks: thousands of pods have the same."""
    return GroupMark(kind, name, role, size, is_once, topology, preemption)


def find_foreign_group(annotations: wire.PodAnnotations | None) -> str | None:
    """Return the format of a group that is not read, with what to use instead, or None."""
    if annotations is None or annotations.gang:
        return None
    if annotations.yunikorn_group:
        return OF_YUNIKORN
    return OF_KAI if annotations.kai_group else None


def find_group_fault(annotations: wire.PodAnnotations | None) -> str | None:
    """Return what of an annotation makes no sense, or None."""
    if annotations is None or annotations.gang is None or read_size(annotations.gang) is not None:
        return None
    return f"annotation {GANG}: {annotations.gang[:32]!r} is neither a number above 0 nor all"


def read_size(text: str | None) -> int | None:
    """Return a minimum as an annotation says it; None: it says none.

    >>> read_size("8"), read_size("all"), read_size("0"), read_size("many")
    (8, -1, None, None)
    """
    if text == "all":
        return ALL
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) < 10  # noqa: PLR2004 - int32
    return (int(text) or None) if text is not None and is_number else None


def find_mark(pod: wire.Pod, owner: tuple[str, str]) -> GroupMark | None:
    """Return what a pod says about its group; None: it is in none. owner: name and kind of its controller or itself."""
    if pod.metadata.annotations is None and pod.spec.scheduling_group is None and not pod.metadata.labels:
        return None
    said = _find_pod_group(pod) or _find_other_group(pod, owner)
    if said is None:
        return None
    known = pod.metadata.annotations or _NO_ANNOTATIONS
    preemption = pod.spec.preemption_policy or ""
    return make_mark(*said, known.gang_after_start == ONCE, find_topology(known), preemption)


_Said = tuple[GroupFormat, str, str, int | None]
"""Format, name, role and size of a group."""


def _find_pod_group(pod: wire.Pod) -> _Said | None:
    """Return the PodGroup that a pod names, or None."""
    stated, annotations = pod.spec.scheduling_group, pod.metadata.annotations
    if stated is not None and stated.pod_group_name:
        return GroupFormat.NATIVE, stated.pod_group_name, "", None
    if annotations is not None and annotations.volcano_group:
        return GroupFormat.VOLCANO, annotations.volcano_group, annotations.volcano_task or "", None
    name = (pod.metadata.labels or {}).get(GROUP_LABEL)
    return (GroupFormat.COSCHEDULING, name, "", None) if name else None


def _find_other_group(pod: wire.Pod, owner: tuple[str, str]) -> _Said | None:
    """Return the group of a pod that says itself how many pods it has, or None."""
    labels, known = pod.metadata.labels or {}, pod.metadata.annotations or _NO_ANNOTATIONS
    size, total = read_size(known.gang), read_size(known.kueue_total)
    if (name := labels.get(KUEUE_LABEL)) and total is not None:
        return GroupFormat.KUEUE, name_group(name, GroupFormat.KUEUE), "", size or total
    if (lws := _find_lws_group(labels, known, size)) is not None:
        return lws
    if size is None:
        return None
    return GroupFormat.JOB, name_group(*owner), "", size


_NO_ANNOTATIONS = wire.PodAnnotations()


def _find_lws_group(labels: Mapping[str, str], annotations: wire.PodAnnotations, size: int | None) -> _Said | None:
    """Return the group of a LeaderWorkerSet to which a pod belongs, or None. size: the minimum that it says."""
    name, index = labels.get(LWS_NAME), labels.get(LWS_INDEX)
    if not name or not index or annotations.lws_exclusive_topology:
        return None
    size = size if size is not None and size > 0 else read_size(annotations.lws_size)
    if size is None or size == ALL:
        return None
    return GroupFormat.LWS, name_group(f"{name}-{index}", GroupFormat.LWS), "", size


def name_group(name: str, kind: str) -> str:
    """Return how a group is called that has no PodGroup: other formats may have one of its name."""
    return f"{name} ({kind})"


def find_topology(annotations: wire.PodAnnotations | group_wire.JobAnnotations) -> TopologyKey | None:
    """Return in which domains the pods should be together, by annotations; what is required counts first."""
    required, preferred = annotations.required_topology, annotations.preferred_topology
    if isinstance(annotations, wire.PodAnnotations):
        required = required or annotations.kueue_required_topology
        preferred = preferred or annotations.kueue_preferred_topology
    if required:
        return TopologyKey(required, is_required=True)
    return TopologyKey(preferred, is_required=False) if preferred else None
