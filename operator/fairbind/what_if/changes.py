"""What an admin may ask about: other weights, nodes that come, go or are cordoned, another policy.

Each function returns other objects and leaves those that it was given as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import msgspec

from fairbind.cluster.filters.refusals import READINESS_KEYS, UNSCHEDULABLE_TAINT
from fairbind.cluster.objects import wire
from fairbind.cluster.objects.captured import READY, belongs_to_node
from fairbind.cluster.objects.constraints import find_pin
from fairbind.cluster.objects.facts import HOSTNAME
from fairbind.cluster.tenancy.policies import APPLIED_NAME, GROUPS
from fairbind.cluster.tenancy.spec_fields import read_quantity
from fairbind.cluster.tenancy.tenants import IMPLICIT_PREFIX, WEIGHTS
from fairbind.fairness.problems.fields import show_value, suggest_name
from fairbind.model import InvalidProblemError
from fairbind.scheduling import POLICIES
from fairbind.what_if.listed_objects import ListedObjects, build_cache

MOST_NEW_NODES = 10_000
_STATE_KEYS = READINESS_KEYS | {UNSCHEDULABLE_TAINT.key}


def set_weight(listed: ListedObjects, tenant: str, weight: str) -> ListedObjects:
    """Return the objects with another weight of a tenant. A namespace that no Tenant claims gets a Tenant of its own.

    tenant: the name of a Tenant, or of a namespace, as it is or as the implicit tenant is called.
    """
    names = [str(one["metadata"]["name"]) for one in listed.tenants]
    read_quantity(weight, f"--set: tenant.{tenant}.weight", WEIGHTS)
    if tenant not in names:
        made = _make_tenant_of_namespace(listed, tenant, names)
        return msgspec.structs.replace(
            listed, tenants=[*listed.tenants, {**made, "spec": {**made["spec"], "weight": weight}}]
        )
    tenants = [
        {**one, "spec": {**one["spec"], "weight": weight}} if name == tenant else one
        for name, one in zip(names, listed.tenants, strict=True)
    ]
    return msgspec.structs.replace(listed, tenants=tenants)


def _make_tenant_of_namespace(listed: ListedObjects, tenant: str, names: Sequence[str]) -> dict[str, Any]:
    """Return a Tenant for a namespace that has none; its name is that of the implicit tenant, which it replaces."""
    namespace = tenant.removeprefix(IMPLICIT_PREFIX)
    directory = build_cache(listed).state.directory
    known = {*directory.namespaces, *(pod.metadata.namespace for pod in listed.pods)}
    free = sorted(name for name in known if directory.owner_of(name) is None)
    if namespace not in free:
        _refuse_name(tenant, [*names, *free], "--set", "Tenant and no namespace without one")
    return {"metadata": {"name": f"{IMPLICIT_PREFIX}{namespace}"}, "spec": {"namespaces": [namespace]}}


def set_policy(listed: ListedObjects, policy: str) -> ListedObjects:
    """Return the objects with another policy; the settings that all policies share stay."""
    if policy not in POLICIES:
        _refuse_name(policy, list(POLICIES), "--policy", "policy")
    policies = [one for one in listed.policies if one["metadata"]["name"] == APPLIED_NAME]
    applied = policies[0] if policies else {"metadata": {"name": APPLIED_NAME}, "spec": {}}
    spec = {name: part for name, part in applied["spec"].items() if GROUPS.get(name, policy) == policy}
    return msgspec.structs.replace(listed, policies=[{**applied, "spec": {**spec, "policy": policy}}])


def add_nodes(listed: ListedObjects, like: str, count: int) -> ListedObjects:
    """Return the objects with so many nodes more that have a node's capacity, labels and taints.

    They are empty but for the pods that belong to a node: such as its model has.
    """
    if not 1 <= count <= MOST_NEW_NODES:
        raise InvalidProblemError(f"--add-nodes: count must be a whole number from 1 to {MOST_NEW_NODES}, not {count}")
    model = _find_node(listed, like, "--add-nodes")
    taken = {node.metadata.name for node in listed.nodes}
    free = (name for number in range(count + len(taken)) if (name := f"{like}-new-{number}") not in taken)
    names = [name for name, _ in zip(free, range(count), strict=False)]
    own = find_node_pods(listed.pods, like)
    return msgspec.structs.replace(
        listed,
        nodes=[*listed.nodes, *(make_node_like(model, name) for name in names)],
        pods=[*listed.pods, *(move_node_pod(pod, name) for name in names for pod in own)],
    )


def find_node_pods(pods: Iterable[wire.Pod], node: str) -> list[wire.Pod]:
    """Return the pods on a node that belong to it: those of DaemonSets, and static pods."""
    return [pod for pod in pods if pod.spec.node_name == node and belongs_to_node(pod)]


def move_node_pod(pod: wire.Pod, node: str) -> wire.Pod:
    """Return the pod that another node has in place of one that belongs to a node."""
    meta = pod.metadata
    name, uid = f"{meta.name}-{node}", f"{meta.uid}/{node}"
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(meta, name=name, uid=uid),
        spec=msgspec.structs.replace(pod.spec, node_name=node),
    )


def make_node_like(model: wire.Node, name: str) -> wire.Node:
    """Return an empty node of this name; it is ready and not cordoned, whatever its model is."""
    labels = {**(model.metadata.labels or {}), HOSTNAME: name}
    taints = [taint for taint in model.spec.taints or () if taint.key not in _STATE_KEYS]
    return wire.Node(
        metadata=wire.ObjectMeta(name=name, labels=labels),
        spec=wire.NodeSpec(taints=taints or None),
        status=wire.NodeStatus(model.status.allocatable, [wire.Condition(READY, "True")]),
        fault=model.fault,
    )


def remove_node(listed: ListedObjects, name: str) -> ListedObjects:
    """Return the objects without a node. Its pods that the scheduler placed wait again; others go with it.

    Those that belong to the node go with it too, also such as still wait for it.
    """
    _find_node(listed, name, "--remove-node")
    pods = []
    for pod in listed.pods:
        if pod.spec.node_name != name:
            if not (belongs_to_node(pod) and find_pin(pod.spec) == name):
                pods.append(pod)
        elif belongs_to_node(pod):
            continue
        elif pod.spec.scheduler_name == listed.scheduler_name and pod.metadata.deletion_timestamp is None:
            pods.append(release(pod))
    nodes = [node for node in listed.nodes if node.metadata.name != name]
    return msgspec.structs.replace(listed, nodes=nodes, pods=pods)


def release(pod: wire.Pod) -> wire.Pod:
    """Return a pod as it waits."""
    return msgspec.structs.replace(
        pod,
        spec=msgspec.structs.replace(pod.spec, node_name=None),
        status=wire.PodStatus(phase="Pending"),
    )


def cordon(listed: ListedObjects, name: str, *, is_cordoned: bool) -> ListedObjects:
    """Return the objects with a node that takes no new pods, or takes them again."""
    _find_node(listed, name, "--cordon" if is_cordoned else "--uncordon")
    nodes = [node if node.metadata.name != name else set_cordon(node, is_cordoned=is_cordoned) for node in listed.nodes]
    return msgspec.structs.replace(listed, nodes=nodes)


def set_cordon(node: wire.Node, *, is_cordoned: bool) -> wire.Node:
    """Return a node cordoned or not; the taint of a cordon goes with it."""
    taints = [taint for taint in node.spec.taints or () if taint.key != UNSCHEDULABLE_TAINT.key]
    return msgspec.structs.replace(node, spec=wire.NodeSpec(is_cordoned or None, taints or None))


def _find_node(listed: ListedObjects, name: str, option: str) -> wire.Node:
    nodes = {node.metadata.name: node for node in listed.nodes}
    if name not in nodes:
        _refuse_name(name, nodes, option, "node")
    return nodes[name]


def _refuse_name(name: str, known: Iterable[str], option: str, what: str) -> NoReturn:
    raise InvalidProblemError(f"{option}: {show_value(name)} is no {what} here{suggest_name(name, list(known))}")
