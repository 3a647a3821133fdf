"""A picture of the state that can be compared: the incremental one with a rebuilt one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fairbind.cluster.state.holdings import BoundKind
from fairbind.cluster.state.nodes import Servers
from fairbind.cluster.state.tenant_usage import TenantSums
from fairbind.cluster.state.usage import Usage
from fairbind.model import (
    AffinityRule,
    DomainCounter,
    DomainRule,
    EvenPreference,
    InvariantError,
    LimitRule,
    Preference,
    PullPreference,
    SeparationRule,
    ServerPreference,
    Snapshot,
    SpreadRule,
    TaskClass,
)
from fairbind.model.hierarchy import Place

Picture = Mapping[str, Any]


def describe(snapshot: Snapshot, usage: Usage, servers: Servers) -> Picture:
    """Return everything that a decision or an overview depends on, as plain comparable values."""
    table = snapshot.servers
    return {
        "resources": snapshot.resources,
        "counts_r": snapshot.counts_r,
        "total_r": snapshot.total_r,
        "names": table.names,
        "capacity_kr": table.capacity_kr.tolist(),
        "free_kr": table.free_kr.tolist(),
        "usable_k": table.usable_k.tolist(),
        "classes": [table.class_names[index] for index in table.class_k.tolist()],
        "taken_keys": {table.names[index]: sorted(keys) for index, keys in table.taken_keys.items()},
        "fixed keys": {table.names[index]: sorted(keys) for index, keys in table.fixed_keys.items()},
        "running": snapshot.running,
        "tenants": [(t.name, t.weight, dict(t.resource_weights), t.allocated_r) for t in snapshot.tenants],
        "task classes": _describe_classes(snapshot),
        "places": {leaf: _describe_place(place) for leaf, place in snapshot.hierarchy.leaves.items()},
        "inner tenants": {
            name: (each.tenant, _describe_place(each.place)) for name, each in snapshot.hierarchy.inner.items()
        },
        "inner accounts": {
            inner.name: (inner.real, inner.share, _count_pods(inner), inner.active_weight, inner.active_below)
            for inner in (*usage.inner.by_name.values(), usage.inner.root)
        },
        "accounts": {
            tenant_usage.name: (
                tenant_usage.real,
                tenant_usage.share,
                tenant_usage.nodes,
                _name_kinds(tenant_usage.kinds),
                tenant_usage.share_by_node,
                tenant_usage.real_by_node,
                _count_pods(tenant_usage),
                tenant_usage.active_weight,
            )
            for tenant_usage in usage.by_name.values()
        },
        "books": {
            name: (
                (state.system, state.held, state.ports, state.system_ports, state.pods, state.node is not None),
                (state.devices, state.claimed, state.system_claimed),
            )
            for name, state in servers.states.items()
        },
    }


def _count_pods(sums: TenantSums) -> tuple[int, ...]:
    return sums.running, sums.waiting, sums.gated, sums.postponed


def _describe_place(place: Place) -> tuple[Any, ...]:
    guarantees = [(g.subject, g.resource, g.amount, g.servers.domain_k.tolist()) for g in place.guarantees]
    return place.parent, place.priority, place.lends, guarantees


def _name_kinds(kinds: Mapping[BoundKind, int]) -> Mapping[object, int]:
    """Return counts by what the kinds say: two caches have different objects for equal demands."""
    named: Counter[object] = Counter()
    for (demand, constraints), count in kinds.items():
        named[demand.real, demand.share, demand.claimed, constraints] += count
    return named


def _describe_classes(snapshot: Snapshot) -> list[Any]:
    return sorted(
        (
            task_class.tenant,
            [task.uid for task in task_class.tasks],
            task_class.demand_r,
            task_class.share_demand_r,
            task_class.blocked or (),
            task_class.placement.eligible_k.tolist(),
            None if task_class.placement.preference_k is None else task_class.placement.preference_k.tolist(),
            task_class.placement.rejections,
            sorted(task_class.placement.exclusive_keys.conflicting),
            task_class.pin and (task_class.pin.name, task_class.pin.server, task_class.pin.rejections),
            sorted(map(_describe_rule, task_class.rules.rules)) if task_class.rules is not None else [],
            [*map(_describe_preference, task_class.preferences.preferences)]
            if task_class.preferences is not None
            else [],
            sorted(task_class.brings, key=str),
            _describe_group(task_class),
            sorted(task_class.placement.reserved.items()),
        )
        for task_class in snapshot.task_classes
    )


def _describe_group(task_class: TaskClass) -> tuple[Any, ...]:
    group = task_class.group
    if group is None:
        return ()
    needs = group.name, group.lacking, group.lacking_of_role, group.least_free_r, group.is_begun, task_class.role
    topology = group.topology
    if topology is None:
        return needs
    home = () if topology.home is None else topology.domains.find_members(topology.home).tolist()
    return *needs, topology.is_required, home


def _describe_rule(rule: DomainRule) -> tuple[Any, ...]:
    """Return what a rule says; domains without their numbers, which depend on the order in which labels were seen."""
    counters = rule.counters if isinstance(rule, AffinityRule) else (rule.counter,)
    counts = [[_find_count(counter, int(domain)) for domain in counter.domains.domain_k] for counter in counters]
    match rule:
        case SpreadRule():
            return rule.rejection, counts, rule.max_skew, rule.min_domains, rule.counts_itself, rule.reserved
        case AffinityRule():
            return rule.rejection, counts, rule.may_begin
        case SeparationRule():
            return rule.rejection, counts
        case LimitRule():
            most = [int(rule.most_d[domain]) if domain >= 0 else -1 for domain in rule.counter.domains.domain_k]
            return rule.rejection, counts, rule.amount, most


def _describe_preference(preference: Preference) -> tuple[Any, ...]:
    """Return what a preference says, in whatever order its terms came to be."""
    match preference:
        case ServerPreference():
            return preference.amount_k.tolist(), preference.weight, preference.is_dislike, preference.most
        case PullPreference(weighted, weight) | EvenPreference(weighted, weight):
            counts = [
                ([_find_count(counter, int(domain)) for domain in counter.domains.domain_k], worth)
                for counter, worth in weighted
            ]
            return type(preference).__name__, sorted(counts), weight


def _find_count(counter: DomainCounter, domain: int) -> int:
    return int(counter.count_d[domain]) if domain >= 0 else -1


def check_same(kept: Picture, rebuilt: Picture) -> None:
    """Raise InvariantError naming the first part in which the two differ."""
    for part, value in kept.items():
        if value != rebuilt[part]:
            raise InvariantError(f"the cache's {part} are {value!r}, but rebuilt {rebuilt[part]!r}")
