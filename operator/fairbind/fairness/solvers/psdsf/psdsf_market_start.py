"""A rough PS-DSF division of many servers at once, by a market that takes the mix of tenants on each server as given.

Filling servers in turn moves tenants between nearly equal servers by thousands of small steps. This module computes
where they end. Suppose that each full slot stops a known set of tenants, which together get a known amount of the
server: the sum of their virtual dominant parts, which is larger the better their demands complement each other. Then
the shares of PS-DSF are the equilibrium of a market of such amounts with linear utilities, a convex problem. The
equilibrium determines which server serves which tenant, and so new amounts. A few repetitions reach a fixed point.

The result is a start for `psdsf_active_set`.
"""

from __future__ import annotations

import numpy as np

from fairbind.fairness.problems.problem import BoolArray, FloatArray
from fairbind.fairness.solvers.market.interior_point import find_equilibrium
from fairbind.fairness.solvers.market.market import Market, with_loads
from fairbind.fairness.solvers.psdsf.psdsf_active_set import Division, IntArray, find_stops
from fairbind.fairness.solvers.psdsf.tolerances import ACCEPTED_MARKET_GAP, EQUAL_LOADS, MARKET_GAP, SMALLEST_AMOUNT


def find_market_start(market: Market, rough: Division, *, is_near: bool) -> Division:
    """Return the market's outcome for the amounts of the rough division; it may exceed capacities.

    is_near: whether the division is likely to be near the outcome, so that the search may start there.
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
    """Return the slots that stop a tenant on each server, and which of these stops each tenant.

    Each server has the same number of them; some are unused.
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
    """Return a feasible division: without negative parts, and scaled down to capacities and limits."""
    part_ki = np.maximum(rough.part_ki, 0.0)
    part_ki /= np.maximum(market.get_loads(part_ki).max(axis=1), 1.0)[:, None]
    part_ki /= np.maximum(market.get_totals(part_ki) / market.limit_i, 1.0)
    return Division(part_ki, rough.level_kr)


def _find_amounts(market: Market, rough: Division) -> tuple[IntArray, FloatArray]:
    """Return the slot that stops each tenant on each server, and the amount that each slot's tenants get together.

    On each server the slots fill up in the order of their levels. The first one stops all its users, whose use of the
    other slots is then fixed, and so on. Tenants are grouped by the set of slots that they need.
    """
    servers, slots, _ = market.load_kri.shape
    stop_ki: IntArray = find_stops(market, rough.level_kr)[0]
    amount_kr = np.ones((servers, slots))
    for k in range(servers):
        pending = market.usable_ki[k]
        left_r = np.ones(slots)
        for _ in range(slots):  # each stops the users of one more
            if not pending.any():
                break
            stop = _find_next_full(market.load_kri[k], rough.part_ki[k], rough.level_kr[k], pending, left_r)
            members = np.flatnonzero(pending & (market.load_kri[k, stop] > 0))
            taken_r = market.load_kri[k][:, members] @ rough.part_ki[k, members]
            growth = max(left_r[stop], 0.0) / taken_r[stop] if taken_r[stop] > 0 else 1.0
            amount_kr[k, stop] = max(growth * rough.part_ki[k, members].sum(), SMALLEST_AMOUNT)
            stop_ki[k, members] = stop
            left_r -= growth * taken_r
            pending[members] = False
    return stop_ki, amount_kr


def _find_next_full(
    load_ri: FloatArray, part_i: FloatArray, level_r: FloatArray, pending: BoolArray, left_r: FloatArray
) -> int:
    """Return the next slot to fill: among the slots that the lowest slot's users need, the one overfilled most."""
    needed_r: BoolArray = np.any(load_ri[:, pending] > 0, axis=1)
    lowest = int(np.where(needed_r, level_r, np.inf).argmin())
    if not needed_r[lowest] or np.isinf(level_r[lowest]):
        used_r = load_ri[:, pending] @ part_i[pending]
        return int(np.where(needed_r, used_r / np.maximum(left_r, SMALLEST_AMOUNT), -1.0).argmax())
    members = np.flatnonzero(pending & (load_ri[lowest] > 0))
    used_r = load_ri[:, members] @ part_i[members]
    ratio_r = used_r / np.maximum(left_r, SMALLEST_AMOUNT)
    fullest = int(ratio_r.argmax())
    return fullest if ratio_r[fullest] > ratio_r[lowest] * (1 + EQUAL_LOADS) else lowest
