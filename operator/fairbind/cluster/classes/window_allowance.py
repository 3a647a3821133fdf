"""The part of a tenant with very many queues that a snapshot may still show; see `window`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from operator import attrgetter

from fairbind.cluster.classes.window_groups import Group, KeyGroups
from fairbind.scheduling.cycle.order.task_queues import SortKey


class Allowance:
    """Numbers of placements and classes that may still be shown, one class at a time.

    list_together: the groups whose tasks are placed together with those of a group; empty: it is one by itself.

    is_cut: whether some group was not allowed the last time. _shown: the placements that are shown.
    """

    def __init__(self, placements: int, classes: float, list_together: Callable[[Group], Collection[Group]]) -> None:
        self.is_cut = False
        self._list_together = list_together
        self._placements = placements
        self._classes = classes
        self._shown: dict[KeyGroups | None, None] = {}

    def extend(self, placements: int, classes: int) -> None:
        """Allow so many more."""
        self._placements += placements
        self._classes += classes

    def take(self, groups: Iterable[Group], is_open: Callable[[Group], bool]) -> list[Group]:
        """Return which open ones of the groups are still allowed; those with a placement that is shown need no other.

        groups: in order. As soon as there is no placement left, the groups of those that are shown are asked instead:
        there may be tens of thousands of others. What is placed together is taken together, as the first beyond bounds.
        """
        taken, self.is_cut = dict[Group, None](), False
        for group in filter(is_open, groups):
            if group in taken:
                continue
            together = self._list_together(group) or (group,)
            is_first = not taken and len(together) > 1
            if not is_first and self._count_new(together) > self._placements:
                self.is_cut = True
                if not self._placements:
                    self._take_shown(taken, group.sort_key, is_open)
                    break
                continue
            if not self._take(taken, together, is_first=is_first):
                break
        return list(taken)

    def _count_new(self, together: Collection[Group]) -> int:
        """Return how many placements of these groups are not shown."""
        return len({group.same_key for group in together if group.same_key not in self._shown})

    def _take_shown(self, taken: dict[Group, None], after: SortKey, is_open: Callable[[Group], bool]) -> None:
        """Take groups with a placement that is shown. after: those that come later in order than this."""
        key_groups = [same_key for same_key in self._shown if same_key is not None]
        groups = (group for same_key in key_groups for group in same_key.groups.values() if group.sort_key > after)
        for group in sorted(filter(is_open, groups), key=attrgetter("sort_key")):
            together = self._list_together(group) or (group,)
            if not self._count_new(together) and group not in taken and not self._take(taken, together):
                return

    def _take(self, taken: dict[Group, None], together: Collection[Group], *, is_first: bool = False) -> bool:
        """Take groups if so many more classes are allowed. is_first: also if they are not."""
        parts = sum(group.part for group in together)
        if self._classes < parts and not is_first:
            self.is_cut = True
            return False
        self._classes = max(self._classes - parts, 0.0)
        self._placements = max(self._placements - self._count_new(together), 0)
        self._shown.update((group.same_key, None) for group in together)
        taken.update((group, None) for group in together)
        return True
