"""Shapes: what tasks of equal demand and equal constraints share, of any tenant: where they fit, and how well.

A shape keeps one array of scores, with infinity where a task of it does not fit, and brings it up to date when it is
asked: only servers that changed since the last time are scored again. A pool in which no task of it fits is closed, and
that ends all work on the shape there until a server of the pool gains free capacity or becomes eligible again
(`FreeCapacity.gains`).

The positions of that array are the eligible servers in the order of an arrangement: by pool, then by preference (most
wanted first), then by name. So a question about a pool is a question about a slice, preferences rank before fit, and
the first least score of a slice is the one whose server's name comes first. One more position, the last, takes the
scores of all servers that are not eligible, so that no caller has to pick them out; no slice reaches it.

Tasks that may go to one server only need none of that: to look at it is the answer (`PinnedShape`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from operator import gt

import numpy as np

from fairbind.model import DomainRules, Pin, Placement, Preferences, ServerTable, Task, TaskClass
from fairbind.model.servers import BoolArray, FloatArray, IndexArray
from fairbind.scheduling.cycle.servers.arrangements import Arrangement, Slices
from fairbind.scheduling.cycle.servers.free_capacity import FreeCapacity
from fairbind.scheduling.cycle.servers.preferences import PreferenceScores
from fairbind.scheduling.cycle.servers.random_choices import RandomChoices
from fairbind.scheduling.cycle.servers.scored_demands import SINGLE_SCORES, ScoredDemand
from fairbind.scheduling.cycle.servers.topology import DomainFilter, TopologyState
from fairbind.scheduling.policies.fit import FitRule
from fairbind.scheduling.policies.level_pools import LevelPools


class Shapes:
    """All shapes and arrangements of a cycle, made when they are needed first."""

    __slots__ = (
        "_arrangements",
        "_choices",
        "_fit",
        "_free",
        "_only_servers",
        "_pinned",
        "_pools",
        "_servers",
        "_shapes",
        "_topology",
    )

    def __init__(
        self,
        servers: ServerTable,
        pools: LevelPools,
        free: FreeCapacity,
        fit: FitRule,
        choices: RandomChoices | None,
        topology: TopologyState,
        only_servers: Mapping[TaskClass, Sequence[int]],
    ) -> None:
        """Take the working state of a cycle. choices: None when every server where it fits is looked at.

        only_servers: of some classes, the only servers on which a task fits as long as none gains free capacity.
        """
        self._topology = topology
        self._only_servers = only_servers
        self._servers = servers
        self._pools = pools
        self._free = free
        self._fit = fit
        self._choices = choices
        self._arrangements: dict[Placement, Arrangement] = {}
        self._shapes: dict[tuple[tuple[int, ...], Placement, DomainRules | None, Preferences | None], Shape] = {}
        self._pinned: dict[tuple[tuple[int, ...], Placement, int, DomainRules | None], PinnedShape] = {}

    def fork(self) -> Shapes:
        """Return new shapes on the same state; what `restrict` has closed is closed to them, too."""
        forked = Shapes(self._servers, self._pools, self._free, self._fit, self._choices, self._topology, {})
        for key, arrangement in self._arrangements.items():
            if arrangement.restricted_k is not None:
                forked._arrangements[key] = arrangement.fork()
        return forked

    def get_arrangement(self, placement: Placement) -> Arrangement:
        """Return the arrangement of a placement."""
        arrangement = self._arrangements.get(placement)
        if arrangement is None:
            arrangement = Arrangement(placement, self._servers, self._pools, self._free)
            self._arrangements[placement] = arrangement
        return arrangement

    def find_pools(self, task_class: TaskClass) -> Sequence[int]:
        """Return the pools in which a class may use a server."""
        arrangement = self._arrangements.get(task_class.placement) or self.get_arrangement(task_class.placement)
        if task_class.pin is None:
            return arrangement.pools
        server = arrangement.find_pinned(task_class.pin)
        return () if server is None else (self._pools.get_pool(server),)

    def get_shape(self, task_class: TaskClass) -> Shape | PinnedShape:
        """Return the shape of a class."""
        if task_class.pin is not None:
            return self._get_pinned(task_class, task_class.pin)
        placement = task_class.placement
        key = task_class.demand_r, placement, task_class.rules, task_class.preferences
        shape = self._shapes.get(key)
        if shape is None:
            pools = len(self._pools.amount_pr)
            shape = Shape(
                task_class,
                self.get_arrangement(placement),
                self._fit,
                self._free,
                pools,
                self._choices,
                self._topology,
                self._only_servers.get(task_class),
            )
            self._shapes[key] = shape
        return shape

    def _get_pinned(self, task_class: TaskClass, pin: Pin) -> PinnedShape:
        placement, arrangement = task_class.placement, self.get_arrangement(task_class.placement)
        server = arrangement.find_pinned(pin)
        key = task_class.demand_r, placement, -1 if server is None else server, task_class.rules
        shape = self._pinned.get(key)
        if shape is None:
            pool = None if server is None else self._pools.get_pool(server)
            domains = self._topology.get_filter(task_class.rules)
            shape = self._pinned[key] = PinnedShape(task_class, server, pool, arrangement, self._free, domains)
        return shape

    def lift(self, servers: Sequence[int]) -> list[tuple[Arrangement, list[int]]]:
        """Open servers to all tasks that are closed by `Arrangement.restrict`, and return which were, and where."""
        lifted = [(arrangement, arrangement.lift(servers)) for arrangement in self._arrangements.values()]
        return [(arrangement, changed) for arrangement, changed in lifted if changed]


class Shape:
    """Tasks of one demand under one placement and the same rules and preferences: finds the best server for them.

    is_narrowed: whether something was closed since the last opening of a domain, so that the next one matters.
    _open_p: whether a task may fit into each pool, shape (P,); False is certain as of `_gains_seen` gains of capacity.
    _scores: None until a server has enough of each resource.
    """

    __slots__ = (
        "_arrangement",
        "_choices",
        "_conflicting",
        "_cursor",
        "_demand_r",
        "_domains",
        "_fit",
        "_free",
        "_gains_seen",
        "_left",
        "_only_servers",
        "_open_p",
        "_openings_seen",
        "_placement",
        "_preference_scores",
        "_preferences",
        "_scored",
        "_scores",
        "_topology",
        "is_narrowed",
    )

    def __init__(
        self,
        task_class: TaskClass,
        arrangement: Arrangement,
        fit: FitRule,
        free: FreeCapacity,
        pools: int,
        choices: RandomChoices | None,
        topology: TopologyState,
        only_servers: Sequence[int] | None,
    ) -> None:
        self._topology = topology
        self._only_servers = only_servers
        self._domains = domains = topology.get_filter(task_class.rules)
        self._openings_seen = 0 if domains is None else domains.openings
        self._preferences = task_class.preferences
        self._preference_scores: PreferenceScores | None = None
        self.is_narrowed = False
        self._arrangement = arrangement
        self._demand_r = task_class.demand_r
        self._placement = task_class.placement
        self._conflicting = task_class.placement.exclusive_keys.conflicting
        self._fit = fit
        self._choices = choices
        self._free = free
        self._gains_seen = len(free.gains)
        self._open_p: BoolArray = np.zeros(pools, dtype=np.bool_)
        self._scores: FloatArray | None = None
        self._begin()

    def _begin(self) -> None:
        """Score all servers, unless none of them has enough: then no pool is open, and no more is asked."""
        arrangement, demand_r, free = self._arrangement, self._demand_r, self._free
        self._left: dict[int, Slices] = {}
        if any(map(gt, demand_r, arrangement.find_most_left())) and not self._placement.reserved:
            return
        if self._only_servers is not None and not self._has_enough((*self._only_servers, *free.gains)):
            return
        self._scored = ScoredDemand(demand_r, self._fit.build_score(demand_r))
        self._cursor = free.log_size
        scores = self._score_many(arrangement.servers)
        if arrangement.pools:
            self._open_p[arrangement.pools] = np.minimum.reduceat(scores, arrangement.starts) < inf
        self._scores = np.append(scores, inf)

    def _has_enough(self, servers: Iterable[int]) -> bool:
        """Whether one of a few servers has enough of each resource."""
        left_rk, demand_r = self._free.left_rk, self._demand_r
        return any(not any(map(gt, demand_r, left_rk[:, server].tolist())) for server in servers)

    @property
    def has_begun(self) -> bool:
        """Whether some server may have had enough of each resource; False is certain: nothing of it ever fitted."""
        return self._scores is not None

    def has_open(self) -> bool:
        """Whether a task of this shape may fit somewhere; False is certain."""
        return bool(self._get_open().any())

    def add_open(self, open_p: BoolArray) -> None:
        """Mark the pools in which a task of this shape may fit. open_p: shape (P,)."""
        open_p |= self._get_open()

    def choose_open(self, pools: IndexArray) -> IndexArray:
        """Return those of some pools in which a task of this shape may fit."""
        return pools[self._get_open()[pools]]

    def _get_open(self) -> BoolArray:
        """Return for each pool whether a task of this shape may fit there; False is certain. Shape (P,)."""
        if self._gains_seen != len(self._free.gains):
            self._follow_gains()
        if self._domains is not None and self._openings_seen != self._domains.openings:
            self._follow_openings(self._domains)
        return self._open_p

    def _follow_openings(self, domains: DomainFilter) -> None:
        """Open all pools again: a domain is open that was closed. What has too little free capacity is found so again.

        Without having been narrowed nothing was closed because of a domain, and no queue was put back either.
        """
        self._openings_seen = domains.openings
        was_narrowed, self.is_narrowed = self.is_narrowed, False
        if was_narrowed and self._scores is not None:
            self._open_p[self._arrangement.pools] = True
            self._left.clear()

    def _follow_gains(self) -> None:
        """Open the pools again in which a server has gained free capacity since the last time."""
        since, self._gains_seen = self._gains_seen, len(self._free.gains)
        if self._scores is None:
            self._begin()
            return
        for pool in self._arrangement.find_gained_pools(since):
            self._open_p[pool] = True
            self._left.pop(pool, None)

    def find_server(self, pool: int, task: Task) -> int | None:
        """Return the best server of this pool on which a task of this shape fits, or None.

        task: whose draw counts, where only two servers are looked at as long as one of them has free capacity.
        """
        if not self._get_open()[pool]:
            return None
        slices = self._left.get(pool)
        if slices is None:
            slices = self._left[pool] = self._arrangement.get_slices(pool)[::-1]
        scores = self._refresh()
        if self._domains is not None:
            scores = self._close_domains(scores, self._domains)
        while slices:
            start, stop = slices[-1]
            if self._preferences is not None:
                best = self._find_wanted(start, stop, scores, task, self._preferences)
            elif self._choices is not None:
                best = start + self._draw_best(scores[start:stop], task, self._choices)
            else:
                best = start + int(scores[start:stop].argmin())
            if scores[best] != inf:
                return int(self._arrangement.servers[best])
            slices.pop()
            self.is_narrowed = True
        self._open_p[pool] = False
        return None

    def find_spare(self, pool: int) -> int | None:
        """Return the server of a pool with the most free capacity of those on which a task fits, or None.

        Only for shapes without rules.
        """
        if not self._get_open()[pool]:
            return None
        scores, servers = self._refresh(), self._arrangement.servers
        r = next((r for r, demand in enumerate(self._demand_r) if demand), 0)
        for start, stop in self._arrangement.get_slices(pool):
            fitting = servers[start:stop][scores[start:stop] < inf]
            if len(fitting):
                return int(fitting[self._free.left_rk[r, fitting].argmax()])
        return None

    def fits_on(self, server: int) -> bool:
        """Whether a task fits on an eligible server. Only for shapes without rules, keys and reserved capacity."""
        restricted_k = self._arrangement.restricted_k
        is_open = restricted_k is None or not restricted_k[server]
        return is_open and not any(map(gt, self._demand_r, self._free.left_rk[:, server].tolist()))

    def _close_domains(self, scores: FloatArray, domains: DomainFilter) -> FloatArray:
        """Return the scores with infinity where a domain is closed now."""
        closed_n = domains.closed_k.take(self._arrangement.servers)
        return np.where(np.append(closed_n, False), inf, scores)

    def _find_wanted(self, start: int, stop: int, scores: FloatArray, task: Task, preferences: Preferences) -> int:
        """Return the position of the best one of those that are wanted most, of a slice; where none fits, its first."""
        if self._preference_scores is None:
            self._preference_scores = PreferenceScores(preferences, self._topology, self._arrangement.servers)
        preference_n = self._preference_scores.compute(scores[:-1] < inf)[start:stop]
        among = np.flatnonzero(preference_n == preference_n.max())
        some = scores[start:stop][among]
        best = int(some.argmin()) if self._choices is None else self._draw_best(some, task, self._choices)
        return start + int(among[best])

    def _draw_best(self, scores: FloatArray, task: Task, choices: RandomChoices) -> int:
        """Return the position of the lesser one of two drawn scores; of the least one, if both are infinite."""
        if len(scores) > 1:
            first, second = choices.draw_two(task.uid, len(scores))
            best = first if (scores[first], first) <= (scores[second], second) else second
            if scores[best] != inf:
                return best
        return int(scores.argmin())

    def _refresh(self) -> FloatArray:
        """Return the scores after all placements so far."""
        scores, free, arrangement = self._scores, self._free, self._arrangement
        assert scores is not None, "only a shape with an open pool is asked"
        start, stop = self._cursor, free.log_size
        self._cursor = stop
        if stop - start >= len(scores):
            scores[:-1] = self._score_many(arrangement.servers)
        elif stop - start > SINGLE_SCORES:
            changed = free.log[start:stop]
            if arrangement.is_small:
                changed = changed[arrangement.position_k[changed] < len(arrangement.servers)]
            scores[arrangement.position_k[changed]] = self._score_many(changed)
        else:
            position_k = arrangement.position_k
            for server in free.log[start:stop].tolist():
                scores[position_k[server]] = self._score_one(server)
        return scores

    def _score_many(self, servers: IndexArray) -> FloatArray:
        """Return the scores of servers with these indices; infinity where a task does not fit."""
        free = self._free
        is_whole = servers is self._arrangement.servers and self._arrangement.is_identity
        left_rn = free.left_rk if is_whole else free.left_rk.take(servers, axis=1)
        scores = self._scored.score_many(servers, left_rn)
        if self._arrangement.restricted_k is not None:
            np.putmask(scores, self._arrangement.restricted_k[servers], inf)
        if self._conflicting and free.taken_keys:
            for n, server in enumerate(servers.tolist()):
                if not self._conflicting.isdisjoint(free.taken_keys.get(server, ())):
                    scores[n] = inf
        for server in self._placement.reserved:
            scores[servers == server] = self._score_one(server)
        return scores

    def _score_one(self, server: int) -> float:
        """Return the score of one server; infinity where a task does not fit."""
        free = self._free
        if self._conflicting and not self._conflicting.isdisjoint(free.taken_keys.get(server, ())):
            return inf
        restricted_k = self._arrangement.restricted_k
        if restricted_k is not None and restricted_k[server]:
            return inf
        return self._scored.score_one(server, free.get_row_for(self._placement, server))


class PinnedShape:
    """Tasks of one demand that may go to one server: it has free capacity for them or not. See `Shape`.

    server, pool: None when there is no server to which they may go.
    """

    __slots__ = (
        "_arrangement",
        "_conflicting",
        "_demanded",
        "_domains",
        "_free",
        "_gains_seen",
        "_is_open",
        "_openings_seen",
        "_placement",
        "pool",
        "server",
    )

    def __init__(
        self,
        task_class: TaskClass,
        server: int | None,
        pool: int | None,
        arrangement: Arrangement,
        free: FreeCapacity,
        domains: DomainFilter | None,
    ) -> None:
        self._domains = domains
        self._openings_seen = 0 if domains is None else domains.openings
        self.server = server
        self.pool = pool
        self._arrangement = arrangement
        self._placement = task_class.placement
        self._conflicting = task_class.placement.exclusive_keys.conflicting
        self._demanded = [(r, demand) for r, demand in enumerate(task_class.demand_r) if demand > 0]
        self._free = free
        self._gains_seen = len(free.gains)
        self._is_open = self._fits()

    @property
    def is_narrowed(self) -> bool:
        """Whether it was closed, so that the next opening of a domain matters."""
        return not self._is_open

    def has_open(self) -> bool:
        """Whether a task of this shape may fit on its server; False is certain."""
        openings = 0 if self._domains is None else self._domains.openings
        if self._gains_seen != len(self._free.gains) or self._openings_seen != openings:
            self._gains_seen, self._openings_seen = len(self._free.gains), openings
            self._is_open = self._fits()
        return self._is_open

    def add_open(self, open_p: BoolArray) -> None:
        """Mark the pool in which a task of this shape may fit. open_p: shape (P,)."""
        if self.pool is not None and self.has_open():
            open_p[self.pool] = True

    def choose_open(self, pools: IndexArray) -> IndexArray:
        """Return those of some pools in which a task of this shape may fit."""
        return pools[pools == self.pool] if self.has_open() else pools[:0]

    def find_server(self, pool: int, task: Task) -> int | None:  # noqa: ARG002 (there is no draw between one server)
        """Return the server, if it is in this pool and a task of this shape fits there."""
        if pool != self.pool or not self.has_open():
            return None
        self._is_open = self._fits()
        return self.server if self._is_open else None

    def find_spare(self, pool: int) -> int | None:
        """Return the server, if it is in this pool and a task of this shape fits there."""
        return self.server if pool == self.pool and self._fits() else None

    def fits_on(self, server: int) -> bool:
        """Whether a task of this shape fits on its server, which is this one."""
        return server == self.server and self._fits()

    def _fits(self) -> bool:
        server, free = self.server, self._free
        if server is None:
            return False
        row = free.get_row_for(self._placement, server)
        if any(row[r] < demand for r, demand in self._demanded):
            return False
        if self._conflicting and not self._conflicting.isdisjoint(free.taken_keys.get(server, ())):
            return False
        if self._domains is not None and self._domains.closed_k[server]:
            return False
        restricted_k = self._arrangement.restricted_k
        return restricted_k is None or not restricted_k[server]
