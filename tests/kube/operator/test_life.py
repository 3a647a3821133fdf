from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from cluster.builders import make_node, make_pod
from fairbind.cluster.objects.decode import NODES, PODS
from fairbind.kube import part_failures
from fairbind.kube.client.errors import ApiError
from fairbind.kube.fair_shares.solver_process import ExactSolver
from fairbind.kube.observer import Observer, SilentObserver
from fairbind.kube.operator import life, overviews, sight
from fairbind.kube.operator.clocks import Clocks
from fairbind.kube.operator.custom_resources import CustomResources
from fairbind.kube.operator.elector import read_steady_clock
from fairbind.kube.operator.health import Health
from fairbind.kube.operator.life import Operator
from fairbind.kube.operator.surroundings import OperatorSettings, Surroundings
from fairbind.model import FairbindError
from fairbind.model.overview import ClusterOverview


class WatchingObserver(SilentObserver):
    def __init__(self) -> None:
        self.overviews: list[ClusterOverview] = []
        self.rejections: list[str] = []

    def overview_changed(self, overview: ClusterOverview) -> None:
        self.overviews.append(overview)

    def pod_rejected(self, rejection: str) -> None:
        self.rejections.append(rejection)

    @property
    def counts(self) -> list[tuple[int, int]]:
        """(running, pending) of the only tenant, as last shown."""
        return [(t.running, sum(t.pending.values())) for t in self.overviews[-1].tenants] if self.overviews else []


def make_operator(observer: Observer | None = None, *, health: Health | None = None) -> Operator:
    nothing = cast("Any", None)  # no request is made
    settings = OperatorSettings("fairbind-system", "fairbind", "me")
    return Operator(settings, nothing, nothing, observer or SilentObserver(), health or Health(), lambda: None)


class Relists:
    """Stands for the pods' reflector: every relist ends when it is told to."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[None]] = []
        self.synced = asyncio.Event()
        self.needs_relist = self.is_half_listed = False

    async def relist(self) -> None:
        self.asked.append(asyncio.get_running_loop().create_future())
        await self.asked[-1]


class Leading:
    """Stands for an elector that leads."""

    leading = True
    problem: str | None = None

    def may_bind(self) -> bool:
        return True

    async def release(self) -> None:
        pass


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60.0):
        while not condition():  # noqa: ASYNC110 - the observer tells nobody
            await asyncio.sleep(0.001)


async def test_a_decision_is_shown_although_it_wakes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The overview was made between a pod's arrival and the decision; nothing that changes the books follows."""
    monkeypatch.setattr(overviews, "OVERVIEW_SECONDS", 0.005)
    observer = WatchingObserver()
    operator = make_operator(observer)
    publishing = asyncio.create_task(operator.parts.overviews.run())
    operator.parts.cache.nodes.apply(NODES.decode_item(_encode(make_node("n1"))))
    operator.parts.cache.pods.apply(PODS.decode_item(_encode(make_pod("p"))))
    await eventually(lambda: observer.counts == [(0, 1)])
    assert operator.parts.cache.assume("uid-p", "n1")
    operator.parts.cache.pods.apply(PODS.decode_item(_encode(make_pod("p", node="n1"))))
    await eventually(lambda: observer.counts == [(1, 0)])
    shown = len(observer.overviews)
    await asyncio.sleep(0.05)
    assert len(observer.overviews) == shown  # nothing changes, nothing is computed
    publishing.cancel()
    await asyncio.gather(publishing, return_exceptions=True)


