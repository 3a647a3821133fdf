from __future__ import annotations

import itertools
from typing import Any

import pytest

from fairbind.cluster.loop.pacing_events import (
    BindResult,
    Forget,
)
from fairbind.model import InvariantError
from fairbind.scheduling import POLICIES
from fairbind.simulator import driver
from fairbind.simulator.baselines.registry import KNOWN_POLICIES
from fairbind.simulator.driver import StopRun, simulate
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.results import Run
from fairbind.simulator.workload import draw_workload
from fairbind.what_if import virtual_operator
from fairbind.what_if.virtual_operator import VirtualOperator
from nights import leave_to_nights
from simulator.scenarios import SECOND, check_capacity, find_attempts, find_starts, make_entry, make_scenario, run

ALL = sorted(KNOWN_POLICIES)


def test_a_cycle_runs_at_each_instant_and_takes_no_time() -> None:
    result = run(make_scenario(make_entry(tasks=None, arrival={"times": [0.25, 1.5]}, duration=2.125)))

    assert find_attempts(result) == {"w-0": [(0.25, 0.25, 2.375, "n-0")], "w-1": [(1.5, 1.5, 3.625, "n-0")]}


def test_what_ends_comes_before_what_arrives() -> None:
    late = make_entry("late", cpu=4, arrival={"at": 10})
    result = run(make_scenario(make_entry(cpu=4, duration=10), late))

    assert find_starts(result) == {"w-0": 0, "late-0": 10}


def test_sums_of_times_are_exact() -> None:
    """0.1 + 0.2 is not 0.3 in floating point, and then the arrival would come before the end."""
    first = make_entry(cpu=4, arrival={"at": 0.1}, duration=0.2)
    result = run(make_scenario(first, make_entry("late", cpu=4, arrival={"at": 0.3})))

    assert find_starts(result) == {"w-0": 0.1, "late-0": 0.3}


def test_a_cycle_sees_all_changes_of_its_instant() -> None:
    """Both tenants arrive at once; had the first one's tasks been decided alone, it would have everything."""
    result = run(make_scenario(make_entry(tasks=4), make_entry("v", tenant="b", tasks=4), tenants="ab"))

    starts = find_starts(result)
    assert sorted(task for task, start in starts.items() if start == 0) == ["v-0", "v-1", "w-0", "w-1"]


@pytest.mark.parametrize("policy", ALL)
def test_tasks_of_one_instant_start_in_order_under_every_policy(policy: str) -> None:
    result = run(make_scenario(make_entry("z", tasks=11, cpu=4), make_entry("b", tasks=2, cpu=4)), policy)

    order = sorted(find_starts(result).items(), key=lambda pair: pair[1] or 0)
    assert [task for task, _ in order] == [*(f"z-{index}" for index in range(11)), "b-0", "b-1"]


def test_fifo_goes_by_entry_across_tenants() -> None:
    entries = [make_entry("z", tenant="b", cpu=4), make_entry("a", tenant="a", cpu=4)]
    result = run(make_scenario(*entries, tenants="ab"), "fifo")

    assert find_starts(result) == {"z-0": 0, "a-0": 10}


def test_higher_priorities_come_first_inside_a_tenant() -> None:
    urgent = make_entry("urgent", pod={"requests": {"cpu": 4}, "priority": 5})
    result = run(make_scenario(make_entry(cpu=4), urgent))

    assert find_starts(result) == {"urgent-0": 0, "w-0": 10}


def test_at_the_horizon_the_run_ends() -> None:
    entries = [
        make_entry("ends", duration=10),
        make_entry("runs", duration=11),
        make_entry("waits", cpu=4, arrival={"at": 1}),
        make_entry("comes", arrival={"at": 10}),
        make_entry("late", arrival={"at": 10.5}),
    ]
    result = run(make_scenario(*entries, horizon=10))

    assert find_attempts(result) == {
        "ends-0": [(0, 0, 10, "n-0")],
        "runs-0": [(0, 0, None, "n-0")],
        "waits-0": [(1, None, None, None)],
        "comes-0": [(10, 10, None, "n-0")],
    }
    assert result.end == 10 * SECOND


def test_with_a_horizon_the_run_goes_on_to_it_though_nothing_happens() -> None:
    assert run(make_scenario(horizon=50)).end == 50 * SECOND


