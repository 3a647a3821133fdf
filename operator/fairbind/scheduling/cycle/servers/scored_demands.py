"""Score how well servers suit a demand: many of them by arrays, or one."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from fairbind.model.servers import FloatArray, IndexArray
from fairbind.scheduling.policies.fit import Score

SINGLE_SCORES = 12
"""Up to so many changed servers are scored one by one; beyond that arrays are faster (measured)."""


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