async def test_a_standby_also_takes_over_all_that_an_event_concerns(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs no cycles, which would do it."""
    monkeypatch.setattr(overviews, "OVERVIEW_SECONDS", 0.005)
    monkeypatch.setattr("fairbind.cluster.classes.due.MAX_DUE", 1)
    operator = make_operator(WatchingObserver())
    operator.parts.cache.nodes.apply(NODES.decode_item(_encode(make_node("n1"))))
    for n in range(4):
        operator.parts.cache.pods.apply(PODS.decode_item(_encode(make_pod(f"p{n}", requests={"cpu": f"{n + 1}"}))))
    assert operator.parts.cache.build_snapshot().is_current
    operator.parts.cache.nodes.apply(NODES.decode_item(_encode(make_node("n2"))))
    assert not operator.parts.cache.build_snapshot().is_current
    publishing = asyncio.create_task(operator.parts.overviews.run())
    await eventually(lambda: operator.parts.cache.build_snapshot().is_current)
    publishing.cancel()
    await asyncio.gather(publishing, return_exceptions=True)


def begin_to_lead(operator: Operator) -> Relists:
    relists = Relists()
    operator.parts.sight.reflectors["pods"] = cast("Any", relists)
    operator.parts.lead.elector = cast("Any", Leading())
    operator.note_lead(leading=True)
    return relists


async def test_a_new_leader_decides_only_after_it_has_listed_all_pods_once_more() -> None:
    """What the leader before it bound last may not have come with the watch yet."""
    operator = make_operator()
    relists = begin_to_lead(operator)
    await eventually(lambda: len(relists.asked) == 1)
    assert not operator.parts.lead.may_decide()
    relists.asked[0].set_result(None)
    await eventually(operator.parts.lead.may_decide)


async def test_a_list_from_before_leadership_was_lost_does_not_count_after_it() -> None:
    operator = make_operator()
    relists = begin_to_lead(operator)
    await eventually(lambda: len(relists.asked) == 1)
    operator.note_lead(leading=False)
    operator.note_lead(leading=True)
    await eventually(lambda: len(relists.asked) == 2)
    if not relists.asked[0].done():
        relists.asked[0].set_result(None)
    await asyncio.sleep(0.01)
    assert not operator.parts.lead.may_decide()
    relists.asked[1].set_result(None)
    await eventually(operator.parts.lead.may_decide)
    operator.note_lead(leading=False)
    assert not operator.parts.lead.may_decide()


async def see_and_lead(operator: Operator) -> None:
    """Let it lead, caught up, with nothing out of sight."""
    for reflector in operator.parts.sight.reflectors.values():
        reflector.problem = None
    pods = operator.parts.sight.reflectors["pods"]
    relists = begin_to_lead(operator)
    await eventually(lambda: len(relists.asked) == 1)
    relists.asked[0].set_result(None)
    await eventually(operator.parts.lead.may_decide)
    operator.parts.sight.reflectors["pods"] = pods


@pytest.mark.parametrize("name", ["pods", "nodes"])
async def test_who_sees_no_pods_or_nodes_does_not_decide_until_it_sees_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(life, "WATCH_SECONDS", 0.005)
    operator = make_operator()
    await see_and_lead(operator)
    now, woken = 100.0, 0

    def wake() -> None:
        nonlocal woken
        woken += 1

    operator.parts.sight._clock = lambda: now
    operator.parts.sight.reflectors[name].problem = "connection refused"
    operator.report_health()
    now += sight.BLIND_SECONDS - 0.1
    assert operator.parts.lead.may_decide()  # connections are exchanged now and then
    now += 0.2
    assert not operator.parts.lead.may_decide()
    monkeypatch.setattr(operator.parts.loop, "wake", wake)
    watching = asyncio.create_task(operator.watch_health())
    await asyncio.sleep(0.05)
    assert woken == 0
    operator.parts.sight.reflectors[name].problem = None
    await eventually(lambda: woken == 1)
    assert operator.parts.lead.may_decide()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


@pytest.mark.parametrize("kind", ["pods", "nodes"])
async def test_while_a_list_is_owed_nothing_is_decided_and_nothing_sent(kind: str) -> None:
    """The server was away: the cluster may have been restored, and rooms that we know free may be taken."""
    operator = make_operator()
    await see_and_lead(operator)
    assert operator.parts.lead.may_decide()
    assert operator.parts.binder.is_open()
    operator.parts.sight.reflectors[kind].needs_relist = True
    assert not operator.parts.lead.may_decide()
    assert not operator.parts.binder.is_open()


@pytest.mark.parametrize("kind", ["namespaces", "persistentvolumeclaims"])
async def test_nothing_is_decided_on_half_a_list_of_any_kind(kind: str) -> None:
    operator = make_operator()
    await see_and_lead(operator)
    operator.parts.sight.reflectors[kind].is_half_listed = True
    assert not operator.parts.lead.may_decide()
    assert operator.parts.binder.is_open()
    operator.parts.sight.reflectors[kind].is_half_listed = False
    assert operator.parts.lead.may_decide()


async def test_a_namespace_watch_that_is_broken_stops_nothing() -> None:
    operator = make_operator()
    await see_and_lead(operator)
    now = 100.0
    operator.parts.sight._clock = lambda: now
    operator.parts.sight.reflectors["namespaces"].problem = "connection refused"
    operator.report_health()
    now += 1000.0
    assert operator.parts.lead.may_decide()


async def test_while_nothing_can_be_bound_nothing_is_decided_and_readiness_says_why() -> None:
    health = Health()
    health.clear_problem("operator")
    operator = make_operator(health=health)
    await see_and_lead(operator)
    operator.parts.binder.note_forbidden(ApiError(403, "Forbidden", "may not"), "create on pods/binding")
    assert not operator.parts.lead.may_decide()
    operator.report_health()
    assert str(health.find_unready()).startswith("bindings: forbidden: may not; the chart's ClusterRole grants")
    operator.parts.binder.note_allowed()
    operator.report_health()
    assert operator.parts.lead.may_decide()
    assert health.find_unready() is None


async def test_a_catch_up_that_ends_while_the_operator_ends_decides_nothing() -> None:
    operator = make_operator()
    await see_and_lead(operator)
    operator.parts.lead.is_caught_up = False
    operator.parts.lead.elector = cast("Any", Leading())
    operator.tasks.start("elector", asyncio.sleep(0))
    await operator.end()
    operator.parts.lead.is_caught_up = True
    assert not operator.parts.lead.may_decide()


async def test_what_the_parts_wait_for_is_what_readiness_says() -> None:
    health = Health()
    health.clear_problem("operator")
    operator = make_operator(health=health)
    for reflector in operator.parts.sight.reflectors.values():
        reflector.problem = None
    operator.report_health()
    assert health.find_unready() is None
    operator.parts.sight.reflectors["nodes"].problem = "connection refused"
    cast("Any", operator.parts.lead.elector).problem = "lease forbidden"
    operator.report_health()
    assert health.find_unready() == "election: lease forbidden; nodes: connection refused"
    operator.parts.sight.reflectors["nodes"].problem = None
    cast("Any", operator.parts.lead.elector).problem = None
    operator.report_health()
    assert health.find_unready() is None


async def test_a_part_that_ends_by_itself_ends_the_operator_with_its_reason() -> None:
    async def break_down() -> None:
        raise RuntimeError("broken")

    operator = make_operator()
    operator.tasks.start("some part", break_down())
    stopping = asyncio.create_task(asyncio.Event().wait())
    with pytest.raises(FairbindError, match="some part has ended: broken"):
        await operator.tasks.run_until(stopping)
    stopping.cancel()


async def test_a_stop_ends_the_wait_for_the_lists() -> None:
    operator = make_operator()
    stop = asyncio.Event()
    stopping = asyncio.create_task(stop.wait())
    waiting = asyncio.create_task(operator.tasks.run_until(stopping, operator.parts.sight.wait_until_listed()))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    stop.set()
    assert await waiting is False


def _encode(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()


async def test_unless_told_otherwise_an_operator_follows_through_kopf_and_reads_the_systems_clocks() -> None:
    surroundings = Surroundings()
    operator = make_operator()
    assert isinstance(operator.parts.sight.follower, CustomResources)
    assert surroundings.make_solver is ExactSolver
    assert surroundings.clocks == Clocks(time.monotonic, read_steady_clock, time.time)


async def test_what_kubelets_refuse_every_replica_sees_and_the_leader_counts() -> None:
    observer = WatchingObserver()
    operator = make_operator(observer)

    def refuse(name: str) -> None:
        for status in ({}, {"phase": "Failed", "reason": "OutOfcpu"}):
            operator.parts.cache.pods.apply(
                PODS.decode_item(json.dumps(make_pod(name, node="n1", status=status)).encode())
            )

    refuse("while another leads")
    assert observer.rejections == []
    begin_to_lead(operator)
    refuse("while we lead")
    assert observer.rejections == ["resources"]


async def test_a_part_that_only_reports_is_started_again_after_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(part_failures, "RESTART_SECONDS", 0.0)
    runs = 0

    async def break_down() -> None:
        nonlocal runs
        runs += 1
        raise RuntimeError("broken")

    operator = make_operator()
    operator.tasks.start_reporting("recorder", break_down)
    stopping = asyncio.create_task(asyncio.Event().wait())
    waiting = asyncio.create_task(operator.tasks.run_until(stopping))
    await eventually(lambda: runs > 3)
    assert not waiting.done()
    (error,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert error.exc_info is not None
    for task in (waiting, stopping, operator.tasks._tasks["recorder"]):
        task.cancel()
    await asyncio.gather(waiting, stopping, return_exceptions=True)


async def test_what_is_left_out_of_a_node_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    operator = make_operator()
    offered = {"cpu": "4", "pods": "110"} | {f"example.com/r{n}": "1" for n in range(100)}
    operator.parts.cache.nodes.apply(NODES.decode_item(json.dumps(make_node("odd", allocatable=offered)).encode()))
    for _ in range(3):
        operator.parts.overviews.publish()
    told = [record.getMessage() for record in caplog.records if "odd" in record.getMessage()]
    assert told == ["node odd: status.allocatable: more than 64 resources; the first ones by name count"]


async def test_an_error_in_an_overview_is_not_the_last_overview(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overviews, "OVERVIEW_SECONDS", 0.005)
    observer = WatchingObserver()
    operator = make_operator(observer)
    usual, calls = operator.parts.cache.queries.build_overview, 0

    def fail_once(*shares: Any) -> ClusterOverview:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise KeyError("a bug")
        return usual(*shares)

    monkeypatch.setattr(operator.parts.cache.queries, "build_overview", fail_once)
    operator.parts.cache.pods.apply(PODS.decode_item(_encode(make_pod("p"))))
    publishing = asyncio.create_task(operator.parts.overviews.run())
    await eventually(lambda: observer.counts == [(0, 1)])
    assert calls > 1
    publishing.cancel()
    await asyncio.gather(publishing, return_exceptions=True)
