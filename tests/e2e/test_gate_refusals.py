"""Gate mode on a real API server: random worlds in which the real kube-scheduler refuses what fairbind lets through.

Claims of devices that no node has and volumes that are never made keep some pods waiting for ever. Nodes are tainted
and cordoned between the decision and the placement, also where pods were narrowed to them. A quota lets pods of one
tenant come only as others end. All other pods run to their end, held up for no longer than the time-out of the rest.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from e2e.api import ApiError, call_many
from e2e.conftest import remove
from e2e.members import FORBIDDEN
from e2e.objects import TENANTS, make_name
from e2e.test_admission import ENFORCED
from e2e.test_admission_gate import REQUIRED
from e2e.test_operator_volumes import Storage
from e2e.turns import claim_device_of_nowhere, count, gating, has_open_gate, make_default, wait_gated
from e2e.waiting import wait_for
from e2e.workloads import create_pods, delete_pods, list_pods
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator

pytestmark = [pytest.mark.local_plane, pytest.mark.nightly]

UNGATED_SECONDS = 2
PLAIN, REFUSED = 12, 4
"""Pods of each tenant that can be placed, and that cannot."""
QUOTA = 4
ROUNDS = 4
STANDSTILL_SECONDS = 150.0
"""Half of the time after which an operator looks at everything again, although nothing has changed."""
TAINT = {"key": "example.com/later", "effect": "NoSchedule"}


@pytest.fixture(scope="module", autouse=True)
def gate_mode(cluster: Cluster) -> Iterator[None]:
    """The chart in gate mode and kube-scheduler, and both as they were after the module."""
    with gating(cluster):
        yield


class World:
    """What one seed makes. teams: namespaces; the last one has a quota, and only pods that can be placed.

    steady: the node that nothing happens to, so that there is a way on. missing: pods that the quota refuses yet.
    closed: nodes that are tainted or cordoned.
    """

    def __init__(self, seed: int, api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant) -> None:
        self.dice = dice = random.Random(seed)
        self._api = api
        self.most = dice.randint(2, REFUSED - 1)
        cores = dice.sample([4, 5, 6, 8, 12], 4)
        specs = [{"cpu": str(each), "memory": "64Gi", "pods": "110"} for each in cores]
        self.nodes = nodes([make_node(make_name("n"), allocatable=each) for each in specs])
        self.steady = dice.choice(self.nodes)
        self.teams = [namespace(labels=ENFORCED) for _ in range(3)]
        self.tenants = [tenant(namespaces=[team], weight=dice.randint(1, 3)) for team in self.teams]
        self.storages: list[Storage] = []
        self.refused: list[tuple[str, str]] = []
        self.closed: set[str] = set()
        self.missing = [self._make_plain() for _ in range(PLAIN)]

    def put(self) -> None:
        """Make the pods, first of all those that cannot be placed."""
        *others, limited = self.teams
        spec = {"hard": {"pods": str(QUOTA)}}
        self._api.post(f"/api/v1/namespaces/{limited}/resourcequotas", {"metadata": {"name": "few"}, "spec": spec})
        for team in others:
            storage = Storage(self._api, team)
            self.storages.append(storage)
            storage.make_class("WaitForFirstConsumer")
            claim = claim_device_of_nowhere(self._api, team)
            pods = [self._make_refused(storage, claim) for _ in range(REFUSED)]
            self.refused += [(team, name) for name in create_pods(self._api, team, pods)]
            create_pods(self._api, team, [self._make_plain() for _ in range(PLAIN)])

    def _make_plain(self) -> Json:
        """Return a pod that ends soon after it has a node."""
        return make_default({"cpu": str(self.dice.randint(1, 3)), "memory": "64Mi"}, run_seconds=1)

    def _make_refused(self, storage: Storage, claim: Json) -> Json:
        """Return a pod that kube-scheduler finds no node for. It holds little of one where its volume may come."""
        if self.dice.random() < 0.7:
            return make_default({"cpu": str(self.dice.randint(1, 2)), "memory": "64Mi"}, **claim)
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": storage.make_claim()}}]
        return make_default({"cpu": "10m", "memory": "64Mi"}, volumes=volumes)

    def supply(self) -> None:
        """Make those pods that the quota lets come now."""
        while self.missing:
            try:
                self._api.post(f"/api/v1/namespaces/{self.teams[-1]}/pods", self.missing[-1])
            except ApiError as error:
                if error.status != FORBIDDEN:
                    raise
                return
            self.missing.pop()

    def count_done(self) -> int:
        """Return how many pods have run to their end."""
        self.supply()
        paths = [f"/api/v1/namespaces/{team}/pods" for team in self.teams]
        return sum(len(self._api.items(path, fieldSelector="status.phase=Succeeded")) for path in paths)

    @property
    def all_done(self) -> int:
        return PLAIN * len(self.teams)

    def disturb(self) -> None:
        """Taint or cordon a node, or let all be used again."""
        deed = self.dice.choice(["taint", "cordon", "both"])
        if self.dice.random() < 0.25:
            self.calm()
        node = self.dice.choice([name for name in self.nodes if name != self.steady])
        self.closed.add(node)
        if deed != "cordon":
            self._api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [TAINT]}})
        if deed != "taint":
            self._api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})

    def calm(self) -> None:
        """Let all nodes be used."""
        usable = {"spec": {"taints": None, "unschedulable": None}}
        call_many(self.nodes, lambda name: self._api.patch(f"/api/v1/nodes/{name}", usable))
        self.closed.clear()

    def list_unended(self) -> list[Json]:
        """Return the pods that have not run to their end and that are not refused for ever."""
        refused = set(self.refused)
        pods = [pod for team, pod in self._list() if (team, pod["metadata"]["name"]) not in refused]
        return [pod for pod in pods if pod["status"].get("phase") != "Succeeded"]

    def is_on_its_way(self) -> bool:
        """Whether some pod has an open gate and no node yet, or none is left to have one."""
        self.supply()
        waiting = [pod for pod in self.list_unended() if not pod["spec"].get("nodeName")]
        return any(map(has_open_gate, waiting)) or not (waiting or self.missing)

    def has_way(self) -> bool:
        """Whether some pod has a node, or waits and was not narrowed to nodes which were closed meanwhile."""
        return any(
            pod["spec"].get("nodeName") or not has_open_gate(pod) or find_hosts(pod) - self.closed
            for pod in self.list_unended()
        )

    def find_placed(self) -> list[tuple[str, str]]:
        """Return those that cannot be placed and were."""
        nodes = {(team, pod["metadata"]["name"]): pod["spec"].get("nodeName") for team, pod in self._list()}
        return [each for each in self.refused if nodes[each]]

    def find_told(self) -> set[tuple[str, str]]:
        """Return the pods of which an event says that they were not placed in time."""
        events = [(team, each) for team in self.teams for each in self._api.items(f"/api/v1/namespaces/{team}/events")]
        return {(team, each["involvedObject"]["name"]) for team, each in events if each["reason"] == "NotPlacedInTime"}

    def read_placed(self) -> list[str]:
        """Return what each Tenant says of whether its pods were placed."""
        statuses = [self._api.get(f"{TENANTS}/{name}").get("status", {}) for name in self.tenants]
        kinds = [{each["type"]: each["status"] for each in status.get("conditions", ())} for status in statuses]
        return [each.get("PodsPlaced", "") for each in kinds]

    def _list(self) -> Iterator[tuple[str, Json]]:
        for team in self.teams:
            for pod in list_pods(self._api, team):
                yield team, pod


def wait_progress(world: World, done: int) -> None:
    """Wait until one more pod has ended, if there is a way for one."""
    wait_for(
        lambda: world.count_done() > done or not world.has_way(),
        STANDSTILL_SECONDS,
        describe=f"progress after {done} pods",
    )


def find_hosts(pod: Json) -> set[str]:
    """Return the nodes that a pod was narrowed to; any name when it was not."""
    terms = pod["spec"].get("affinity", {}).get("nodeAffinity", {}).get(REQUIRED, {}).get("nodeSelectorTerms", ())
    return {host for term in terms for each in term["matchExpressions"] for host in each["values"]} or {"any"}


@pytest.fixture
def make_world(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant
) -> Iterator[Callable[[int], World]]:
    worlds: list[World] = []

    def make(seed: int) -> World:
        worlds.append(World(seed, cluster.api, nodes, namespace, tenant))
        return worlds[-1]

    yield make
    for path in [path for world in worlds for storage in world.storages for path in storage.made]:
        remove(cluster.api, path)


@pytest.mark.parametrize("chosen", ["best-fit-drfh", "ps-dsf"])
@pytest.mark.parametrize("seed", range(3))
def test_what_kube_scheduler_refuses_stops_nothing_else_for_long(
    cluster: Cluster,
    make_world: Callable[[int], World],
    policy: Callable[..., None],
    operator: StartOperator,
    chosen: str,
    seed: int,
) -> None:
    """Fewer pods may be on their way than each of two tenants has that are refused."""
    plane, world = cluster.plane, make_world(seed)
    assert plane is not None
    policy(policy=chosen)
    for team in world.teams:
        wait_gated(cluster.api, team)
    world.put()
    operator("--mode", "gate", f"--max-ungated={world.most}", f"--ungated-timeout={UNGATED_SECONDS}")
    for _ in range(ROUNDS):
        plane.stop_component("kube-scheduler", kill=True)
        wait_for(world.is_on_its_way, STANDSTILL_SECONDS, "a gate to be opened")
        world.disturb()
        before = world.count_done()
        plane.start_component("kube-scheduler")
        wait_progress(world, before)
    world.calm()

    while (done := world.count_done()) < world.all_done:
        wait_progress(world, done)
    assert world.find_placed() == []
    wait_for(lambda: set(world.refused) <= world.find_told(), describe="the others to be told", pause=0.5)
    *others, limited = world.teams
    wait_for(lambda: world.read_placed()[: len(others)] == ["False"] * len(others), describe="the tenants to be told")
    for team in others:
        delete_pods(cluster.api, team, [name for each, name in world.refused if each == team])
    wait_for(lambda: world.read_placed() == ["True"] * len(world.teams), describe="the tenants to be told of the end")
    assert count(cluster.api, [limited], has_open_gate) == [PLAIN]
