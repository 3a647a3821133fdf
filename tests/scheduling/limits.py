"""Limits of tenants in worlds of tests: how the state of a cluster tells them to a cycle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from fairbind.model import (
    DomainCounter,
    DomainRules,
    LimitRule,
    Rejection,
    RejectionKind,
    Snapshot,
    TaskClass,
)
from scheduling.rules import build_domains


@dataclass(frozen=True)
class TenantLimit:
    """What a tenant may hold of an axis on some servers. domain_k: 0 on these, -1 on others."""

    tenant: str
    axis: int
    most: int
    domain_k: tuple[int, ...]
    held: int = 0

    @property
    def subject(self) -> tuple[object, ...]:
        return "limit", self.tenant, self.axis, self.domain_k


def limit_tenants(snapshot: Snapshot, limits: Sequence[TenantLimit]) -> Snapshot:
    """Return the snapshot with limits: rules of the classes that they are about, and what is held of each."""
    counters = {each: DomainCounter(each.subject, build_domains(list(each.domain_k), 1), np.zeros(1, np.int64))
                for each in limits}  # fmt: skip
    made: dict[tuple[TenantLimit, int], LimitRule] = {}
    classes = []
    for task_class in snapshot.task_classes:
        about = [each for each in limits if each.tenant == task_class.tenant and task_class.demand_r[each.axis]]
        rules = []
        for each in about:
            amount = task_class.demand_r[each.axis]
            rejection = Rejection(RejectionKind.AT_LIMIT, f"tenant {each.tenant} for {snapshot.resources[each.axis]}")
            rule = LimitRule(counters[each], amount, np.array([each.most]), rejection)
            rules.append(made.setdefault((each, amount), rule))
        before = () if task_class.rules is None else task_class.rules.rules
        brings = tuple((each.subject, task_class.demand_r[each.axis]) for each in about)
        if rules:
            changed = replace(task_class, rules=DomainRules((*rules, *before)), brings=(*task_class.brings, *brings))
            classes.append(changed)
        else:
            classes.append(task_class)
    return replace(snapshot, task_classes=tuple(classes), held={each.subject: each.held for each in limits})


@st.composite
def add_limits(draw: st.DrawFn, snapshot: Snapshot) -> Snapshot:
    """Limit some tenants, by entries of all servers and of some; often at or above what may be held."""
    count, made = len(snapshot.servers.names), {}
    for _ in range(draw(st.integers(1, 4))):
        task_class: TaskClass = draw(st.sampled_from(snapshot.task_classes))
        asked = [r for r, demand in enumerate(task_class.demand_r) if demand] or [0]
        axis = draw(st.sampled_from(asked))
        unit = task_class.demand_r[axis] or 1
        some = st.lists(st.sampled_from([0, 0, -1]), min_size=count, max_size=count)
        domain_k = tuple(draw(st.just([0] * count) | some))
        limit = TenantLimit(
            task_class.tenant,
            axis,
            unit * draw(st.sampled_from([0, 1, 2, 3, 5])),
            domain_k,
            unit * draw(st.sampled_from([0, 0, 1, 2, 7])),
        )
        made[limit.subject] = limit
    return limit_tenants(snapshot, list(made.values()))
