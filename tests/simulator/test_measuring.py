from __future__ import annotations

import pytest

from fairbind.model import SolverError
from fairbind.scheduling import POLICIES
from fairbind.simulator.driver import simulate
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.time_mean import TimeMean
from fairbind.simulator.workload import draw_workload
from fairbind.what_if import fair_shares
from simulator.scenarios import SECOND, Json, find_starts, make_entry, make_scenario, run


def test_a_mean_over_time_leaves_out_times_without_a_value() -> None:
    mean = TimeMean()
    assert mean.compute(5) is None
    mean.set(1.0, 5)
    mean.set(None, 10)
    mean.set(4.0, 20)

    assert mean.compute(25) == pytest.approx((1.0 * 5 + 4.0 * 5) / 10)


def test_shares_are_measured_from_the_start_to_the_end_each_after_its_instants_cycle() -> None:
    entries = [make_entry(duration=20, cpu=2), make_entry("late", tenant="b", arrival={"at": 10}, cpu=3)]
    result = run(make_scenario(*entries, tenants="ab", measureEvery=5))

    rows = [
        (row.time // SECOND, row.tenant, row.dominant_share, row.running, row.pending)
        for row in result.shares
        if row.time in {5 * SECOND, 10 * SECOND, 20 * SECOND}
    ]
    assert rows == [
        (5, "a", 0.5, 1, 0),
        (5, "b", 0, 0, 0),
        (10, "a", 0.5, 1, 0),
        (10, "b", 0, 0, 1),
        (20, "a", 0, 0, 0),
        (20, "b", 0.75, 1, 0),
    ]
    assert sorted({row.time // SECOND for row in result.shares}) == [0, 5, 10, 15, 20, 25, 30]


def test_shares_count_nodes_that_are_there_and_not_cordoned_and_no_weights() -> None:
    document = make_scenario(
        make_entry(duration=50, cpu=2),
        count=2,
        measureEvery=1,
        events=[{"at": 2, "cordon": ["n-1"]}, {"at": 4, "removeNodes": ["n-1"]}, {"at": 6, "addNodes": {"shape": "n"}}],
        horizon=6,
    )
    document["tenants"][0]["weight"] = 4

    result = run(document)
    shares = [row.dominant_share for row in result.shares]
    assert shares == [0.25, 0.25, 0.5, 0.5, 0.5, 0.5, 0.25]
    capacity = [row.capacity for row in result.utilisation if row.resource == "cpu"]
    assert capacity == [8, 8, 8, 8, 4, 4, 8], "a cordoned node is there and may run pods"


def test_utilisation_says_by_shape_and_resource_what_is_used() -> None:
    document = make_scenario(make_entry(tasks=3, cpu=0.5), measureEvery=100, guided=False)
    document["cluster"].append({"shape": "m", "count": 2, "capacity": {"cpu": 1, "example.com/gpu": 3}})

    rows = {(row.server_class, row.resource): (row.used, row.capacity) for row in run(document).utilisation}
    assert rows == {
        ("n", "cpu"): (1.5, 4),
        ("n", "memory"): (0, 16 * 2**30),
        ("n", "pods"): (3, 110),
        ("m", "cpu"): (0, 2),
        ("m", "example.com/gpu"): (0, 6),
        ("m", "pods"): (0, 2_000_000),
    }


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_fair_shares_are_those_of_the_policys_mechanism(policy: str) -> None:
    entries = [make_entry(f"{tenant}w", tenant=tenant, tasks=20) for tenant in "ab"]
    result = run(make_scenario(*entries, tenants="ab", horizon=5), policy)

    expected = None if POLICIES[policy].mechanism is None else pytest.approx(0.5, abs=1e-6)
    assert [row.fair_share for row in result.shares] == [expected] * 2


def test_who_wants_nothing_has_no_fair_share() -> None:
    result = run(make_scenario(make_entry(arrival={"at": 3}), tenants="ab", horizon=4, measureEvery=2))

    assert [row.fair_share for row in result.shares] == [0, 0, 0, 0, pytest.approx(0.25), 0]


def test_a_solver_that_fails_leaves_the_fair_share_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> object:
        raise SolverError("no answer")

    monkeypatch.setattr(fair_shares, "solve_exactly", fail)
    for policy in ("best-fit-drfh", "drfh"):
        result = run(make_scenario(make_entry(tasks=9), horizon=5), policy)
        assert [row.fair_share for row in result.shares] == [None]
        assert result.summary["share_error"] == {"mean": None, "max": None}
        assert list(find_starts(result).values()).count(0) == 4


def test_the_summary_counts_and_averages() -> None:
    entries = [
        make_entry(tasks=3, cpu=4, duration=10, arrival={"at": 5}),
        make_entry("never", tenant="b", cpu=5, duration=10),
    ]
    summary = run(make_scenario(*entries, tenants="abc", horizon=40, measureEvery=1)).summary

    assert (summary["decisions"], summary["completed"], summary["unfinished"]) == (3, 3, 1)
    assert summary["never_started"] == 1
    assert summary["makespan_seconds"] == 35, "the horizon cut nothing: no task could still end"
    assert summary["wait_seconds"] == {"mean": pytest.approx((0 + 10 + 20 + 40) / 4), "p95": pytest.approx(37)}
    assert summary["slowdown"] == {"mean": pytest.approx((1 + 2 + 3 + 5) / 4)}
    assert summary["utilisation"] == {"cpu": pytest.approx(30 / 40), "memory": 0, "pods": pytest.approx(30 / 40 / 110)}
    assert summary["tenants"]["a"] == {
        "arrived": 3,
        "completed": 3,
        "never_started": 0,
        "wait_seconds": {"mean": 10, "p95": pytest.approx(19)},
        "slowdown": {"mean": 2},
        "dominant_share": {"mean": pytest.approx(0.75)},
        "fair_share": {"mean_part": 1, "worst_part": 1},
    }
    assert summary["tenants"]["b"]["wait_seconds"] == {"mean": 40, "p95": 40}
    assert summary["tenants"]["b"]["slowdown"] == {"mean": 5}
    assert summary["tenants"]["c"] == {
        "arrived": 0,
        "completed": 0,
        "never_started": 0,
        "wait_seconds": {"mean": None, "p95": None},
        "slowdown": {"mean": None},
        "dominant_share": {"mean": 0},
        "fair_share": {"mean_part": None, "worst_part": None},
    }


def test_the_summary_of_a_run_of_no_time_has_no_means() -> None:
    summary = run(make_scenario(make_entry(duration="forever"))).summary

    assert summary["makespan_seconds"] is None
    assert summary["utilisation"] == {"cpu": None, "memory": None, "pods": None}
    assert (summary["jain"], summary["share_error"]) == (None, {"mean": None, "max": None})


def test_the_share_error_is_how_far_the_worst_waiting_tenant_is_below_its_fair_share() -> None:
    """Tenant a holds everything for 30 s while b waits for its half, which comes for 10 s after that."""
    entries = [
        make_entry(cpu=4, duration=30),
        make_entry("late", tenant="b", tasks=2, cpu=4, duration=5, arrival={"at": 10}),
    ]
    summary = run(make_scenario(*entries, tenants="ab", measureEvery=1)).summary

    assert summary["share_error"]["max"] == pytest.approx(0.5)
    assert summary["tenants"]["b"]["fair_share"]["worst_part"] == 0
    assert summary["jain"] is not None


def test_waits_count_up_to_the_first_start() -> None:
    events = [{"at": 4, "removeNodes": ["n-0"]}, {"at": 6, "addNodes": {"shape": "n"}}]
    tenant = run(make_scenario(events=events)).summary["tenants"]["a"]

    assert (tenant["wait_seconds"]["mean"], tenant["slowdown"]["mean"]) == (0, 1.6)


def test_tasks_that_never_start_have_waited_until_the_end_of_the_run() -> None:
    """One task of 10 s after the other: at 25 s two of 20 have ended, one runs and 17 have waited all the time."""
    summary = run(make_scenario(make_entry(tasks=20, cpu=4, duration=10), horizon=25)).summary

    waits = [0, 10, 20, *[25] * 17]
    assert summary["wait_seconds"] == {"mean": pytest.approx(sum(waits) / 20), "p95": 25}
    slowdowns = [1, 2, 3, *[3.5] * 17]
    assert summary["slowdown"] == {"mean": pytest.approx(sum(slowdowns) / 20)}
    assert summary["tenants"]["a"]["wait_seconds"] == summary["wait_seconds"]
    assert summary["tenants"]["a"]["slowdown"] == summary["slowdown"]
    assert (summary["completed"], summary["tenants"]["a"]["completed"]) == (2, 2)


def test_who_starves_a_tenant_does_not_wait_less() -> None:
    """Tenant a's tasks come first and hold all: the one of b that waits to the end weighs as much as any other."""
    late = make_entry("late", tenant="b", cpu=4, arrival={"at": 1})
    document = make_scenario(make_entry(tasks=11, cpu=4, duration=10), late, count=2, tenants="ab", horizon=45)
    starved, served = (run(document, policy) for policy in ("fifo", "best-fit-drfh"))

    assert starved.summary["tenants"]["b"]["wait_seconds"]["mean"] == 44
    assert served.summary["tenants"]["b"]["wait_seconds"]["mean"] == 9
    for result in (starved, served):
        tenants = result.summary["tenants"].values()
        waits = sum(tenant["wait_seconds"]["mean"] * tenant["arrived"] for tenant in tenants)
        assert result.summary["wait_seconds"]["mean"] == pytest.approx(waits / 12)


@pytest.mark.parametrize(("horizon", "makespan"), [(None, 30), (30, 30), (99, 30), (29, None), (5, None)])
def test_a_run_that_the_horizon_cut_has_no_makespan(horizon: int | None, makespan: int | None) -> None:
    more: Json = {} if horizon is None else {"horizon": horizon}
    forever = make_entry("service", cpu=0.5, duration="forever")
    summary = run(make_scenario(make_entry(tasks=3, cpu=3, duration=10), forever, **more)).summary

    assert summary["makespan_seconds"] == makespan
    assert summary["slowdown"]["mean"] is not None


def test_an_interrupted_run_has_no_makespan() -> None:
    scenario = parse_scenario(make_scenario(make_entry(tasks=3, cpu=3, duration=10)))
    result = simulate(scenario, draw_workload(scenario), "fifo", lambda part: part > 0.5)

    assert result.interrupted
    assert result.summary["completed"] > 0
    assert result.summary["makespan_seconds"] is None


def test_a_task_that_lost_its_node_and_waits_ends_as_early_as_it_still_may() -> None:
    """It starts at once, loses its node at 4 and waits until the run ends at 30; 10 s of its own are still to come."""
    events = [{"at": 4, "removeNodes": ["n-0"]}]
    summary = run(make_scenario(make_entry(duration=10), events=events, horizon=30)).summary

    assert (summary["wait_seconds"]["mean"], summary["slowdown"]["mean"]) == (0, pytest.approx(4))
