from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairbind.kube.client.errors import ApiError
from fairbind.kube.operator.elector import (
    LEASE_SECONDS,
    MARGIN_SECONDS,
    MAX_FOREIGN_LEASE_SECONDS,
    RENEW_SECONDS,
    Elector,
    make_identity,
    read_steady_clock,
)
from fairbind.kube.writers.binder import BIND_TIMEOUT_SECONDS
from kube.operator.simulation import STEP, Cluster, LeaseServer, Process, Trouble, run_virtual

Scenario = Callable[[Cluster], Coroutine[Any, Any, None]]


def play(scenario: Scenario, processes: int = 2, troubles: list[Trouble] | None = None, **options: Any) -> None:
    """Play a scenario in virtual time; the processes are not started yet."""

    async def main() -> None:
        cluster = Cluster(processes, troubles, **options)
        try:
            await scenario(cluster)
        finally:
            await cluster.end_all()

    run_virtual(main())


def start_all(cluster: Cluster) -> None:
    for process in cluster.processes:
        process.start()


async def start_in_turn(cluster: Cluster) -> None:
    """Start so that process 0 leads."""
    for process in cluster.processes:
        process.start()
        await cluster.pass_time(0.9)
    assert cluster.leaders == [0]


def test_the_margin_covers_a_binding_and_its_way() -> None:
    assert MARGIN_SECONDS >= BIND_TIMEOUT_SECONDS + 0.5
    assert LEASE_SECONDS - MARGIN_SECONDS >= 2 * RENEW_SECONDS


def test_one_alone_leads_at_once_and_renews() -> None:
    async def scenario(cluster: Cluster) -> None:
        start_all(cluster)
        assert await cluster.find_next_leader() < 0.5
        assert cluster.server.lease is not None
        spec = cluster.server.lease["spec"]
        assert spec["holderIdentity"] == "operator-0"
        assert (spec["leaseDurationSeconds"], spec["leaseTransitions"]) == (10, 0)
        assert spec["renewTime"].endswith("Z")
        assert len(spec["acquireTime"]) == len("2006-01-02T15:04:05.000000Z")
        await cluster.pass_time(60.0)
        renewals = [moment for moment, _, _ in cluster.server.writes]
        assert len(renewals) == pytest.approx(60.0 / RENEW_SECONDS, abs=2)
        [(began, leading)] = cluster.processes[0].changes
        assert began < 0.5
        assert leading

    play(scenario, processes=1)


def test_of_two_that_start_at_the_same_moment_one_leads() -> None:
    async def scenario(cluster: Cluster) -> None:
        start_all(cluster)
        await cluster.pass_time(120.0)
        assert len(cluster.leaders) == 1

    play(scenario, processes=5, latency=lambda: 0.2)


def test_a_killed_leader_is_replaced_within_fifteen_seconds() -> None:
    async def scenario(cluster: Cluster) -> None:
        await start_in_turn(cluster)
        await cluster.pass_time(21.3)
        await cluster.processes[0].kill()
        assert LEASE_SECONDS - RENEW_SECONDS < await cluster.find_next_leader() < 13.0
        assert cluster.server.lease is not None
        assert cluster.server.lease["spec"]["leaseTransitions"] == 1

    play(scenario)


def test_a_leader_that_ends_hands_over_at_once() -> None:
    async def scenario(cluster: Cluster) -> None:
        await start_in_turn(cluster)
        await cluster.processes[0].stop()
        assert cluster.processes[0].changes[-1][1] is False
        assert await cluster.find_next_leader() <= 1.2

    play(scenario)


@pytest.mark.parametrize("seconds", [7.0, 20.0, 60.0])
def test_a_frozen_leader_finds_the_fence_closed_and_does_not_lead_before_it_is_elected_anew(seconds: float) -> None:
    async def scenario(cluster: Cluster) -> None:
        await start_in_turn(cluster)
        await cluster.pass_time(4.0 + seconds + 5.0)
        leads = [moment for moment, number in cluster.history if number == 0]
        frozen = [moment for moment in leads if 5.0 + LEASE_SECONDS - MARGIN_SECONDS < moment < 5.0 + seconds]
        assert not frozen
        assert cluster.leaders == ([1] if seconds > LEASE_SECONDS else [0])

    play(scenario, troubles=[Trouble(0, "freeze", 5.0, seconds)])


