"""What happens after a snapshot: a scenario that begins with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.builders import make_node, make_pod
from fairbind.cli import main
from fairbind.model import InvalidProblemError
from fairbind.simulator.driver import simulate
from fairbind.simulator.results import Run
from fairbind.simulator.snapshot_additions import add_to_snapshot, read_seed
from fairbind.simulator.snapshot_scenario import make_scenario
from fairbind.simulator.workload import draw_workload
from fairbind.what_if.listed_objects import ListedObjects
from simulator.scenarios import Json, find_attempts, make_entry
from what_if.snapshots import make_list, make_snapshot, make_tenant, make_two_tenants
from what_if.test_comparison import make_node_pod

LATER = make_entry("later", tasks=3, duration=20, arrival={"at": 10})


def run(listed: ListedObjects, document: Json, policy: str | None = None, **given: list[float]) -> Run:
    scenario = add_to_snapshot(make_scenario(listed, 0, given, may_be_empty=True), document)
    return simulate(scenario, draw_workload(scenario), policy or scenario.policies[0])


def make_filled() -> ListedObjects:
    """Two nodes of four cores, n-1 full of a's pods, which run for 100 s with what the tests give."""
    status = {"startTime": "2026-01-01T00:00:00Z"}
    return make_snapshot(
        nodes=[make_node("n-1"), make_node("n-2")],
        pods=[
            make_pod(f"r{n}", namespace="a", node="n-1", phase="Running", requests={"cpu": "1"}, status=status)
            for n in range(4)
        ],
        tenants=[make_tenant("a")],
    )


def test_tasks_arrive_after_the_pods_that_are_there() -> None:
    """Eight of twelve pods start at once; those that arrive wait behind the four that were there, for fifo."""
    attempts = find_attempts(run(make_two_tenants(), {"workload": [LATER]}, "fifo", a=[60.0], b=[60.0]))

    assert sorted(one[0][1] or 0.0 for name, one in attempts.items() if "/" in name) == [0.0] * 8 + [60.0] * 4
    assert [attempts[f"later-{n}"][0][:3] for n in range(3)] == [(10.0, 60.0, 80.0)] * 3


def test_who_arrived_first_starts_first_though_a_snapshot_is_years_after_the_epoch() -> None:
    listed = make_two_tenants(count=8)
    attempts = find_attempts(run(listed, {"workload": [LATER]}, "fifo", a=[60.0], b=[60.0]))

    assert {one[0][1] for name, one in attempts.items() if "/" in name} == {0.0, 60.0}
    assert attempts["later-0"][0][1] == 120.0


def test_pods_that_arrive_get_what_the_api_server_adds() -> None:
    """A LimitRange of three cores a container on four: one of three runs at a time; a host port is had once a node."""
    item = {"type": "Container", "defaultRequest": {"cpu": "3"}, "max": {"memory": "2Gi"}}
    bounds = {"kind": "LimitRange", "metadata": {"name": "l", "namespace": "a"}, "spec": {"limits": [item]}}
    listed = make_snapshot(nodes=[make_node("n-1")], pods=[make_pod("w", namespace="a")], tenants=[make_tenant("a")])
    bounded = make_snapshot(
        nodes=[make_node("n-1")], pods=[make_pod("w", namespace="a")], tenants=[make_tenant("a")], others=[bounds]
    )
    plain = make_entry("later", tasks=3, duration=20, pod={"containers": [{"name": "main"}]})
    network = {"hostNetwork": True, "containers": [{"name": "main", "ports": [{"containerPort": 80}]}]}

    def find_starts(listed: ListedObjects, entry: Json) -> list[float]:
        attempts = find_attempts(run(listed, {"workload": [entry]}, "fifo"))
        return sorted(attempts[f"later-{n}"][0][1] or 0.0 for n in range(3))

    assert find_starts(listed, plain) == [0.0, 0.0, 0.0]
    assert find_starts(bounded, plain) == [0.0, 20.0, 40.0]
    assert find_starts(listed, {**plain, "pod": network}) == [0.0, 20.0, 40.0]
    large = {**plain, "pod": {"requests": {"memory": "3Gi"}}}
    with pytest.raises(InvalidProblemError, match=r"^workload\[0\]\.pod: the API server would refuse it: "):
        run(bounded, {"workload": [large]})


def test_nodes_that_come_have_their_own_pods_of_daemon_sets() -> None:
    """Three of four cores are taken on the model by one: a node like it has one core for the tasks."""
    agent = make_node_pod("agent", "n-1", cpu="3")
    listed = make_snapshot(nodes=[make_node("n-1")], pods=[agent], tenants=[make_tenant("a")])
    wide = make_entry("later", tasks=4, duration=20, pod={"requests": {"cpu": "1"}})
    later = {"workload": [wide], "events": [{"at": 0, "addNodes": {"shape": "n-1", "count": 1}}]}
    attempts = find_attempts(run(listed, later, "fifo"))

    assert sorted(one[0][1] or 0.0 for one in attempts.values()) == [0.0, 0.0, 20.0, 20.0]


def test_events_name_nodes_of_the_snapshot() -> None:
    document = {"horizon": 200, "events": [{"at": 30, "removeNodes": ["n-1"]}]}
    attempts = find_attempts(run(make_filled(), document, a=[100.0]))

    assert [len(one) for one in attempts.values()] == [2] * 4
    for one in attempts.values():
        assert one[0][2:] == (None, "n-1")
        assert one[1][1] == 30.0
        assert one[1][3] == "n-2"


