"""Attach slots of drivers count for shares exactly when they would run out first, as slots for pods do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cluster.builders import Json, make_node, make_pod
from cluster.volumes import BOUND, DRIVER, VolumeCluster
from fairbind.cluster.objects.facts import BASE_RESOURCES, FAIRBIND_GATE
from fairbind.cluster.state.kubelet_refusals import MOST_REFUSALS
from fairbind.model import PolicySettings
from fairbind.scheduling import run_cycle
from fairbind.scheduling.fair_shares.problem import make_exact_problem, solve_exactly

POLICIES = ("best-fit-drfh", "first-fit-drfh", "ps-dsf", "rps-dsf", "tsf", "drfh", "drf")
SLOTS = f"volumes.{DRIVER}"
LIMIT = 5
LARGE = {"cpu": "64", "memory": "256Gi", "pods": "110"}
OTHER = "default-scheduler"


class SlotCluster(VolumeCluster):
    """Four large nodes with five attach slots each, of which one may not be limited."""

    def __init__(self, limit: int | None = LIMIT, **settings: Any) -> None:
        super().__init__(**settings)
        for name in "abcd":
            self.add_nodes(make_node(name, allocatable=LARGE))
            self.add_csi_node(name, limit if name == "a" else LIMIT)

    def add_volumes(self, namespace: str, *names: str) -> None:
        for name in names:
            spec = {"csi": {"driver": DRIVER, "volumeHandle": f"{namespace}/{name}"}}
            self.add("persistentvolumes", f"{namespace}-{name}", spec=spec, status={"phase": "Bound"})
            self.add(
                "persistentvolumeclaims",
                name,
                meta={"namespace": namespace, "annotations": BOUND},
                spec={"accessModes": ["ReadWriteMany"], "volumeName": f"{namespace}-{name}"},
                status={"phase": "Bound"},
            )

    def make(self, namespace: str, number: int, volumes: int, cpu: str, **spec: Any) -> Json:
        """Return a pod with so many volumes of its own."""
        claims = [f"c{number}-{n}" for n in range(volumes)]
        self.add_volumes(namespace, *claims)
        return using(namespace, number, *claims, cpu=cpu, **spec)

    def fill(self, *tenants: tuple[str, int, int, str], **spec: Any) -> None:
        """Let pods wait. tenants: namespace, how many pods, volumes and CPUs of each."""
        for namespace, count, volumes, cpu in tenants:
            self.add_pods(*(self.make(namespace, number, volumes, cpu, **spec) for number in range(count)))

    def counts(self) -> bool:
        """Whether the slots count for shares."""
        snapshot = self.cache.build_snapshot()
        return snapshot.counts_r[snapshot.resources.index(SLOTS)]

    def get_held(self, tenant: str) -> int:
        """Return how many slots a tenant holds."""
        snapshot = self.cache.build_snapshot()
        found = [each.allocated_r for each in snapshot.tenants if each.name == f"ns/{tenant}"]
        return sum(allocated_r[snapshot.resources.index(SLOTS)] for allocated_r in found)

    def get_total(self) -> int:
        snapshot = self.cache.build_snapshot()
        return snapshot.total_r[snapshot.resources.index(SLOTS)]


def using(namespace: str, number: int, *claims: str, cpu: str = "1", **spec: Any) -> Json:
    """Return a pod that uses these claims."""
    name = f"{namespace}-{number}"
    volumes = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": claim}} for n, claim in enumerate(claims)]
    return make_pod(name, namespace=namespace, requests={"cpu": cpu}, volumes=volumes, **spec)


THEFT = ("thief", 4, LIMIT, "10m"), ("victim", 40, 1, "1")


@pytest.mark.parametrize("policy", POLICIES)
def test_tiny_pods_with_many_volumes_take_no_more_than_their_half_of_the_slots(policy: str) -> None:
    cluster = SlotCluster()
    cluster.fill(*THEFT)
    settings = PolicySettings(policy)
    cluster.cache.set_policy(settings)
    problem = make_exact_problem(cluster.cache.build_detailed_snapshot(), settings)
    assert problem is not None
    cluster.cache.set_targets(solve_exactly(problem).targets)
    report = run_cycle(cluster.cache.build_snapshot(), settings, 0.0)
    running = Counter(bind.tenant.removeprefix("ns/") for bind in report.bindings)
    assert LIMIT * running["thief"] <= 4 * LIMIT / 2
    assert running["victim"] >= 4 * LIMIT / 2


@pytest.mark.parametrize(
    ("settings", "spec"),
    [
        ({"gated_scheduler": OTHER}, {"scheduler": OTHER, "schedulingGates": [{"name": FAIRBIND_GATE}]}),
        ({"asking": frozenset({OTHER})}, {"scheduler": OTHER}),
    ],
    ids=["gate mode", "extender mode"],
)
def test_so_it_is_where_another_scheduler_places_the_pods(settings: Json, spec: Json) -> None:
    cluster = SlotCluster(**settings)
    cluster.fill(*THEFT, **spec)
    assert cluster.counts()
    report = run_cycle(cluster.cache.build_snapshot(), PolicySettings(), 0.0)
    running = Counter(bind.tenant.removeprefix("ns/") for bind in report.bindings)
    assert LIMIT * running["thief"] <= 4 * LIMIT / 2
    assert running["victim"] >= 4 * LIMIT / 2


def test_a_pod_whose_gate_is_open_counts_with_its_volumes_before_it_has_a_node() -> None:
    cluster = SlotCluster(gated_scheduler=OTHER)
    cluster.add_pods(cluster.make("team", 0, 3, "1", scheduler=OTHER))
    assert cluster.get_held("team") == 3
    cluster.cache.check_consistent()


def test_slots_that_suffice_for_all_volumes_do_not_count() -> None:
    cluster = SlotCluster()
    cluster.fill(("thief", 2, LIMIT, "10m"), ("victim", 10, 1, "1"))
    assert not cluster.counts()
    cluster.add_pods(cluster.make("victim", 10, 1, "1"))
    assert cluster.counts()
    cluster.delete_pod(make_pod("victim-10", namespace="victim"))
    assert not cluster.counts()
    assert SLOTS not in cluster.cache.queries.build_overview().counting


def test_slots_do_not_count_where_another_resource_runs_out_first() -> None:
    cluster = SlotCluster()
    cluster.fill(("a", 20, 1, "32"), ("b", 20, 1, "32"))  # eight of them use all CPUs
    assert not cluster.counts()


def test_where_no_driver_names_a_limit_there_are_no_slots() -> None:
    cluster = VolumeCluster()
    cluster.add_csi_node("a", None)
    assert cluster.cache.build_snapshot().resources == BASE_RESOURCES
    cluster.add_csi_node("a", 0)
    assert cluster.cache.build_snapshot().resources == BASE_RESOURCES
    cluster.add_csi_node("a", 1)
    assert cluster.cache.build_snapshot().resources == (*BASE_RESOURCES, SLOTS)
    cluster.add_csi_node("a", None)
    assert cluster.cache.build_snapshot().resources == BASE_RESOURCES


def test_slots_of_a_driver_that_takes_any_number_on_some_node_count_only_where_an_administrator_says_so() -> None:
    cluster = SlotCluster(limit=None)
    cluster.fill(*THEFT)
    assert not cluster.counts()
    cluster.cache.set_policy(PolicySettings(fairness_resources=("cpu", SLOTS)))
    assert cluster.counts()


def test_what_is_held_and_what_there_is_are_about_the_nodes_with_a_limit() -> None:
    cluster = SlotCluster()
    cluster.add_pods(*(cluster.make("team", number, 2, "1", node="ab"[number]) for number in range(2)))
    assert (cluster.get_held("team"), cluster.get_total()) == (4, 20)
    cluster.add_csi_node("a", None)
    assert (cluster.get_held("team"), cluster.get_total()) == (2, 15)
    cluster.cache.check_consistent()
    cluster.add_csi_node("a", 3)
    assert (cluster.get_held("team"), cluster.get_total()) == (4, 18)
    cluster.cache.check_consistent()


def test_a_volume_that_pods_share_on_a_node_counts_for_the_first_of_them() -> None:
    cluster = SlotCluster()
    cluster.add_volumes("team", "common")
    pods = [using("team", number, "common", node="a") for number in (2, 0, 1)]
    cluster.add_pods(*pods, using("team", 3, "common", node="b"))
    assert cluster.get_held("team") == 2  # one for each node
    for pod in pods:
        cluster.cache.check_consistent()
        cluster.delete_pod(pod)
    assert cluster.get_held("team") == 1


def test_slots_of_system_pods_are_no_tenants() -> None:
    cluster = SlotCluster()
    cluster.add_volumes("kube-system", "c0-0")
    cluster.add_pods(using("kube-system", 0, "c0-0", node="a", scheduler=OTHER))
    assert cluster.get_total() == 4 * LIMIT - 1
    cluster.cache.check_consistent()


def test_a_node_that_changes_leaves_all_classes_as_they_are_for_its_slots() -> None:
    cluster = SlotCluster()
    cluster.cache.build_snapshot()
    version = cluster.cache.state.servers.claimed.revision
    cluster.add_nodes(make_node("a", allocatable={**LARGE, "cpu": "32"}))
    cluster.cache.build_snapshot()
    assert cluster.cache.state.servers.claimed.revision == version


backlogs = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(0, 8), st.integers(0, 3), st.sampled_from(("10m", "1", "9"))),
    min_size=1,
    max_size=4,
    unique_by=lambda each: each[0],
)


@given(backlog=backlogs, limit=st.integers(1, 9))
@example(backlog=[("a", 7, 3, "10m")], limit=1)  # four nodes are full then, with a slot or two left on each
def test_no_placement_changes_whether_slots_count(backlog: list[tuple[str, int, int, str]], limit: int) -> None:
    cluster = SlotCluster()
    cluster.fill(*backlog)
    before = cluster.counts()
    while report := run_cycle(cluster.cache.build_snapshot(), PolicySettings(), 0.0, limit=limit).bindings:
        for bind in report:
            assert cluster.cache.assume(bind.task.uid, bind.server)
        assert cluster.counts() == before
    cluster.cache.check_consistent()


def test_a_node_that_refuses_pods_rests_for_those_with_counted_slots_too() -> None:
    """A decision that is taken back as often as it is made would come again until the rest ends."""
    cluster = SlotCluster()
    cluster.fill(*THEFT)
    assert cluster.counts()
    failed = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
    for number in range(MOST_REFUSALS):
        cluster.add_pods(make_pod(f"refused-{number}", namespace="victim", requests={"cpu": "1"}, node="a"))
        cluster.add_pods(
            make_pod(f"refused-{number}", namespace="victim", requests={"cpu": "1"}, node="a", status=failed)
        )
    snapshot = cluster.cache.build_snapshot()
    eligible = {
        tenant: [name for name, fits in zip(snapshot.servers.names, each.placement.eligible_k, strict=True) if fits]
        for each in snapshot.task_classes
        for tenant in [each.tenant]
    }

    assert eligible == {"ns/thief": list("abcd"), "ns/victim": list("bcd")}
    assert not cluster.cache.queries.may_use("uid-victim-0", "a")