@pytest.mark.parametrize("tenths", range(0, 25, 2))
def test_a_renewal_that_was_on_its_way_when_the_leader_froze_opens_no_fence_after_the_thaw(tenths: int) -> None:
    async def scenario(cluster: Cluster) -> None:
        await start_in_turn(cluster)
        await cluster.pass_time(40.0)
        assert cluster.leaders == [1]

    play(scenario, troubles=[Trouble(0, "freeze", 5.0 + tenths / 10, 20.0)], latency=lambda: 0.3)


def test_a_leader_that_is_cut_off_stops_before_another_can_lead() -> None:
    async def scenario(cluster: Cluster) -> None:
        await start_in_turn(cluster)
        await cluster.pass_time(60.0)
        ended = max(moment for moment, number in cluster.history if number == 0)
        began = min(moment for moment, number in cluster.history if number == 1)
        assert ended <= 5.0 + LEASE_SECONDS - MARGIN_SECONDS
        assert began - ended >= BIND_TIMEOUT_SECONDS
        told = next(moment for moment, leading in cluster.processes[0].changes if not leading)
        assert ended < told < began

    play(scenario, troubles=[Trouble(0, "lose requests", 5.0, 60.0)])


def test_renewals_whose_answers_are_lost_do_not_count() -> None:
    async def scenario(cluster: Cluster) -> None:
        await start_in_turn(cluster)
        await cluster.pass_time(11.0)
        assert cluster.server.writes[-1][0] - cluster.server.writes[0][0] > 5.0  # renewed, as the server sees it
        assert cluster.leaders == []
        await cluster.pass_time(3.0)
        assert cluster.leaders == [0]

    play(scenario, troubles=[Trouble(0, "lose answers", 5.0, 7.0)])


def test_without_a_server_nobody_leads_and_with_it_somebody_does_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        await start_in_turn(cluster)
        cluster.server.is_down = True
        await cluster.pass_time(LEASE_SECONDS)
        assert cluster.leaders == []
        problem = cluster.processes[0].elector.problem
        assert problem is not None
        assert "timed out" in problem
        await cluster.pass_time(60.0)
        cluster.server.is_down = False
        assert await cluster.find_next_leader() < 4.0
        await cluster.pass_time(3.0)
        assert cluster.processes[0].elector.problem is None

    play(scenario)


def test_a_lease_is_judged_by_the_own_clock_and_never_by_its_times() -> None:
    async def scenario(cluster: Cluster) -> None:
        await start_in_turn(cluster)
        await cluster.processes[0].kill()
        cluster.server.edit(renewTime="1970-01-01T00:00:00.000000Z", acquireTime="2999-01-01T00:00:00.000000Z")
        assert await cluster.find_next_leader() >= LEASE_SECONDS - STEP

    play(scenario)


def test_whoever_has_just_started_waits_for_a_whole_lease() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.processes[0].start()
        await cluster.pass_time(1.0)
        await cluster.processes[0].kill()
        await cluster.pass_time(100.0)
        cluster.processes[1].start()
        assert LEASE_SECONDS <= await cluster.find_next_leader() < LEASE_SECONDS + 2.0

    play(scenario)


@pytest.mark.parametrize(
    ("claimed", "waited"), [(15, 15.0), (1, LEASE_SECONDS), (None, LEASE_SECONDS), (10**9, MAX_FOREIGN_LEASE_SECONDS)]
)
def test_a_foreign_lease_is_respected_for_its_own_time_within_reason(claimed: int | None, waited: float) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.server.carry_out("POST", LEASES, make_lease("somebody", leaseDurationSeconds=claimed))
        start_all(cluster)
        assert waited <= await cluster.find_next_leader() < waited + 2.0

    play(scenario, processes=1)


