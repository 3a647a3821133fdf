"""From a snapshot to a scenario: the cluster as it is, its pods with run times that are drawn from known ones.

Pods that run go on until their run time is over, pods that wait are decided about in their turn. What else happens,
`snapshot_additions` adds. A pod of which no run time is known never ends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import isfinite
from typing import Final

import msgspec
import numpy as np

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.objects import wire
from fairbind.cluster.objects.captured import belongs_to_node
from fairbind.cluster.objects.convert import convert_node, convert_pod, parse_time
from fairbind.cluster.objects.facts import HOSTNAME, NodeFacts
from fairbind.cluster.tenancy.tenants import IMPLICIT_PREFIX, TenantSpec
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.model import Snapshot
from fairbind.simulator.parsing import DEFAULT_MEASURE_EVERY
from fairbind.simulator.scenario import AllAt, Each, Entry, ListedPod, Scenario, Shape
from fairbind.simulator.slots import DEFAULT_SLOTS
from fairbind.what_if.changes import find_node_pods, make_node_like, release
from fairbind.what_if.listed_objects import ListedObjects, build_cache
from fairbind.what_if.reading import MOST_SECONDS, NANOSECONDS, complain
from fairbind.what_if.wait_estimate import RunTimes

NAME: Final = "snapshot"
MEASUREMENTS: Final = 100
"""About so many in the longest run time."""
ANY_NODE: Final = "node"


def make_scenario(
    listed: ListedObjects, seed: int, given_run_times: Mapping[str, Sequence[float]], *, may_be_empty: bool = False
) -> Scenario:
    """Return the scenario. given_run_times: seconds, by tenant, in place of the known ones.

    may_be_empty: whether no pod need run or wait, because tasks arrive later.
    """
    cache = build_cache(listed)
    tenants = tuple(_make_tenants(cache, cache.build_snapshot()))  # which also finds out whose pods are whose
    run_times = RunTimes(listed, cache.state.directory, given_run_times)
    stream = np.random.default_rng(seed)
    nodes = {node.metadata.name for node in listed.nodes}
    groups: dict[tuple[str, str], list[tuple[ListedPod, float]]] = {}
    tasks: set[str] = set()
    for pod in listed.pods:
        tenant = _find_task_tenant(listed, cache, pod, nodes)
        if tenant is not None:
            tasks.add(pod.metadata.uid)
            seconds = run_times.draw(pod.metadata.namespace, tenant, _compute_age(listed, pod), stream)
            groups.setdefault((pod.metadata.namespace, tenant), []).append((_list_pod(pod), seconds))
    if not groups and not may_be_empty:
        complain(("pods",), "must have at least one that runs or waits for fairbind")
    lengths = [seconds for pods in groups.values() for _, seconds in pods]
    known = [seconds for seconds in lengths if isfinite(seconds)]
    others = [pod for pod in listed.pods if pod.metadata.uid not in tasks]
    return Scenario(
        name=NAME,
        seed=seed,
        horizon=None,
        shapes=_make_shapes(listed),
        tenants=tenants,
        workload=tuple(_make_entry(*key, pods) for key, pods in groups.items()),
        events=(),
        policies=(cache.settings.policy,),
        measure_every=max(DEFAULT_MEASURE_EVERY, round(max(known, default=0.0) * NANOSECONDS / MEASUREMENTS)),
        slots=DEFAULT_SLOTS,
        notes=(f"{len(known)} of {len(lengths)} pods have a run time, drawn from known ones; the others never end",),
        start=msgspec.structs.replace(listed, nodes=[], pods=others),
    )


def _find_task_tenant(listed: ListedObjects, cache: ClusterCache, pod: wire.Pod, nodes: set[str]) -> str | None:
    """Return whose task a pod is; None for one that only takes capacity or does not wait for this scheduler.

    One that belongs to its node takes capacity as long as the node is there: it neither ends nor moves.
    """
    record = cache.find_pod(pod.metadata.uid)
    if record is None or not record.tenant or belongs_to_node(pod):
        return None
    tenant = find_tenant_of_leaf(record.tenant)
    if record.node is None:
        return tenant if record.is_waiting else None
    return tenant if record.node in nodes and listed.is_ours(pod) else None


def _compute_age(listed: ListedObjects, pod: wire.Pod) -> float:
    start = parse_time(pod.status.start_time) if pod.spec.node_name else 0.0
    return max(0.0, listed.time - start) if start else 0.0


def _list_pod(pod: wire.Pod) -> ListedPod:
    placed = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=ANY_NODE))
    return ListedPod(convert_pod(release(pod)), convert_pod(placed), pod.spec.node_name)


def _make_entry(namespace: str, tenant: str, pods: Sequence[tuple[ListedPod, float]]) -> Entry:
    lengths = [
        max(1, round(min(seconds, MOST_SECONDS) * NANOSECONDS)) if isfinite(seconds) else None for _, seconds in pods
    ]
    first = pods[0][0]
    return Entry(
        tenant=tenant,
        name=namespace,
        tasks=len(pods),
        arrival=AllAt(0),
        duration=Each(tuple(lengths)),
        waiting=first.waiting,
        placed=first.placed,
        pods=tuple(pod for pod, _ in pods),
    )


def _make_shapes(listed: ListedObjects) -> dict[str, Shape]:
    """Return the nodes by kind; a kind has the name of its first node.

    A node that comes later has what the first one has besides its own pods of DaemonSets and static pods.
    """
    kinds: dict[object, list[NodeFacts]] = {}
    models: dict[object, NodeFacts] = {}
    for node in sorted(listed.nodes, key=lambda node: node.metadata.name):
        model = convert_node(make_node_like(node, ""))
        labels = tuple(pair for pair in model.labels if pair[0] != HOSTNAME)
        kind = model.allocatable, labels, model.taints
        if kind not in models:
            models[kind] = _take_node_pods(model, find_node_pods(listed.pods, node.metadata.name))
        kinds.setdefault(kind, []).append(convert_node(node))
    return {nodes[0].name: Shape(nodes[0].name, 0, models[kind], present=tuple(nodes)) for kind, nodes in kinds.items()}


def _take_node_pods(model: NodeFacts, pods: Sequence[wire.Pod]) -> NodeFacts:
    """Return a node without what the pods take that belong to each such node."""
    taken: Counter[str] = Counter()
    for pod in pods:
        taken.update(dict(convert_pod(pod).demand.real))
    left = tuple((resource, max(0, amount - taken[resource])) for resource, amount in model.allocatable)
    return msgspec.structs.replace(model, allocatable=left) if taken else model


def _make_tenants(cache: ClusterCache, snapshot: Snapshot) -> Iterator[TenantSpec]:
    """Yield the declared tenants and the implicit ones, each of which has the namespace of its name."""
    specs = cache.state.directory.specs
    for name in sorted({*specs, *(find_tenant_of_leaf(tenant.name) for tenant in snapshot.tenants)}):
        yield specs.get(name) or TenantSpec(name, namespaces=frozenset({name.removeprefix(IMPLICIT_PREFIX)}))
