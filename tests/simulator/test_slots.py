from __future__ import annotations

from fractions import Fraction
from typing import Any

from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.slots import SLOT_RESOURCE, compute_slot, divide_into_slots
from simulator.scenarios import Json, find_starts, make_entry, make_scenario, run


def make_unlike(*entries: Json, **more: Any) -> Json:
    """A server with much memory and one with little; the largest has 8 cpu and 16 GiB."""
    document = make_scenario(*entries, **more)
    document["cluster"] = [
        {"shape": "large", "capacity": {"cpu": 8, "memory": "16Gi"}},
        {"shape": "lean", "capacity": {"cpu": 8, "memory": "6Gi"}},
    ]
    return document


def test_the_largest_server_is_divided_and_others_have_what_fits() -> None:
    scenario = parse_scenario(make_unlike(slots=4))
    divided = divide_into_slots(scenario)

    slot = compute_slot([shape.node for shape in scenario.shapes.values()], 4)
    assert slot == {"cpu": Fraction(2000), "memory": Fraction(4 * 2**30)}
    assert [dict(shape.node.allocatable)[SLOT_RESOURCE] for shape in divided.shapes.values()] == [4, 1]


def test_a_task_takes_whole_slots() -> None:
    pods = [{}, {"requests": {"cpu": 2}}, {"requests": {"cpu": "2001m"}}, {"requests": {"cpu": 1, "memory": "12Gi"}}]
    entries = [make_entry(f"w{place}", pod=pod) for place, pod in enumerate(pods)]
    divided = divide_into_slots(parse_scenario(make_unlike(*entries, slots=4)))

    assert [dict(entry.waiting.demand.real)[SLOT_RESOURCE] for entry in divided.workload] == [1, 1, 2, 3]


def test_slots_stand_empty_inside_where_resources_would_have_sufficed() -> None:
    entries = [make_entry(tasks=16, cpu=1, duration=10)]

    assert list(find_starts(run(make_unlike(*entries, slots=4), "slots")).values()).count(0) == 5
    assert list(find_starts(run(make_unlike(*entries, slots=4))).values()).count(0) == 16


def test_tenants_have_equal_slots_and_the_tables_say_real_shares() -> None:
    entries = [make_entry("aw", tasks=9, cpu=2), make_entry("bw", tenant="b", tasks=9, cpu=0.5)]
    result = run(make_unlike(*entries, tenants="ab", slots=8) | {"horizon": 5}, "slots")

    rows = {row.tenant: row for row in result.shares}
    assert (rows["a"].running, rows["b"].running) == (3, 5), "of 8 + 3 slots: 2 a task for a, 1 for b"
    assert (rows["a"].dominant_share, rows["b"].dominant_share) == (6 / 16, 2.5 / 16)
    assert rows["a"].fair_share is None
    assert {row.resource for row in result.utilisation} == {"cpu", "memory", "pods"}
    assert set(result.summary["utilisation"]) == {"cpu", "memory", "pods"}
    assert result.summary["share_error"] == {"mean": None, "max": None}