LEASES = "/apis/coordination.k8s.io/v1/namespaces/fairbind-system/leases"


def make_lease(holder: str | None, **spec: Any) -> bytes:
    return json.dumps(
        {"metadata": {"name": "fairbind", "labels": {"kept": "yes"}}, "spec": {"holderIdentity": holder, **spec}}
    ).encode()


@pytest.mark.parametrize("holder", ["", None])
def test_a_lease_that_nobody_holds_is_taken_at_once_and_the_rest_of_it_kept(holder: str | None) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.server.carry_out(
            "POST", LEASES, make_lease(holder, leaseTransitions=41, strategy="OldestEmulationVersion")
        )
        start_all(cluster)
        assert await cluster.find_next_leader() < 0.5
        assert cluster.server.lease is not None
        assert cluster.server.lease["metadata"]["labels"] == {"kept": "yes"}
        assert cluster.server.lease["spec"]["leaseTransitions"] == 42
        assert cluster.server.lease["spec"]["strategy"] == "OldestEmulationVersion"

    play(scenario, processes=1)


def test_a_lease_without_a_spec_is_taken() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.server.lease = {"metadata": {"name": "fairbind", "uid": "u", "resourceVersion": "7"}}
        start_all(cluster)
        assert await cluster.find_next_leader() < 0.5

    play(scenario, processes=1)


def test_an_edit_that_changes_no_holder_costs_no_lead() -> None:
    async def scenario(cluster: Cluster) -> None:
        await start_in_turn(cluster)
        for _ in range(10):
            cluster.server.edit(renewTime="2020-01-01T00:00:00.000000Z")
            await cluster.pass_time(1.7)
            assert cluster.leaders == [0]
        assert len(cluster.processes[0].changes) == 1

    play(scenario)


def test_a_lease_that_was_given_to_another_by_hand_ends_the_lead_at_the_next_renewal() -> None:
    async def scenario(cluster: Cluster) -> None:
        await start_in_turn(cluster)
        cluster.server.edit(holderIdentity="somebody")
        await cluster.pass_time(RENEW_SECONDS + 0.5)
        assert cluster.leaders == []
        assert LEASE_SECONDS - RENEW_SECONDS - 1.0 <= await cluster.find_next_leader() < LEASE_SECONDS + 2.0

    play(scenario)


def test_a_deleted_lease_is_made_anew_by_its_holder_and_not_taken_by_others() -> None:
    async def scenario(cluster: Cluster) -> None:
        await start_in_turn(cluster)
        for _ in range(5):
            cluster.server.lease = None
            await cluster.pass_time(7.3)
            assert cluster.leaders == [0]

    play(scenario, processes=3)


