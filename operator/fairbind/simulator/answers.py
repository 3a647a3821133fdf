"""The answer to a what-if question: what happens before and after the changes, and whether a submission would start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from fairbind.cluster.listed_objects import ListedObjects
from fairbind.cluster.objects import wire
from fairbind.simulator.remedies import Change, find_change
from fairbind.simulator.submission import make_pods
from fairbind.simulator.trial import Trial
from fairbind.simulator.wait_estimate import AT_ONCE, RunTimes, WaitEstimate, estimate_wait
from fairbind.simulator.what_if import State, compute_state


@dataclass(frozen=True, slots=True)
class Submission:
    """What becomes of a manifest's pods. pods: how many. nodes: of those that start now.

    reason: why the first of the others waits. change: the smallest one that would let all start now. known_run_times:
    how many the estimate of the wait had, by tenant.
    """

    tenant: str
    pods: int
    nodes: tuple[str, ...]
    reason: str | None
    change: Change | None
    wait: WaitEstimate | None
    known_run_times: Mapping[str, int]

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
            "reason": self.reason,
            "change": None if self.change is None else self.change.describe(),
            "wait_seconds": None if self.wait is None else self.wait.describe(),
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
    before: ListedObjects, after: ListedObjects, manifest: object, given_run_times: Mapping[str, Sequence[float]]
) -> Answer:
    """Return the answer. manifest: to submit after the changes; None: none. given_run_times: seconds, by tenant.

    Raises InvalidProblemError for a manifest without a pod template that can be read.
    """
    pods = [] if manifest is None else make_pods(manifest, after)
    state_before = compute_state(Trial(before), before)
    if pods:
        after = msgspec.structs.replace(after, pods=[*after.pods, *pods])
    trial = Trial(after)
    state_after = compute_state(trial, after)
    submission = _judge(trial, after, state_after, pods, given_run_times) if pods else None
    return Answer(state_before, state_after, submission)


def _judge(
    trial: Trial, listed: ListedObjects, state: State, pods: Sequence[wire.Pod], given: Mapping[str, Sequence[float]]
) -> Submission:
    uids = {pod.metadata.uid for pod in pods}
    nodes = tuple(bind.server for bind in state.starts if bind.task.uid in uids)
    waits = [wait for wait in state.waits if wait.uid in uids]
    run_times = RunTimes(listed, trial.cache.books.directory, given)
    change, wait = None, AT_ONCE if not waits else None
    if waits:
        trial.undo()
        first = min(waits, key=lambda one: one.uid)
        if first.wait is not None and first.wait.blocked is None:
            others_start = any(bind.tenant != first.tenant for bind in state.starts)
            change = find_change(trial, listed, pods, first.wait, others_start=others_start)
            wait = estimate_wait(trial, listed, pods, run_times)
    return Submission(
        tenant=trial.cache.books.directory.tenant_of(pods[0].metadata.namespace),
        pods=len(pods),
        nodes=nodes,
        reason=min(waits, key=lambda one: one.uid).reason if waits else None,
        change=change,
        wait=wait,
        known_run_times=run_times.counts,
    )
