"""The world at one moment, as a cycle sees it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from fairbind.model.hierarchy import FLAT, Hierarchy
from fairbind.model.policy import Fit
from fairbind.model.servers import ServerTable
from fairbind.model.targets import TargetClasses, Targets
from fairbind.model.tasks import RunningTask, TaskClass
from fairbind.model.tenants import Tenant


@dataclass(frozen=True, slots=True, eq=False)
class ClassChanges:
    """What is other among the task classes of a snapshot than among those of an earlier one.

    before, after: the two snapshots' `task_classes`, the very objects. added, removed: the classes of one that are not
    in the other, by identity.
    """

    before: tuple[TaskClass, ...]
    after: tuple[TaskClass, ...]
    added: Sequence[TaskClass]
    removed: Sequence[TaskClass]


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """Everything that a decision may depend on.

    resources: the R names of the axes; all vectors and the arrays' last axes follow this order.
    counts_r: which of them count for shares ("fairness resources"); feasibility uses all.
    fits_r: which of them say how well a task suits a server; None: those that count.
    fit: how a task's demand and what a server has left are compared.
    total_r: C, the sum of capacities over usable servers and of what tenants hold on others, length R.
    servers: all servers. tenants: sorted by name. task_classes: in any order; a class's tenant is in `tenants`.
    targets: what the exact mechanism would give, for policies that follow targets; None before the first answer.
    target_classes: their classes here; None: not known yet. What tenants hold by class is of these.
    running: what tenants hold, task by task, by the server's name, each server's in the order of their uids. Servers
    that are not in the table may be in it.
    changes: since the snapshot that was made before this one; None: not known. It saves work and decides nothing.
    stale: the task classes that say where their tasks might go before something changed: none of these is placed.
    is_whole: whether all tasks that wait are in a class. The snapshots that follow have what is missing.
    hierarchy: who is below whom; its leaves are `tenants`.
    held: what counts towards limits and guarantees of tenants now, by the subject of the counter, base units. These
    counters have one domain, and what is held is no part of `DomainCounter.count_d`: so a class stays the same while
    its tenant's pods come and go.
    """

    resources: tuple[str, ...]
    counts_r: tuple[bool, ...]
    total_r: tuple[int, ...]
    servers: ServerTable
    tenants: tuple[Tenant, ...]
    task_classes: tuple[TaskClass, ...]
    targets: Targets | None = None
    target_classes: TargetClasses | None = None
    running: Mapping[str, tuple[RunningTask, ...]] = field(default_factory=dict)
    fits_r: tuple[bool, ...] | None = None
    fit: Fit = Fit.DOMINANT_RESOURCE
    changes: ClassChanges | None = None
    stale: AbstractSet[TaskClass] = frozenset()
    is_whole: bool = True
    held: Mapping[Hashable, int] = field(default_factory=dict)
    hierarchy: Hierarchy = FLAT

    @property
    def is_current(self) -> bool:
        """Whether it says of all tasks that wait where they may go now."""
        return self.is_whole and not self.stale

    def compute_changes(self, before: tuple[TaskClass, ...]) -> ClassChanges:
        """Return what is other among the task classes than among those of an earlier snapshot."""
        known, after = self.changes, self.task_classes
        if known is not None and known.before is before and known.after is after:
            return known
        if before is after:
            return ClassChanges(before, after, (), ())
        return ClassChanges(before, after, leave_out(after, before), leave_out(before, after))


def leave_out(task_classes: Iterable[TaskClass], others: Iterable[TaskClass]) -> list[TaskClass]:
    """Return the classes that are not among others, by identity."""
    gone = set(others)
    return [each for each in task_classes if each not in gone]
