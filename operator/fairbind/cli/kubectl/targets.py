"""Which pods `kubectl fairbind why` is asked about: one, those of a Job or another controller, or all that wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from fairbind.cluster.objects import wire
from fairbind.cluster.objects.convert import FINISHED_PHASES
from fairbind.model.errors import InvalidProblemError

POD: Final = "pod"
SHORT_NAMES: Final[Mapping[str, str]] = {
    "po": POD,
    "rs": "replicaset",
    "sts": "statefulset",
    "deploy": "deployment",
    "rc": "replicationcontroller",
}
JOB_LABELS: Final = ("batch.kubernetes.io/job-name", "job-name")
"""Set by Kubernetes on the pods of a Job; a snapshot file has labels, and no owners."""
TEMPLATE_HASH: Final = "pod-template-hash"
"""The end of the name of the ReplicaSet that a Deployment has made for a pod."""


@dataclass(frozen=True, slots=True)
class Target:
    """Object that is asked about. kind: in lower case; None: only a name is given. name: None: all pods that wait."""

    kind: str | None
    name: str | None

    @property
    def word(self) -> str:
        """The target as users type it."""
        return "/".join(part for part in (self.kind, self.name) if part)


def parse_target(word: str | None) -> Target:
    """Return what a word asks about. Raises InvalidProblemError.

    >>> parse_target("train-9zn7d"), parse_target("jobs.batch/train").kind
    (Target(kind=None, name='train-9zn7d'), 'job')
    """
    if word is None:
        return Target(None, None)
    kind, slash, name = word.rpartition("/")
    if not name or (slash and not kind):
        raise InvalidProblemError(f"{word!r} must be the name of a pod or a Job, or KIND/NAME such as job/train")
    singular = kind.lower().partition(".")[0].removesuffix("s")
    return Target(SHORT_NAMES.get(kind.lower(), singular) if kind else None, name)


def choose_pods(pods: Sequence[wire.Pod], target: Target) -> list[wire.Pod]:
    """Return the pods that are asked about; a bare name is that of a pod, or else of what controls pods."""
    if target.name is None:
        return [pod for pod in pods if is_waiting(pod)]
    if target.kind in {None, POD}:
        named = [pod for pod in pods if pod.metadata.name == target.name]
        if named or target.kind == POD:
            return named
    return [pod for pod in pods if (target.kind, target.name) in _list_controllers(pod) or _is_controlled(pod, target)]


def _is_controlled(pod: wire.Pod, target: Target) -> bool:
    return target.kind is None and any(name == target.name for _, name in _list_controllers(pod))


def _list_controllers(pod: wire.Pod) -> set[tuple[str | None, str]]:
    """Return kinds and names of what controls a pod: its owner, and the Deployment behind a ReplicaSet."""
    labels = pod.metadata.labels or {}
    found: set[tuple[str | None, str]] = {("job", labels[label]) for label in JOB_LABELS if label in labels}
    for owner in pod.metadata.owner_references or ():
        if owner.controller:
            found.add((owner.kind.lower(), owner.name))
            ending = f"-{labels.get(TEMPLATE_HASH)}"
            if owner.kind == "ReplicaSet" and owner.name.endswith(ending):
                found.add(("deployment", owner.name.removesuffix(ending)))
    return found


def is_waiting(pod: wire.Pod) -> bool:
    """Tell whether a pod waits for a node."""
    is_over = pod.status.phase in FINISHED_PHASES or pod.metadata.deletion_timestamp is not None
    return not (pod.spec.node_name or is_over)


def describe_state(pod: wire.Pod) -> str:
    """Return in a word or two what a pod does."""
    if pod.status.phase in FINISHED_PHASES:
        return "ended"
    if pod.metadata.deletion_timestamp is not None:
        return "end"
    return "run" if pod.spec.node_name else "wait"
