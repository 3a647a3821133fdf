"""The books of gate mode: another scheduler's pods wait behind our gate, and count from the decision on."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_node, make_pod
from fairbind.cluster.cache.listeners import PodListeners
from fairbind.cluster.objects.facts import FAIRBIND_GATE

OTHER = "default-scheduler"
GATE = {"name": FAIRBIND_GATE}
FOREIGN = {"name": "example.com/other"}
TEAM = "ns/team"


class World(Cluster):
    """A cluster of two nodes in which pods of the other scheduler take turns. arrived: what the cache said."""

    def __init__(self, gated_scheduler: str | None = OTHER, **options: Any) -> None:
        self.arrived: list[tuple[str, bool]] = []
        super().__init__(
            gated_scheduler=gated_scheduler,
            **options,
            listeners=PodListeners(arrival=lambda uid, is_bound: self.arrived.append((uid, is_bound))),
        )
        self.add_nodes(make_node("a"), make_node("b"))

    def get_cpus(self) -> tuple[int, int, int]:
        """What is free on both nodes, and what counts in the tenant's share; the books agree with rebuilt ones."""
        self.cache.check_consistent()
        allocated = self.get_allocated(TEAM) if TEAM in self.cache.state.usage.by_name else {}
        return self.get_free("a")["cpu"], self.get_free("b")["cpu"], allocated.get("cpu", 0)


def make_gated(name: str = "p", gates: tuple[Json, ...] = (GATE,), **spec: Any) -> Json:
    return make_pod(name, scheduler=OTHER, requests={"cpu": "1"}, schedulingGates=list(gates), **spec)


def open_gate(pod: Json) -> None:
    pod["spec"].pop("schedulingGates")


@pytest.fixture
def world() -> World:
    return World()


def test_a_pod_behind_our_gate_waits_for_its_turn(world: World) -> None:
    world.add_pods(make_gated())
    assert world.find_class("uid-p") is not None
    assert world.get_cpus() == (4000, 4000, 0)


@pytest.mark.parametrize("gates", [(FOREIGN,), (GATE, FOREIGN)])
def test_behind_the_gates_of_others_it_has_no_turn(world: World, gates: tuple[Json, ...]) -> None:
    pod = make_gated(gates=gates)
    world.add_pods(pod)
    assert world.find_class("uid-p") is None
    if GATE in gates:
        world.change_pod(pod, lambda p: p["spec"].update(schedulingGates=[GATE]))
        assert world.find_class("uid-p") is not None


@pytest.mark.parametrize(
    "spec",
    [
        {"resourceClaims": [{"name": "device", "resourceClaimName": "device"}]},
        {"workloadRef": {"name": "gang"}},
        {"volumes": [{"name": "disk", "gcePersistentDisk": {"pdName": "disk"}}]},
    ],
)
def test_what_only_the_other_scheduler_honours_keeps_no_gate_shut(world: World, spec: Json) -> None:
    world.add_pods(make_gated(**spec), make_pod("ours", requests={"cpu": "1"}, **spec))
    assert world.get_class("uid-p").blocked is None
    assert world.get_class("uid-ours").blocked is not None


def test_in_bind_mode_and_of_a_third_scheduler_it_does_not_concern_us() -> None:
    world = World(gated_scheduler=None)
    world.add_pods(make_gated())
    assert world.find_class("uid-p") is None
    world = World(gated_scheduler="another")
    world.add_pods(make_gated())
    assert world.find_class("uid-p") is None


def test_it_holds_its_room_and_counts_from_the_decision_until_it_is_gone(world: World) -> None:
    pod = make_gated()
    world.add_pods(pod)
    assert world.cache.assume("uid-p", "a")
    assert world.get_cpus() == (3000, 4000, 1000)
    pod = world.change_pod(pod, open_gate)
    assert world.get_cpus() == (3000, 4000, 1000)
    assert world.arrived == []
    pod = world.change_pod(pod, lambda p: p["spec"].update(nodeName="b"))
    assert world.get_cpus() == (4000, 3000, 1000), "the other scheduler chose another node"
    assert world.arrived == [("uid-p", True)]
    world.delete_pod(pod)
    assert world.get_cpus() == (4000, 4000, 0)


def test_after_the_time_out_its_room_is_free_and_its_share_is_not(world: World) -> None:
    pod = make_gated()
    world.add_pods(pod)
    world.cache.assume("uid-p", "a")
    pod = world.change_pod(pod, open_gate)
    assert world.cache.give_back("uid-p")
    assert world.get_cpus() == (4000, 4000, 1000)
    assert world.find_class("uid-p") is None, "it is not opened twice"
    world.change_pod(pod, lambda p: p["spec"].update(nodeName="b"))
    assert world.get_cpus() == (4000, 3000, 1000)
    assert not world.cache.give_back("uid-p"), "it has a node"


def test_a_gate_that_did_not_open_gives_both_back(world: World) -> None:
    world.add_pods(make_gated())
    world.cache.assume("uid-p", "a")
    world.cache.forget("uid-p")
    assert world.get_cpus() == (4000, 4000, 0)
    assert world.find_class("uid-p") is not None


