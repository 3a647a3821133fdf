from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from fairbind.model import (
    DomainCounter,
    DomainRule,
    DomainRules,
    Domains,
    LimitRule,
    Placement,
    Rejection,
    RejectionKind,
    SeparationRule,
    ServerTable,
    Snapshot,
    Task,
    TaskClass,
    Tenant,
)
from fairbind.model.hierarchy import FLAT, Hierarchy, InnerTenant, Place
from fairbind.model.tenants import Holding
from fairbind.scheduling.fair_shares.audit import AuditReport, Cause, audit, make_audit_scene

Held = Mapping[str, int]


class Cluster:
    """Servers with CPUs and GPUs. Tenants run and want tasks of one kind each."""

    def __init__(self, capacity: Mapping[str, tuple[int, int]]) -> None:
        self.names = sorted(capacity)
        self.capacity = [capacity[name] for name in self.names]
        self.free = np.array(self.capacity)
        self.tenants: list[Tenant] = []
        self.classes: list[TaskClass] = []

    def add(
        self,
        name: str,
        task: tuple[int, int],
        held: Held,
        *,
        waiting: int = 0,
        weight: int = 1,
        eligible: Sequence[str] | None = None,
        rules: DomainRules | None = None,
    ) -> None:
        """held: tasks that run, by server. waiting: tasks that wait."""
        placement = Placement(np.array([eligible is None or n in eligible for n in self.names], dtype=np.bool_))
        for server, count in held.items():
            self.free[self.names.index(server)] -= np.array(task) * count
        count = sum(held.values())
        self.tenants.append(
            Tenant(
                name,
                weight=Fraction(weight),
                allocated_r=(task[0] * count, task[1] * count),
                holdings=(Holding(task, task, count, placement),) if count else (),
                allocated_by_server={server: (task[0] * n, task[1] * n) for server, n in held.items()},
            )
        )
        if waiting:
            tasks = tuple(Task(f"{name}{n}", f"{name}/{n}", 0, 0.0) for n in range(waiting))
            self.classes.append(TaskClass(name, task, task, placement, tasks, rules=rules))

    def audit(self, fair_shares: Mapping[str, float] | None = None, hierarchy: Hierarchy = FLAT) -> AuditReport:
        demand_groups = sorted(set(self.capacity))
        table = ServerTable(
            names=tuple(self.names),
            capacity_kr=np.array(self.capacity),
            free_kr=self.free,
            usable_k=np.ones(len(self.names), dtype=np.bool_),
            class_k=np.array([demand_groups.index(c) for c in self.capacity], dtype=np.int32),
            class_names=tuple(self.names[self.capacity.index(demand_group)] for demand_group in demand_groups),
        )
        totals = tuple(np.array(self.capacity).sum(axis=0).tolist())
        snapshot = Snapshot(("cpu", "gpu"), (True, True), totals, table, tuple(self.tenants), tuple(self.classes))
        return audit(make_audit_scene(replace(snapshot, hierarchy=hierarchy)), fair_shares)


def test_equal_tenants_with_equal_shares_have_nothing_to_envy() -> None:
    cluster = Cluster({"n": (10, 0)})
    cluster.add("a", (1, 0), {"n": 5}, waiting=9)
    cluster.add("b", (1, 0), {"n": 5}, waiting=9)
    report = cluster.audit()
    assert (report.envies, report.sharing_incentive_violations, report.compared) == ((), (), 2)


def test_who_came_late_envies_what_runs_on() -> None:
    cluster = Cluster({"n": (10, 0)})
    cluster.add("a", (1, 0), {"n": 8}, waiting=9)
    cluster.add("b", (1, 0), {"n": 2}, waiting=9)
    report = cluster.audit({"a": 0.5, "b": 0.5})
    [envy] = report.envies
    assert (envy.tenant, envy.envied, envy.cause) == ("b", "a", Cause.HISTORY)
    assert (envy.has, envy.could_have) == pytest.approx((0.2, 0.8))
    [violation] = report.sharing_incentive_violations
    assert (violation.tenant, violation.envied, violation.cause) == ("b", None, Cause.HISTORY)
    assert (violation.has, violation.could_have) == pytest.approx((0.2, 0.5))


def test_what_the_mechanism_gives_is_not_history() -> None:
    cluster = Cluster({"n": (10, 0)})
    cluster.add("a", (1, 0), {"n": 8}, waiting=9)
    cluster.add("b", (1, 0), {"n": 2}, waiting=9)
    assert {finding.cause for finding in cluster.audit({"a": 0.8, "b": 0.2}).envies} == {Cause.MECHANISM}


def test_one_task_more_or_less_is_nobody_s_fault() -> None:
    cluster = Cluster({"n": (13, 0)})
    cluster.add("a", (4, 0), {"n": 2}, waiting=9)
    cluster.add("b", (4, 0), {"n": 1}, waiting=9)
    [envy] = cluster.audit({"a": 0.5, "b": 0.5}).envies
    assert (envy.tenant, envy.cause) == ("b", Cause.INDIVISIBLE)


