"""What users see of their pods, on a real API server and through kubectl."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

import numpy as np

from e2e.objects import make_pod
from e2e.waiting import until
from fairbind.cluster.loop.pacing_events import BindResult
from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.credentials import load_credentials
from fairbind.kube.observer import SilentObserver
from fairbind.kube.writers.binder import Binder
from fairbind.kube.writers.recorder import Recorder, WaitingPod
from fairbind.model import Placement, Rejection, RejectionKind, Task, TaskClass, Wait

if TYPE_CHECKING:
    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace

MESSAGE = "0/3 nodes are available: 3 Insufficient cpu."


def make_wait(*pods: Json) -> Wait:
    tasks = tuple(
        Task(pod["metadata"]["uid"], f"{pod['metadata']['namespace']}/{pod['metadata']['name']}", 0, 0.0)
        for pod in pods
    )
    task_class = TaskClass("a", (1,), (1,), Placement(np.zeros(3, dtype=np.bool_)), tasks)
    return Wait(task_class, tasks[0], len(tasks), ((Rejection(RejectionKind.INSUFFICIENT, "cpu"), 3),))


@contextlib.asynccontextmanager
async def recording(
    cluster: Cluster, find_waiting: Callable[[str], WaitingPod | None]
) -> AsyncIterator[tuple[Recorder, ApiClient]]:
    api = ApiClient(load_credentials(cluster.operator_kubeconfig()))
    recorder = Recorder(
        api,
        scheduler_name="fairbind",
        identity="the-test",
        is_leading=lambda: True,
        binds_in_flight=lambda: 0,
        count_decided=lambda: 0,
        find_waiting=find_waiting,
    )
    running = asyncio.create_task(recorder.run())
    try:
        yield recorder, api
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await api.close()


def find_condition(pod: Json) -> Json | None:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((entry for entry in conditions if entry["type"] == "PodScheduled"), None)


def find_count(event: Json) -> int | None:
    """Return how often an event was observed; None when that was once."""
    count: int | None = (event.get("series") or {}).get("count")
    return count


async def test_a_waiting_pod_says_why_in_its_condition_and_its_events(
    cluster: Cluster, api: Api, namespace: MakeNamespace
) -> None:
    path = f"/api/v1/namespaces/{namespace()}/pods"
    pod = api.post(path, make_pod({"cpu": "1"}))
    place = f"{path}/{pod['metadata']['name']}"
    api.patch(f"{place}/status", {"status": {"conditions": [{"type": "example.com/mine", "status": "True"}]}})

    def find_waiting(_uid: str) -> WaitingPod:
        known = api.get(place)
        condition = find_condition(known)
        namespace, name, version = (known["metadata"][key] for key in ("namespace", "name", "resourceVersion"))
        return WaitingPod(namespace, name, version, condition["message"] if condition else None)

    async with recording(cluster, find_waiting) as (recorder, _):
        recorder.note_waits([make_wait(pod)], 3)
        await until(lambda: find_condition(api.get(place)), "the condition")
        found = api.get(place)
        condition = find_condition(found)
        assert condition is not None
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        assert condition["message"] == MESSAGE
        assert condition["lastTransitionTime"]
        assert "example.com/mine" in [entry["type"] for entry in found["status"]["conditions"]]
        described = ["describe", "pod", pod["metadata"]["name"], f"--namespace={pod['metadata']['namespace']}"]

        def is_described() -> bool:
            text = cluster.kubectl(*described)
            return all(words in text for words in ("FailedScheduling", MESSAGE, "fairbind"))

        await until(is_described, "the event")

        announced = recorder._pod_messages._announced[pod["metadata"]["uid"]]
        await until(lambda: announced.event_count == 1, "the recorder to hear that the event was written")
        announced.event_at -= 1000.0  # as if it had been long ago
        events = f"/apis/events.k8s.io/v1/namespaces/{pod['metadata']['namespace']}/events"
        await until(lambda: 2 in map(find_count, api.items(events)), "the count")
        written = api.items(events)  # two, where the answer to the first came too late
        assert {(event["type"], event["reason"], event["note"]) for event in written} == {
            ("Warning", "FailedScheduling", MESSAGE)
        }
        assert [find_count(event) for event in written].count(2) == 1


async def test_a_pod_that_is_bound_says_where_and_its_condition_stays_true(
    cluster: Cluster, api: Api, namespace: MakeNamespace
) -> None:
    path = f"/api/v1/namespaces/{namespace()}/pods"
    pod = api.post(path, make_pod({"cpu": "1"}))
    name, uid, version = (pod["metadata"][key] for key in ("name", "uid", "resourceVersion"))
    asked: list[str] = []

    def find_waiting(uid: str) -> WaitingPod:
        asked.append(uid)
        return WaitingPod(pod["metadata"]["namespace"], name, version)  # what we knew before it was bound

    async with recording(cluster, find_waiting) as (recorder, client):
        binder = Binder(client, SilentObserver(), may_bind=lambda: True)
        assert await binder.bind(pod["metadata"]["namespace"], name, uid, "n1") is BindResult.BOUND
        recorder.note_waits([make_wait(pod)], 3)
        await until(lambda: len(asked) > 2, "a second attempt to take the condition back")
        condition = find_condition(api.get(f"{path}/{name}"))
        assert condition is not None
        assert condition["status"] == "True"
        recorder.note_waits([], 3)
        home, loop = pod["metadata"]["namespace"], asyncio.get_running_loop()

        def is_announced() -> bool:
            loop.call_soon_threadsafe(recorder.scheduled, home, name, uid, "n1")  # a write that fails is forgotten
            text = cluster.kubectl("describe", "pod", name, f"--namespace={home}")
            return f"Successfully assigned {home}/{name} to n1" in text

        await until(is_announced, "the event")
