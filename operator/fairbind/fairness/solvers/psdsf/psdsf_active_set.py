"""An active-set method for the exact amounts of a PS-DSF division, from a rough one that shows which pairs are served.

Given the served pairs (tenant, server) and the full slots, the conditions of PS-DSF are equations. On every server that
serves it, a tenant's share is the level at which its slot was full; and full slots are full. The first equations are
linear in the logarithms of the levels. With the ratios of the levels fixed, the second are linear in the parts and in
one factor for each set of servers that share tenants. Both are solved by the smallest relative change of the rough
division. A pair whose part would become negative is no longer served; a tenant below the level of a server is served
there; then both are solved again.

Complexity: O(I K^2 R^2 + K^3 R^3) per round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairbind.fairness.problems.problem import BoolArray, FloatArray
from fairbind.fairness.solvers.market.market import Market, sum_others
from fairbind.fairness.solvers.psdsf.tolerances import (
    ENTERING_PART,
    EQUAL_SHARES,
    LARGEST_PART,
    LIMIT_REACHED,
    LIMIT_REACHED_AT_START,
    PRIMAL_FEASIBILITY,
    RIDGE,
    SMALLEST_TOTAL,
)

ROUNDS = 12
LARGEST_STEP = 1.0  # the most that the logarithm of a level may change in a round

IntArray = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """Parts of servers, and the level (weighted virtual dominant share) at which each slot was full, inf if never.

    A rough division may exceed capacities, but a tenant that has all its tasks in it is assumed to have them all.
    """

    part_ki: FloatArray
    level_kr: FloatArray


def find_stops(market: Market, level_kr: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the slot that stops each tenant on each server, and its level: the lowest of the slots that it loads."""
    stop_ki = np.zeros(market.gain_ki.shape, dtype=np.intp)
    level_ki = np.full(market.gain_ki.shape, np.inf)
    for slot in range(level_kr.shape[1]):
        is_lower_ki = (market.load_kri[:, slot] > 0) & (level_kr[:, slot, None] < level_ki)
        stop_ki[is_lower_ki] = slot
        level_ki = np.where(is_lower_ki, level_kr[:, slot, None], level_ki)
    return stop_ki, level_ki


def compute_shares(market: Market, part_ki: FloatArray) -> FloatArray:
    """Return each tenant's weighted virtual dominant share on each server, shape (K, I); inf where not eligible."""
    totals_i = market.get_totals(part_ki)
    worth_ki = market.weight_i * market.gain_ki
    share_ki: FloatArray = np.divide(totals_i, worth_ki, out=np.full(worth_ki.shape, np.inf), where=worth_ki > 0)
    return share_ki


def solve_active_set(market: Market, rough: Division, rounds: int = ROUNDS) -> Division:
    """Return the exact division near a rough one, or another rough one if the corrections do not end.

    rounds: how often the choice of served pairs may be corrected.
    """
    round_ = _Round.start(market, rough)
    division = rough
    for _ in range(rounds):
        solved = round_.solve()
        if not ((np.abs(solved.part_ki) < LARGEST_PART).all() and (solved.level_kr > 0).all()):
            break
        division = solved
        following = round_.correct(division)
        if following is None:
            # Once more with what was found: the second solution takes away the first one's rounding.
            return _Round(market, division, round_.choice).solve()
        round_ = following
    return division


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """The active set: served pairs, tenants that have all their tasks, and slots that must be full.

    The slots in extra_kr are full besides those that stop some tenant (level_kr < inf). gave_up_kr: slots assumed full
    until another slot of the server was overfull; next time both are.
    """

    served_ki: BoolArray
    has_all_i: BoolArray
    extra_kr: BoolArray
    gave_up_kr: BoolArray


