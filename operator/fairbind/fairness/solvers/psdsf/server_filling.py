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
from fairbind.fairness.solvers.psdsf.tolerances import CONVERGED_CHANGE


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
        room_r = 1 - load_ri[slots] @ part
        stops_r = _find_full(load_ri[np.ix_(slots, moving)], weight_i[moving], floor_i[moving], cap_i[moving], room_r)
        level = float(stops_r.min(initial=np.inf))
        filled_i = np.maximum(level - floor_i[moving], 0.0) * weight_i[moving] if level < np.inf else cap_i[moving]
        part_i[moving] = np.minimum(filled_i, cap_i[moving])
        full = slots[stops_r <= level] if level < np.inf else slots[:0]
        level_r[full] = level
        goes_on = ~(load_ri[np.ix_(full, moving)] > 0).any(axis=0) & (part_i[moving] < cap_i[moving])
        moving = moving[goes_on]
    return part_i, level_r


def _find_full(
    load_ri: FloatArray, weight_i: FloatArray, floor_i: FloatArray, cap_i: FloatArray, room_r: FloatArray
) -> FloatArray:
    """Return the level at which each slot is full, inf if never. Loads are piecewise linear in the level."""
    last_i = floor_i + cap_i / weight_i
    ends = np.flatnonzero(np.isfinite(last_i))
    times = np.concatenate([floor_i, last_i[ends]])
    rates = load_ri * weight_i
    order = np.argsort(times, kind="stable")
    times = times[order]
    slope_re = np.concatenate([rates, -rates[:, ends]], axis=1)[:, order]
    rate_re = np.maximum(np.cumsum(slope_re, axis=1), 0.0)
    load_re = np.zeros_like(rate_re)
    np.cumsum(rate_re[:, :-1] * np.diff(times), axis=1, out=load_re[:, 1:])
    levels_r = np.full(room_r.shape, np.inf)
    for slot in range(room_r.size):
        piece = max(int(np.searchsorted(load_re[slot], room_r[slot])) - 1, 0)
        # The piece is found by running sums, which round; the level by pairwise sums over the tenants in it.
        filling = (floor_i <= times[piece]) & (last_i > times[piece])
        stopped = last_i <= times[piece]
        rate = rates[slot, filling].sum()
        if rate > 0:
            left = room_r[slot] - load_ri[slot, stopped] @ cap_i[stopped]
            levels_r[slot] = max((left + rates[slot, filling] @ floor_i[filling]) / rate, times[piece])
    return levels_r


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
