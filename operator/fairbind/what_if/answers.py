"""The answer to a what-if question: what happens before and after the changes, and whether a submission would start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairbind.what_if.comparison import State, compute_state
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.remedies import Change, find_change
from fairbind.what_if.submission import Submitted
from fairbind.what_if.trial import Trial
from fairbind.what_if.wait_estimate import AT_ONCE, RunTimes, WaitEstimate, estimate_wait


@dataclass(slots=True)
class GroupAnswer:
    """What becomes of a group of pods. minimum: so many start together, or none. pods: how many of it are submitted."""

    name: str
    minimum: int | None
    pods: int = 0
    starting: int = 0

    def describe(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"name": self.name, "minimum": self.minimum, "pods": self.pods, "starting": self.starting}


@dataclass(frozen=True, slots=True)
class Submission:
    """What becomes of a file's pods. tenants: theirs. pods: how many. nodes: of those that start now.

    reason: why the first of the others waits, or is not created at all. change: the smallest one that would let all
    start now. known_run_times: how many the estimate of the wait had, by tenant. not_applied: what the API server or
    controllers may add to the pods, and is not known here. groups: of pods that start together.
    """

    tenants: tuple[str, ...]
    pods: int
    nodes: tuple[str, ...]
    reason: str | None
    change: Change | None
    wait: WaitEstimate | None
    known_run_times: Mapping[str, int]
    not_applied: tuple[str, ...]
    groups: tuple[GroupAnswer, ...]

    @property
    def starts_now(self) -> bool:
        """Whether all pods do."""
        return len(self.nodes) == self.pods

    def describe(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "starts_now": self.starts_now,
            "pods": self.pods,
            "starting": len(self.nodes),
            "nodes": list(self.nodes),
            "groups": [group.describe() for group in self.groups],
            "reason": self.reason,
            "change": None if self.change is None else self.change.describe(),
            "wait_seconds": None if self.wait is None else self.wait.describe(),
            "not_applied": list(self.not_applied),
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """before, after: what happens without and with the changes, and with the submission where there is one."""

    before: State
    after: State
    submission: Submission | None

    def describe(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "before": self.before.describe(),
            "after": self.after.describe(),
            "submit": None if self.submission is None else self.submission.describe(),
        }


def answer(
    before: ListedObjects,
    after: ListedObjects,
    submitted: Submitted | None,
    given_run_times: Mapping[str, Sequence[float]],
) -> Answer:
    """Return the answer. submitted: to the cluster after the changes; None: nothing. given_run_times: in seconds."""
    state_before = compute_state(Trial(before), before)
    if submitted is not None:
        after = submitted.listed
    trial = Trial(after)
    state_after = compute_state(trial, after)
    submission = None if submitted is None else _judge(trial, state_after, submitted, given_run_times)
    return Answer(state_before, state_after, submission)


def _judge(trial: Trial, state: State, submitted: Submitted, given: Mapping[str, Sequence[float]]) -> Submission:
    places = {pod.metadata.uid: place for place, pod in enumerate(submitted.pods)}
    nodes = tuple(bind.server for bind in state.starts if bind.task.uid in places)
    first = min((wait for wait in state.waits if wait.uid in places), key=lambda wait: places[wait.uid], default=None)
    groups = _find_groups(trial, submitted, {bind.task.uid for bind in state.starts})
    run_times = RunTimes(submitted.listed, trial.cache.state.directory, given)
    change, wait = None, AT_ONCE if first is None and not submitted.refused else None
    if first is not None and not submitted.refused:
        trial.undo()
        if first.wait is not None and first.wait.blocked is None:
            others_start = any(bind.tenant != first.tenant for bind in state.starts)
            change = find_change(trial, submitted.listed, submitted.pods, first.wait, others_start=others_start)
            wait = estimate_wait(trial, submitted.listed, submitted.pods, run_times)
    reason = None if first is None else first.reason
    if submitted.refusal is not None:
        reason = f"the API server refuses {submitted.refused} of the pods: {submitted.refusal}"
    return Submission(
        tenants=tuple(dict.fromkeys(map(trial.cache.state.directory.tenant_of, submitted.namespaces))),
        pods=len(submitted.pods) + submitted.refused,
        nodes=nodes,
        reason=reason,
        change=change,
        wait=wait,
        known_run_times=run_times.counts,
        not_applied=submitted.not_applied,
        groups=groups,
    )


def _find_groups(trial: Trial, submitted: Submitted, starting: set[str]) -> tuple[GroupAnswer, ...]:
    """Return what becomes of groups. trial: after the decisions. starting: the UIDs of pods that start now."""
    groups, found = trial.cache.state.groups, dict[str, GroupAnswer]()
    for pod in submitted.pods:
        uid = pod.metadata.uid
        key, _, _ = groups.find_place(trial.make_facts(uid))
        if key is not None:
            if key not in found:
                group = groups.by_key.get(key)
                found[key] = GroupAnswer(key, None if group is None else group.find_minimum())
            found[key].pods += 1
            found[key].starting += uid in starting
    return tuple(found.values())