def test_a_pod_that_goes_on_its_way_says_so_and_counts_no_more(world: World) -> None:
    pod = make_gated()
    world.add_pods(pod)
    world.cache.assume("uid-p", "a")
    pod = world.change_pod(pod, lambda p: p["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))
    assert world.get_cpus() == (4000, 4000, 0)
    assert world.arrived == [("uid-p", False)]


def test_a_new_leader_counts_open_gates_and_finds_room_for_them(world: World) -> None:
    """The older one gets the room; the younger one fits nowhere, and counts all the same."""
    world.add_nodes(make_node("b", unschedulable=True))
    older, younger = (
        make_pod(name, scheduler=OTHER, requests={"cpu": "3"}, created=f"2026-01-01T00:00:0{n}Z")
        for n, name in enumerate(("older", "younger"))
    )
    world.add_pods(older, younger)
    assert world.get_cpus() == (4000, 4000, 6000)
    assert world.cache.recover(most=1) == [("uid-older", TEAM, True)]
    assert world.get_cpus() == (1000, 4000, 6000)
    assert world.cache.recover(most=9) == [("uid-younger", TEAM, False)]
    assert world.get_cpus() == (1000, 4000, 6000)


def test_room_that_the_other_scheduler_made_is_where_it_will_be(world: World) -> None:
    pod = make_gated()
    world.add_pods(pod)
    world.cache.assume("uid-p", "a")
    pod = world.change_pod(pod, open_gate)
    world.change_pod(pod, lambda p: p["status"].update(nominatedNodeName="b"))
    assert world.get_cpus() == (4000, 3000, 1000)


def test_pods_of_system_namespaces_take_no_turns(world: World) -> None:
    world.add_pods(make_pod("p", namespace="kube-system", scheduler=OTHER, schedulingGates=[GATE]))
    assert world.find_class("uid-p") is None


def test_gates_whose_turn_never_comes_are_found_among_those_that_wait(world: World) -> None:
    """A gate is known from the first sight of its pod until it is open, or the pod is bound, ends or is gone."""
    system, tenants = make_gated("s", namespace="kube-system"), make_gated("t")
    world.add_pods(system, tenants, make_pod("running", node="a"), make_gated("own", namespace="kube-system"))
    assert [facts.uid for facts in world.cache.queries.find_stray_gates()] == ["uid-s", "uid-own"]
    assert world.cache.state.pods.gated.keys() == {"uid-s", "uid-t", "uid-own"}
    world.change_pod(system, open_gate)
    world.change_pod(tenants, lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:01:00Z"))
    world.delete_pod(make_gated("own", namespace="kube-system"))
    assert not world.cache.state.pods.gated
    again = make_gated("again", namespace="kube-system")
    world.add_pods(again)
    world.change_pod(again, lambda pod: pod["status"].update(phase="Failed"))
    assert not world.cache.state.pods.gated


def test_what_the_other_scheduler_honours_does_not_keep_a_pod_from_its_turn(world: World) -> None:
    claims = [{"name": "gpu", "resourceClaimName": "gpu"}]
    world.add_pods(make_gated(resourceClaims=claims))
    assert world.get_class("uid-p").blocked is None


def test_volumes_are_left_to_the_other_scheduler(world: World) -> None:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}
    world.add_pods(make_gated(volumes=[volume]))
    assert world.get_class("uid-p").blocked is not None, "a claim that is not there"
    assert world.cache.queries.find_plan("uid-p") is None


def count_shown(world: World) -> tuple[int, dict[str, int], float, float]:
    """What the overview says of the tenant: running, pending, allocated cores, dominant share."""
    (tenant,) = world.cache.queries.build_overview().tenants
    return tenant.running, dict(tenant.pending), tenant.allocated.get("cpu", 0.0), tenant.dominant_share


def find_cluster_cores(world: World) -> float:
    return world.cache.queries.build_overview().allocated["cpu"]


def test_a_pod_runs_once_the_other_scheduler_has_placed_it(world: World) -> None:
    pod, other = make_gated(), make_gated("old")
    world.add_pods(pod, other)
    open_gate(other)
    world.change_pod(other, lambda changed: changed["spec"].update(nodeName="b"))
    assert count_shown(world) == (1, {"queued": 1}, 1.0, 1 / 8)
    assert world.cache.assume("uid-p", "a")
    assert count_shown(world) == (1, {"placing": 1}, 1.0, 2 / 8)
    world.change_pod(pod, lambda changed: changed["spec"].pop("schedulingGates"))
    assert count_shown(world) == (1, {"placing": 1}, 1.0, 2 / 8)
    assert world.cache.give_back("uid-p")
    assert count_shown(world) == (1, {"placing": 1}, 1.0, 2 / 8), "it has no room, and the share counts it on"
    assert find_cluster_cores(world) == 1.0
    world.change_pod(pod, lambda changed: changed["spec"].update(nodeName="a"))
    assert count_shown(world) == (2, {}, 2.0, 2 / 8)
    assert find_cluster_cores(world) == 2.0


def test_a_pod_that_is_deleted_on_its_way_counts_nowhere(world: World) -> None:
    pod, other = make_gated(), make_gated("old")
    world.add_pods(pod, other)
    assert world.cache.assume("uid-p", "a")
    world.delete_pod(pod)
    assert count_shown(world) == (0, {"queued": 1}, 0.0, 0.0)


def test_a_pod_with_its_turn_runs_once_the_asking_scheduler_has_placed_it() -> None:
    cluster = Cluster(asking=frozenset({OTHER}))
    cluster.add_nodes(make_node("a"))
    pod = make_gated(gates=())
    cluster.add_pods(pod)
    assert cluster.cache.assume("uid-p", "a")
    (tenant,) = cluster.cache.queries.build_overview().tenants
    assert (tenant.running, tenant.pending, tenant.allocated) == (0, {"placing": 1}, {})
    assert tenant.dominant_share == 1 / 4
    cluster.change_pod(pod, lambda changed: changed["spec"].update(nodeName="a"))
    (tenant,) = cluster.cache.queries.build_overview().tenants
    assert (tenant.running, tenant.pending, tenant.allocated["cpu"]) == (1, {}, 1.0)
