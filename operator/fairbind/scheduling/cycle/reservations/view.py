"""View: the state of a cycle, between two decisions or at its end, as far as reservations ask for it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fairbind.model import Snapshot, TaskClass
from fairbind.model.reservations import Reservation
from fairbind.model.servers import IndexArray
from fairbind.scheduling.cycle.order.kept_back import KeptBack
from fairbind.scheduling.cycle.order.siblings import Siblings
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.cycle.servers.topology import TopologyState
from fairbind.scheduling.policies.levels import Progress
from fairbind.scheduling.policies.measures import Measure


@dataclass(frozen=True, slots=True)
class CycleView:
    """See the module. snapshot: what the cycle decides about. kept_back: None: no tenant keeps anything.

    get_used: how much of a guarantee is used, by its subject. reserved: what was reserved when the cycle began, which
    is no part of what is free in the snapshot.
    """

    snapshot: Snapshot
    free: FreeCapacity
    topology: TopologyState
    measure: Measure
    progress_of: Mapping[str, Progress]
    siblings: Siblings
    kept_back: KeptBack | None
    get_used: Callable[[Hashable], int]
    reserved: Sequence[Reservation] = ()

    def find_allowed(self, task_class: TaskClass) -> IndexArray:
        """Return the servers that a class may use, whatever is free there, ascending."""
        servers, pin = self.snapshot.servers, task_class.pin
        if pin is not None:
            is_open = pin.server is not None and servers.accepting_k[pin.server]
            return np.array([pin.server] if is_open else [], dtype=np.intp)
        allowed_k = task_class.placement.eligible_k & servers.accepting_k
        rules = task_class.rules
        if self.kept_back is not None:  # what others keep is not free now, and may be beside what is reserved
            rules = self.kept_back.rules.get_rules_before(task_class)
            allowed_k = allowed_k & ~self.kept_back.find_closed_for_good(task_class)
        domains = self.topology.get_filter(rules)
        return np.flatnonzero(allowed_k if domains is None else allowed_k & ~domains.closed_k)

    def find_pool(self, tenant: str, allowed: IndexArray) -> int:
        """Return the pool of some servers on which a tenant is least. allowed: at least one."""
        pool_k = self.measure.pools.pool_k
        if pool_k is None:
            return 0
        return self.measure.find_least_level(self.progress_of[tenant], np.unique(pool_k[allowed]))[1]
