"""The smallest single change that would let all pods of a submission start now.

Each change is tried: the operator decides again with it, from the same state. Changes are tried in the order of what
they cost, and the first that does it is the answer: the tenant's limit rises, a node is uncordoned, the tenant's weight
rises, a toleration is added, a constraint on nodes or a host port is dropped, less of one resource is requested (no
less than half), nodes come (the least added capacity), and last any smaller request. Only what the refusals name is
tried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import msgspec

from fairbind.cluster.cache.tenant_overviews import to_people_units
from fairbind.cluster.filters.refusals import HARD_EFFECTS, UNSCHEDULABLE_TAINT, is_tolerated
from fairbind.cluster.objects import wire
from fairbind.cluster.objects.convert import convert_node, convert_pod
from fairbind.cluster.objects.facts import HOSTNAME, PODS, NodeFacts, Taint
from fairbind.cluster.objects.quantity import find_unit, format_quantity
from fairbind.cluster.objects.requests import make_demand
from fairbind.cluster.tenancy.tenants import IMPLICIT_PREFIX, WEIGHTS, TenantSpec
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.model import RejectionKind, UsageBelow, Wait
from fairbind.model.topology import LimitOf
from fairbind.what_if.changes import find_node_pods, make_node_like, move_node_pod, set_cordon
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.trial import Trial

MOST_NODES_TRIED: Final = 20
MOST_MODELS_TRIED: Final = 12
STEPS: Final = 100
"""Requests are tried in steps of a hundredth."""
MEBIBYTE: Final = 2**20
REMEDY_NODE: Final = "fairbind-new-{}"


@dataclass(frozen=True, slots=True)
class Change:
    """A change that lets the submission start. kind, details: for programs."""

    text: str
    kind: str
    details: dict[str, Any]

    def describe(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"text": self.text, "kind": self.kind, **self.details}


def find_change(
    trial: Trial, listed: ListedObjects, pods: Sequence[wire.Pod], wait: Wait, *, others_start: bool
) -> Change | None:
    """Return the smallest single change with which all pods start now; None when there is none.

    trial: in the state before the decisions. wait: why the first of them waits. others_start: whether pods of other
    tenants start now, before which a larger weight might bring these.
    """
    return _Search(trial, listed, pods, wait, others_start=others_start).run()


class _Search:
    def __init__(
        self, trial: Trial, listed: ListedObjects, pods: Sequence[wire.Pod], wait: Wait, *, others_start: bool
    ) -> None:
        self._trial = trial
        self._listed = listed
        self._nodes = listed.nodes
        self._pods = pods
        self._wait = wait
        self._others_start = others_start
        self._kinds = {rejection.kind for rejection, _ in wait.rejections}

    def run(self) -> Change | None:
        """Return the first change that does it."""
        for found in self._try_all():
            if found is not None:
                return found
        return None

    def _try_all(self) -> Iterator[Change | None]:
        if RejectionKind.AT_LIMIT in self._kinds:
            yield self._try_limits()
        if RejectionKind.CORDONED in self._kinds:
            yield self._try_uncordoning()
        if self._others_start:
            yield self._try_weights()
        if RejectionKind.TAINT in self._kinds:
            yield self._try_tolerations()
        if RejectionKind.SELECTOR in self._kinds:
            yield self._try_spec("node selector and required node affinity", "constraints", _drop_node_constraints)
        if RejectionKind.PORT_CONFLICT in self._kinds:
            yield self._try_spec("host ports", "ports", _drop_host_ports)
        lacking = sorted(one.subject for one, _ in self._wait.rejections if one.kind is RejectionKind.INSUFFICIENT)
        for resource in lacking:
            yield self._try_request(resource, least=STEPS // 2)
        yield self._try_nodes()
        for resource in lacking:
            yield self._try_request(resource, least=1)

    def _starts(self) -> bool:
        """Whether all pods start as things are now; leaves no decision."""
        self._trial.decide()
        started = {bind.task.uid for bind in self._trial.binds}
        self._trial.undo()
        return all(pod.metadata.uid in started for pod in self._pods)

    # --- the cluster ---

    def _try_uncordoning(self) -> Change | None:
        cordoned = [node for node in self._nodes if node.spec.unschedulable]
        for node in cordoned[:MOST_NODES_TRIED]:
            self._trial.cache.nodes.apply(convert_node(set_cordon(node, is_cordoned=False)))
            is_enough = self._starts()
            self._trial.cache.nodes.apply(convert_node(node))
            if is_enough:
                name = node.metadata.name
                return Change(f"uncordon node {name}", "uncordon", {"node": name, "option": f"--uncordon {name}"})
        return None

    def _try_limits(self) -> Change | None:
        """Try to raise the limits that are reached by what the pods ask for: the tenant's, and of those above it."""
        specs = self._trial.cache.state.directory.specs
        raised: dict[str, TenantSpec] = {}
        texts, options = dict[str, list[str]](), list[str]()
        for name, place, resource in self._list_reached():
            spec = raised.get(name, specs[name])
            entry, asked = spec.limit[place], sum(self._get_requests(pod).get(resource, 0) for pod in self._pods)
            amounts = dict(entry.amounts)
            amounts[resource] += asked
            changed = replace(entry, amounts=tuple(sorted(amounts.items())))
            raised[name] = replace(spec, limit=(*spec.limit[:place], changed, *spec.limit[place + 1 :]))
            text = format_quantity(resource, amounts[resource])
            texts.setdefault(name, []).append(f"{text} of {resource}")
            if entry.selector is None:
                options.append(f"--set tenant.{name}.limit.{resource}={text}")
        for spec in raised.values():
            self._trial.cache.set_tenant(spec)
        is_enough = self._starts()
        for name in raised:
            self._trial.cache.set_tenant(specs[name])
        if not is_enough:
            return None
        told = [f"a limit of {' and '.join(found)} for tenant {name}" for name, found in texts.items()]
        details = {
            "tenant": ", ".join(texts),
            "limits": [text for found in texts.values() for text in found],
            "option": " ".join(options),
        }
        return Change(" and ".join(told), "limit", details)

    def _list_reached(self) -> list[tuple[str, int, str]]:
        """Return whose limits are reached, which entry of them, and for which resource."""
        subjects = [until.subject for until in self._wait.until if isinstance(until, UsageBelow)]
        return [(each.tenant, each.entry, each.resource) for each in subjects if isinstance(each, LimitOf)]

    def _get_requests(self, pod: wire.Pod) -> dict[str, int]:
        return dict(convert_pod(pod).demand.real)

    def _try_weights(self) -> Change | None:
        tenant = find_tenant_of_leaf(self._wait.task_class.tenant)  # a user has no weight of its own
        declared = self._trial.cache.state.directory.specs.get(tenant)
        namespace = self._pods[0].metadata.namespace
        if declared is None and tenant != f"{IMPLICIT_PREFIX}{namespace}":
            return None  # the tenant of all namespaces without one has no weight of its own
        spec = declared or TenantSpec(tenant, namespaces=frozenset({namespace}))

        def starts_with(factor: int) -> bool:
            weight = min(spec.weight * factor, WEIGHTS[1])
            self._trial.cache.set_tenant(replace(spec, weight=weight))
            is_enough = self._starts()
            if declared is None:
                self._trial.cache.delete_tenant(tenant)
            else:
                self._trial.cache.set_tenant(declared)
            return is_enough

        most = int(WEIGHTS[1] / spec.weight)
        factor = _find_least(1, most, starts_with) if most > 1 and starts_with(most) else None
        if factor is None:
            return None
        weight = format_weight(spec.weight * factor)
        details = {"tenant": tenant, "weight": weight, "option": f"--set tenant.{tenant}.weight={weight}"}
        return Change(f"weight {weight} of tenant {tenant} in place of {format_weight(spec.weight)}", "weight", details)

    def _try_nodes(self) -> Change | None:
        found: list[tuple[float, int, str]] = []
        classes = self._trial.cache.build_snapshot(whole=True).task_classes
        most = sum(len(one.tasks) for one in classes)  # a node for each pod that waits: older ones come before
        for node in _find_models(self._nodes)[:MOST_MODELS_TRIED]:

            def starts_with(count: int, model: wire.Node = node) -> bool:
                names = [REMEDY_NODE.format(number) for number in range(count)]
                new = [convert_node(make_node_like(model, name)) for name in names]
                own = find_node_pods(self._listed.pods, model.metadata.name)
                pods = [convert_pod(move_node_pod(pod, name)) for name in names for pod in own]
                for one in new:
                    self._trial.cache.nodes.apply(one)
                for pod in pods:
                    self._trial.cache.pods.apply(pod)
                is_enough = self._starts()
                for pod in pods:
                    self._trial.cache.pods.delete(pod)
                for one in new:
                    self._trial.cache.nodes.delete(one)
                return is_enough

            if starts_with(most):
                count = 1 if starts_with(1) else _find_least(1, most, starts_with)
                found.append((count * self._measure(convert_node(node)), count, node.metadata.name))
        if not found:
            return None
        _, count, name = min(found)
        what = "1 node more" if count == 1 else f"{count} nodes more"
        details = {"like": name, "count": count, "option": f"--add-nodes like={name},count={count}"}
        return Change(f"{what} like {name}", "nodes", details)

    def _measure(self, node: NodeFacts) -> float:
        """Return how large a node is: its largest part of what the cluster has of a resource."""
        snapshot = self._trial.cache.build_snapshot()
        totals = dict(zip(snapshot.resources, snapshot.total_r, strict=True))
        return max((amount / totals[r] for r, amount in node.allocatable if totals.get(r) and r != PODS), default=0.0)

    # --- the submission ---

    def _try_tolerations(self) -> Change | None:
        tolerations = convert_pod(self._pods[0]).constraints.tolerations
        taints = {
            taint: None
            for node in self._nodes
            for taint in convert_node(node).taints
            if taint.effect in HARD_EFFECTS and taint.key != UNSCHEDULABLE_TAINT.key
            if not is_tolerated(taint, tolerations)
        }
        for taint in taints:
            wanted = wire.Toleration(taint.key, "Equal", taint.value, taint.effect)

            def tolerate(spec: wire.PodSpec, wanted: wire.Toleration = wanted) -> wire.PodSpec:
                return msgspec.structs.replace(spec, tolerations=[*(spec.tolerations or ()), wanted])

            if self._starts_with_spec(tolerate):
                details = {"taint": {"key": taint.key, "value": taint.value, "effect": taint.effect}}
                return Change(f"a toleration of the taint {_format_taint(taint)}", "toleration", details)
        return None

    def _try_spec(self, what: str, kind: str, change: Callable[[wire.PodSpec], wire.PodSpec]) -> Change | None:
        return Change(f"no {what} in the manifest", kind, {}) if self._starts_with_spec(change) else None

    def _starts_with_spec(self, change: Callable[[wire.PodSpec], wire.PodSpec]) -> bool:
        for pod in self._pods:
            self._trial.add_pod(msgspec.structs.replace(pod, spec=change(pod.spec)))
        is_enough = self._starts()
        for pod in self._pods:
            self._trial.add_pod(pod)
        return is_enough

    def _try_request(self, resource: str, *, least: int) -> Change | None:
        """Try smaller requests, each pod with the same part of its own. least: in steps."""
        asked = dict(convert_pod(self._pods[0]).demand.real).get(resource, 0)

        def starts_with(steps_less: int) -> bool:
            for pod in self._pods:
                amounts = dict(convert_pod(pod).demand.real)
                if resource in amounts:
                    amounts[resource] = _lower(resource, amounts[resource], steps_less)
                self._trial.change_demand(pod.metadata.uid, make_demand(amounts))
            is_enough = self._starts()
            for pod in self._pods:
                self._trial.change_demand(pod.metadata.uid, None)
            return is_enough

        most = STEPS - least
        if _lower(resource, asked, most) == 0 or not starts_with(most):
            return None
        amount = _lower(resource, asked, _find_least(0, most, starts_with))
        text = f"{format_quantity(resource, amount)} of {resource} a pod in place of {format_quantity(resource, asked)}"
        return Change(text, "requests", {"resource": resource, "request": to_people_units(resource, amount)})


