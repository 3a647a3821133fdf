"""Small clusters on which fairbind decides for a picture: what the operator does, without an API server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from fairbind.model import Bind, Placement, PolicySettings, ServerTable, Snapshot, Task, TaskClass, Tenant
from fairbind.scheduling import compute_server_classes, run_cycle

RESOURCES = ("cpu", "memory")
Amounts = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Team:
    """A tenant whose pods are all equal. pod: milli-CPU and GiB. pending: UIDs. held: servers of its running pods."""

    name: str
    pod: Amounts
    pending: Sequence[str]
    held: Sequence[str] = ()
    weight: int = 1


def decide(
    policy: str, capacity: Mapping[str, Amounts], teams: Sequence[Team], *, shared: Sequence[str]
) -> tuple[Bind, ...]:
    """Return the decisions of one cycle. shared: the servers that pods may use; the others have a taint."""
    names = tuple(sorted(capacity))
    capacity_kr = np.array([capacity[name] for name in names], dtype=np.int64)
    free_kr = capacity_kr.copy()
    for team in teams:
        for server in team.held:
            free_kr[names.index(server)] -= team.pod
    eligible_k = np.array([name in shared for name in names])
    class_k, class_names = compute_server_classes(capacity_kr, eligible_k.tolist(), names, 0.02)
    placement = Placement(eligible_k)
    snapshot = Snapshot(
        resources=RESOURCES,
        counts_r=(True, True),
        total_r=tuple(int(total) for total in capacity_kr.sum(axis=0)),
        servers=ServerTable(names, capacity_kr, free_kr, np.ones(len(names), np.bool_), class_k, class_names),
        tenants=tuple(
            Tenant(
                team.name,
                weight=Fraction(team.weight),
                allocated_r=(len(team.held) * team.pod[0], len(team.held) * team.pod[1]),
            )
            for team in sorted(teams, key=lambda team: team.name)
        ),
        task_classes=tuple(
            TaskClass(team.name, team.pod, team.pod, placement, tuple(Task(uid, uid, 0, 0.0) for uid in team.pending))
            for team in teams
            if team.pending
        ),
    )
    return tuple(run_cycle(snapshot, PolicySettings(policy), 0.0).bindings)