class _Round:
    """The equations for one choice."""

    def __init__(self, market: Market, rough: Division, choice: _Choice) -> None:
        served_ki = choice.served_ki
        self.market, self.choice = market, choice
        self.level_kr = rough.level_kr
        self.part_ki = np.where(served_ki, rough.part_ki, 0.0)
        self.totals_i = np.maximum(market.get_totals(rough.part_ki), SMALLEST_TOTAL * market.weight_i)
        servers, slots, _ = market.load_kri.shape
        self.stop_ki, self.stop_level_ki = find_stops(market, rough.level_kr)
        # A level of 0 (a sweep may leave one to a tenant that came too late) says nothing about where the others are.
        is_known_ki = np.isfinite(self.stop_level_ki) & (self.stop_level_ki > 0)
        self.tied_ki: BoolArray = served_ki & ~choice.has_all_i & is_known_ki
        self.slot_ki = np.arange(servers)[:, None] * slots + self.stop_ki
        self.full = np.flatnonzero(np.isfinite(rough.level_kr) | choice.extra_kr)
        self.place_s = np.zeros(servers * slots, dtype=np.intp)
        self.place_s[self.full] = np.arange(self.full.size)

    @classmethod
    def start(cls, market: Market, rough: Division) -> _Round:
        """Start a round: a server serves a tenant whose share exceeds the level by no more than it has there."""
        totals_i = np.maximum(market.get_totals(rough.part_ki), np.finfo(float).tiny)
        has_all_i = totals_i >= market.limit_i * (1 - LIMIT_REACHED_AT_START)
        _, level_ki = find_stops(market, rough.level_kr)
        with np.errstate(divide="ignore", invalid="ignore"):
            above_ki = compute_shares(market, rough.part_ki) / level_ki - 1
        served_ki = (rough.part_ki > 0) & (market.gain_ki * rough.part_ki / totals_i >= above_ki)
        nothing_kr = np.zeros(rough.level_kr.shape, dtype=bool)
        return cls(market, rough, _Choice(_serve_all(market, served_ki, level_ki), has_all_i, nothing_kr, nothing_kr))

    def solve(self) -> Division:
        """Return the division that satisfies the equations; parts may be negative."""
        level_kr, wanted_i = self._tie_levels()
        return self._balance(level_kr, wanted_i)

    def _tie_levels(self) -> tuple[FloatArray, FloatArray]:
        """Return the nearest levels at which each tenant's share is the same everywhere, and each tenant's total."""
        market, tied_ki = self.market, self.tied_ki
        trust_ki = np.where(tied_ki, market.gain_ki * np.maximum(self.part_ki, ENTERING_PART * self._get_entry()), 0.0)
        trust_i = trust_ki.sum(axis=0)
        trust_ki = np.divide(trust_ki, trust_i, out=np.zeros_like(trust_ki), where=trust_i > 0)
        total_ki = np.where(tied_ki, market.weight_i * market.gain_ki, 1.0) * np.where(tied_ki, self.stop_level_ki, 1.0)
        log_ki = np.log(total_ki)
        mean_i = (trust_ki * log_ki).sum(axis=0)
        rows, columns = np.nonzero(tied_ki)
        place = self.place_s[self.slot_ki[rows, columns]]
        trust_si = np.zeros((self.full.size, trust_i.size))
        trust_si[place, columns] = trust_ki[rows, columns]
        pull_s = np.zeros(self.full.size)
        np.add.at(pull_s, place, (trust_ki * (log_ki - mean_i))[rows, columns])
        matrix = -trust_si @ trust_si.T
        np.fill_diagonal(matrix, 0.0)
        np.fill_diagonal(matrix, -matrix.sum(axis=1))
        change_kr = np.zeros(self.level_kr.shape)
        change_kr.ravel()[self.full] = np.clip(_solve(matrix, -pull_s), -LARGEST_STEP, LARGEST_STEP)
        change_ki = np.where(tied_ki, change_kr.ravel()[self.slot_ki], 0.0)
        wanted_i = np.exp((trust_ki * (log_ki + change_ki)).sum(axis=0))
        limit_i = np.where(np.isfinite(market.limit_i), market.limit_i, 0.0)
        wanted_i = np.where(self.choice.has_all_i, limit_i, np.where(trust_i > 0, wanted_i, self.totals_i))
        return self.level_kr * np.exp(change_kr), wanted_i

    def _get_entry(self) -> FloatArray:
        """Return the parts that would give the tenants their present totals."""
        gain_ki = self.market.gain_ki
        return np.divide(self.totals_i, gain_ki, out=np.zeros_like(gain_ki), where=gain_ki > 0)

    def _balance(self, level_kr: FloatArray, wanted_i: FloatArray) -> Division:
        """Fill the full slots and give each tenant its total, up to one factor for each linked set of slots."""
        market, full = self.market, self.full
        servers, slots, tenants = market.load_kri.shape
        may_move_ki = np.where(self.choice.served_ki, np.maximum(self.part_ki, ENTERING_PART * self._get_entry()), 0.0)
        pull_ki = market.gain_ki**2 * may_move_ki
        pull_i = pull_ki.sum(axis=0)
        short_i = wanted_i - market.get_totals(self.part_ki)
        left_s = (1 - market.get_loads(self.part_ki)).ravel()[full]
        server_s = full // slots
        load_si = market.load_kri.reshape(servers * slots, tenants)[full]
        use_si = load_si * (market.gain_ki * may_move_ki)[server_s]
        # A tenant that is served on one server only cannot move load there: what it adds and takes off is the same.
        own_si = load_si * (may_move_ki * (sum_others(pull_ki) / pull_i))[server_s]
        is_same_ss = server_s[:, None] == server_s
        matrix = np.where(is_same_ss, own_si @ load_si.T, -(use_si / pull_i) @ use_si.T)
        set_s, set_i = self._find_sets()
        wanted_ic = np.where(set_i[:, None] == np.arange(set_s.max(initial=-1) + 1), wanted_i[:, None], 0.0)
        across = (use_si / pull_i) @ wanted_ic
        system = np.block([[matrix, across], [across.T, -(wanted_ic.T / pull_i) @ wanted_ic]])
        eased_i = short_i / pull_i
        solved = _solve(system, np.concatenate([left_s - use_si @ eased_i, wanted_ic.T @ eased_i]))
        pressure_s, factor_c = solved[: full.size], solved[full.size :]
        value_i = (short_i - pressure_s @ use_si + wanted_ic @ factor_c) / pull_i
        pressure_kr = np.zeros((servers, 1, slots))
        pressure_kr.ravel()[full] = pressure_s
        part_ki = self.part_ki + may_move_ki * (market.gain_ki * value_i + (pressure_kr @ market.load_kri)[:, 0])
        return Division(part_ki, level_kr * (1 + np.append(factor_c, 0.0)[set_s].reshape(level_kr.shape)))

    def _find_sets(self) -> tuple[IntArray, IntArray]:
        """Return the number of the set of linked slots for each slot and each tenant; -1 for none."""
        rows, columns = np.nonzero(self.tied_ki)
        slot = self.slot_ki[rows, columns]
        label_s = np.arange(self.level_kr.size)
        while True:
            lowest_i = np.full(self.totals_i.size, label_s.size)
            np.minimum.at(lowest_i, columns, label_s[slot])
            following_s = label_s.copy()
            np.minimum.at(following_s, slot, lowest_i[columns])
            following_s = following_s[following_s]
            if (following_s == label_s).all():
                break
            label_s = following_s
        linked = np.unique(slot)
        set_s = np.full(label_s.size, -1)
        set_s[linked] = np.unique(label_s[linked], return_inverse=True)[1]
        set_i = np.full(self.totals_i.size, -1)
        set_i[columns] = set_s[slot]
        return set_s, set_i

    def correct(self, division: Division) -> _Round | None:
        """Return the next round; None if the choice need not be corrected."""
        market, choice = self.market, self.choice
        leaves_ki = choice.served_ki & (division.part_ki <= 0)
        part_ki = np.maximum(division.part_ki, 0.0)
        _, level_ki = find_stops(market, division.level_kr)
        share_ki = compute_shares(market, part_ki)
        has_all_i = market.get_totals(part_ki) >= market.limit_i * (1 - LIMIT_REACHED)
        is_too_high_ki = choice.served_ki & (share_ki > level_ki * (1 + EQUAL_SHARES))
        has_all_i &= ~(choice.has_all_i & is_too_high_ki.any(axis=0))
        enters_ki = market.usable_ki & ~choice.served_ki & ~has_all_i & (share_ki < level_ki * (1 - EQUAL_SHARES))
        overfull_kr = market.get_loads(part_ki) > 1 + PRIMAL_FEASIBILITY
        overfull_kr.ravel()[self.full] = False
        if not (leaves_ki.any() or enters_ki.any() or overfull_kr.any() or (has_all_i != choice.has_all_i).any()):
            return None
        served_ki = _serve_all(market, (choice.served_ki & ~leaves_ki) | enters_ki, level_ki)
        level_kr, extra_kr, gave_up_kr = division.level_kr.copy(), choice.extra_kr.copy(), choice.gave_up_kr.copy()
        for k, slot in np.argwhere(overfull_kr):
            users = served_ki[k] & (market.load_kri[k, slot] > 0)
            stop = int(np.where((market.load_kri[k][:, users] > 0).any(axis=1), level_kr[k], np.inf).argmin())
            stopped = served_ki[k] & (self.stop_ki[k] == stop)
            if gave_up_kr[k, stop] or (stopped & ~users).any() or np.isinf(level_kr[k, stop]):
                extra_kr[k, slot] = True
            else:
                level_kr[k, slot], level_kr[k, stop] = level_kr[k, stop], np.inf
                gave_up_kr[k, stop] = True
        return _Round(market, Division(part_ki, level_kr), _Choice(served_ki, has_all_i, extra_kr, gave_up_kr))


def _serve_all(market: Market, served_ki: BoolArray, level_ki: FloatArray) -> BoolArray:
    """Serve each tenant that no server serves on the server where it would get most."""
    lost = np.flatnonzero(~served_ki.any(axis=0))
    served_ki = served_ki.copy()
    served_ki[(market.gain_ki * np.where(market.usable_ki, level_ki, 0.0))[:, lost].argmax(axis=0), lost] = True
    return served_ki


def _solve(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """Return a small solution of a symmetric system that is consistent but may be singular."""
    scale = 1 / np.sqrt(np.maximum(np.abs(np.diagonal(matrix)), RIDGE * np.abs(matrix).max(initial=RIDGE)))
    scaled = matrix * scale[:, None] * scale
    diagonal = np.diagonal(scaled)
    scaled[np.diag_indices_from(scaled)] += np.where(diagonal < 0, -RIDGE, RIDGE)
    solved: FloatArray = np.linalg.solve(scaled, right * scale) * scale
    return solved
