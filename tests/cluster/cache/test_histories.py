"""Random histories of a cluster, told to the cache late, twice, out of date or as a new list.

`Server` is the truth: it has the objects and gives every change a version. The cache hears of the changes in order,
but later, and in between of old ones again. Its books must equal books made anew, in some histories after every step,
in others after a few, because to look settles what is pending; and whenever it has heard of everything, they must
equal what a few plain loops over the server's objects say.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from typing import Any, Literal
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cluster import strategies as some
from cluster.builders import (
    SCHEDULER,
    Json,
    make_namespace,
    make_node,
    make_pod,
    read_namespace,
    read_node,
    read_pod,
)
from derived import find_wrong
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.classes import cluster_state, due
from fairbind.cluster.filters.refusals import is_inside
from fairbind.cluster.objects.facts import PodFacts
from fairbind.cluster.state import consistency
from fairbind.cluster.tenancy.guarantees import GuaranteeOf
from fairbind.cluster.tenancy.tenants import TenantSpec, parse_tenant
from fairbind.cluster.tenancy.tree import TenantTree, build_tree
from fairbind.model import MAX_AMOUNT, PolicySettings, Snapshot, Unclaimed, Wait
from fairbind.model.topology import LimitOf
from fairbind.scheduling import CycleState, UnschedulableCache, run_cycle
from fairbind.scheduling.cycle.draft import Draft

ResourceType = Literal["pods", "nodes", "namespaces"]
KINDS: tuple[ResourceType, ...] = ("pods", "nodes", "namespaces")
READERS: dict[ResourceType, Callable[[Json], Any]] = {
    "pods": read_pod,
    "nodes": read_node,
    "namespaces": read_namespace,
}
SYSTEM = "kube-system"

kinds = st.sampled_from(KINDS)
node_shapes = st.builds(
    make_node,
    name=st.sampled_from(some.NODE_NAMES),
    allocatable=some.allocatables,
    labels=some.labels,
    taints=some.taints,
    ready=st.booleans(),
    unschedulable=st.booleans(),
    images=some.images,
)


node_amounts = st.lists(
    st.fixed_dictionaries(
        {
            "resources": st.dictionaries(
                st.sampled_from(("cpu", "pods", "gpu.io/x")), st.sampled_from(("1", "3")), min_size=1, max_size=2
            )
        },
        optional={"nodes": st.sampled_from([{"matchLabels": {"disk": disk}} for disk in ("ssd", "hdd")])},
    ),
    max_size=2,
)
more_of_tenants = st.fixed_dictionaries(
    {},
    optional={
        "parent": st.sampled_from(("t1", "t2", "t3", "t1")),
        "users": st.just({"label": "app"}),
        "priority": st.integers(0, 1),
        "guarantee": node_amounts,
        "limit": node_amounts,
        "lending": st.just("Never"),
    },
)


class Server:
    """The objects of all kinds, and the history of what happened to them."""

    def __init__(self) -> None:
        self.objects: dict[ResourceType, dict[str, Json]] = {kind: {} for kind in KINDS}
        self.history: dict[ResourceType, list[tuple[bool, Json]]] = {kind: [] for kind in KINDS}
        self.version = 0

    def put(self, kind: ResourceType, key: str, item: Json) -> None:
        self.objects[kind][key] = self._log(kind, item, deleted=False)

    def delete(self, kind: ResourceType, key: str) -> None:
        self._log(kind, self.objects[kind].pop(key), deleted=True)

    def change(self, key: str, change: Callable[[Json], object]) -> None:
        pod = json.loads(json.dumps(self.objects["pods"][key]))
        change(pod)
        self.put("pods", key, pod)

    def _log(self, kind: ResourceType, item: Json, *, deleted: bool) -> Json:
        self.version += 1
        item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
        self.history[kind].append((deleted, item))
        return item


class Histories(RuleBasedStateMachine):
    goes_in_parts = False

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.cache = ClusterCache(SCHEDULER, lambda: None)
        self.heard: dict[ResourceType, int] = dict.fromkeys(KINDS, 0)
        self.assumed: dict[str, str] = {}
        self.postponed: set[str] = set()
        self.selector: tuple[tuple[str, str], ...] = ()
        self.tenants: dict[str, TenantSpec] = {}
        self.unclaimed = Unclaimed.TENANT
        self.created = 0
        self.pace = 1
        self.steps = 0
        self.state, self.unschedulable = CycleState(), UnschedulableCache()

    # --- what happens in the cluster ---

    @initialize(pace=st.sampled_from((7, 3, 1)))
    def start(self, pace: int) -> None:
        self.pace = pace
        for name in some.NODE_NAMES[:2]:
            self.server.put("nodes", name, make_node(name, labels={"zone": name}))
        self.create_pods([make_pod(requests={"cpu": "1"}, labels={"app": app}) for app in some.APPS])
        self.hear_everything()

    def teardown(self) -> None:
        self.cache.check_consistent()
        self.hear_everything_and_compare()

    @rule(pods=st.lists(some.pods(), min_size=1, max_size=4))
    def create_pods(self, pods: list[Json]) -> None:
        for pod in pods:
            self.created += 1
            uid = f"uid-{self.created}"
            self.server.put("pods", uid, {**pod, "metadata": {**pod["metadata"], "name": uid, "uid": uid}})

    def pick_pod(self, data: st.DataObject, is_wanted: Callable[[Json], bool]) -> str | None:
        uids = [uid for uid, pod in self.server.objects["pods"].items() if is_wanted(pod)]
        return data.draw(st.sampled_from(uids)) if uids else None

    @rule(data=st.data(), node=st.sampled_from(some.NODE_NAMES))
    def bind_pod(self, data: st.DataObject, node: str) -> None:
        uid = self.pick_pod(data, lambda pod: "nodeName" not in pod["spec"] and not pod["spec"].get("schedulingGates"))
        if uid:
            self.server.change(uid, lambda pod: pod["spec"].update(nodeName=node))

    @rule(data=st.data(), node=st.sampled_from((*some.NODE_NAMES, "")))
    def nominate_pod(self, data: st.DataObject, node: str) -> None:
        uid = self.pick_pod(data, lambda pod: "nodeName" not in pod["spec"])
        if uid:
            self.server.change(uid, lambda pod: pod["status"].update(nominatedNodeName=node))

    @rule(data=st.data(), phase=st.sampled_from(("Running", "Succeeded", "Failed")))
    def set_phase(self, data: st.DataObject, phase: str) -> None:
        uid = self.pick_pod(data, lambda pod: pod["status"]["phase"] not in {"Succeeded", "Failed"})
        if uid:
            self.server.change(uid, lambda pod: pod["status"].update(phase=phase))

    @rule(data=st.data(), cpu=st.sampled_from(("1", "3")))
    def resize_pod(self, data: st.DataObject, cpu: str) -> None:
        status = [{"name": "main", "allocatedResources": {"cpu": cpu}}]
        uid = self.pick_pod(data, lambda pod: "nodeName" in pod["spec"])
        if uid:
            self.server.change(uid, lambda pod: pod["status"].update(containerStatuses=status))

    @rule(data=st.data(), hour=st.integers(0, 2))
    def start_pod(self, data: st.DataObject, hour: int) -> None:
        uid = self.pick_pod(data, lambda pod: "nodeName" in pod["spec"])
        if uid:
            self.server.change(uid, lambda pod: pod["status"].update(startTime=f"2026-01-03T0{hour}:00:00Z"))

    @rule(data=st.data(), app=st.sampled_from((*some.APPS, "")))
    def label_pod(self, data: st.DataObject, app: str) -> None:
        uid = self.pick_pod(data, lambda _: True)
        if uid:
            self.server.change(uid, lambda pod: pod["metadata"]["labels"].update(app=app))

    @rule(data=st.data())
    def open_gate(self, data: st.DataObject) -> None:
        uid = self.pick_pod(data, lambda pod: bool(pod["spec"].get("schedulingGates")))
        if uid:
            self.server.change(uid, lambda pod: pod["spec"].update(schedulingGates=[]))

    @rule(data=st.data())
    def begin_to_delete_pod(self, data: st.DataObject) -> None:
        uid = self.pick_pod(data, lambda _: True)
        if uid:
            self.server.change(uid, lambda pod: pod["metadata"].update(deletionTimestamp="2026-01-01T00:00:00Z"))

    @rule(data=st.data())
    def delete_pod(self, data: st.DataObject) -> None:
        uid = self.pick_pod(data, lambda _: True)
        if uid:
            self.server.delete("pods", uid)

    @rule(node=node_shapes)
    def put_node(self, node: Json) -> None:
        self.server.put("nodes", node["metadata"]["name"], node)

    @rule(name=st.sampled_from(some.NODE_NAMES))
    def delete_node(self, name: str) -> None:
        if name in self.server.objects["nodes"]:
            self.server.delete("nodes", name)

    @rule(name=st.sampled_from(some.NAMESPACES), labels=st.sampled_from(({}, {"env": "prod"}, {"owner": "t1"})))
    def put_namespace(self, name: str, labels: Json) -> None:
        self.server.put("namespaces", name, make_namespace(name, labels))

    @rule(name=st.sampled_from(some.NAMESPACES))
    def delete_namespace(self, name: str) -> None:
        if name in self.server.objects["namespaces"]:
            self.server.delete("namespaces", name)

    # --- what administrators want (told at once) ---

    @rule(
        name=st.sampled_from(("t1", "t2", "t3")),
        day=st.integers(1, 2),
        weight=st.sampled_from((1, 2)),
        namespaces=st.lists(st.sampled_from(some.NAMESPACES), max_size=2),
        selector=st.sampled_from((None, {"matchLabels": {"owner": "t1"}}, {"matchLabels": {"env": "prod"}})),
        more=more_of_tenants,
    )
    def put_tenant(
        self, name: str, day: int, weight: int, namespaces: list[str], selector: Json | None, more: Json
    ) -> None:
        meta = {"name": name, "creationTimestamp": f"2026-01-0{day}T00:00:00Z"}
        spec = {"weight": weight, "namespaces": namespaces, "namespaceSelector": selector, **more}
        if more.get("parent") == name:
            del spec["parent"]
        self.tenants[name] = parse_tenant({"metadata": meta, "spec": spec})
        self.cache.set_tenant(self.tenants[name])

    @rule(name=st.sampled_from(("t1", "t2", "t3")))
    def delete_tenant(self, name: str) -> None:
        self.tenants.pop(name, None)
        self.cache.delete_tenant(name)

    @rule(
        selector=st.sampled_from(((), (("zone", "1"),))),
        tolerance=st.sampled_from((0.0, 0.5)),
        resources=st.sampled_from((None, ("memory",))),
        unclaimed=st.sampled_from(Unclaimed),
    )
    def set_policy(self, selector: Any, tolerance: float, resources: Any, unclaimed: Unclaimed) -> None:
        self.unclaimed, self.selector = unclaimed, selector
        self.cache.set_policy(
            PolicySettings(
                server_selector=selector,
                server_class_tolerance=tolerance,
                fairness_resources=resources,
                unclaimed=unclaimed,
            )
        )

    # --- what we decide ---

    @rule(
        data=st.data(),
        node=st.sampled_from(some.NODE_NAMES),
        outcome=st.sampled_from(("open", "bound", "failed", "postponed")),
    )
    def decide(self, data: st.DataObject, node: str, outcome: str) -> None:
        if not self.find_waiting():
            self.create_pods([make_pod(requests={"cpu": "1"})])
            self.hear("pods", 10**6)
        uid = data.draw(st.sampled_from(self.find_waiting()))
        assert self.cache.assume(uid, node)
        self.assumed[uid] = node
        if outcome == "bound" and uid in self.server.objects["pods"]:
            self.server.change(uid, lambda pod: pod["spec"].setdefault("nodeName", node))
        if outcome in {"failed", "postponed"}:
            self.forget(uid, postponed=outcome == "postponed")

    @rule(limit=st.sampled_from((None, 2)), outcome=st.sampled_from(("carried out", "taken back", "fails")))
    def run_cycle(self, limit: int | None, outcome: str) -> None:
        """Decide about all that waits. A cycle that fails has decided already."""
        snapshot, settings = self.cache.build_snapshot(), self.cache.settings
        given: dict[str, Any] = {"limit": limit, "unschedulable": self.unschedulable, "state": self.state}
        if outcome == "fails":
            with patch.object(Draft, "end", side_effect=ZeroDivisionError), pytest.raises(ZeroDivisionError):
                run_cycle(snapshot, settings, 0.0, **given)
            return
        bindings = run_cycle(snapshot, settings, 0.0, **given).bindings
        assert limit is None or find_wrong(self.state) == []
        for bind in bindings:
            assert self.cache.assume(bind.task.uid, bind.server)
            self.assumed[bind.task.uid] = bind.server
        for bind in reversed(bindings) if outcome == "taken back" else ():
            self.forget(bind.task.uid, postponed=False)

    @rule(data=st.data())
    def take_back_bind(self, data: st.DataObject) -> None:
        """Let a pod wait again that was bound: no API server does that, but what-if does."""
        uid = self.pick_pod(data, self.is_bound_by_others)
        if uid:
            self.server.change(uid, lambda pod: pod["spec"].pop("nodeName"))

    def is_bound_by_others(self, pod: Json) -> bool:
        """A pod of which a binding failed and that is bound all the same is not postponed any more."""
        uid = pod["metadata"]["uid"]
        return "nodeName" in pod["spec"] and uid not in self.assumed and uid not in self.postponed

    def find_waiting(self) -> list[str]:
        return sorted(task.uid for c in self.cache.build_snapshot().task_classes for task in c.tasks)

    @precondition(lambda self: self.assumed)
    @rule(data=st.data(), postponed=st.booleans())
    def hear_that_a_binding_failed(self, data: st.DataObject, *, postponed: bool) -> None:
        self.forget(data.draw(st.sampled_from(sorted(self.assumed))), postponed=postponed)

    def forget(self, uid: str, *, postponed: bool) -> None:
        record = self.cache.find_pod(uid)
        if postponed and record is not None and record.assumed:
            self.postponed.add(uid)
        del self.assumed[uid]
        self.cache.forget(uid, postponed=postponed)

    @precondition(lambda self: self.postponed)
    @rule(data=st.data())
    def resume(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(sorted(self.postponed)))
        self.postponed.discard(uid)
        self.cache.resume(uid)

    @rule()
    def note_waits(self) -> None:
        classes = self.cache.build_snapshot().task_classes
        self.cache.note_waits([Wait(c, c.tasks[0], len(c.tasks), (), c.blocked) for c in classes[::2]])

    # --- what the cache hears, and when ---

    @rule(kind=kinds, count=st.integers(1, 5))
    def hear(self, kind: ResourceType, count: int) -> None:
        events = self.server.history[kind][self.heard[kind] :][:count]
        self.heard[kind] += len(events)
        for deleted, item in events:
            self.tell(kind, item, deleted=deleted)

    def hear_everything(self) -> None:
        for kind in KINDS:
            self.hear(kind, 10**6)

    @rule(kind=kinds, data=st.data())
    def hear_again(self, kind: ResourceType, data: st.DataObject) -> None:
        old = self.server.history[kind][: self.heard[kind]]
        if old:
            deleted, item = data.draw(st.sampled_from(old))
            self.tell(kind, item, deleted=deleted)

    @rule(kind=kinds)
    def list_again(self, kind: ResourceType) -> None:
        self.heard[kind] = len(self.server.history[kind])
        items = [READERS[kind](item) for item in self.server.objects[kind].values()]
        getattr(self.cache, kind).replace(items, str(self.server.version))

    def tell(self, kind: ResourceType, item: Json, *, deleted: bool) -> None:
        feed = getattr(self.cache, kind)
        (feed.delete if deleted else feed.apply)(READERS[kind](item))

    # --- what must hold ---

    @invariant()
    def books_equal_books_made_anew(self) -> None:
        self.steps += 1
        if self.steps % self.pace == 0:
            self.check_scale()
            assert find_wrong(self.cache) == []
            self.check_changes()
            self.cache.check_consistent()

    def check_changes(self) -> None:
        """What a snapshot says of what changed is what changed, and each placement is counted by its classes."""
        snapshot = self.cache.build_snapshot()
        may_be_placed = (each.placement for each in snapshot.task_classes if each.blocked is None)
        assert self.cache._builder._placements == Counter(may_be_placed)
        changes = snapshot.changes
        if changes is None:
            assert self.goes_in_parts, "then all classes may be of other nodes or resources"
            return
        assert changes.after is snapshot.task_classes
        found = replace(snapshot, changes=None).compute_changes(changes.before)
        assert (Counter(changes.added), Counter(changes.removed)) == (Counter(found.added), Counter(found.removed))

    def check_scale(self) -> None:
        """What is found out without a snapshot is what the snapshot says."""
        has_waiting, scale = self.cache.queries.has_waiting, self.cache._builder.compute_scale()
        snapshot = self.cache.build_snapshot()
        assert has_waiting == bool(snapshot.task_classes)
        assert (scale.resources, scale.total_r) == (snapshot.resources, snapshot.total_r)
        assert has_waiting or scale.counts_r == snapshot.counts_r

    @rule()
    def hear_everything_and_compare(self) -> None:
        self.hear_everything()
        snapshot, overview = self.cache.build_snapshot(whole=True), self.cache.queries.build_overview()
        expected = self.compute_expected()
        found_running = {tenant.name: tenant.running for tenant in overview.tenants if tenant.running}
        assert found_running == dict(expected.running)
        found_cpu = {t.name: t.allocated.get("cpu", 0.0) * 1000 for t in overview.tenants if t.allocated.get("cpu")}
        assert found_cpu == pytest.approx({name: cpu for name, cpu in expected.tenant_cpu.items() if cpu})
        found = {
            task.uid: (name, task.server, task.tenant, task.start, task.group, task.demand_r[0], sorted(task.keys))
            for name, tasks in snapshot.running.items()
            for task in tasks
        }
        assert found == expected.held
        waiting = {task.uid: c.tenant for c in snapshot.task_classes for task in c.tasks}
        assert waiting == expected.waiting
        nodes = self.server.objects["nodes"]
        assert snapshot.servers.names == tuple(sorted(nodes))
        cpu_k = snapshot.servers.free_kr[:, 0].tolist()
        for name, free in zip(snapshot.servers.names, cpu_k, strict=True):
            allocatable = dict(read_node(nodes[name]).allocatable).get("cpu", 0)
            assert free == max(allocatable - expected.node_cpu[name], -MAX_AMOUNT)
        self.check_tree(snapshot)

    def check_tree(self, snapshot: Snapshot) -> None:
        """Who is below whom, with what: by plain loops over Tenants, pods and nodes."""
        tree, hierarchy = build_tree(self.tenants.values()), snapshot.hierarchy
        one = {name: spec.weight for name, spec in self.tenants.items() if name not in tree.inner}
        weights = {tenant.name: tenant.weight for tenant in snapshot.tenants}
        assert weights == {name: Fraction(1) for name in weights} | one
        assert {name: each.tenant.weight for name, each in hierarchy.inner.items()} == {
            name: self.tenants[name].weight for name in tree.inner
        }
        for name, each in hierarchy.inner.items():
            assert each.place.parent == tree.parent_of.get(name)
            below = [
                leaf
                for leaf in snapshot.tenants
                if name in [one.tenant.name for one in hierarchy.list_above(leaf.name)]
            ]
            held_r = tuple(map(sum, zip(*(leaf.allocated_r for leaf in below), strict=True)))
            assert each.tenant.allocated_r == (held_r or (0,) * len(snapshot.resources))
        for leaf in snapshot.tenants:
            tenant = leaf.name.split("@")[-1]
            parent = tenant if tenant in tree.inner else tree.parent_of.get(tenant)
            assert hierarchy.get_place(leaf.name).parent == parent
        assert snapshot.held == self.compute_held(tree)

    def compute_held(self, tree: TenantTree) -> dict[Any, int]:
        held: Counter[Any] = Counter()
        nodes = {name: dict(read_node(node).labels) for name, node in self.server.objects["nodes"].items()}
        for name, spec in self.tenants.items():
            for kind, entries in ((LimitOf, spec.limit), (GuaranteeOf, spec.guarantee)):
                held.update({kind(name, n, r): 0 for n, entry in enumerate(entries) for r, _ in entry.amounts})
        for uid, pod in self.server.objects["pods"].items():
            facts = read_pod(pod)
            owner = self.find_owner(facts.namespace)
            node = facts.node or (None if facts.terminating else self.assumed.get(uid))
            if facts.finished or owner is None or node is None or not self.is_counting(node):
                continue
            for name in (owner, *tree.list_above(owner)):
                spec = self.tenants[name]
                for kind, entries in ((LimitOf, spec.limit), (GuaranteeOf, spec.guarantee)):
                    for n, entry in enumerate(entries):
                        if entry.selector is None or entry.selector.is_met_by(nodes[node]):
                            for resource, _ in entry.amounts:
                                held[kind(name, n, resource)] += dict(facts.demand.real).get(resource, 0)
        return dict(held)

    def compute_expected(self) -> Expected:
        expected = Expected()
        for uid, pod in self.server.objects["pods"].items():
            facts: PodFacts = read_pod(pod)
            if facts.finished:
                continue
            tenant = self.find_tenant(facts)
            node = facts.node or (None if facts.terminating else self.assumed.get(uid))
            if node is not None:
                cpu = dict(facts.demand.real).get("cpu", 0)
                expected.node_cpu[node] += cpu
                if tenant is not None:
                    start, labels = pod["status"].get("startTime"), pod["metadata"]["labels"]
                    group = labels.get("scheduling.x-k8s.io/pod-group")
                    expected.held[uid] = (
                        node,
                        node,
                        tenant,
                        datetime.fromisoformat(start or pod["metadata"]["creationTimestamp"]).timestamp(),
                        f"{facts.namespace}/{group}" if group else None,
                        cpu,
                        sorted(facts.constraints.exclusive_keys.taken),
                    )
                    expected.running[tenant] += 1
                    expected.tenant_cpu[tenant] += cpu if self.is_counting(node) else 0
            elif is_ours_to_place(facts) and uid not in self.postponed:
                assert tenant is not None
                expected.waiting[uid] = tenant
                is_refused = self.unclaimed == Unclaimed.REFUSE and self.find_owner(facts.namespace) is None
                if facts.unsupported is None and not is_refused:
                    expected.node_cpu[facts.nominated_node] += dict(facts.demand.real).get("cpu", 0)
            elif facts.scheduler != SCHEDULER and not facts.terminating and not facts.gated:
                expected.node_cpu[facts.nominated_node] += dict(facts.demand.real).get("cpu", 0)
        return expected

    def is_counting(self, name: str) -> bool:
        node = self.server.objects["nodes"].get(name)
        return node is not None and is_inside(read_node(node), self.selector)

    def find_tenant(self, facts: PodFacts) -> str | None:
        namespace, owner = facts.namespace, self.find_owner(facts.namespace)
        if owner is not None:
            user = dict(facts.labels).get("app", "")
            return owner if self.tenants[owner].users_label is None else f"{user}@{owner}"
        if namespace == SYSTEM and facts.scheduler != SCHEDULER:
            return None
        return "ns/*" if self.unclaimed == Unclaimed.TOGETHER else f"ns/{namespace}"

    def find_owner(self, namespace: str) -> str | None:
        labels = self.server.objects["namespaces"].get(namespace, {}).get("metadata", {}).get("labels")
        for spec in sorted(self.tenants.values(), key=lambda spec: (spec.created, spec.name)):
            is_selected = spec.selector is not None and labels is not None and spec.selector.is_met_by(labels)
            if namespace in spec.namespaces or (is_selected and namespace != SYSTEM):
                return spec.name
        return None


def is_ours_to_place(facts: PodFacts) -> bool:
    return facts.scheduler == SCHEDULER and not facts.terminating and not facts.gated


class Expected:
    """What plain loops over the server's objects say."""

    def __init__(self) -> None:
        self.running: Counter[str] = Counter()
        self.tenant_cpu: Counter[str] = Counter()
        self.node_cpu: Counter[str | None] = Counter()
        self.waiting: dict[str, str] = {}
        self.held: dict[str, tuple[Any, ...]] = {}


