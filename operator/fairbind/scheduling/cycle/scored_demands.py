"""How well servers suit demands, within a cycle and from one to the next.

To score all servers for a demand is most of what it costs to place one pod. From one cycle to the next only a few
servers change, so for the demands that were asked for last only these are scored again.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from fairbind.model.servers import FloatArray, IndexArray, IntArray
from fairbind.scheduling.cycle.layouts import Layout
from fairbind.scheduling.cycle.room import compute_left
from fairbind.scheduling.policies.fit import FitRule, Score

FEW = 12
"""Up to so many changed servers are scored one by one; beyond that arrays are faster (measured)."""

MAX_KEPT = 16
"""Of so many demands the scores are kept: eight bytes a server each, and 16 of its layout."""

MAX_STALE = 256
"""When more servers changed since a demand was asked for, its scores are not kept on."""


class ScoredDemand:
    """What is asked of servers, and how well they suit it.

    demand_r1: shape (R, 1). demanded: of what something is asked, as (r, amount).
    """

    __slots__ = ("demand_r1", "demanded", "score")

    def __init__(self, demand_r: Sequence[int], score: Score) -> None:
        self.demand_r1: FloatArray = np.array(demand_r, dtype=np.float64)[:, None]
        self.demanded = [(r, demand) for r, demand in enumerate(demand_r) if demand > 0]
        self.score = score

    def score_many(self, servers: IndexArray, left_rn: FloatArray) -> FloatArray:
        """Return the scores of servers with these indices; infinity where too little is left.

        left_rn: what they have left, never below zero, so that a resource that is not asked for is never lacking.
        """
        lacks = np.logical_or.reduce(left_rn < self.demand_r1)
        if np.logical_and.reduce(lacks):
            return np.full(len(servers), inf)
        scores = self.score.score_many(servers, left_rn)
        np.putmask(scores, lacks, inf)
        return scores

    def score_one(self, server: int, free_r: Sequence[int]) -> float:
        """Return the score of one server. free_r: what is free there, length R."""
        for r, demand in self.demanded:
            if free_r[r] < demand:
                return inf
        return self.score.score_one(server, free_r)


class _Kept:
    """The scores of a demand on the servers of a layout at the beginning of a cycle, and one entry for all others.

    scores: shape (n + 1,). stale: the servers that may have other scores.
    """

    __slots__ = ("layout", "scored", "scores", "stale")

    def __init__(self, layout: Layout, scored: ScoredDemand, scores: FloatArray, stale: list[int]) -> None:
        self.layout = layout
        self.scored = scored
        self.scores = scores
        self.stale = stale

    def renew(self, free_kr: IntArray) -> None:
        """Score the servers again that may have other scores. free_kr: what is free at the beginning of this cycle."""
        stale, scores, position_k = self.stale, self.scores, self.layout.position_k
        if len(stale) <= FEW:
            for server in stale:
                scores[position_k[server]] = self.scored.score_one(server, free_kr[server].tolist())
        else:
            servers = np.array(stale, dtype=np.intp)
            scores[position_k[servers]] = self.scored.score_many(servers, compute_left(free_kr[servers]))
        self.stale = []


class KeptScores:
    """Makes scores, and keeps those of the demands that were asked for last.

    For placements to which a server is what it has free: of which no keys are taken, and nothing is reserved for them.
    fit: makes the scores.
    """

    __slots__ = ("_free_kr", "_kept", "_most", "fit")

    def __init__(self, fit: FitRule, free_kr: IntArray, most: int = 0) -> None:
        """free_kr: what is free at the beginning of a cycle. most: of so many demands scores are kept."""
        self.fit = fit
        self._most = most
        self._free_kr = free_kr
        self._kept: dict[tuple[int, tuple[int, ...]], _Kept] = {}

    def follow(self, free_kr: IntArray, changed: IndexArray | None) -> None:
        """Begin a cycle. free_kr: what is free now. changed: where it is other than before; None: it is not known."""
        self._free_kr = free_kr
        if changed is None:
            self._kept.clear()
        elif len(changed):
            servers = changed.tolist()
            for key, kept in list(self._kept.items()):
                kept.stale.extend(servers)
                if len(kept.stale) > MAX_STALE:
                    del self._kept[key]

    def find(self, layout: Layout, demand_r: tuple[int, ...]) -> tuple[ScoredDemand, FloatArray] | None:
        """Return a demand and its scores at the beginning of this cycle, not to be written to; None: not known."""
        key = id(layout), demand_r
        kept = self._kept.pop(key, None)
        if kept is None:
            return None
        self._kept[key] = kept  # at the end: the one at the front was asked for longest ago
        if kept.stale:
            kept.renew(self._free_kr)
        return kept.scored, kept.scores

    def keep(
        self,
        layout: Layout,
        demand_r: tuple[int, ...],
        scored: ScoredDemand,
        scores: FloatArray,
        changed: IndexArray,
    ) -> None:
        """Keep scores. changed: servers that this cycle has changed, or closed, before they were made."""
        if not self._most:
            return
        key = id(layout), demand_r
        self._kept.pop(key, None)
        if len(self._kept) >= self._most:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = _Kept(layout, scored, scores.copy(), changed.tolist())