def test_room_in_pieces_comes_from_indivisible_tasks() -> None:
    cluster = Cluster({f"n{n}": (10, 0) for n in range(8)})
    cluster.add("a", (6, 0), {f"n{n}": 1 for n in range(6)}, waiting=9)
    cluster.add("b", (6, 0), {"n6": 1, "n7": 1}, waiting=9)
    [envy] = cluster.audit({"a": 0.5, "b": 0.5}).envies
    assert envy.cause is Cause.INDIVISIBLE  # 32 CPUs are free: room for four, but no server has six


SERVERS = DomainCounter("x", Domains(np.arange(8, dtype=np.int32), 8), np.ones(8, dtype=np.int64))


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        (SeparationRule(SERVERS, Rejection(RejectionKind.OWN_ANTI_AFFINITY)), Cause.OTHER_PODS),
        (LimitRule(SERVERS, 1, SERVERS.count_d, Rejection(RejectionKind.VOLUME_LIMIT)), Cause.INDIVISIBLE),
    ],
    ids=["other pods", "limits"],
)
def test_room_that_rules_about_other_pods_close_is_told_apart(rule: DomainRule, cause: Cause) -> None:
    """What waits must keep apart by server: 60 CPUs are free, on servers that have one such task already."""
    cluster = Cluster({f"n{n}": (10, 0) for n in range(8)})
    cluster.add("a", (2, 0), {f"n{n}": 1 for n in range(6)}, waiting=9)
    cluster.add("b", (2, 0), {"n6": 1, "n7": 1}, waiting=9, rules=DomainRules((rule,)))
    [envy] = cluster.audit({"a": 0.5, "b": 0.5}).envies
    assert (envy.tenant, envy.cause) == ("b", cause)


def test_who_asks_for_no_more_misses_nothing() -> None:
    cluster = Cluster({"n": (10, 0)})
    cluster.add("a", (1, 0), {"n": 8}, waiting=9)
    cluster.add("b", (1, 0), {"n": 2})
    report = cluster.audit()
    assert [(f.tenant, f.cause) for f in report.envies] == [("b", Cause.MISSING_DEMAND)]
    assert report.sharing_incentive_violations == ()


def test_what_is_of_no_use_is_not_envied() -> None:
    cluster = Cluster({"cpu": (10, 0), "gpu": (10, 8)})
    cluster.add("a", (1, 1), {"gpu": 8}, waiting=9)
    cluster.add("b", (1, 0), {"cpu": 4}, waiting=9, eligible=["cpu"])
    cluster.add("c", (1, 0), {"cpu": 6}, waiting=9)
    envied = {(finding.tenant, finding.envied) for finding in cluster.audit().envies}
    assert envied == {("b", "c"), ("c", "a")}  # b may not use the server that a holds most of


def test_a_heavier_tenant_may_hold_more() -> None:
    cluster = Cluster({"n": (12, 0)})
    cluster.add("a", (1, 0), {"n": 9}, waiting=9, weight=3)
    cluster.add("b", (1, 0), {"n": 3}, waiting=9)
    assert cluster.audit().envies == ()
    lighter = Cluster({"n": (12, 0)})
    lighter.add("a", (1, 0), {"n": 9}, waiting=9, weight=2)
    lighter.add("b", (1, 0), {"n": 3}, waiting=9)
    [envy] = lighter.audit().envies
    assert envy.could_have == pytest.approx(4.5 / 12)


def test_a_cluster_of_its_own_runs_whole_tasks() -> None:
    cluster = Cluster({"n1": (10, 0), "n2": (11, 0)})
    cluster.add("a", (4, 0), {"n1": 1, "n2": 1}, waiting=9)
    cluster.add("b", (1, 0), {"n1": 6, "n2": 7}, waiting=9)
    # Half of each server is room for one task of a; the quarter of a task that is left on each is not counted.
    assert cluster.audit().sharing_incentive_violations == ()


def test_envy_is_among_siblings_and_a_cluster_of_its_own_follows_the_tree() -> None:
    cluster = Cluster({"n": (12, 0)})
    cluster.add("a", (1, 0), {"n": 6}, waiting=9)
    cluster.add("b", (1, 0), {"n": 2}, waiting=9)
    cluster.add("c", (1, 0), {"n": 4}, waiting=9)
    team = InnerTenant(Tenant("team", Fraction(2)), Place())
    report = cluster.audit(hierarchy=Hierarchy({"a": Place("team"), "b": Place("team")}, {"team": team}))
    [envy] = report.envies
    assert (envy.tenant, envy.envied) == ("b", "a")
    assert envy.could_have == pytest.approx(6 / 12)
    [violation] = report.sharing_incentive_violations
    assert violation.tenant == "b"
    assert violation.could_have == pytest.approx(1 / 3)


def test_nobody_is_no_finding() -> None:
    assert Cluster({"n": (1, 0)}).audit() == AuditReport((), (), 0)