class HistoriesInParts(Histories):
    """The same, where only one class or pod goes over at a time. What is not backed off must be as of now."""

    goes_in_parts = True

    def __init__(self) -> None:
        super().__init__()
        self.patches = [
            patch.object(due, "MAX_DUE", 1),
            patch.object(cluster_state, "MAX_SELECTED", 1),
        ]
        for each in self.patches:
            each.start()

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            for each in self.patches:
                each.stop()

    @initialize(pods=st.lists(some.pods(), min_size=6, max_size=9))
    def let_more_wait(self, pods: list[Json]) -> None:
        self.create_pods(pods)
        self.hear_everything()

    @invariant()
    def books_equal_books_made_anew(self) -> None:
        self.steps += 1
        self.check_changes()
        self.compare_with_whole()
        if self.steps % self.pace == 0:
            self.cache.note_waits(())

    def compare_with_whole(self) -> None:
        seen, whole = self.cache.build_snapshot(), self.cache._rebuild().build_snapshot()
        certain = tuple(each for each in seen.task_classes if each not in seen.stale)
        found = describe_tasks(replace(seen, task_classes=certain))
        wanted = describe_tasks(whole)
        assert found == {uid: wanted[uid] for uid in found}
        if seen.is_current:
            assert found == wanted


def describe_tasks(snapshot: Snapshot) -> dict[str, tuple[Any, ...]]:
    """What the snapshot says of the class of each task, but for the others in it."""
    return {uid: (tenant, *more) for tenant, uids, *more in consistency._describe_classes(snapshot) for uid in uids}


TestHistories = pytest.mark.slow(Histories.TestCase)
TestHistories.settings = settings(max_examples=2 * settings().max_examples, stateful_step_count=50)
TestHistoriesInParts = pytest.mark.slow(HistoriesInParts.TestCase)
TestHistoriesInParts.settings = settings(max_examples=2 * settings().max_examples, stateful_step_count=50)
