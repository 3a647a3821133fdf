from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from fairbind.cluster.loop.write_limits import FIRST_REST_SECONDS
from fairbind.kube.client.api import NotAllowedError
from fairbind.kube.client.errors import MAX_RETRY_AFTER_SECONDS, ApiError, TransientClusterError
from fairbind.kube.writers.pod_messages import (
    EVENTS_PER_CLASS,
    RENEWALS_PER_SECOND,
    UNCHANGED_SECONDS,
    Notice,
    PodMessages,
)
from fairbind.kube.writers.recorder import (
    CALM_SECONDS,
    FAST_PER_SECOND,
    MANY_BINDS,
    SCHEDULED_QUEUE_LENGTH,
    SLOW_PER_SECOND,
    TENANT_PER_SECOND,
    WRITERS,
    Recorder,
    WaitingPod,
)
from kube.operator.simulation import run_virtual
from kube.writers.waiting import CPU, MEMORY, make_owner, make_pod, make_tasks, make_wait
from rejections import lack


class Desk:
    """A recorder before a server that takes 10 ms a write, on virtual time."""

    def __init__(self) -> None:
        self.writes: list[tuple[float, str, str, Any]] = []
        self.content_types: list[str] = []
        self.failures: list[Exception] = []
        self.refusals: dict[str, Exception] = {}
        self.pods: dict[str, WaitingPod] = {}
        self.generations: dict[str, int] = {}
        self.leading = True
        self.binds_in_flight = 0
        self.decides = False
        loop = asyncio.get_running_loop()
        self.began = loop.time()
        self.recorder = Recorder(
            self,
            scheduler_name="fairbind",
            identity="operator-0",
            is_leading=lambda: self.leading,
            binds_in_flight=lambda: self.binds_in_flight,
            count_decided=lambda: 1 + int(self.now) if self.decides else 0,
            find_waiting=self.pods.get,
            find_generation=lambda uid: self.generations.get(uid, 0),
            clock=loop.time,
        )

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time() - self.began

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        content_type: str = "application/json",
        timeout_seconds: float = 15.0,
        guard: Callable[[], bool] | None = None,
        **_: Any,
    ) -> bytes:
        assert timeout_seconds <= 5.0
        assert guard is not None
        if not guard():
            raise NotAllowedError
        self.writes.append((self.now, method, path, json.loads(body or b"null")))
        self.content_types.append(content_type)
        await asyncio.sleep(0.01)
        if self.failures:
            raise self.failures.pop(0)
        for part, refusal in self.refusals.items():
            if part in path:
                raise refusal
        if path.endswith("/status"):  # and the watch tells of it
            patch = json.loads(body or b"null")
            uid = patch["metadata"]["uid"]
            namespace = self.pods[uid].namespace
            condition = patch["status"]["conditions"][0]
            message, generation = condition["message"], condition.get("observedGeneration", 0)
            owner = self.pods[uid].owner
            self.pods[uid] = make_pod(uid, "8", message, namespace=namespace, owner=owner, generation=generation)
        return b"{}"

    def wait(self, *waits: Any, nodes: int = 3) -> None:
        for wait in waits:
            for task in wait.task_class.tasks:
                self.pods.setdefault(task.uid, make_pod(task.uid))
        self.recorder.note_waits(waits, nodes)

    def find(self, reason: str) -> list[Any]:
        return [body for _, _, path, body in self.writes if path.endswith("/events") and body["reason"] == reason]

    @property
    def conditions(self) -> list[tuple[str, Any]]:
        return [(path, body) for _, _, path, body in self.writes if path.endswith("/status")]


