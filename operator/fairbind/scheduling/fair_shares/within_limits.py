"""How many of the tasks that wait the limits of their tenants let run: what is beyond is not wanted now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence

import numpy as np

from fairbind.model import NO_DOMAIN, LimitRule, Snapshot, TaskClass
from fairbind.model.servers import FloatArray
from fairbind.model.topology import LimitOf, list_tenant_limits
from fairbind.scheduling.fair_shares.flat_weights import compute_flat_weights


def count_within_limits(snapshot: Snapshot, *, except_of: Collection[str] = ()) -> Mapping[TaskClass, float]:
    """Return for each class that is limited wherever it may go how many of its tasks the limits leave.

    Tasks of a tenant count towards a limit in the scheduling order. What a limit of several tenants leaves is divided
    among those that wait, by their weights. A limit of some of the servers that could hold a task leaves the others, so
    it does not count here. except_of: resources whose limits count elsewhere.
    """
    limited = [each for each in snapshot.task_classes if each.rules is not None] if snapshot.held else []
    rules_of = {each: list(_list_limits(each, snapshot, except_of)) for each in sorted(limited, key=_compute_sort_key)}
    rules_of = {task_class: rules for task_class, rules in rules_of.items() if rules}
    tenants: dict[Hashable, set[str]] = {}
    left: dict[tuple[Hashable, str], float] = {}
    for task_class, rules in rules_of.items():
        for rule in rules:
            subject = rule.counter.subject
            tenants.setdefault(subject, set()).add(task_class.tenant)
            most: float = max(int(rule.most_d[0]) - snapshot.held.get(subject, 0), 0)
            left[subject, task_class.tenant] = most
    shared = sorted((subject for subject, names in tenants.items() if len(names) > 1), key=lambda s: len(tenants[s]))
    for n, subject in enumerate(shared):
        counts = _count(rules_of, left, whole=tenants.keys() - set(shared), open_=shared[n:])
        wanted: defaultdict[str, float] = defaultdict(float)
        for task_class, rules in rules_of.items():
            wanted[task_class.tenant] += sum(
                counts[task_class] * rule.amount for rule in rules if rule.counter.subject == subject
            )
        names = sorted(tenants[subject])
        weights = compute_flat_weights(snapshot, names)
        parts = divide_by_weight(
            left[subject, names[0]],
            np.array([float(wanted[name]) for name in names]),
            np.array([weights[name] for name in names]),
        )
        left |= {(subject, name): part for name, part in zip(names, parts.tolist(), strict=True)}
    return _count(rules_of, left, whole=tenants.keys() - set(shared))


def _count(
    rules_of: Mapping[TaskClass, Sequence[LimitRule]],
    left: Mapping[tuple[Hashable, str], float],
    *,
    whole: Collection[Hashable],
    open_: Sequence[Hashable] = (),
) -> dict[TaskClass, float]:
    """Return how many tasks of each class fit into what is left to its tenant. Of some limits a task counts whole.

    whole: these limits. open_: limits that do not count yet.
    """
    counts: dict[TaskClass, float] = {}
    rest = dict(left)
    for task_class, rules in rules_of.items():
        counting = [rule for rule in rules if rule.counter.subject not in open_]
        count: float = len(task_class.tasks)
        for rule in counting:
            free = rest[rule.counter.subject, task_class.tenant]
            fitting = free // rule.amount if rule.counter.subject in whole else free / rule.amount
            count = min(count, max(fitting, 0))
        for rule in counting:
            rest[rule.counter.subject, task_class.tenant] -= count * rule.amount
        counts[task_class] = count
    return counts


def divide_by_weight(amount: float, wanted: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the amount divided by weight, with no part above what is wanted: max-min fair.

    >>> divide_by_weight(10.0, np.array([1.0, 9.0, 9.0]), np.array([1.0, 1.0, 2.0])).tolist()
    [1.0, 3.0, 6.0]
    """
    given = wanted.copy()
    if wanted.sum() <= amount:
        return given
    order = np.argsort(wanted / weight, kind="stable")
    later_weights = np.cumsum(weight[order][::-1])[::-1]  # of this one and those after it
    left = amount
    for n, weights in zip(order.tolist(), later_weights.tolist(), strict=True):
        given[n] = min(float(wanted[n]), left * float(weight[n]) / weights)
        left = max(left - float(given[n]), 0.0)
    return given


def _list_limits(task_class: TaskClass, snapshot: Snapshot, except_of: Collection[str]) -> Iterator[LimitRule]:
    """Yield the limits of a tenant that are about all servers that could hold a task of a class when empty."""
    limits = list_tenant_limits(task_class.rules)
    if limits:
        could_hold_k = (snapshot.servers.capacity_kr >= task_class.demand_r).all(axis=1)
        could_hold_k &= task_class.placement.eligible_k
        for rule in limits:
            subject = rule.counter.subject
            if isinstance(subject, LimitOf) and subject.resource in except_of:
                continue
            if not (rule.counter.domains.domain_k[could_hold_k] == NO_DOMAIN).any():
                yield rule


def _compute_sort_key(task_class: TaskClass) -> tuple[str, int, float, str]:
    first = task_class.tasks[0]
    return task_class.tenant, -first.priority, first.queue_time, first.uid
