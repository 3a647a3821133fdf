"""Water filling of one server among tenants that already have tasks elsewhere, and of all servers in turn.

On a server the virtual dominant shares of all its tenants rise to one level. A tenant with a lower share from other
servers gets the difference, and a tenant with a higher share gets nothing. When a slot is full its users stop and the
others go on. This is max-min fairness of one server, given the other servers' parts; a division in which it changes no
server is PS-DSF.

All amounts are those of a `Market`: a tenant's share on k is total_i / (weight_i * gain_ki), and raising it by 1 costs
weight_i of the whole server. Complexity: a sort of the tenants and O(R I), at most R times, for each server.
"""

from __future__ import annotations

import numpy as np

from fairbind.fairness.problems.problem import BoolArray, FloatArray
from fairbind.fairness.solvers.market.market import Market
from fairbind.fairness.solvers.psdsf.tolerances import CONVERGED_CHANGE, FULL


def fill_server(
    load_ri: FloatArray, weight_i: FloatArray, floor_i: FloatArray, cap_i: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return (part of the server for each tenant, level at which each slot was full; inf if it was not).

    load_ri: load of the slots by a whole server of the tenant, shape (R, I). weight_i: parts per level. floor_i: the
    level that the tenant has elsewhere. cap_i: the largest part that it can use, inf allowed.
    """
    part_i = np.zeros(weight_i.shape)
    level_r = np.full(load_ri.shape[0], np.inf)
    moving = np.arange(weight_i.size)
    while moving.size:
        part = part_i.copy()
        part[moving] = 0.0
        slots = np.flatnonzero(np.isinf(level_r) & (load_ri[:, moving] > 0).any(axis=1))
        left_r = 1 - load_ri[slots] @ part
        stops_r = _find_full(load_ri[np.ix_(slots, moving)], weight_i[moving], floor_i[moving], cap_i[moving], left_r)
        level = float(stops_r.min(initial=np.inf))
        filled_i = np.maximum(level - floor_i[moving], 0.0) * weight_i[moving] if level < np.inf else cap_i[moving]
        part_i[moving] = np.minimum(filled_i, cap_i[moving])
        full = slots[stops_r <= level] if level < np.inf else slots[:0]
        level_r[full] = level
        goes_on = ~(load_ri[np.ix_(full, moving)] > 0).any(axis=0) & (part_i[moving] < cap_i[moving])
        moving = moving[goes_on]
    return part_i, level_r


def _find_full(
    load_ri: FloatArray, weight_i: FloatArray, floor_i: FloatArray, cap_i: FloatArray, left_r: FloatArray
) -> FloatArray:
    """Return the level at which each slot is full, inf if never. Loads are piecewise linear in the level.

    A slot is full where less than `FULL` of it is left: a tenant with an end of tasks may fill it but for rounding,
    and the next tenant that needs it may begin at a far higher level.
    """
    span_i = cap_i / weight_i
    last_i = floor_i + span_i
    rate_ri = load_ri * weight_i
    times = np.unique(np.concatenate([floor_i, last_i[np.isfinite(last_i)]]))
    wanted_r = left_r - FULL
    # Bisect for the first time at which a slot is full; each load is a sum of its own, so nothing adds up its rounding.
    low_r, high_r = np.zeros(left_r.size, dtype=np.intp), np.full(left_r.size, times.size)
    while (low_r < high_r).any():
        middle_r = (low_r + high_r) // 2
        grown_ri = np.clip(times[np.minimum(middle_r, times.size - 1)][:, None] - floor_i, 0.0, span_i)
        is_full_r = ((rate_ri * grown_ri).sum(axis=1) >= wanted_r) | (middle_r == times.size)
        high_r = np.where(is_full_r, middle_r, high_r)
        low_r = np.where(is_full_r, low_r, np.minimum(middle_r + 1, high_r))
    begin_r = times[np.maximum(low_r - 1, 0)]
    end_r = np.append(times, np.inf)[low_r]
    left_r = left_r - (rate_ri * np.clip(begin_r[:, None] - floor_i, 0.0, span_i)).sum(axis=1)
    is_filling_ri = (floor_i <= begin_r[:, None]) & (last_i > begin_r[:, None])
    speed_r = (rate_ri * is_filling_ri).sum(axis=1)
    rise_r = np.divide(np.maximum(left_r, 0.0), speed_r, out=np.full(left_r.size, np.inf), where=speed_r > 0)
    level_r: FloatArray = np.minimum(begin_r + rise_r, end_r)
    return level_r


TINY = float(np.finfo(float).tiny)


class Sweeps:
    """The state of a procedure that fills all servers in turn, again and again, from zero."""

    def __init__(self, market: Market) -> None:
        """Start from zero."""
        self.market = market
        usable_ki: BoolArray = market.usable_ki
        self.part_ki = np.zeros(usable_ki.shape)
        self.level_kr = np.full(market.load_kri.shape[:2], np.inf)
        self.users = [np.flatnonzero(row) for row in usable_ki]
        self.loads = [market.load_kri[k][:, users] for k, users in enumerate(self.users)]

    def run(self, times: int) -> float:
        """Sweep so many times; return the largest change in the last sweep, as a part of a tenant's total."""
        market = self.market
        change = np.inf
        for _ in range(times):
            totals_i = market.get_totals(self.part_ki)
            before_ki = self.part_ki.copy()
            for k, users in enumerate(self.users):
                if not users.size:
                    continue
                gain_i, weight_i = market.gain_ki[k, users], market.weight_i[users]
                elsewhere_i = np.maximum(totals_i[users] - gain_i * self.part_ki[k, users], 0.0)
                cap_i = np.maximum(market.limit_i[users] - elsewhere_i, 0.0) / gain_i
                part_i, self.level_kr[k] = fill_server(
                    self.loads[k], weight_i, elsewhere_i / (weight_i * gain_i), cap_i
                )
                self.part_ki[k, users] = part_i
                totals_i[users] = elsewhere_i + gain_i * part_i
            moved_i = (market.gain_ki * np.abs(self.part_ki - before_ki)).max(axis=0)
            change = float((moved_i / np.maximum(totals_i, TINY)).max())
            if change <= CONVERGED_CHANGE:
                break
        return change