def test_without_a_horizon_the_run_ends_when_nothing_waits_or_runs() -> None:
    result = run(make_scenario(events=[{"at": 99, "addNodes": {"shape": "n"}}]))

    assert result.end == 10 * SECOND


def test_without_a_horizon_the_run_ends_when_nothing_can_change_any_more() -> None:
    entries = [make_entry(duration="forever", cpu=3), make_entry("waits", cpu=2, arrival={"at": 5})]
    result = run(make_scenario(*entries, events=[{"at": 20, "cordon": ["n-0"]}]))

    assert (result.end, find_starts(result)) == (20 * SECOND, {"w-0": 0, "waits-0": None})


def test_pods_of_a_removed_node_wait_again_and_start_anew() -> None:
    events = [{"at": 4, "removeNodes": ["n-0"]}, {"at": 6, "addNodes": {"shape": "n", "count": 1}}]
    result = run(make_scenario(make_entry(tasks=2, cpu=2), events=events))

    assert find_attempts(result) == {
        "w-0": [(0, 0, None, "n-0"), (0, 6, 16, "n-1")],
        "w-1": [(0, 0, None, "n-0"), (0, 6, 16, "n-1")],
    }


def test_a_lost_pod_may_stay_without_another_attempt() -> None:
    result = run(make_scenario(events=[{"at": 4, "removeNodes": ["n-0"]}]))

    assert find_attempts(result) == {"w-0": [(0, 0, None, "n-0")]}
    assert (result.summary["decisions"], result.summary["unfinished"]) == (1, 1)


def test_a_task_that_ends_when_its_node_goes_has_ended() -> None:
    result = run(make_scenario(events=[{"at": 10, "removeNodes": ["n-0"]}]))

    assert find_attempts(result) == {"w-0": [(0, 0, 10, "n-0")]}


def test_numbers_of_nodes_are_not_used_again() -> None:
    events = [
        {"at": 1, "removeNodes": ["n-1", "n-0"]},
        {"at": 2, "addNodes": {"shape": "n", "count": 2}},
    ]
    result = run(make_scenario(make_entry(tasks=2, cpu=4, arrival={"at": 3}), count=2, events=events))

    assert {attempts[0][3] for attempts in find_attempts(result).values()} == {"n-2", "n-3"}


def test_a_cordoned_node_takes_nothing_until_it_is_uncordoned() -> None:
    events = [{"at": 1, "cordon": ["n-0"]}, {"at": 7, "uncordon": ["n-0"]}]
    result = run(make_scenario(make_entry(), make_entry("late", arrival={"at": 2}), events=events))

    assert find_starts(result) == {"w-0": 0, "late-0": 7}
    assert find_attempts(result)["w-0"][0][2] == 10, "what runs there goes on"


def test_what_an_event_concerns_goes_on_within_its_instant_however_much_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairbind.cluster.classes.due.MAX_DUE", 1)
    events = [{"at": 1, "cordon": ["n-0"]}, {"at": 7, "uncordon": ["n-0"]}]
    late = [make_entry(f"late{n}", cpu=0.2 + 0.01 * n, arrival={"at": 2}) for n in range(5)]
    result = run(make_scenario(*late, events=events))

    assert find_starts(result) == {f"late{n}-0": 7 for n in range(5)}


