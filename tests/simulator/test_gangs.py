"""Groups in scenarios: what is refused, who starts together, and what the summary says of it."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairbind.cli import main
from fairbind.model import InvalidProblemError
from fairbind.simulator.baselines.registry import list_policies
from fairbind.simulator.gang_log import GangLog
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.results import Run
from fairbind.simulator.scenario import Scenario
from fairbind.simulator.workload import ALONE, Workload, draw_workload
from seeds import draw_seeds
from simulator.scenarios import SECOND, Json, find_attempts, find_starts, make_entry, make_scenario, run

ALL = sorted(list_policies())
RACKS: list[Json] = [
    {"shape": name, "count": 2, "capacity": {"cpu": 4}, "labels": {"rack": name}} for name in ("east", "west")
]


# --- what is refused ---


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            make_entry(tasks=7, gang={"min": 8}),
            "workload[0].gang.min: must be at most the number of tasks that arrive together, 7, not 8",
        ),
        (
            make_entry(tasks=None, arrival={"times": [0, 5, 5]}, gang={"min": 2}),
            "workload[0].gang.min: must be at most the number of tasks that arrive together at 0 s, 1, not 2",
        ),
        (make_entry(tasks=9, gang={"min": 2, "size": 4}), "workload[0].gang.size: must be a number that divides the 9"),
        (make_entry(tasks=8, gang={"min": 5, "size": 4}), "workload[0].gang.min: must be at most gang.size, 4, not 5"),
        (make_entry(tasks=8, arrival={"every": 1}, gang={"min": 2}), "workload[0].gang.size: is missing"),
        (make_entry(tasks=8, gang={"min": 0}), "workload[0].gang.min: must be a whole number from 1"),
        (make_entry(tasks=8, gang={}), "workload[0].gang.min: is missing"),
        (make_entry(tasks=8, gang={"min": 8, "max": 9}), "workload[0].gang.max"),
        (
            make_entry(tasks=8, gang={"min": 8, "topology": {"required": "rack", "preferred": "rack"}}),
            "workload[0].gang.topology",
        ),
        (
            make_entry(tasks=None, arrival={"poisson": 1000}, gang={"min": 1, "size": 1000}, duration=1),
            "up to the horizon there would be more than 10000000",
        ),
    ],
)
def test_groups_that_would_never_be_whole_are_refused(entry: Json, said: str) -> None:
    with pytest.raises(InvalidProblemError, match=re.escape(said)):
        parse_scenario(make_scenario(entry, horizon=100))


# --- who is in which group ---


def draw(entry: Json, **more: Any) -> Workload:
    return draw_workload(parse_scenario(make_scenario(entry, **more)))


def test_all_tasks_that_arrive_at_once_are_one_group_or_several_of_a_size() -> None:
    assert draw(make_entry(tasks=4, gang={"min": 4})).group_t.tolist() == [0, 0, 0, 0]
    assert draw(make_entry(tasks=4, gang={"min": 1, "size": 2})).group_t.tolist() == [0, 0, 1, 1]
    assert draw(make_entry(tasks=2)).group_t.tolist() == [ALONE, ALONE]


def test_tasks_of_one_time_are_a_group_wherever_they_stand_in_the_list() -> None:
    workload = draw(make_entry(tasks=None, arrival={"times": [9, 1, 9, 1]}, gang={"min": 2}))

    assert workload.index_t.tolist() == [1, 3, 0, 2]
    assert workload.group_t.tolist() == [0, 0, 1, 1]


def test_whole_groups_arrive_one_after_the_other() -> None:
    every = draw(make_entry(tasks=6, arrival={"every": 5, "at": 1}, gang={"min": 2, "size": 3}))
    poisson = draw(make_entry(tasks=None, arrival={"poisson": 0.5}, gang={"min": 2, "size": 3}), horizon=60)
    single = draw(make_entry(tasks=None, arrival={"poisson": 0.5}), horizon=60)

    assert every.arrival_t.tolist() == [1 * SECOND] * 3 + [6 * SECOND] * 3
    assert every.group_t.tolist() == [0, 0, 0, 1, 1, 1]
    assert poisson.arrival_t.tolist() == np.repeat(single.arrival_t, 3).tolist()
    assert poisson.group_t.tolist() == np.repeat(np.arange(len(single.arrival_t)), 3).tolist()


# --- who starts together ---


def test_the_minimum_starts_at_one_time_and_the_others_one_by_one() -> None:
    entries = [make_entry("now", cpu=2, duration=10), make_entry("g", tasks=4, gang={"min": 3}, duration=30)]
    result = run(make_scenario(*entries))

    assert find_starts(result) == {"now-0": 0, "g-0": 10, "g-1": 10, "g-2": 10, "g-3": 10}
    later = run(make_scenario(entries[0], make_entry("g", tasks=4, gang={"min": 2}, duration=30)))
    assert find_starts(later) == {"now-0": 0, "g-0": 0, "g-1": 0, "g-2": 10, "g-3": 10}


def test_a_group_that_never_fits_waits_to_the_end_and_holds_nothing() -> None:
    result = run(make_scenario(make_entry("g", tasks=5, gang={"min": 5}), make_entry("s"), horizon=50))

    assert [start for task, start in find_starts(result).items() if task.startswith("g")] == [None] * 5
    assert find_starts(result)["s-0"] == 0
    assert result.summary["gangs"] == {
        "arrived": 1, "started": 0, "wait_seconds": {"mean": 50, "max": 50}, "torn": 0, "interrupted": 0,
    }  # fmt: skip


def test_tasks_that_ended_count_towards_the_minimum() -> None:
    """The last task needs no other beside it once two of the three have ended."""
    entry = make_entry("g", tasks=4, cpu=2, gang={"min": 2}, duration={"each": [5, 9, 5, 5]})
    result = run(make_scenario(entry))

    assert find_starts(result) == {"g-0": 0, "g-1": 0, "g-2": 5, "g-3": 9}


def test_what_a_group_lost_with_a_node_is_replaced_before_others_start() -> None:
    events = [{"at": 5, "removeNodes": ["n-0"]}, {"at": 8, "addNodes": {"shape": "n", "count": 1}}]
    group = make_entry("g", tasks=2, cpu=4, gang={"min": 2}, duration=100)
    poorer = make_entry("s", tenant="b", tasks=9, cpu=4, arrival={"at": 1}, duration=100)
    result = run(make_scenario(group, poorer, tenants="ab", count=2, events=events, horizon=50))

    assert [start for _, start, _, _ in find_attempts(result)["g-0"]] == [0, 8]
    assert result.summary["tenants"]["a"]["gangs"]["interrupted"] == 1
    assert find_starts(result)["s-0"] is None


def find_racks(result: Run) -> list[set[str]]:
    """Return in which racks the tasks of each group started, for groups of four."""
    racks = defaultdict[int, set[str]](set)
    for row in result.tasks:
        if row.server is not None and row.task.startswith("g"):
            racks[int(row.task.rpartition("-")[2]) // 4].add(row.server.partition("-")[0])
    return [racks[number] for number in sorted(racks)]


@pytest.mark.parametrize(
    ("topology", "racks"),
    [({"required": "rack"}, [{"east"}, {"west"}]), ({"preferred": "rack"}, [{"east"}, {"west"}])],
)
def test_a_group_is_in_one_domain(topology: Json, racks: list[set[str]]) -> None:
    entry = make_entry("g", tasks=8, cpu=2, gang={"min": 4, "size": 4, "topology": topology})
    document = make_scenario(entry) | {"cluster": RACKS}

    assert sorted(find_racks(run(document)), key=sorted) == racks


def test_a_group_that_fits_in_no_domain_waits_where_it_must_be_in_one() -> None:
    def find(topology: Json) -> list[set[str]]:
        entry = make_entry("g", tasks=4, cpu=4, gang={"min": 4, "size": 4, "topology": topology})
        return find_racks(run(make_scenario(entry) | {"cluster": RACKS}))

    assert find({"required": "rack"}) == []
    assert find({"preferred": "rack"}) == [{"east", "west"}]


# --- what the summary says ---


def draw_scenario(seed: int) -> Json:
    """Return groups of several sizes beside single tasks, of three tenants on two kinds of nodes."""
    stream = np.random.default_rng(seed)

    def pick(*choices: Any) -> Any:
        return choices[int(stream.integers(len(choices)))]

    entries = []
    for number in range(6):
        size = pick(1, 2, 3, 5, 8)
        least = int(stream.integers(1, size + 1))
        groups = int(stream.integers(1, 5))
        more: Json = pick(
            {"arrival": {"at": pick(0, 3)}, "tasks": size * groups},
            {"arrival": {"poisson": 0.2}, "tasks": size * groups},
            {"arrival": {"every": 7}, "tasks": size * groups},
        )
        gang: Json = {} if size == 1 and pick(True, False) else {"gang": {"min": least, "size": size}}
        if gang and pick(True, False, False):
            gang["gang"]["topology"] = pick({"required": "rack"}, {"preferred": "rack"})
        duration = pick(5, {"exponential": 20}, {"uniform": [2, 30]})
        entries.append(make_entry(f"e{number}", tenant=pick("a", "b", "c"), cpu=pick(0.5, 1, 2), duration=duration,
                                  **more, **gang))  # fmt: skip
    return make_scenario(*entries, tenants="abc") | {"cluster": RACKS, "seed": seed, "horizon": 150}


def count_slowly(scenario: Scenario, result: Run) -> dict[str, dict[str, Any]]:
    """Return by tenant what the table of tasks says of groups, looked at after each instant."""
    workload, counted = draw_workload(scenario), dict[str, dict[str, Any]]()
    members = defaultdict[tuple[int, int], set[str]](set)
    for entry, index, group in zip(workload.entry_t, workload.index_t, workload.group_t, strict=True):
        if group != ALONE:
            members[int(entry), int(group)].add(f"{scenario.workload[entry].name}-{index}")
    times = sorted({time for row in result.tasks for time in (row.start, row.end) if time is not None})
    for (place, _), tasks in members.items():
        entry, rows = scenario.workload[place], [row for row in result.tasks if row.task in tasks]
        assert entry.gang is not None
        whole, is_torn = None, False
        for now in times:
            ended = sum(row.end is not None and row.end <= now for row in rows)
            running = sum(row.start is not None and row.start <= now and (row.end or now + 1) > now for row in rows)
            if running + ended >= entry.gang.least:
                whole = now if whole is None else whole
            elif running and not ended:
                is_torn = True
        found = counted.setdefault(entry.tenant, {"arrived": 0, "started": 0, "waits": [], "torn": 0})
        found["arrived"] += 1
        found["started"] += whole is not None
        found["torn"] += is_torn
        found["waits"].append(((result.end if whole is None else whole) - rows[0].arrival) / SECOND)
    return counted


@pytest.mark.parametrize("policy", ALL)
@pytest.mark.parametrize("seed", draw_seeds(1, nightly=20))
def test_no_group_is_ever_torn_and_the_summary_says_what_the_timeline_says(policy: str, seed: int) -> None:
    document = draw_scenario(seed)
    result = run(document, policy)
    summary = result.summary

    slowly = count_slowly(parse_scenario(document), result)
    for tenant, found in slowly.items():
        told = summary["tenants"][tenant]["gangs"]
        assert (told["arrived"], told["started"], told["torn"]) == (found["arrived"], found["started"], found["torn"])
        assert told["wait_seconds"]["mean"] == pytest.approx(np.mean(found["waits"]))
        assert told["wait_seconds"]["max"] == max(found["waits"])
    assert summary["gangs"]["arrived"] == sum(found["arrived"] for found in slowly.values()) > 0
    assert summary["gangs"]["started"] > 0
    assert (summary["gangs"]["torn"], summary["gangs"]["interrupted"]) == (0, 0)


def test_a_torn_group_would_be_counted() -> None:
    (entry,) = parse_scenario(make_scenario(make_entry(tasks=2, gang={"min": 2}))).workload
    log = GangLog()
    for _ in range(2):
        log.arrive((0, 0), entry, 0)
    log.start((0, 0))
    log.follow(0)
    log.start((0, 0))
    log.follow(SECOND)

    assert log.describe_all(SECOND) == {
        "arrived": 1, "started": 1, "wait_seconds": {"mean": 1.0, "max": 1.0}, "torn": 1, "interrupted": 0,
    }  # fmt: skip


def test_without_groups_nothing_is_said_of_them() -> None:
    summary = run(make_scenario(make_entry())).summary

    assert "gangs" not in summary
    assert "gangs" not in summary["tenants"]["a"]


def test_the_terminal_json_and_the_report_show_groups(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scenario.json"
    path.write_text(json.dumps(make_scenario(make_entry("g", tasks=4, gang={"min": 3, "size": 4}))))

    assert main(["simulate", str(path), "--out", str(tmp_path / "out")]) == 0
    table = capsys.readouterr().out
    assert main(["simulate", str(path), "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)

    assert "1/1" in table
    assert '"gangs": {' in json.dumps(told)
    assert "<h3>Groups</h3>" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
