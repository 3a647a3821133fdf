"""Groups that operators of others make: they start whole, in equal shares, come back, and end."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.api import Api
from e2e.clusters import Cluster
from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant
from e2e.objects import make_name, make_pod
from e2e.operators import Operator
from e2e.waiting import wait_for
from e2e.workloads import create_pods, delete_pods
from frameworks.cases import CASES, SPARK_CASE, Case, end_at_once, find_differences, rename
from frameworks.history import History, select_whole
from frameworks.spark_submit import make_executors
from localplane.nodes import make_node

Json = dict[str, Any]
pytestmark = pytest.mark.needs_tools
PODS_OF_A_NODE = 2


@dataclass(slots=True)
class Stage:
    """A framework before an audience of two tenants. history: of their pods."""

    case: Case
    cluster: Cluster
    folder: Path
    tenants: tuple[str, str]
    history: History

    @property
    def api(self) -> Api:
        return self.cluster.api

    def apply(self, namespace: str, name: str) -> None:
        """Apply the manifest of the framework's page under a name."""
        file = self.folder / f"{namespace}-{name}.yaml"
        renamed = rename(self.case.read_manifest(), self.case.find_name(), name)
        file.write_text(yaml.safe_dump_all(map(end_at_once, yaml.safe_load_all(renamed))), encoding="utf-8")
        apply = functools.partial(self.cluster.kubectl, "apply", f"--namespace={namespace}", "-f", str(file))
        wait_for(apply, describe=f"{file.name} to be taken")  # an operator's webhooks may only just have begun

    def delete(self, namespace: str, name: str) -> None:
        """Delete the object of a name, and what it made."""
        self.cluster.kubectl("delete", self.case.kind, name, f"--namespace={namespace}", "--wait=false")

    def patch(self, namespace: str, name: str, change: Json, kind: str = "merge") -> None:
        """Change the object of a name."""
        text = json.dumps(change)
        self.cluster.kubectl("patch", self.case.kind, name, f"--namespace={namespace}", f"--type={kind}", f"-p={text}")

    def count_whole(self, namespace: str = "") -> int:
        """Return how many groups have all members bound."""
        return len([name for name in self.find_whole() if name.startswith(namespace)])

    def find_whole(self) -> set[str]:
        """Return the groups that have all members bound."""
        return select_whole(self.history.count_bound(), self.case.size)

    def count_pods(self) -> int:
        """Return how many members there are."""
        return sum(len(list_members(self, namespace)) for namespace in self.tenants)

    def wait_whole(self, count: int) -> set[str]:
        """Wait until so many groups are whole, and return them."""
        wait_for(lambda: self.count_whole() == count, describe=lambda: f"{count} whole groups, not {self}")
        return self.find_whole()

    def empty(self) -> None:
        """Delete all objects: the end of a namespace and the operator's own work hinder each other."""
        for namespace in self.tenants:
            self.cluster.kubectl("delete", self.case.kind, "--all", f"--namespace={namespace}")
        wait_for(lambda: not self.count_pods(), describe="no members")

    def check(self) -> None:
        """Fail when a group was ever torn."""
        torn = self.history.find_torn(self.case.minimum or self.case.size)
        assert not torn, torn

    def __str__(self) -> str:
        return str(self.history.count_bound())


def list_members(stage: Stage, namespace: str) -> list[Json]:
    pods = stage.api.items(f"/api/v1/namespaces/{namespace}/pods")
    return [pod for pod in pods if stage.case.group_of(pod) is not None]


