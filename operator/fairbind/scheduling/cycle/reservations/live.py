"""Live: whether what a decision would take of others' reservations may be taken, as things stand at that moment.

Which tenants are further behind is looked at in a review. Since then, and with each placement of a cycle, shares have
changed, so a tenant may take what is reserved for another one if it is further behind now, too. A tenant that became so
meanwhile waits for the next review.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fairbind.model import Snapshot, TaskClass
from fairbind.model.reservations import Reservation
from fairbind.scheduling.cycle.order.task_queues import compute_sort_key
from fairbind.scheduling.cycle.reservations.keeping import Keeping
from fairbind.scheduling.cycle.reservations.standings import Standings
from fairbind.scheduling.cycle.reservations.view import CycleView

FirstClasses = Mapping[tuple[str, str], Sequence[TaskClass]]
"""By tenant and group, the classes of which something may be reserved, those first whose tasks come first."""


class LiveStandings:
    """Where tenants are beside those for whom something is reserved, as a cycle has it now."""

    def __init__(self, view: CycleView, classes_of: FirstClasses) -> None:
        self._view = view
        self._classes_of = classes_of
        self._standings = Standings(view.siblings, view.progress_of)
        self._keeping: Keeping | None = None

    def is_behind(self, reservation: Reservation, tenant: str) -> bool:
        """Return whether a tenant comes before the one for which something is reserved, or keeps some of it."""
        view = self._view
        if tenant not in view.progress_of:
            return False
        task_class = self._find_class(reservation)
        allowed = None if task_class is None else view.find_allowed(task_class)
        if task_class is None or allowed is None or len(allowed) == 0:
            return True  # nothing waits for it, so the next review ends it
        pool = view.find_pool(task_class.tenant, allowed)
        if self._standings.compare_for(task_class, pool, allowed, tenant).is_behind:
            return True
        if self._keeping is None:
            self._keeping = Keeping(view.snapshot, view.get_used)
        return tenant in self._keeping.list_keepers(reservation)

    def _find_class(self, reservation: Reservation) -> TaskClass | None:
        """Return the class whose task is next of those for which something is reserved: a group counts as one."""
        classes = self._classes_of.get((reservation.tenant, reservation.group), ())
        fitting = (each for each in classes if reservation.group or each.demand_r == reservation.demand_r)
        return next(fitting, None)


def find_classes(snapshot: Snapshot, reservations: Iterable[Reservation]) -> FirstClasses:
    """Return the classes of those for whom something is reserved."""
    found: dict[tuple[str, str], list[TaskClass]] = {(each.tenant, each.group): [] for each in reservations}
    for each in snapshot.task_classes:
        classes = found.get((each.tenant, each.group_name))
        if classes is not None and each.blocked is None:
            classes.append(each)
    for classes in found.values():
        classes.sort(key=lambda each: (compute_sort_key(each.tasks[0]), each.demand_r))
    return found