def play(scenario: Callable[[Desk], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        desk = Desk()
        running = asyncio.create_task(desk.recorder.run())
        try:
            await scenario(desk)
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    run_virtual(main())


def test_a_binding_is_announced_as_kube_scheduler_does() -> None:
    async def scenario(desk: Desk) -> None:
        desk.recorder.scheduled("ns", "p0", "uid-p0", "n1")
        await asyncio.sleep(1.0)
        [(_, method, path, event)] = desk.writes
        assert (method, path) == ("POST", "/apis/events.k8s.io/v1/namespaces/ns/events")
        assert event["metadata"]["name"].startswith("p0.")
        assert event["metadata"]["namespace"] == "ns"
        assert event["regarding"] == {
            "apiVersion": "v1", "kind": "Pod", "namespace": "ns", "name": "p0", "uid": "uid-p0"
        }  # fmt: skip
        assert (event["type"], event["reason"], event["action"]) == ("Normal", "Scheduled", "Binding")
        assert event["note"] == "Successfully assigned ns/p0 to n1"
        assert (event["reportingController"], event["reportingInstance"]) == ("fairbind", "operator-0")
        assert len(event["eventTime"]) == len("2006-01-02T15:04:05.000000Z")

    play(scenario)


def test_a_waiting_pod_gets_a_condition_and_an_event() -> None:
    async def scenario(desk: Desk) -> None:
        desk.wait(make_wait(make_tasks(1), CPU))
        await asyncio.sleep(2.0)
        [(path, patch)] = desk.conditions
        assert path == "/api/v1/namespaces/ns/pods/p0/status"
        assert desk.content_types[0] == "application/strategic-merge-patch+json"
        assert patch["metadata"] == {"uid": "uid-p0", "resourceVersion": "7"}
        [condition] = patch["status"]["conditions"]
        assert condition.pop("lastTransitionTime").endswith("Z")
        message = "0/3 nodes are available: 3 Insufficient cpu."
        assert condition == {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        [event] = desk.find("FailedScheduling")
        assert (event["type"], event["action"], event["note"]) == ("Warning", "Scheduling", message)

    play(scenario)


def test_a_condition_says_of_which_generation_it_is() -> None:
    async def scenario(desk: Desk) -> None:
        desk.generations["uid-p0"] = 1
        desk.wait(make_wait(make_tasks(2), CPU))
        await asyncio.sleep(2.0)
        observed = {path: patch["status"]["conditions"][0].get("observedGeneration") for path, patch in desk.conditions}
        assert observed == {"/api/v1/namespaces/ns/pods/p0/status": 1, "/api/v1/namespaces/ns/pods/p1/status": None}
        desk.generations["uid-p0"] = 2
        await asyncio.sleep(2 * UNCHANGED_SECONDS)
        _, patch = desk.conditions[-1]
        assert patch["status"]["conditions"][0]["observedGeneration"] == 2
        assert len(desk.conditions) == 3

    play(scenario)


def test_a_condition_that_is_false_already_keeps_the_time_of_its_transition() -> None:
    async def scenario(desk: Desk) -> None:
        desk.pods["uid-p0"] = make_pod("uid-p0", "8", "something else")
        desk.wait(make_wait(make_tasks(1), CPU))
        await asyncio.sleep(2.0)
        [(_, patch)] = desk.conditions
        assert "lastTransitionTime" not in patch["status"]["conditions"][0]

    play(scenario)


def test_a_condition_that_says_it_already_is_not_written() -> None:
    async def scenario(desk: Desk) -> None:
        desk.pods["uid-p0"] = make_pod("uid-p0", "8", "0/3 nodes are available: 3 Insufficient cpu.")
        desk.wait(make_wait(make_tasks(1), CPU))
        await asyncio.sleep(2.0)
        assert desk.conditions == []
        assert len(desk.find("FailedScheduling")) == 1

    play(scenario)


def test_a_pod_that_is_bound_meanwhile_is_told_nothing() -> None:
    async def scenario(desk: Desk) -> None:
        desk.wait(make_wait(make_tasks(5), CPU))
        del desk.pods["uid-p3"]
        await asyncio.sleep(2.0)
        assert [path for path, _ in desk.conditions if "/p3/" in path] == []
        assert len(desk.conditions) == 4

    play(scenario)


def test_a_condition_that_is_refused_as_outdated_is_written_with_the_newer_version() -> None:
    async def scenario(desk: Desk) -> None:
        desk.failures = [ApiError(409, "Conflict", "modified")]
        desk.wait(make_wait(make_tasks(1), CPU))
        await asyncio.sleep(0.6)
        desk.pods["uid-p0"] = make_pod("uid-p0", "9")
        await asyncio.sleep(UNCHANGED_SECONDS + 1.0)
        assert [patch["metadata"]["resourceVersion"] for _, patch in desk.conditions] == ["7", "9"]

    play(scenario)


def test_repeated_events_are_counted_in_the_first_or_written_anew_when_it_has_expired() -> None:
    async def scenario(desk: Desk) -> None:
        desk.wait(make_wait(make_tasks(1), CPU))
        await asyncio.sleep(310.0)
        patches = [(path, body) for _, method, path, body in desk.writes if method == "PATCH" and "events" in path]
        [event] = desk.find("FailedScheduling")
        [(path, body)] = patches
        assert path.endswith(f"/events/{event['metadata']['name']}")
        assert body["series"]["count"] == 2
        desk.failures = [ApiError(404, "NotFound", "expired")]
        await asyncio.sleep(310.0)
        assert len(desk.find("FailedScheduling")) == 2

    play(scenario)


def test_an_event_that_could_not_be_written_is_still_due() -> None:
    async def scenario(desk: Desk) -> None:
        desk.refusals["/events"] = TransientClusterError("timed out")
        desk.wait(make_wait(make_tasks(1)))
        await asyncio.sleep(5.0)
        assert len(desk.find("FailedScheduling")) == 1
        desk.refusals.clear()
        await asyncio.sleep(FIRST_REST_SECONDS + UNCHANGED_SECONDS + 1.0)
        assert len(desk.find("FailedScheduling")) == 2
        await asyncio.sleep(60.0)
        assert len(desk.find("FailedScheduling")) == 2

    play(scenario)


def test_bindings_in_flight_slow_the_writing_down() -> None:
    async def scenario(desk: Desk) -> None:
        desk.binds_in_flight = MANY_BINDS + 1
        for number in range(5000):
            desk.recorder.scheduled("ns", f"p{number}", f"uid-p{number}", "n1")
        await asyncio.sleep(10.0)
        assert len(desk.writes) == pytest.approx(10 * SLOW_PER_SECOND, rel=0.1)
        desk.binds_in_flight = 0
        await asyncio.sleep(10.0)
        assert len(desk.writes) == pytest.approx(10 * SLOW_PER_SECOND + 10 * FAST_PER_SECOND, rel=0.1)

    play(scenario)


def test_waiting_pods_and_bindings_take_turns() -> None:
    async def scenario(desk: Desk) -> None:
        for number in range(2000):
            desk.recorder.scheduled("ns", f"b{number}", f"uid-b{number}", "n1")
        desk.wait(*(make_wait(make_tasks(500, tenant), CPU, tenant=tenant) for tenant in "abcd"))
        await asyncio.sleep(5.0)
        kinds = Counter("status" if path.endswith("/status") else "event" for _, _, path, _ in desk.writes)
        assert min(kinds.values()) > 0.3 * sum(kinds.values())

    play(scenario)


def test_all_tenants_together_are_told_at_the_whole_pace() -> None:
    async def scenario(desk: Desk) -> None:
        desk.wait(*(make_wait(make_tasks(500, tenant), CPU, tenant=tenant) for tenant in "abcdefgh"))
        await asyncio.sleep(4_000 / FAST_PER_SECOND + 5.0)
        assert len(desk.conditions) == 4_000
        assert max(Counter(int(moment) for moment, _, _, _ in desk.writes).values()) <= FAST_PER_SECOND + 1

    play(scenario)


@pytest.mark.parametrize("users", [1, 200])
def test_a_tenant_with_thousands_of_waiting_pods_delays_no_other_tenants_messages(users: int) -> None:
    """However many users its pods name."""

    async def scenario(desk: Desk) -> None:
        crowd = [make_wait(make_tasks(20_000 // users, f"crowd{n}-"), CPU, tenant=f"u{n}@a") for n in range(users)]
        desk.wait(*crowd)
        await asyncio.sleep(2.0)
        desk.wait(*crowd, make_wait(make_tasks(5, "other"), MEMORY, tenant="b"))
        await asyncio.sleep(1.0)
        assert sum("other" in path for path, _ in desk.conditions) == 5
        assert len([event for event in desk.find("FailedScheduling") if "other" in event["regarding"]["name"]]) == 5

    play(scenario)


def test_thousands_of_waiting_pods_are_told_at_the_pace_and_then_left_alone() -> None:
    async def scenario(desk: Desk) -> None:
        tasks = make_tasks(4_000)
        desk.wait(make_wait(tasks, CPU))
        await asyncio.sleep(4_000 / FAST_PER_SECOND + 5.0)
        assert len(desk.conditions) == 4_000
        assert len(desk.find("FailedScheduling")) == 10
        seen = len(desk.writes)
        for turn in range(100):
            desk.wait(make_wait(tasks, (lack("cpu"), 3 - turn % 2)))
            await asyncio.sleep(1.0)
        assert len(desk.writes) - seen <= 2.0 * 100 + 20
        assert max(Counter(int(moment) for moment, _, _, _ in desk.writes).values()) <= FAST_PER_SECOND + 1

    play(scenario)


def count_by_second(desk: Desk) -> Counter[int]:
    return Counter(int(moment) for moment, _, _, _ in desk.writes)


def test_each_pod_of_very_many_owners_is_told() -> None:
    async def scenario(desk: Desk) -> None:
        tasks = make_tasks(900)
        desk.pods.update({task.uid: make_pod(task.uid, owner=make_owner(f"job-{task.uid}")) for task in tasks})
        desk.wait(*(make_wait((task,), CPU, demand=1 + rank) for rank, task in enumerate(tasks)))
        await asyncio.sleep(120.0)
        assert len(desk.conditions) == 900

    play(scenario)


def test_with_many_tenants_no_notice_waits_for_more_than_twenty_seconds() -> None:
    async def scenario(desk: Desk) -> None:
        desk.wait(*(make_wait(make_tasks(500, tenant), CPU, tenant=tenant) for tenant in "abcdefghijklmnopqrst"))
        await asyncio.sleep(2.0)
        assert len(desk.recorder._notices) <= 20.0 * FAST_PER_SECOND  # with room for 1,000 of each it was 10,000

    play(scenario)


def test_while_pods_find_a_place_one_tenant_is_told_at_its_own_pace() -> None:
    async def scenario(desk: Desk) -> None:
        desk.decides = True
        desk.wait(make_wait(make_tasks(1_500), CPU))
        await asyncio.sleep(20.0)
        assert sum(count_by_second(desk).values()) == pytest.approx(20.0 * TENANT_PER_SECOND, rel=0.1)
        assert max(count_by_second(desk).values()) <= 1.5 * TENANT_PER_SECOND
        desk.decides = False
        await asyncio.sleep(CALM_SECONDS + UNCHANGED_SECONDS + 5.0)
        assert len(desk.conditions) == 1_500

    play(scenario)


def test_a_decision_slows_the_telling_of_a_crowd_down_at_once() -> None:
    async def scenario(desk: Desk) -> None:
        desk.wait(make_wait(make_tasks(4_000), CPU))
        await asyncio.sleep(5.0)
        desk.decides = True
        await asyncio.sleep(5.0)
        by_second = count_by_second(desk)
        assert by_second[3] > 3 * TENANT_PER_SECOND
        assert max(by_second[second] for second in (6, 7, 8, 9)) <= 1.5 * TENANT_PER_SECOND

    play(scenario)


@pytest.mark.parametrize("binds_in_flight", [1, MANY_BINDS])
def test_a_binding_in_flight_counts_as_a_decision(binds_in_flight: int) -> None:
    async def scenario(desk: Desk) -> None:
        desk.binds_in_flight = binds_in_flight
        desk.wait(make_wait(make_tasks(1_000), CPU))
        await asyncio.sleep(10.0)
        assert len(desk.conditions) == pytest.approx(10.0 * TENANT_PER_SECOND, rel=0.1)

    play(scenario)


@pytest.mark.parametrize(
    "failure",
    [
        ApiError(429, "TooManyRequests", "slow", 3.0),
        ApiError(403, "Forbidden", 'events is forbidden: User "u" cannot create resource "events" in API group ""'),
        ApiError(500, "InternalError", "boom"),
        TransientClusterError("gone"),
    ],
)
def test_a_refusal_stops_all_writes_for_a_while_and_is_said_once(
    failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(desk: Desk) -> None:
        desk.failures = [failure] * 10_000
        for number in range(1000):
            desk.recorder.scheduled("ns", f"p{number}", f"uid-p{number}", "n1")
        await asyncio.sleep(60.0)
        assert len(desk.writes) < 60.0 / FIRST_REST_SECONDS * 10
        assert len(caplog.records) == 1
        desk.failures.clear()
        await asyncio.sleep(60.0)
        assert len(desk.writes) > 500

    play(scenario)


@pytest.mark.parametrize(
    "refusal",
    [
        ApiError(403, "Forbidden", 'events "p.1" is forbidden: exceeded quota: few, requested: count/events=1'),
        ApiError(422, "Invalid", "ValidatingAdmissionPolicy 'quiet' with binding 'quiet' denied request: no events"),
        ApiError(403, "Forbidden", 'admission webhook "w" denied the request: User "u" cannot create resource "x"'),
        ApiError(429, "TooManyRequests", "limit reached on type Namespace for key crowd", 10.0),
        ApiError(500, "InternalError", 'Internal error occurred: failed calling webhook "w"'),
        TransientClusterError("no answer within 5 s"),
    ],
)
@pytest.mark.parametrize("waiting", [0, 50])
def test_a_namespace_whose_writes_fail_silences_nobody_else(
    refusal: Exception, waiting: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(desk: Desk) -> None:
        desk.refusals["/namespaces/crowd/"] = refusal
        for number in range(1000):
            desk.recorder.scheduled("crowd" if number % 2 else "ns", f"p{number}", f"uid-p{number}", "n1")
        if waiting:
            tasks = make_tasks(waiting, "stuck")
            desk.pods.update({task.uid: make_pod(task.uid, namespace="crowd") for task in tasks})
            desk.wait(make_wait(tasks, CPU, tenant="crowd"))
        await asyncio.sleep(4.0)
        paths = Counter(path for _, _, path, _ in desk.writes)
        assert paths["/apis/events.k8s.io/v1/namespaces/ns/events"] == 500
        assert 1 <= sum(count for path, count in paths.items() if "/crowd/" in path) <= 2 * WRITERS
        assert len(caplog.records) == 1
        desk.refusals.clear()
        await asyncio.sleep(FIRST_REST_SECONDS + MAX_RETRY_AFTER_SECONDS)
        written = [body for _, _, path, body in desk.writes if path.endswith("/namespaces/crowd/events")]
        assert len({event["metadata"]["name"] for event in written if event["reason"] == "Scheduled"}) == 500
        assert len([path for path, _ in desk.conditions if "/crowd/" in path]) >= waiting

    play(scenario)


def test_a_namespace_that_takes_no_events_still_takes_conditions() -> None:
    async def scenario(desk: Desk) -> None:
        desk.refusals["/namespaces/ns/events"] = ApiError(403, "Forbidden", "exceeded quota: count/events=1")
        desk.wait(make_wait(make_tasks(100), CPU))
        await asyncio.sleep(3.0)
        assert len(desk.conditions) == 100
        assert len(desk.find("FailedScheduling")) <= WRITERS
        desk.refusals.clear()
        await asyncio.sleep(3 * FIRST_REST_SECONDS)
        told = {event["regarding"]["name"] for event in desk.find("FailedScheduling")}
        assert len(told) >= EVENTS_PER_CLASS  # an event that could not be written takes no other's place

    play(scenario)


def test_the_owner_of_waiting_pods_is_told_once_and_then_counted() -> None:
    async def scenario(desk: Desk) -> None:
        tasks = make_tasks(40)
        desk.pods.update({task.uid: make_pod(task.uid, owner=make_owner("job")) for task in tasks})
        desk.wait(make_wait(tasks, CPU))
        await asyncio.sleep(5.0)
        events = desk.find("FailedScheduling")
        assert len(events) == EVENTS_PER_CLASS + 1
        [event] = [event for event in events if event["regarding"]["kind"] == "Job"]
        assert event["regarding"] == {
            "apiVersion": "batch/v1", "kind": "Job", "namespace": "ns", "name": "job", "uid": "uid-of-job"
        }  # fmt: skip
        assert event["note"] == "pods such as p0 wait: 0/3 nodes are available: 3 Insufficient cpu."
        assert event["metadata"]["namespace"] == "ns"
        await asyncio.sleep(310.0)
        [patch] = [body for _, method, path, body in desk.writes if path.endswith(f"/{event['metadata']['name']}")]
        assert patch["series"]["count"] == 2

    play(scenario)


ANSWER = '403 Forbidden: admission webhook "gate.example.com" denied the request: not on Sundays'


def test_a_pod_whose_binding_is_refused_is_told_by_whom_and_why() -> None:
    async def scenario(desk: Desk) -> None:
        desk.pods["uid-p0"] = make_pod("uid-p0")
        desk.recorder.refused("ns", "uid-p0", "binding to n1", ANSWER)
        await asyncio.sleep(2.0)
        [(path, patch)] = desk.conditions
        assert path == "/api/v1/namespaces/ns/pods/p0/status"
        [condition] = patch["status"]["conditions"]
        message = f"binding to n1 failed: {ANSWER}"
        assert (condition["status"], condition["reason"]) == ("False", "SchedulerError")
        assert condition["message"] == message
        [event] = desk.find("FailedScheduling")
        assert (event["type"], event["note"], event["regarding"]["uid"]) == ("Warning", message, "uid-p0")

    play(scenario)


def test_a_binding_that_is_refused_again_and_again_is_told_rarely_and_its_long_answer_cut() -> None:
    async def scenario(desk: Desk) -> None:
        for turn in range(25):
            for task in make_tasks(100):
                desk.pods.setdefault(task.uid, make_pod(task.uid))
                desk.recorder.refused("ns", task.uid, f"binding to n{turn}", f"{turn} {'x' * 5_000}")
            await asyncio.sleep(10.0)
        assert 100 <= len(desk.conditions) <= 100 + 250.0 * RENEWALS_PER_SECOND + 10
        assert len(desk.find("FailedScheduling")) == EVENTS_PER_CLASS
        assert {len(patch["status"]["conditions"][0]["message"]) for _, patch in desk.conditions} == {1024}

    play(scenario)


def test_a_pod_that_waits_for_another_reason_than_its_refused_binding_says_so() -> None:
    async def scenario(desk: Desk) -> None:
        desk.pods["uid-p0"] = make_pod("uid-p0")
        desk.recorder.refused("ns", "uid-p0", "binding to n1", ANSWER)
        await asyncio.sleep(2.0)
        desk.wait(make_wait(make_tasks(1), CPU))
        await asyncio.sleep(2 * UNCHANGED_SECONDS + 1.0)
        reasons = [patch["status"]["conditions"][0]["reason"] for _, patch in desk.conditions]
        assert reasons == ["SchedulerError", "Unschedulable"]

    play(scenario)


def test_a_pod_that_is_bound_after_its_refused_binding_is_told_nothing_of_it() -> None:
    async def scenario(desk: Desk) -> None:
        desk.recorder.refused("ns", "uid-p0", "binding to n1", ANSWER)
        await asyncio.sleep(2.0)
        assert desk.writes == []

    play(scenario)


@pytest.mark.parametrize(
    "failure",
    [ApiError(404, "NotFound", "no pod"), ApiError(403, "Forbidden", "namespace ns is being terminated")],
)
def test_what_is_gone_stops_nothing(failure: Exception, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(desk: Desk) -> None:
        desk.failures = [failure] * 100
        for number in range(200):
            desk.recorder.scheduled("ns", f"p{number}", f"uid-p{number}", "n1")
        await asyncio.sleep(3.0)
        assert len(desk.writes) == 200
        assert not caplog.records

    play(scenario)


def test_a_failure_that_nobody_thought_of_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(desk: Desk) -> None:
        desk.failures = [ZeroDivisionError()]
        desk.recorder.scheduled("ns", "p0", "u", "n1")
        await asyncio.sleep(1.0)
        desk.recorder.scheduled("ns", "p1", "u", "n1")
        await asyncio.sleep(1.0)
        assert len(desk.writes) == 2
        assert "ZeroDivisionError" in caplog.text

    play(scenario)


def test_who_does_not_lead_writes_nothing_and_starts_afresh_when_it_leads() -> None:
    async def scenario(desk: Desk) -> None:
        desk.leading = False
        desk.recorder.scheduled("ns", "b", "uid-b", "n1")
        desk.wait(make_wait(make_tasks(3), CPU))
        await asyncio.sleep(5.0)
        desk.leading = True
        await asyncio.sleep(5.0)
        assert desk.writes == []  # nothing stale either
        desk.wait(make_wait(make_tasks(3), CPU))
        await asyncio.sleep(5.0)
        assert len(desk.conditions) == 3

    play(scenario)


def test_flushing_waits_for_what_is_noted_and_not_for_ever() -> None:
    async def scenario(desk: Desk) -> None:
        for number in range(100):
            desk.recorder.scheduled("ns", f"p{number}", "u", "n1")
        await desk.recorder.flush(5.0)
        assert len(desk.find("Scheduled")) == 100
        for number in range(5000):
            desk.recorder.scheduled("ns", f"p{number}", "u", "n1")
        began = desk.now
        await desk.recorder.flush(2.0)
        assert desk.now - began == pytest.approx(2.0, abs=0.1)

    play(scenario)


def test_memory_is_bounded() -> None:
    async def scenario(desk: Desk) -> None:
        for number in range(3 * SCHEDULED_QUEUE_LENGTH):
            desk.recorder.scheduled("ns", f"p{number}", f"uid-p{number}", "n1")
        assert len(desk.recorder._scheduled) == SCHEDULED_QUEUE_LENGTH
        desk.wait(make_wait(make_tasks(30_000), MEMORY))
        await asyncio.sleep(2.0)
        assert len(desk.recorder._notices) <= 1000
        assert desk.writes[0][3]["regarding"]["name"] == f"p{2 * SCHEDULED_QUEUE_LENGTH}"

    play(scenario)


def test_names_and_notes_fit_into_an_event() -> None:
    async def scenario(desk: Desk) -> None:
        name = "x" * 253
        desk.recorder.scheduled("ns", name, "u", "n" * 1500)
        await asyncio.sleep(1.0)
        [event] = desk.find("Scheduled")
        assert len(event["metadata"]["name"]) <= 253
        assert len(event["note"]) == 1024

    play(scenario)


def test_an_error_in_a_scan_stops_neither_the_scans_nor_the_events(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(desk: Desk) -> None:
        usual, scans = PodMessages.find_due, 0

        def fail_twice(messages: PodMessages) -> Iterator[Notice | None]:
            nonlocal scans
            scans += 1
            if scans <= 2:
                raise KeyError("a bug")
            return usual(messages)

        monkeypatch.setattr(PodMessages, "find_due", fail_twice)
        desk.wait(make_wait(make_tasks(1), CPU))
        desk.recorder.scheduled("ns", "bound", "uid-bound", "n1")
        await asyncio.sleep(20.0)
        assert len(desk.find("Scheduled")) == 1
        assert len(desk.conditions) == 1

    play(scenario)
    assert len([record for record in caplog.records if record.levelname == "ERROR"]) == 1


def test_a_retry_after_of_a_day_costs_half_a_minute_at_most() -> None:
    async def scenario(desk: Desk) -> None:
        desk.failures = [ApiError(429, "TooManyRequests", "slow", 86_400.0)]
        desk.recorder.scheduled("ns", "p0", "uid-p0", "n1")
        await asyncio.sleep(1.0)
        desk.recorder.scheduled("ns", "p1", "uid-p1", "n1")
        await asyncio.sleep(MAX_RETRY_AFTER_SECONDS)
        assert [event["regarding"]["name"] for event in desk.find("Scheduled")] == ["p0", "p1"]

    play(scenario)