def _lower(resource: str, asked: int, steps_less: int) -> int:
    """Return a request that is so many steps smaller, of bytes in whole MiB where there is one.

    >>> _lower("cpu", 3000, 25), _lower("memory", 2**30, 25), _lower("memory", 2**30, 24) // 2**20
    (2250, 805306368, 778)
    """
    amount = asked * (STEPS - steps_less) // STEPS
    return amount - amount % MEBIBYTE if find_unit(resource) == "byte" and amount > MEBIBYTE else amount


def _find_least(below: int, most: int, is_enough: Callable[[int], bool]) -> int:
    """Return the least number above `below` that is enough; `most` is known to be.

    >>> _find_least(0, 100, lambda number: number >= 37)
    37
    """
    step = 1
    while below + step < most:
        if is_enough(below + step):
            most = below + step
            break
        below, step = below + step, 2 * step
    while most - below > 1:
        middle = (below + most) // 2
        if is_enough(middle):
            most = middle
        else:
            below = middle
    return most


def _find_models(nodes: Sequence[wire.Node]) -> list[wire.Node]:
    """Return a node of each kind, the first by name."""
    models: dict[object, wire.Node] = {}
    for node in sorted(nodes, key=lambda node: node.metadata.name):
        facts = convert_node(make_node_like(node, ""))
        labels = tuple(pair for pair in facts.labels if pair[0] != HOSTNAME)
        models.setdefault((facts.allocatable, labels, facts.taints), node)
    return list(models.values())


def _drop_node_constraints(spec: wire.PodSpec) -> wire.PodSpec:
    affinity = spec.affinity
    if affinity is not None:
        affinity = msgspec.structs.replace(affinity, node_affinity=None)
    return msgspec.structs.replace(spec, node_selector=None, affinity=affinity)


def _drop_host_ports(spec: wire.PodSpec) -> wire.PodSpec:
    containers = [msgspec.structs.replace(one, ports=None) for one in spec.containers or ()]
    starting = [msgspec.structs.replace(one, ports=None) for one in spec.init_containers or ()]
    return msgspec.structs.replace(spec, containers=containers, init_containers=starting or None)


def _format_taint(taint: Taint) -> str:
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def format_weight(weight: Fraction) -> str:
    """Return a weight as a Tenant has it.

    >>> format_weight(Fraction(2)), format_weight(Fraction(3, 2))
    ('2', '1500m')
    """
    return str(weight.numerator) if weight.denominator == 1 else f"{round(weight * 1000)}m"