@pytest.fixture
def set_stage(
    cluster: Cluster, namespace: MakeNamespace, tenant: MakeTenant, nodes: MakeNodes, tmp_path: Path
) -> Iterator[Callable[[Case, int], Stage]]:
    """A function that gives a framework two tenants and nodes for so many pods."""
    stages: list[Stage] = []

    def make(case: Case, pods: int) -> Stage:
        names = namespace(), namespace()
        for name in names:
            tenant(namespaces=[name])
        amounts = {"cpu": f"{PODS_OF_A_NODE * case.cpu_milli}m", "memory": "64Gi", "pods": "110"}
        nodes([make_node(make_name("n"), allocatable=amounts) for _ in range(pods // PODS_OF_A_NODE)])
        stage = Stage(case, cluster, tmp_path, names, History(cluster.api, frozenset(names), case.group_of))
        stage.history.start()
        stages.append(stage)
        return stage

    yield make
    for stage in stages:
        stage.history.stop()
        stage.empty()


@pytest.fixture
def fill(
    case: Case, set_stage: Callable[[Case, int], Stage], fairbind: Callable[[str], Operator]
) -> Callable[[int], Stage]:
    """A function that applies so many objects of two tenants each, all before fairbind starts; one of each fits.

    Two more pods would fit, which are too few for a group: pods that are decided one by one would take them.
    """

    def fill(objects: int) -> Stage:
        stage = set_stage(case, 2 * case.groups * case.size + PODS_OF_A_NODE)
        for number in range(objects):
            for namespace in stage.tenants:
                stage.apply(namespace, f"{case.name}-{number}")
        expected = 2 * objects * case.groups * case.size
        wait_for(lambda: stage.count_pods() == expected, describe=lambda: f"{expected} pods, not {stage.count_pods()}")
        fairbind(case.scheduler)
        stage.wait_whole(2 * case.groups)
        return stage

    return fill


def test_pods_say_their_group_as_fairbind_reads_it(case: Case, set_stage: Callable[[Case, int], Stage]) -> None:
    """What the operator writes, with the manifest of the page and no more."""
    stage = set_stage(case, 0)
    stage.apply(stage.tenants[0], case.name)
    expected = case.groups * case.size
    wait_for(lambda: stage.count_pods() == expected, describe=lambda: f"{expected} pods, not {stage.count_pods()}")
    pods = list_members(stage, stage.tenants[0])
    where, key = case.mark
    groups = {pod["metadata"][where][key] for pod in pods}

    assert {pod["spec"]["schedulerName"] for pod in pods} == {case.scheduler}
    assert len(groups) == case.groups
    if case.pod_groups:
        found = stage.api.items(f"/apis/{case.pod_groups}/namespaces/{stage.tenants[0]}/podgroups")
        minima = {group["metadata"]["name"]: group["spec"]["minMember"] for group in found}
        assert minima == dict.fromkeys(groups, case.size)


def test_two_tenants_start_whole_groups_in_equal_shares(fill: Callable[[int], Stage]) -> None:
    stage = fill(2)
    shares = [stage.count_whole(namespace) for namespace in stage.tenants]

    assert shares == [stage.case.groups] * 2
    assert sum(count > 0 for count in stage.history.count_bound().values()) == 2 * stage.case.groups
    stage.check()


def test_a_lost_member_is_replaced(fill: Callable[[int], Stage]) -> None:
    """What takes its place is of the same group, although single pods wait for any place."""
    stage = fill(1)
    before = stage.find_whole()
    requests = {"cpu": f"{stage.case.cpu_milli}m"}
    singles = [make_pod(requests, scheduler_name=stage.case.scheduler) for _ in range(2 * PODS_OF_A_NODE)]
    create_pods(stage.api, stage.tenants[1], singles)
    wait_for(lambda: count_bound_singles(stage) == PODS_OF_A_NODE, describe="the single pods that fit to be bound")
    [victim, *_] = [
        pod
        for pod in list_members(stage, stage.tenants[0])
        if pod["spec"].get("nodeName") and stage.case.victim.items() <= pod["metadata"]["labels"].items()
    ]
    delete_pods(stage.api, stage.tenants[0], [victim["metadata"]["name"]])
    path = f"/api/v1/namespaces/{stage.tenants[0]}/pods/{victim['metadata']['name']}"
    uid = victim["metadata"]["uid"]
    wait_for(
        lambda: not stage.api.exists(path) or stage.api.get(path)["metadata"]["uid"] != uid, describe="it to be lost"
    )

    assert stage.wait_whole(len(before)) == before
    assert count_bound_singles(stage) == PODS_OF_A_NODE
    stage.check()


def count_bound_singles(stage: Stage) -> int:
    """Return how many pods of the second tenant are bound that are no members."""
    pods = stage.api.items(f"/api/v1/namespaces/{stage.tenants[1]}/pods")
    return sum(bool(pod["spec"].get("nodeName")) and stage.case.group_of(pod) is None for pod in pods)


def test_where_one_ends_the_next_starts(fill: Callable[[int], Stage]) -> None:
    stage = fill(2)
    before = stage.find_whole()
    namespace, name = min(before).split("/")[:2]
    # Objects of one age start their groups in turn, so not all groups of the one that ends have run.
    ended = {each for each in before if each.split("/")[:2] == [namespace, name]}
    stage.delete(namespace, name)
    wait_for(lambda: not ended & stage.find_whole(), describe=lambda: f"{ended} to end: {stage}")

    after = stage.wait_whole(len(before))
    assert before - after == ended
    assert all(name.startswith(namespace) for name in after - before)  # whose share fell
    stage.check()


SCALED: dict[str, tuple[str, Any, int]] = {
    "LeaderWorkerSet": ("merge", {"spec": {"replicas": 1}}, 2 * 4),
    "RayCluster": ("json", [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 1}], 1),
    "MPIJob": ("json", [{"op": "replace", "path": "/spec/mpiReplicaSpecs/Worker/replicas", "value": 1}], 1),
}
"""By kind: how one object is scaled down, and how many pods it then has less."""


def test_a_group_that_is_scaled_down_goes_on(
    case: Case, set_stage: Callable[[Case, int], Stage], fairbind: Callable[[str], Operator]
) -> None:
    if case.kind not in SCALED:
        pytest.skip(f"a {case.kind} has the size that it was made with")
    stage = set_stage(case, 2 * case.groups * case.size)
    name = f"{case.name}-0"
    stage.apply(stage.tenants[0], name)
    fairbind(case.scheduler)
    stage.wait_whole(case.groups)
    kind, change, fewer = SCALED[case.kind]
    rest = case.groups * case.size - fewer
    if kind == "json":
        least = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/minReplicas", "value": 1}]
        change = [*least, *change] if case.kind == "RayCluster" else change
    stage.patch(stage.tenants[0], name, change, kind)

    wait_for(lambda: stage.count_pods() == rest, describe=lambda: f"{rest} pods, not {stage.count_pods()}")
    assert sum(stage.history.count_bound().values()) == rest


def test_spark_starts_a_driver_where_its_executors_fit(
    spark: Case, set_stage: Callable[[Case, int], Stage], fairbind: Callable[[str], Operator]
) -> None:
    """Of two applications that need three pods each, one fits on four."""
    stage = set_stage(spark, 4)
    for namespace in stage.tenants:
        account = {"metadata": {"name": "spark-operator-spark"}}
        stage.api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
    fairbind(spark.scheduler)
    stage.apply(stage.tenants[0], "spark-0")
    [driver] = wait_for(lambda: find_running(stage, stage.tenants[0]), describe="the first driver to run")
    make_executors(stage.api, driver, 2)
    stage.wait_whole(1)
    stage.apply(stage.tenants[1], "spark-1")
    path = f"/api/v1/namespaces/{stage.tenants[1]}/pods"
    wait_for(lambda: [pod for pod in stage.api.items(path) if "cpu" in json.dumps(pod["status"])], describe="a reason")

    assert not find_running(stage, stage.tenants[1])
    stage.delete(stage.tenants[0], "spark-0")
    [driver] = wait_for(lambda: find_running(stage, stage.tenants[1]), describe="the second driver to run")
    make_executors(stage.api, driver, 2)
    wait_for(lambda: stage.count_whole(stage.tenants[1]) == 1, describe=lambda: f"its executors: {stage}")
    stage.check()


def find_running(stage: Stage, namespace: str) -> list[Json]:
    pods = stage.api.items(f"/api/v1/namespaces/{namespace}/pods")
    return [pod for pod in pods if pod["status"].get("phase") == "Running"]


@pytest.mark.parametrize("known", [*CASES, SPARK_CASE], ids=lambda known: known.name)
def test_the_manifest_of_a_page_is_the_operators_own_sample(known: Case) -> None:
    """Besides what the page says to set; where the module has a sample at all."""
    if not known.sample:
        pytest.skip(f"the module of {known.programs[-1].name} has no sample of this kind")
    shown = [document for document in yaml.safe_load_all(known.read_manifest()) if document]

    [sample], [manifest] = known.read_sample(), shown
    assert find_differences(sample, manifest) == known.added
