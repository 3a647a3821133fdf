"""Places of group members that were lost: their capacity is kept for the group for a while.

A tenant that is poorer would otherwise take a lost member's place before another member is made, and the group, which
holds the rest of its minimum, would wait for more than it had. The same holds when a group begins and the bindings of
some members fail, as these are decided again after a while only: their places are kept, too. What is kept comes off
what is free on the node, and the classes of the group get it back as `Placement.reserved`, as with nominated pods
(`nominations`).

A place is given up when a member is bound that was decided to go there or, if there are more places than the group
lacks members, any other. It is also given up when the minimum stands again, or after a time, which begins at the first
`advance` after the loss. That of a failed binding is given up also when no member is placed any more, and once its time
was over the group has no such places until its minimum stands. A tenant has `MAX_TENANT_PLACES` at most; of more that
are lost the capacity is free at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf

from fairbind.cluster.objects.facts import Amounts
from fairbind.cluster.state.node_state import Axes, compute_vector
from fairbind.cluster.tenancy.users import find_tenant_of_leaf

MAX_TENANT_PLACES = 1_024
"""As many as a large group has."""


@dataclass(slots=True)
class _Place:
    """until: of the clock of `advance`; infinite: it has not been seen yet.

    failed: the UID of the pod, where its binding failed. taker: that of the member that is decided to go there.
    """

    tenant: str
    node: str
    amounts: Amounts
    failed: str | None
    until: float = inf
    taker: str | None = None


class KeptPlaces:
    """See the module. seconds: for how long; 0: not at all. reserve: notes what is kept on a node (1), or not (-1)."""

    def __init__(self, reserve: Callable[[str, Amounts, int], None], seconds: float) -> None:
        self.seconds = seconds
        self._reserve = reserve
        self._places: dict[str, list[_Place]] = {}
        self._counts = Counter[str]()

    def __bool__(self) -> bool:
        return bool(self._places)

    def count(self, group: str) -> int:
        """Return how many places are kept for a group."""
        return len(self._places.get(group, ()))

    def has_failed(self, group: str, uid: str) -> bool:
        """Whether the place of a pod is kept because its binding failed."""
        return any(place.failed == uid for place in self._places.get(group, ()))

    def keep(self, group: str, leaf: str, node: str, amounts: Amounts, *, failed: str | None = None) -> None:
        """Keep the place of a member that is lost, or whose binding failed: its UID, unless its tenant has too many."""
        self._keep(group, _Place(find_tenant_of_leaf(leaf), node, amounts, failed))

    def take(self, group: str, node: str | None, uid: str) -> None:
        """Note that a member is decided to go to a node: if a place is kept there, it is the member's own."""
        if self._find_own(group, uid) is None:
            places = self._places.get(group, ())
            free = next((place for place in places if place.node == node and place.taker is None), None)
            if free is not None:
                free.taker = uid

    def leave(self, group: str, uid: str) -> bool:
        """Let a member have no place of its own any more; return whether it had one, which is kept."""
        own = self._find_own(group, uid)
        if own is not None:
            own.taker = None
        return own is not None

    def use(self, group: str, uid: str, node: str | None, *, is_over: bool) -> None:
        """Give the place of a member up that is bound.

        is_over: whether there are more places than the group lacks members: if the member had none, another one goes,
        on its node if there is one.
        """
        place, places = self._find_own(group, uid), self._places.get(group)
        if place is None and places and is_over:
            place = next((each for each in places if each.node == node), places[0])
        if place is not None:
            self._end(group, place)

    def _find_own(self, group: str, uid: str) -> _Place | None:
        return next((place for place in self._places.get(group, ()) if place.taker == uid), None)

    def end(self, group: str, *, only_failed: bool = False) -> None:
        """Give all places of a group up. only_failed: those that are kept because a binding failed."""
        for place in tuple(self._places.get(group, ())):
            if place.failed is not None or not only_failed:
                self._end(group, place)

    def advance(self, now: float) -> Iterator[str]:
        """Give up what is kept for too long; yield the groups of which it is so. now: of a clock that goes on."""
        for group, places in list(self._places.items()):
            over = [place for place in places if place.until <= now]
            for place in places:
                place.until = min(place.until, now + self.seconds)
            for place in over:
                self._end(group, place)
            if over:
                yield group

    def find_reserved(self, group: str, index: Mapping[str, int], axes: Axes) -> dict[int, tuple[int, ...]]:
        """Return what is kept for a group by server, length R. index: of servers, by name."""
        found: dict[int, tuple[int, ...]] = {}
        for place in self._places.get(group, ()):
            server = index.get(place.node)
            if server is not None:
                before_r, kept_r = found.get(server, (0,) * len(axes)), compute_vector(place.amounts, axes)
                found[server] = tuple(map(sum, zip(before_r, kept_r, strict=True)))
        return found

    def copy(self, other: KeptPlaces) -> None:
        """Keep the places that another one keeps."""
        self.seconds = other.seconds
        for group, places in other._places.items():
            for place in places:
                self._keep(group, replace(place, until=inf))

    def _keep(self, group: str, place: _Place) -> None:
        if self.seconds and self._counts[place.tenant] < MAX_TENANT_PLACES:
            self._counts[place.tenant] += 1
            self._places.setdefault(group, []).append(place)
            self._reserve(place.node, place.amounts, 1)

    def _end(self, group: str, place: _Place) -> None:
        self._places[group].remove(place)
        if not self._places[group]:
            del self._places[group]
        self._counts[place.tenant] -= 1
        if not self._counts[place.tenant]:
            del self._counts[place.tenant]
        self._reserve(place.node, place.amounts, -1)
