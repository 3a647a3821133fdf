"""Which of our waiting pods make Karpenter and cluster-autoscaler add a node: those that one more node could help.

The two predicates are written from what these programs do, not from their code. Both look at pods that are not bound
and whose condition PodScheduled has the reason Unschedulable. Karpenter leaves out pods with a nominated node and pods
of DaemonSets; cluster-autoscaler wants the condition to be False and leaves out pods that are being deleted or, as they
wait for a preemption, have a nominated node.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from fairbind.cluster.objects.facts import Owner
from fairbind.kube.writers.recorder import Recorder, WaitingPod
from fairbind.model import FairnessReason, Rejection, RejectionKind, Wait
from kube.operator.simulation import run_virtual
from kube.writers.waiting import CPU, make_pod, make_tasks, make_wait

Pod = dict[str, Any]


def find_conditions(pod: Pod) -> list[dict[str, str]]:
    return [condition for condition in pod["status"].get("conditions", ()) if condition["type"] == "PodScheduled"]


def would_karpenter_add_a_node(pod: Pod) -> bool:
    has_failed = any(condition.get("reason") == "Unschedulable" for condition in find_conditions(pod))
    owners = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", ())}
    is_placed = bool(pod["spec"].get("nodeName") or pod["status"].get("nominatedNodeName"))
    return has_failed and not is_placed and not owners & {"DaemonSet", "Node"}


def would_cluster_autoscaler_add_a_node(pod: Pod) -> bool:
    if pod["spec"].get("nodeName") or pod["status"].get("nominatedNodeName"):
        return False
    if pod["metadata"].get("deletionTimestamp"):
        return False
    return any(
        condition["status"] == "False" and condition.get("reason") == "Unschedulable"
        for condition in find_conditions(pod)
    )


AUTOSCALERS = (would_karpenter_add_a_node, would_cluster_autoscaler_add_a_node)


class StatusDesk:
    """A recorder before a server that keeps the conditions which it writes."""

    def __init__(self) -> None:
        self.conditions: list[dict[str, str]] = []
        self.pods: dict[str, WaitingPod] = {"uid-p0": make_pod("uid-p0", owner=Owner("batch/v1", "Job", "j", "u"))}
        self.recorder = Recorder(
            self,
            scheduler_name="fairbind",
            identity="operator-0",
            is_leading=lambda: True,
            binds_in_flight=lambda: 0,
            count_decided=lambda: 0,
            find_waiting=self.pods.get,
            clock=asyncio.get_running_loop().time,
        )

    async def request(self, method: str, path: str, *, body: bytes | None = None, **_: Any) -> bytes:  # noqa: ARG002
        if path.endswith("/status"):
            self.conditions = _read_conditions(body)
        return b"{}"


def _read_conditions(body: bytes | None) -> list[dict[str, str]]:
    conditions: list[dict[str, str]] = json.loads(body or b"null")["status"]["conditions"]
    return conditions


def write(tell: Callable[[Recorder], None]) -> Pod:
    """Return the pod as an autoscaler reads it after the recorder was told this."""
    pod: Pod = {"metadata": {"name": "p0"}, "spec": {}, "status": {}}

    async def main() -> None:
        desk = StatusDesk()
        running = asyncio.create_task(desk.recorder.run())
        tell(desk.recorder)
        await asyncio.sleep(3.0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        pod["status"]["conditions"] = desk.conditions

    run_virtual(main())
    return pod


def wait_with(wait: Wait) -> Pod:
    pod = write(lambda recorder: recorder.note_waits([wait], 3))
    assert find_conditions(pod)
    return pod


HELPED = [kind for kind in RejectionKind if kind.one_more_server_could_help]
NOT_HELPED = [kind for kind in RejectionKind if not kind.one_more_server_could_help]


@pytest.mark.parametrize("would_add", AUTOSCALERS)
@pytest.mark.parametrize("kind", HELPED)
def test_a_pod_that_one_more_node_could_help_is_seen(kind: RejectionKind, would_add: Callable[[Pod], bool]) -> None:
    assert would_add(wait_with(make_wait(make_tasks(1), (Rejection(kind, "x"), 3))))


@pytest.mark.parametrize("would_add", AUTOSCALERS)
@pytest.mark.parametrize("kind", NOT_HELPED)
def test_a_pod_that_no_node_could_help_is_not(kind: RejectionKind, would_add: Callable[[Pod], bool]) -> None:
    assert not would_add(wait_with(make_wait(make_tasks(1), blocked=Rejection(kind, "x"))))


@pytest.mark.parametrize("would_add", AUTOSCALERS)
def test_a_pod_that_waits_for_its_turn_is_seen_as_more_capacity_ends_its_wait(
    would_add: Callable[[Pod], bool],
) -> None:
    assert would_add(wait_with(make_wait(make_tasks(1), CPU, fairness=FairnessReason(0.5, "b", 0.1))))


@pytest.mark.parametrize("would_add", AUTOSCALERS)
def test_a_pod_whose_binding_is_refused_is_not_seen(would_add: Callable[[Pod], bool]) -> None:
    pod = write(lambda recorder: recorder.refused("ns", "uid-p0", "binding to n1", "403 Forbidden: no"))
    assert find_conditions(pod)[0]["reason"] == "SchedulerError"
    assert not would_add(pod)


@pytest.mark.parametrize("would_add", AUTOSCALERS)
def test_a_pod_that_is_bound_or_nominated_is_not_seen(would_add: Callable[[Pod], bool]) -> None:
    pod = wait_with(make_wait(make_tasks(1), CPU))
    assert would_add(pod)
    assert not would_add(pod | {"spec": {"nodeName": "n1"}})
    assert not would_add(pod | {"status": pod["status"] | {"nominatedNodeName": "n1"}})