def test_a_weight_counts_from_its_event_on() -> None:
    """Both hold one of four slots of 1 cpu each time; from the event on a may have three."""
    entries = [make_entry(f"{tenant}w", tenant=tenant, tasks=20, duration=10) for tenant in "ab"]
    result = run(make_scenario(*entries, tenants="ab", events=[{"at": 10, "tenant": {"name": "a", "weight": 3}}]))

    running = {row.time // SECOND: row.running for row in result.shares if row.tenant == "a"}
    assert (running[0], running[10]) == (2, 3)


def test_a_tenant_above_others_has_what_they_have_and_pods_move_with_a_child() -> None:
    """Of four cores a and b hold one each below top, and two users of c one each; then b leaves top."""
    entries = [make_entry(f"{tenant}w", tenant=tenant, duration=100) for tenant in "ab"]
    for user in "xy":
        pod = {"requests": {"cpu": 1}, "labels": {"user": user}}
        entries.append({**make_entry(f"c{user}", tenant="c", duration=100), "pod": pod})
    document = make_scenario(*entries, horizon=20, events=[{"at": 10, "tenant": {"name": "b", "parent": None}}])
    document["tenants"] = [
        {"name": "top"},
        {"name": "a", "parent": "top"},
        {"name": "b", "parent": "top"},
        {"name": "c", "users": {"label": "user"}},
    ]
    rows = {(row.time // SECOND, row.tenant): row for row in run({**document, "measureEvery": 5}).shares}

    assert {tenant for _, tenant in rows} == {"top", "a", "b", "c"}
    assert [(rows[time, "top"].running, rows[time, "top"].dominant_share) for time in (5, 15)] == [(2, 0.5), (1, 0.25)]
    assert [rows[time, "top"].fair_share for time in (5, 15)] == pytest.approx([0.5, 0.25])
    assert [(rows[time, "c"].running, rows[time, "c"].dominant_share) for time in (5, 15)] == [(2, 0.5), (2, 0.5)]


def test_a_removed_tenant_keeps_its_pods_at_weight_1() -> None:
    document = make_scenario(
        *(make_entry(f"{tenant}w", tenant=tenant, tasks=20, duration=10) for tenant in "ab"),
        tenants="ab",
        events=[{"at": 10, "removeTenant": "a"}],
        horizon=15,
    )
    document["tenants"][0]["weight"] = 3
    result = run(document)

    rows = {(row.time // SECOND, row.tenant): row for row in result.shares}
    assert (rows[0, "a"].running, rows[10, "a"].running, rows[10, "b"].running) == (3, 2, 2)
    assert rows[10, "a"].fair_share == pytest.approx(0.5)


def test_a_backlog_beyond_one_cycles_limit_is_decided_in_one_instant() -> None:
    result = run(
        make_scenario(make_entry(tasks=700, cpu=0.1), cpu=65, horizon=5)
        | {"cluster": [{"shape": "n", "capacity": {"cpu": 65}}]}
    )

    starts = find_starts(result)
    assert [task for task, start in starts.items() if start == 0] == [f"w-{index}" for index in range(650)]
    assert len(starts) == 700


def test_many_classes_are_recalled_and_decided_as_ever() -> None:
    """So many classes that the cycle recalls what fitted nowhere."""
    entries = [make_entry(f"w{n}", cpu=2 + n / 1000, arrival={"every": 1}, tasks=2) for n in range(210)]
    result = run(make_scenario(*entries, horizon=30))

    check_capacity(result, 4, {f"w{n}": 2 + n / 1000 for n in range(210)}, 30)
    assert sum(start is not None for start in find_starts(result).values()) == 4


@pytest.mark.slow
def test_to_explain_waits_again_and_again_changes_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        make_entry(f"w{n}", cpu=1 + n % 7 / 2, arrival={"at": n % 11}, tasks=2, duration=7 + n % 5) for n in range(210)
    ]
    scenario = make_scenario(*entries, horizon=120)
    explains: list[bool] = []

    def make(*arguments: Any, **more: Any) -> VirtualOperator:
        explains.append(more.pop("explains"))
        return VirtualOperator(*arguments, **more)

    result = run(scenario)
    monkeypatch.setattr(driver, "VirtualOperator", make)
    assert find_starts(run(scenario)) == find_starts(result)
    assert explains == [False]


@pytest.mark.slow
@pytest.mark.parametrize("policy", leave_to_nights(sorted(POLICIES), but={"best-fit-drfh", "ps-dsf", "drbf"}))
def test_no_node_runs_more_than_it_has_and_nothing_waits_beside_room(policy: str) -> None:
    entries = [
        make_entry("small", tasks=40, arrival={"poisson": 2}, duration={"exponential": 5}),
        make_entry("large", tenant="b", tasks=20, cpu=3, arrival={"poisson": 1}, duration={"uniform": [2, 9]}),
    ]
    # What is reserved for a tenant that is behind may be idle for a while, so this is judged without it.
    off = {"mode": "Off"}
    document = make_scenario(*entries, count=2, tenants="ab", seed=3, measureEvery=1000, reservations=off)
    result = run(document, policy)

    cpu = {"small": 1.0, "large": 3.0}
    check_capacity(result, 4, cpu, 1e9)
    assert all(attempts[-1][2] is not None for attempts in find_attempts(result).values()), "all end"
    assert find_idle_moment(result, 4, 2, cpu) is None


def find_idle_moment(result: Run, node_cpu: float, nodes: int, cpu: dict[str, float]) -> tuple[float, str] | None:
    """Return a time and a task that waits then although a node has room for it; None: work is conserved."""
    attempts = {task: rows[0] for task, rows in find_attempts(result).items()}
    for moment in sorted({start for _, start, _, _ in attempts.values() if start is not None}):
        used = dict.fromkeys((f"n-{number}" for number in range(nodes)), 0.0)
        for task, (_, start, end, server) in attempts.items():
            if start is not None and end is not None and server is not None and start <= moment < end:
                used[server] += cpu[task.rpartition("-")[0]]
        for task, (arrival, start, _, _) in attempts.items():
            is_waiting = arrival <= moment and (start is None or start > moment)
            if is_waiting and any(amount + cpu[task.rpartition("-")[0]] <= node_cpu for amount in used.values()):
                return moment, task
    return None


@pytest.mark.slow
def test_all_policies_see_the_same_tasks() -> None:
    document = make_scenario(make_entry(tasks=20, arrival={"poisson": 1}, duration={"exponential": 8}), horizon=60)

    seen = [[(row.task, row.arrival) for row in run(document, policy).tasks if row.attempts <= 1] for policy in ALL]
    assert all(rows == seen[0] for rows in seen)


def test_the_same_seed_gives_the_same_run() -> None:
    document = make_scenario(make_entry(tasks=30, arrival={"poisson": 3}, duration={"exponential": 8}), count=3)

    assert run(document, "two-choices-drfh") == run(document, "two-choices-drfh")


def test_a_run_that_is_stopped_keeps_what_was_decided() -> None:
    scenario = parse_scenario(make_scenario(make_entry(tasks=9, cpu=4), measureEvery=1))
    looks: list[float] = []

    def watch(part: float) -> bool:
        looks.append(part)
        return len(looks) > 8

    result = simulate(scenario, draw_workload(scenario), "ps-dsf", watch)

    assert result.interrupted
    assert looks == sorted(looks)
    assert 0 < sum(row.end is not None for row in result.tasks) < 9
    assert len(result.tasks) == 9
    assert result.shares[-1].time <= result.end
    assert result.summary["tenants"]["a"]["fair_share"]["worst_part"] == 1, "an instant cut short is not measured"


def test_a_run_may_be_stopped_amid_an_instant() -> None:
    """By an exception, as a signal's handler raises it."""
    scenario = parse_scenario(make_scenario(make_entry(tasks=9, cpu=4), measureEvery=1))
    looks = itertools.count()

    def watch(_part: float) -> bool:
        if next(looks) == 9:
            raise StopRun
        return False

    result = simulate(scenario, draw_workload(scenario), "ps-dsf", watch)

    assert result.interrupted
    assert 0 < sum(row.end is not None for row in result.tasks) < 9


def test_a_binding_that_fails_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing fails in a simulation. If pacing said so all the same, the tables would be wrong from there on."""
    monkeypatch.setattr(virtual_operator, "BindResult", type("Failing", (), {"BOUND": BindResult.STALE}))

    with pytest.raises(InvariantError, match=Forget.__name__):
        run(make_scenario())


@pytest.mark.slow
def test_more_placements_than_a_cycle_looks_at_are_all_looked_at_in_their_instant() -> None:
    """Each pod may go to one of 300 nodes only, and half of these are full; a snapshot shows 128 placements."""
    document = make_scenario(
        *(make_entry(f"w{n}", cpu=2, pod={"requests": {"cpu": 2}, "nodeSelector": {"n": str(n)}}) for n in range(300)),
        *(
            make_entry(
                f"full{n}", pod={"requests": {"cpu": 3}, "priority": 1, "nodeSelector": {"n": str(n)}}, duration=5
            )
            for n in range(150)
        ),
    )
    document["cluster"] = [{"shape": f"s{n}", "capacity": {"cpu": 4}, "labels": {"n": str(n)}} for n in range(300)]
    starts = find_starts(run(document))

    assert {starts[f"full{n}-0"] for n in range(150)} == {0}
    assert {starts[f"w{n}-0"] for n in range(150)} == {5}
    assert {starts[f"w{n}-0"] for n in range(150, 300)} == {0}
