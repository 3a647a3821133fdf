"""A rough PS-DSF division of many servers at once, by a market that takes the mix of tenants on each server as given.

Filling servers in turn moves tenants between nearly equal servers by small steps, thousands of them. This finds where
they end up: suppose each full slot stops a known set of tenants, and that these together get a known amount of the
server (the sum of their virtual dominant parts; it depends on who they are: the better their needs complement each
other, the more). Then the shares that PS-DSF asks for are the equilibrium of a market of such amounts with linear
tastes, a convex problem. Its outcome says who is where, hence new amounts; a few repetitions agree with themselves.

What this gives is a start for `psdsf_active_set`.
"""

from __future__ import annotations

import numpy as np

from fairbind.fairness.problems.problem import BoolArray, FloatArray
from fairbind.fairness.solvers.market.interior_point import find_equilibrium
from fairbind.fairness.solvers.market.market import Market, with_loads
from fairbind.fairness.solvers.psdsf.psdsf_active_set import Division, IntArray, find_stops
from fairbind.fairness.solvers.psdsf.tolerances import ACCEPTED_MARKET_GAP, EQUAL_LOADS, MARKET_GAP, SMALLEST_AMOUNT


def find_market_start(market: Market, rough: Division, *, is_near: bool) -> Division:
    """Return what the market gives when slots' amounts are those of the rough division; it may take more than there is.

    is_near: whether the division is thought to be near the outcome, so that the search may begin there.
    """
    stop_ki, amount_kr = _find_amounts(market, rough)
    group_kr, stop_ki = _number_groups(market, stop_ki)
    servers, _, tenants = market.load_kri.shape
    each_k, each_i = np.arange(servers)[:, None], np.arange(tenants)
    amount_kg = np.take_along_axis(amount_kr, group_kr, axis=1)
    load_kgi = np.zeros((servers, group_kr.shape[1], tenants))
    load_kgi[each_k, stop_ki, each_i] = np.where(market.usable_ki, 1 / amount_kg[each_k, stop_ki], 0.0)
    level_kg = np.take_along_axis(rough.level_kr, group_kr, axis=1)
    near = (rough.part_ki, amount_kg / level_kg) if is_near else None
    equilibrium = find_equilibrium(with_loads(market, load_kgi), gap=MARKET_GAP, near=near)
    if is_near and equilibrium.gap > ACCEPTED_MARKET_GAP:
        equilibrium = find_equilibrium(with_loads(market, load_kgi), gap=MARKET_GAP)
    price_kg = equilibrium.price_kr / amount_kg
    level_kr = np.full(amount_kr.shape, np.inf)
    priced_k, priced_g = np.nonzero(price_kg)
    level_kr[priced_k, group_kr[priced_k, priced_g]] = 1 / price_kg[priced_k, priced_g]
    return Division(equilibrium.part_ki, level_kr)


def _number_groups(market: Market, stop_ki: IntArray) -> tuple[IntArray, IntArray]:
    """Return the slots that stop somebody on each server, and by which of these each tenant is stopped.

    Each server has the same number of them; some are of no use.
    """
    servers, slots, _ = market.load_kri.shape
    stops_kr = np.zeros((servers, slots), dtype=bool)
    rows, columns = np.nonzero(market.usable_ki)
    stops_kr[rows, stop_ki[rows, columns]] = True
    group_kr = np.argsort(~stops_kr, axis=1, kind="stable")
    number_kr = np.argsort(group_kr, axis=1, kind="stable")
    groups = max(int(stops_kr.sum(axis=1).max()), 1)
    number_ki = np.where(market.usable_ki, np.take_along_axis(number_kr, stop_ki, axis=1), 0)
    return group_kr[:, :groups], number_ki


def make_feasible(market: Market, rough: Division) -> Division:
    """Return a division that exceeds nothing: parts without what is negative, shrunk to what there is and wanted."""
    part_ki = np.maximum(rough.part_ki, 0.0)
    part_ki /= np.maximum(market.get_loads(part_ki).max(axis=1), 1.0)[:, None]
    part_ki /= np.maximum(market.get_totals(part_ki) / market.limit_i, 1.0)
    return Division(part_ki, rough.level_kr)


def _find_amounts(market: Market, rough: Division) -> tuple[IntArray, FloatArray]:
    """Return the slot that stops each tenant on each server, and the amount that each slot's tenants get together.

    On each server the slots fill up in the order of their levels: the first one stops all its users, what they take of
    the other slots is gone, and so on. Tenants are treated by the set of slots that they need.
    """
    servers, slots, _ = market.load_kri.shape
    stop_ki: IntArray = find_stops(market, rough.level_kr)[0]
    amount_kr = np.ones((servers, slots))
    for k in range(servers):
        pending = market.usable_ki[k]
        room_r = np.ones(slots)
        while pending.any():
            stop = _find_next_full(market.load_kri[k], rough.part_ki[k], rough.level_kr[k], pending, room_r)
            members = np.flatnonzero(pending & (market.load_kri[k, stop] > 0))
            taken_r = market.load_kri[k][:, members] @ rough.part_ki[k, members]
            growth = max(room_r[stop], 0.0) / taken_r[stop] if taken_r[stop] > 0 else 1.0
            amount_kr[k, stop] = max(growth * rough.part_ki[k, members].sum(), SMALLEST_AMOUNT)
            stop_ki[k, members] = stop
            room_r -= growth * taken_r
            pending[members] = False
    return stop_ki, amount_kr


def _find_next_full(
    load_ri: FloatArray, part_i: FloatArray, level_r: FloatArray, pending: BoolArray, room_r: FloatArray
) -> int:
    """Return which slot to fill next: of those that users of the lowest slot need, the one that they overfill most."""
    needed_r: BoolArray = np.any(load_ri[:, pending] > 0, axis=1)
    lowest = int(np.where(needed_r, level_r, np.inf).argmin())
    if not needed_r[lowest] or np.isinf(level_r[lowest]):
        used_r = load_ri[:, pending] @ part_i[pending]
        return int(np.where(needed_r, used_r / np.maximum(room_r, SMALLEST_AMOUNT), -1.0).argmax())
    members = np.flatnonzero(pending & (load_ri[lowest] > 0))
    used_r = load_ri[:, members] @ part_i[members]
    ratio_r = used_r / np.maximum(room_r, SMALLEST_AMOUNT)
    fullest = int(ratio_r.argmax())
    return fullest if ratio_r[fullest] > ratio_r[lowest] * (1 + EQUAL_LOADS) else lowest