def test_nodes_like_one_of_the_snapshot_come_and_take_no_name_twice() -> None:
    listed = make_snapshot(
        nodes=[make_node("n"), make_node("n-0")],
        pods=[make_pod(f"p{n}", namespace="a", requests={"cpu": "4"}) for n in range(4)],
        tenants=[make_tenant("a")],
    )
    attempts = find_attempts(
        run(listed, {"events": [{"at": 5, "addNodes": {"shape": "n-0", "count": 2}}, {"at": 6, "cordon": ["n-2"]}]})
    )

    assert sorted((one[0][3], one[0][1]) for one in attempts.values()) == [
        ("n", 0.0),
        ("n-0", 0.0),
        ("n-1", 5.0),
        ("n-2", 5.0),
    ]


def test_shapes_of_the_document_stand_beside_the_nodes() -> None:
    document = {
        "cluster": [{"shape": "big", "capacity": {"cpu": 8}}],
        "workload": [make_entry("later", tasks=1, cpu=8)],
    }
    assert find_attempts(run(make_filled(), document))["later-0"][0][3] == "big-0"


def test_a_tenant_of_the_snapshot_changes_and_keeps_its_namespaces() -> None:
    listed = make_two_tenants()
    document = {"tenants": [{"name": "a", "weight": 3}]}
    started = [name for name, one in find_attempts(run(listed, document)).items() if one[0][1] == 0.0]

    assert sorted(name[0] for name in started) == ["a"] * 6 + ["b"] * 2


def test_a_new_tenant_takes_over_the_pods_of_its_namespace() -> None:
    listed = make_two_tenants()
    listed.tenants = listed.tenants[:1]
    result = run(listed, {"tenants": [{"name": "b", "weight": 3}], "workload": [make_entry("w", tenant="b", cpu=9)]})

    assert {row.tenant for row in result.shares} == {"a", "b"}
    assert [(row.tenant, row.running) for row in result.shares[:2]] == [("a", 2), ("b", 6)]


def test_a_tenant_whose_namespaces_have_other_names_gets_tasks_in_the_first() -> None:
    listed = make_snapshot(
        nodes=[make_node()], pods=[make_pod("p", namespace="x")], tenants=[make_tenant("a", namespaces=["x", "y"])]
    )
    scenario = add_to_snapshot(make_scenario(listed, 0, {}), {"workload": [make_entry()]})

    assert [(entry.tenant, entry.waiting.namespace) for entry in scenario.workload] == [("a", "x"), ("a", "x")]


def test_tasks_wait_for_the_scheduler_of_the_snapshot() -> None:
    listed = make_snapshot(nodes=[make_node()], pods=[], tenants=[make_tenant("a")])
    listed.scheduler_name = "other"

    assert find_attempts(run(listed, {"workload": [make_entry()]}))["w-0"][0][3] == "node"


def test_an_empty_cluster_may_be_the_beginning() -> None:
    listed = make_snapshot(nodes=[make_node()], pods=[], tenants=[make_tenant("a")])

    assert find_attempts(run(listed, {"workload": [make_entry()]}))["w-0"] == [(0.0, 0.0, 10.0, "node")]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"events": [{"at": 1, "cordon": ["n-3"]}]}, r"^events\[0\].cordon\[0\]: \"?n-3\"? is no node then"),
        ({"events": [{"at": 1, "addNodes": {"shape": "m"}}]}, r"^events\[0\].addNodes.shape: "),
        ({"workload": [make_entry(tenant="c")]}, r"^workload\[0\].tenant: "),
        ({"cluster": [{"shape": "n-1", "capacity": {"cpu": 1}}]}, r"^cluster\[0\].shape: must not be the name"),
        ({"evnets": []}, r"^evnets: .*events"),
        ({"policies": ["none"]}, r"^policies\[0\]: "),
    ],
)
def test_what_makes_no_sense_after_this_snapshot_is_refused(document: Json, said: str) -> None:
    with pytest.raises(InvalidProblemError, match=said):
        add_to_snapshot(make_scenario(make_filled(), 0, {}), document)


def test_a_document_must_bring_tasks_where_the_snapshot_has_none() -> None:
    empty = make_scenario(make_snapshot(nodes=[make_node()], pods=[]), 0, {}, may_be_empty=True)

    with pytest.raises(InvalidProblemError, match=r"^workload: must have an entry, as no pod of the snapshot runs"):
        add_to_snapshot(empty, {"horizon": 20})


def test_the_seed_is_the_documents() -> None:
    assert (read_seed({"seed": 3}), read_seed({})) == (3, 0)
    with pytest.raises(InvalidProblemError, match=r"^seed: "):
        read_seed({"seed": -1})


def test_the_command_takes_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    snapshot, scenario = tmp_path / "cluster.json", tmp_path / "later.json"
    pods: list[Any] = [make_pod("p", namespace="a")]
    snapshot.write_text(json.dumps(make_list(nodes=[make_node()], pods=pods, tenants=[make_tenant("a")])))
    scenario.write_text(json.dumps({"workload": [LATER], "policies": ["fifo"], "seed": 4}))
    words = ["simulate", str(scenario), "--from", str(snapshot), "--run-time", "a=60", "--out", str(tmp_path / "out")]

    assert main(words) == 0
    said = capsys.readouterr().out
    assert "1 of 1 pods have a run time" in said
    summary = json.loads((tmp_path / "out" / "summary.json").read_text(encoding="utf-8"))
    assert summary["policies"]["fifo"]["completed"] == 4
