from __future__ import annotations

from typing import Any

from fairbind.simulator.results import Run
from simulator.scenarios import SECOND, Json, find_attempts, find_starts, make_entry, make_scenario, run


def make_scaled(*entries: Json, at: float = 0, most: int = 3, delay: float = 60, **more: Any) -> Json:
    """A shape of which no node is there until the autoscaler buys it."""
    document = make_scenario(*entries, count=0, **more)
    document["events"] = [
        *more.get("events", []),
        {"at": at, "autoscaler": {"shape": "n", "max": most, "delay": delay}},
    ]
    return document


def find_capacity(result: Run) -> dict[int, float]:
    return {row.time // SECOND: row.capacity for row in result.utilisation if row.resource == "cpu"}


def test_a_node_comes_the_delay_after_the_cycle_that_marked_the_pod() -> None:
    result = run(make_scaled(make_entry(arrival={"at": 5})))

    assert find_attempts(result) == {"w-0": [(5, 65, 75, "n-0")]}


def test_pods_marked_before_it_starts_are_seen_when_it_starts() -> None:
    assert find_starts(run(make_scaled(at=100))) == {"w-0": 160}


def test_pods_share_what_is_ordered() -> None:
    """Six pods of which four fit on a node need two; two more that come meanwhile fit there, the next one does not."""
    entries = [
        make_entry(tasks=6, duration=100),
        make_entry("fits", tasks=2, duration=100, arrival={"at": 20}),
        make_entry("more", duration=100, arrival={"at": 30}),
    ]
    capacity = find_capacity(run(make_scaled(*entries, measureEvery=1, most=9)))

    assert (capacity[59], capacity[60], capacity[80], capacity[89], capacity[90]) == (0, 8, 8, 8, 12)


def test_it_never_has_or_orders_more_than_its_most() -> None:
    entries = [make_entry(tasks=9, cpu=4, duration=100), make_entry("x", cpu=4, arrival={"at": 70})]
    result = run(make_scaled(*entries, measureEvery=1))

    assert max(find_capacity(result).values()) == 3 * 4
    starts = find_starts(result)
    assert [starts[f"w-{index}"] for index in range(9)] == [60, 60, 60, 160, 160, 160, 260, 260, 260]


def test_empty_nodes_of_its_own_go_at_once_and_others_stay() -> None:
    document = make_scaled(make_entry(tasks=3, cpu=4, duration=70), measureEvery=1, horizon=140)
    document["cluster"][0]["count"] = 1

    capacity = find_capacity(run(document))
    assert (capacity[59], capacity[60], capacity[129], capacity[130]) == (4, 12, 12, 4)


def test_nothing_is_bought_for_pods_that_the_shape_does_not_fit() -> None:
    entries = [
        make_entry("large", cpu=5),
        make_entry("picky", pod={"requests": {"cpu": 1}, "nodeSelector": {"disk": "ssd"}}),
        make_entry("elsewhere", pod={"requests": {"cpu": 1}, "nodeSelector": {"kubernetes.io/hostname": "n"}}),
        make_entry("gang", pod={"schedulingGroup": {"podGroupName": "g"}}),
    ]
    result = run(make_scaled(*entries, horizon=200, measureEvery=1))

    assert set(find_capacity(result).values()) == {0}


def test_each_pod_with_a_host_port_has_a_node_of_its_own() -> None:
    container = {"name": "main", "ports": [{"hostPort": 80}]}
    result = run(make_scaled(make_entry(tasks=2, pod={"containers": [container]}), measureEvery=1))

    assert find_capacity(result)[60] == 8


def test_nothing_is_bought_for_a_pod_that_is_pinned_to_a_node() -> None:
    field = {"key": "metadata.name", "operator": "In", "values": ["n-5"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    result = run(make_scaled(make_entry(pod={"affinity": affinity}), horizon=100, measureEvery=1))

    assert set(find_capacity(result).values()) == {0}


def test_a_second_one_for_a_shape_takes_the_place_of_the_first() -> None:
    document = make_scaled(make_entry(tasks=4, cpu=4, duration=100), most=1, measureEvery=1)
    document["events"].append({"at": 70, "autoscaler": {"shape": "n", "max": 3, "delay": 5}})

    capacity = find_capacity(run(document))
    assert (capacity[60], capacity[74], capacity[75]) == (4, 4, 12)


def test_a_bought_node_may_be_cordoned_and_removed() -> None:
    document = make_scaled(make_entry(tasks=2, cpu=4, duration=50), measureEvery=1)
    document["events"] += [
        {"at": 70, "cordon": ["n-0", "n-7"]},
        {"at": 75, "removeNodes": ["n-0", "n-8"]},
    ]

    attempts = find_attempts(run(document))
    assert attempts == {"w-0": [(0, 60, None, "n-0"), (0, 110, 160, "n-1")], "w-1": [(0, 60, 110, "n-1")]}


def test_without_a_delay_nodes_come_in_the_same_instant() -> None:
    assert find_attempts(run(make_scaled(delay=0))) == {"w-0": [(0, 0, 10, "n-0")]}
