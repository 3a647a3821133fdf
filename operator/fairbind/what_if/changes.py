"""What an admin may ask about: other specs of tenants, nodes that come, go or are cordoned, another policy.

Each function returns other objects and leaves those that it was given as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import msgspec

from fairbind.cluster.filters.refusals import READINESS_KEYS, UNSCHEDULABLE_TAINT
from fairbind.cluster.objects import wire
from fairbind.cluster.objects.captured import READY, belongs_to_node
from fairbind.cluster.objects.constraints import find_pin
from fairbind.cluster.objects.facts import HOSTNAME
from fairbind.cluster.tenancy.policies import APPLIED_NAME, GROUPS
from fairbind.cluster.tenancy.tenants import IMPLICIT_PREFIX, parse_tenant
from fairbind.cluster.tenancy.tree import build_tree
from fairbind.fairness.problems.fields import show_value, suggest_name
from fairbind.model import InvalidProblemError
from fairbind.scheduling import POLICIES
from fairbind.what_if.listed_objects import ListedObjects, build_cache

Spec = dict[str, Any]
MOST_NEW_NODES = 10_000
_STATE_KEYS = READINESS_KEYS | {UNSCHEDULABLE_TAINT.key}


def set_field(listed: ListedObjects, tenant: str, field: str, value: str) -> ListedObjects:
    """Return the objects with another value in the spec of a tenant.

    tenant: the name of a Tenant, or of a namespace, as it is or as the implicit tenant is called; a namespace that no
    Tenant claims gets a Tenant of its own. field: of the spec, or `limit.RESOURCE` and `guarantee.RESOURCE`: of the
    entry for all nodes; entries for some nodes stay. No parent is the root.
    """
    name, _, resource = field.partition(".")
    part: Any = value
    if resource:
        part = [{"resources": {resource: value}}]
    elif name == "priority" and value.removeprefix("-").isdecimal():
        part = int(value)
    elif name == "parent" and not value:
        part = None
    try:
        parse_tenant({"metadata": {"name": tenant}, "spec": {name: part}})
    except InvalidProblemError as error:
        raise InvalidProblemError(str(error).replace("spec.", f"--set: tenant.{tenant}.", 1)) from error
    if resource:
        return _change_spec(listed, tenant, lambda spec: {**spec, name: _set_amount(spec.get(name), resource, value)})
    changed = _change_spec(listed, tenant, lambda spec: {**spec, name: part})
    if part is not None and name == "parent":
        _check_parent(changed, tenant, value)
    return changed


def _set_amount(entries: Iterable[Spec] | None, resource: str, amount: str) -> list[Spec]:
    """Return entries with an amount in the one for all nodes."""
    entries = list(entries or ())
    place = next((n for n, entry in enumerate(entries) if not entry.get("nodes")), len(entries))
    known = entries[place]["resources"] if place < len(entries) else {}
    entries[place : place + 1] = [{"resources": {**known, resource: amount}}]
    return entries


def _check_parent(listed: ListedObjects, tenant: str, parent: str) -> None:
    """Refuse a parent that would not count: the question is then another one than was asked."""
    names = [str(one["metadata"]["name"]) for one in listed.tenants]
    if parent not in names:
        _refuse_name(parent, names, f"--set: tenant.{tenant}.parent", "Tenant")
    trouble = build_tree(build_cache(listed).state.directory.specs.values()).trouble_of.get(tenant)
    if trouble is not None:
        raise InvalidProblemError(f"--set: tenant.{tenant}.parent must be another Tenant: {trouble.message}")


def _change_spec(listed: ListedObjects, tenant: str, change: Callable[[Spec], Spec]) -> ListedObjects:
    names = [str(one["metadata"]["name"]) for one in listed.tenants]
    tenants = listed.tenants
    if tenant not in names:
        made = _make_tenant_of_namespace(listed, tenant, names)
        names, tenants = [*names, tenant], [*tenants, made]
    changed = [
        {**one, "spec": change(one["spec"])} if name == tenant else one
        for name, one in zip(names, tenants, strict=True)
    ]
    return msgspec.structs.replace(listed, tenants=changed)


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
        elif listed.is_ours(pod) and pod.metadata.deletion_timestamp is None:
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
