"""What an admin may ask about: other weights, nodes that come, go or are cordoned, another policy.

Each function returns other objects and leaves those that it was given as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NoReturn

import msgspec

from fairbind.cluster.filters.refusals import READINESS_KEYS, UNSCHEDULABLE_TAINT
from fairbind.cluster.listed_objects import ListedObjects
from fairbind.cluster.objects import wire
from fairbind.cluster.objects.captured import READY
from fairbind.cluster.objects.facts import HOSTNAME
from fairbind.cluster.tenancy.policies import APPLIED_NAME, GROUPS
from fairbind.cluster.tenancy.spec_fields import read_quantity
from fairbind.cluster.tenancy.tenants import WEIGHTS
from fairbind.fairness.problems.fields import show_value, suggest_name
from fairbind.model import InvalidProblemError
from fairbind.scheduling import POLICIES

MOST_NEW_NODES = 10_000
_STATE_KEYS = READINESS_KEYS | {UNSCHEDULABLE_TAINT.key}


def set_weight(listed: ListedObjects, tenant: str, weight: str) -> ListedObjects:
    """Return the objects with another weight of a Tenant."""
    names = [str(one["metadata"]["name"]) for one in listed.tenants]
    if tenant not in names:
        _refuse_name(tenant, names, "--set", "Tenant")
    read_quantity(weight, f"--set: tenant.{tenant}.weight", WEIGHTS)
    tenants = [
        {**one, "spec": {**one["spec"], "weight": weight}} if name == tenant else one
        for name, one in zip(names, listed.tenants, strict=True)
    ]
    return msgspec.structs.replace(listed, tenants=tenants)


def set_policy(listed: ListedObjects, policy: str) -> ListedObjects:
    """Return the objects with another policy; the settings that all policies share stay."""
    if policy not in POLICIES:
        _refuse_name(policy, list(POLICIES), "--policy", "policy")
    policies = [one for one in listed.policies if one["metadata"]["name"] == APPLIED_NAME]
    applied = policies[0] if policies else {"metadata": {"name": APPLIED_NAME}, "spec": {}}
    spec = {name: part for name, part in applied["spec"].items() if GROUPS.get(name, policy) == policy}
    return msgspec.structs.replace(listed, policies=[{**applied, "spec": {**spec, "policy": policy}}])


def add_nodes(listed: ListedObjects, like: str, count: int) -> ListedObjects:
    """Return the objects with so many empty nodes more that have a node's capacity, labels and taints."""
    if not 1 <= count <= MOST_NEW_NODES:
        raise InvalidProblemError(f"--add-nodes: count must be a whole number from 1 to {MOST_NEW_NODES}, not {count}")
    model = _find_node(listed, like, "--add-nodes")
    taken = {node.metadata.name for node in listed.nodes}
    free = (name for number in range(count + len(taken)) if (name := f"{like}-new-{number}") not in taken)
    return msgspec.structs.replace(
        listed,
        nodes=[*listed.nodes, *(make_node_like(model, name) for name, _ in zip(free, range(count), strict=False))],
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
    """Return the objects without a node. Its pods that the scheduler placed wait again; others go with it."""
    _find_node(listed, name, "--remove-node")
    pods = []
    for pod in listed.pods:
        if pod.spec.node_name != name:
            pods.append(pod)
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