def test_a_lease_that_was_deleted_with_its_holder_dead_is_taken_after_its_time() -> None:
    async def scenario(cluster: Cluster) -> None:
        await start_in_turn(cluster)
        await cluster.processes[0].kill()
        cluster.server.lease = None
        assert LEASE_SECONDS <= await cluster.find_next_leader() < LEASE_SECONDS + 2.0

    play(scenario)


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (ApiError(403, "Forbidden", "leases is forbidden"), ["is forbidden", "Role", "'fairbind'", "fairbind-system"]),
        (ApiError(404, "NotFound", 'namespaces "fairbind-system" not found'), ["namespaces", "must exist"]),
        (ApiError(500, "InternalError", "boom"), ["boom"]),
    ],
)  # fmt: skip
def test_a_refusal_says_what_to_do_rarely_and_the_election_goes_on_when_it_is_over(
    refusal: ApiError, words: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.server.refusal = refusal
        start_all(cluster)
        await cluster.pass_time(59.0)
        assert cluster.leaders == []
        problem = cluster.processes[0].elector.problem
        assert problem is not None
        assert all(word in problem for word in words)
        assert [record.getMessage() for record in caplog.records] == [problem]
        await cluster.pass_time(60.0)
        assert len(caplog.records) == 2
        cluster.server.refusal = None
        assert await cluster.find_next_leader() < 2.0
        assert cluster.processes[0].elector.problem is None

    play(scenario, processes=1)


def test_a_lead_that_was_interrupted_is_told_as_a_new_one() -> None:
    """The other led and gave the lease back while the first was frozen in the middle of a renewal."""

    async def scenario(cluster: Cluster) -> None:
        frozen, other = cluster.processes
        frozen.start()
        await cluster.pass_time(0.5)
        other.start()
        begun = frozen.writes_begun
        while frozen.writes_begun == begun:  # noqa: ASYNC110 - on the virtual clock
            await asyncio.sleep(0.001)
        cluster.server.edit(renewTime="x")  # so that the renewal fails, and the lease is looked at after the thaw
        frozen.troubles.append(Trouble(0, "freeze", frozen.now, 30.0))
        await cluster.pass_time(20.0)
        assert cluster.leaders == [1]
        await other.stop()
        await cluster.pass_time(30.0)
        assert cluster.leaders == [0]
        assert [leading for _, leading in frozen.changes] == [True, False, True]

    play(scenario)


class TestRelease:
    def test_a_lease_of_another_is_left_alone(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            await start_in_turn(cluster)
            cluster.server.edit(holderIdentity="somebody")
            await cluster.processes[0].stop()
            assert cluster.server.holder == "somebody"

        play(scenario, processes=1)

    def test_a_renewal_whose_answer_was_lost_is_not_in_its_way(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            await start_in_turn(cluster)
            cluster.server.edit(renewTime="x")  # as if an unknown renewal had been carried out
            await cluster.processes[0].stop()
            assert cluster.server.holder == ""
            assert cluster.server.lease is not None
            assert cluster.server.lease["spec"]["leaseDurationSeconds"] == 1

        play(scenario, processes=1)

    def test_the_fence_closes_before_it_is_told(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            await start_in_turn(cluster)
            cluster.server.is_down = True
            stopping = asyncio.create_task(cluster.processes[0].stop())
            await asyncio.sleep(0.001)
            assert cluster.leaders == []
            await stopping
            assert cluster.server.holder == "operator-0"  # it runs out

        play(scenario, processes=1)

    def test_a_lease_that_is_gone_needs_no_release(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            await start_in_turn(cluster)
            cluster.server.lease = None
            await cluster.processes[0].stop()
            assert cluster.server.lease is None

        play(scenario, processes=1)

    def test_a_standby_has_nothing_to_release(self) -> None:
        async def scenario(cluster: Cluster) -> None:
            await start_in_turn(cluster)
            writes = len(cluster.server.writes)
            await cluster.processes[1].stop()
            assert len(cluster.server.writes) == writes

        play(scenario)


def test_an_answer_that_makes_no_sense_is_a_problem_and_not_an_end() -> None:
    class Nonsense(LeaseServer):
        is_mad = True

        def carry_out(self, method: str, path: str, body: bytes | None) -> bytes:
            return b"<html>" if self.is_mad else super().carry_out(method, path, body)

    async def main() -> None:
        server = Nonsense()
        process = Process(0, server)
        process.start()
        await asyncio.sleep(5.0)
        assert process.elector.problem is not None
        server.is_mad = False
        await asyncio.sleep(3.0)
        assert process.elector.leading
        await process.kill()

    run_virtual(main())


troubles = st.lists(
    st.builds(
        Trouble,
        process=st.integers(0, 2),
        kind=st.sampled_from(["freeze", "freeze", "lose requests", "lose answers", "slow"]),
        start=st.floats(0.0, 80.0).map(lambda moment: round(moment, 2)),
        seconds=st.one_of(st.floats(0.5, 3.0), st.floats(5.0, 16.0), st.floats(16.0, 60.0)),
    ),
    max_size=12,
)
stops = st.lists(st.tuples(st.integers(0, 2), st.floats(1.0, 90.0)), max_size=3)


@pytest.mark.slow
@given(troubles=troubles, stops=stops, seed=st.integers(0, 2**16), paces=st.tuples(*[st.floats(0.99, 1.01)] * 3))
def test_never_two_may_bind_whatever_happens(
    troubles: list[Trouble], stops: list[tuple[int, float]], seed: int, paces: tuple[float, float, float]
) -> None:
    randomness = random.Random(seed)

    async def scenario(cluster: Cluster) -> None:
        for process, pace in zip(cluster.processes, paces, strict=True):
            process.pace = pace
        start_all(cluster)
        released: list[tuple[int, float]] = []
        for number, moment in sorted(stops, key=lambda stop: stop[1]):
            await cluster.pass_time(max(0.0, moment - cluster.now))
            process = cluster.processes[number]
            if process.task is not None and not process.task.done():
                await process.stop()
                released.append((number, cluster.now))
        await cluster.pass_time(160.0 - cluster.now)
        check_gaps(cluster.history, {number for number, _ in released})
        if len(released) < len(cluster.processes):
            assert cluster.leaders, "all troubles are over and nobody leads"

    play(scenario, 3, troubles, latency=lambda: randomness.choice([0.002, 0.02, 0.3, 1.2]))


def check_gaps(history: list[tuple[float, int]], released: set[int]) -> None:
    """What one sent as the last thing has ended before the next may send; who gave the lease back had nothing left."""
    for (earlier, before), (later, after) in itertools.pairwise(history):
        if before != after and before not in released:
            assert later - earlier >= BIND_TIMEOUT_SECONDS, f"{before} until {earlier:.2f}, {after} from {later:.2f}"


def test_identities_are_never_the_same() -> None:
    assert len({make_identity() for _ in range(100)}) == 100


def test_the_steady_clock_goes_on() -> None:
    first = read_steady_clock()
    assert read_steady_clock() >= first


def test_a_new_elector_does_not_lead() -> None:
    async def main() -> None:
        process = Process(0, LeaseServer())
        assert not process.elector.leading
        assert not process.elector.may_bind(0.0)
        assert isinstance(process.elector, Elector)

    run_virtual(main())


def test_nobody_leads_for_ever_because_he_renews_for_a_deciding_side_that_is_dead() -> None:
    """The elector runs in a thread of its own: its life says nothing about that of the scheduling loop."""

    async def scenario(cluster: Cluster) -> None:
        await start_in_turn(cluster)
        dead = cluster.processes[0].elector
        dead._may_stand = lambda: False
        await cluster.pass_time(LEASE_SECONDS - MARGIN_SECONDS + RENEW_SECONDS)
        assert not dead.may_bind()
        assert dead.problem is not None
        assert "does not turn" in dead.problem
        await cluster.pass_time(LEASE_SECONDS)
        assert cluster.leaders == [1]
        assert [leading for _, leading in cluster.processes[0].changes] == [True, False]
        await cluster.processes[1].stop()
        await cluster.pass_time(LEASE_SECONDS)
        assert cluster.leaders == []  # who cannot act does not take it either
        dead._may_stand = lambda: True
        await cluster.pass_time(2 * RENEW_SECONDS)
        assert cluster.leaders == [0]
        assert dead.problem is None

    play(scenario)


def test_each_loss_begins_a_term() -> None:
    async def scenario(cluster: Cluster) -> None:
        start_all(cluster)
        await cluster.find_next_leader()
        elector = cluster.processes[0].elector
        assert elector.term == 0
        cluster.server.is_down = True
        await cluster.pass_time(LEASE_SECONDS)
        assert (elector.term, elector.may_bind()) == (1, False)
        cluster.server.is_down = False
        await cluster.pass_time(LEASE_SECONDS)
        assert (elector.term, elector.may_bind()) == (1, True)

    play(scenario, processes=1)


def test_the_fence_reads_its_value_once() -> None:
    """Another thread may exchange it at any moment."""
    values: list[float | None] = [1e12, None]

    class Changing(Elector):
        @property
        def _holds_until(self) -> float | None:
            return values.pop(0)

        @_holds_until.setter
        def _holds_until(self, value: float | None) -> None:
            pass

    server: Any = None
    assert Changing(server, "fairbind-system", identity="me").may_bind()
    assert values == [None]
