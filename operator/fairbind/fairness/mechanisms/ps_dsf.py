"""Per-server dominant share fairness: on every server, max-min fairness of virtual dominant shares.

A tenant's virtual dominant share on a server is the number of its tasks, wherever they run, over the number that the
server could run if the tenant had it alone. A division is PS-DSF if no tenant could get more tasks unless a tenant with
no higher weighted virtual dominant share on a server lost some there. The condition splits by server: for every tenant
and every server that it may use, some slot that it needs (a resource; on a server that is not divisible, its time) is
used up by tenants whose shares there are no higher.

Many divisions can meet this condition. The returned one is the limit of a procedure: equal servers are one class, and
the classes are filled in turn, in the order of their (first) names, from zero until nothing changes. For large
problems, where this takes long, a market determines which server serves which tenant (`psdsf_market_start`), and the
exact amounts are solved for (`psdsf_active_set`).

Paper: Khamse-Ashari, Lambadaris, Kesidis, Urgaonkar, Zhao, "An Efficient and Fair Multi-Resource Allocation Mechanism
for Heterogeneous Servers", definition 4 in section 2.3; section 3.4 and equation 17 for servers that are not divisible.
Complexity: O(I K R log I) per sweep; O(I K^2 R^2 + K^3 R^3) per step of a market, some 15 steps, a few markets.
Guarantees: sharing incentive; envy-freeness, server by server; bottleneck fairness where no tenant runs out of tasks.
NOT Pareto optimality, and not strategy-proofness: it can pay to hide a server and, with finite tasks, to misstate the
demand.
Nearly equal servers are divided far worse than equal ones: group them into classes first.

>>> import numpy as np
>>> from fairbind.fairness.problems.instance import reduce_problem
>>> from fairbind.fairness.problems.problem import make_problem
>>> problem = make_problem([[12, 4, 75], [8, 16, 0]], [[1, 1, 5], [1 / 3, 1 / 3, 5], [1 / 4, 1, 0], [1, 1 / 2, 0]])
>>> solve_ps_dsf(reduce_problem(problem)).tasks_ik.sum(axis=1).round(6).tolist()
[2.0, 6.0, 10.666667, 5.333333]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairbind.fairness.mechanisms.mechanism import LevelScope, Mechanism, Option, ShareSum
from fairbind.fairness.mechanisms.ps_dsf_trees import certify_ps_dsf_tree, solve_ps_dsf_tree
from fairbind.fairness.mechanisms.tolerances import (
    ACCEPTED_GAP,
    CONVERGED_GAP,
    DIVISION_OPTIMALITY_GAP,
    STALLED,
    SUFFICIENT_GAP,
    SUMMATION_ERROR,
)
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.problem import FloatArray
from fairbind.fairness.problems.verify import FEASIBILITY, CertificateError, check_feasible
from fairbind.fairness.solvers.market.market import Market, make_market
from fairbind.fairness.solvers.psdsf.psdsf_active_set import ROUNDS, Division, compute_shares, solve_active_set
from fairbind.fairness.solvers.psdsf.psdsf_market_start import find_market_start, make_feasible
from fairbind.fairness.solvers.psdsf.server_filling import Sweeps
from fairbind.fairness.solvers.warm import WarmStart

SPARE = 4  # more divisions that are tried when one is accepted
SWEEP_WORK = 300_000  # tenants x servers x sweeps before a market is asked
LEAST_SWEEPS, MOST_SWEEPS = 8, 500
MOST_SWEEP_WORK = 20_000_000  # the same, before giving up
MOST_FILLS = 20_000  # servers x sweeps before giving up: some ten seconds, however few tenants there are
MARKETS = 6  # between sweeps
FIRST_ROUNDS = 4  # of corrections, before a market is asked


def solve_ps_dsf(instance: Instance) -> Solution:
    """Return a PS-DSF division."""
    if instance.tree is not None:
        return solve_ps_dsf_tree(instance, instance.tree)
    market = make_market(instance, np.ones(instance.divisible_k.size))
    division, _ = find_division(market)
    return Solution(market.get_tasks(division.part_ki), {"level_kr": division.level_kr})


def resolve_ps_dsf(instance: Instance, warm: WarmStart) -> Solution:
    """Return a PS-DSF division; the search starts near the stored one if there is one."""
    if instance.tree is not None:
        return solve_ps_dsf_tree(instance, instance.tree, warm.effort)
    market = make_market(instance, np.ones(instance.divisible_k.size))
    before = warm.state
    if isinstance(before, Division) and (warm.class_before_k >= 0).all():
        has_before_i = warm.group_before_i >= 0
        part_ki = np.zeros(market.gain_ki.shape)
        part_ki[:, has_before_i] = before.part_ki[np.ix_(warm.class_before_k, warm.group_before_i[has_before_i])]
        part_ki[~market.usable_ki] = 0.0
        division, _ = find_division(market, Division(part_ki, before.level_kr[warm.class_before_k]))
    else:
        division, _ = find_division(market)
    warm.state = division
    return Solution(market.get_tasks(division.part_ki), {"level_kr": division.level_kr})


def find_division(market: Market, near: Division | None = None) -> tuple[Division, float]:
    """Return the best division found and how much more some tenant could get, as a part of its tasks.

    near: a division of a similar market, as a start.
    """
    search = Search(market)
    if near is None:
        rough = search.sweep()
    else:
        rough = near
        search.sweeps.part_ki = make_feasible(market, near).part_ki
    search.solve_active_set(rough, FIRST_ROUNDS)
    number = 0
    is_stalled = False
    while not (search.is_done() or search.is_exhausted or is_stalled):
        before = search.gap
        for _ in range(MARKETS):
            rough = find_market_start(market, rough, is_near=number > 0 or near is not None)
            number += 1
            search.solve_active_set(rough, ROUNDS)
            if search.is_done():
                return search.best, search.gap
        rough = search.sweep()
        search.solve_active_set(rough, ROUNDS)
        is_stalled = SUFFICIENT_GAP >= search.gap > STALLED * before
    return search.best, search.gap


class Search:
    """The best division so far, and the sweeps, which continue where they stopped."""

    def __init__(self, market: Market) -> None:
        self.market = market
        self.sweeps = Sweeps(market)
        self.best = Division(self.sweeps.part_ki, self.sweeps.level_kr)
        self.gap = np.inf
        self.swept = 0
        self.spare = SPARE

    def is_done(self) -> bool:
        """Return whether the best division is good enough."""
        return self.gap <= CONVERGED_GAP or self.spare <= 0

    @property
    def is_exhausted(self) -> bool:
        """Whether the search has used up its work limit."""
        return self.swept >= self._most_sweeps

    @property
    def _most_sweeps(self) -> int:
        servers, tenants = self.market.gain_ki.shape
        most: int = min(MOST_SWEEP_WORK // max(servers * tenants, 1), MOST_FILLS // max(servers, 1))
        return max(most, LEAST_SWEEPS)

    def sweep(self) -> Division:
        """Sweep as often as so far in all; at first, as often as is cheap."""
        cheap = SWEEP_WORK // max(self.market.gain_ki.size, 1)
        times = max(self.swept, min(max(cheap, LEAST_SWEEPS), MOST_SWEEPS))
        times = min(times, self._most_sweeps - self.swept)
        self.sweeps.run(times)
        self.swept += times
        division = Division(self.sweeps.part_ki.copy(), self.sweeps.level_kr.copy())
        self.keep(division)
        return division

    def solve_active_set(self, rough: Division, rounds: int) -> None:
        """Keep the exact division near the rough one, if it is better."""
        if not self.is_done():
            self.keep(make_feasible(self.market, solve_active_set(self.market, rough, rounds)))

    def keep(self, division: Division) -> None:
        """Keep the division if it is the best so far."""
        if self.gap <= ACCEPTED_GAP:
            self.spare -= 1
        gap = compute_gap(self.market, division.part_ki)
        if gap < self.gap:
            self.best, self.gap = division, gap


def compute_gap(market: Market, part_ki: FloatArray) -> float:
    """Return how much more, as a part of its tasks, the worst tenant could get: 0 in a PS-DSF division.

    Infinity for parts that are more than their servers have or than a tenant can use: these are no division.
    """
    is_overfull = (market.get_loads(part_ki) > 1 + FEASIBILITY).any()
    if is_overfull or (market.get_totals(part_ki) > market.limit_i * (1 + FEASIBILITY)).any():
        return np.inf
    return float(compute_gaps(market, part_ki).max(initial=0.0))


def compute_gaps(market: Market, part_ki: FloatArray) -> FloatArray:
    """Return how much more, as a part of its tasks, each tenant could get from each server, shape (K, I).

    On a server a tenant can take what users of a slot have beyond its own share, and what is left of the slot. It needs
    all its slots, so the smallest of these amounts counts.
    """
    share_ki = compute_shares(market, part_ki)
    totals_i = market.get_totals(part_ki)
    left_kr = np.maximum(1 - market.get_loads(part_ki) - SUMMATION_ERROR, 0.0)
    gap_ki = np.full(share_ki.shape, np.inf)
    usable_ki = market.usable_ki
    with np.errstate(divide="ignore", invalid="ignore"):
        for slot in range(left_kr.shape[1]):
            load_ki = market.load_kri[:, slot]
            is_user_ki = (part_ki > 0) & (load_ki > 0)
            highest_k = np.where(is_user_ki, share_ki, 0.0).max(axis=1)
            lag_ki = highest_k[:, None] / share_ki - 1
            growth_ki = left_kr[:, slot, None] * market.gain_ki / (load_ki * totals_i)
            gap_ki = np.where(load_ki > 0, np.minimum(gap_ki, np.maximum(lag_ki, growth_ki)), gap_ki)
        missing_i = np.where(np.isfinite(market.limit_i), market.limit_i / totals_i - 1, np.inf)
    return np.where(usable_ki, np.maximum(np.minimum(gap_ki, missing_i), 0.0), 0.0)


def certify_ps_dsf(instance: Instance, solution: Solution) -> Mapping[str, Any]:
    """Prove definition 4 from the tasks alone, server by server."""
    if instance.tree is not None:
        return certify_ps_dsf_tree(instance, instance.tree, solution)
    excess = check_feasible(instance, solution.tasks_ik, "ps-dsf")
    market = make_market(instance, np.ones(instance.divisible_k.size))
    part_ki = np.divide(
        solution.tasks_ik.T, instance.gamma_ik.T, out=np.zeros(market.gain_ki.shape), where=market.usable_ki
    )
    with np.errstate(invalid="ignore"):
        gap_ki = np.nan_to_num(compute_gaps(market, part_ki), nan=np.inf, posinf=np.inf)  # NaN: of nothing, 0 / 0
    gap = float(gap_ki.max())
    if not gap <= DIVISION_OPTIMALITY_GAP:
        server, group = np.unravel_index(int(gap_ki.argmax()), gap_ki.shape)
        tenant = int(instance.rank_i[group])
        words = f"{{tenant}} could get {gap:.3g} more of its own on {{server}}"
        raise CertificateError("ps-dsf", words, gap, tenant=tenant, server_class=int(server))
    return {"method": "definition 4", "largestExcess": excess, "largestGap": gap}


PS_DSF = Mechanism(
    id="ps-dsf",
    name="Per-server dominant share fairness",
    paper=(
        'Khamse-Ashari et al., "An Efficient and Fair Multi-Resource Allocation Mechanism for Heterogeneous Servers"'
    ),
    section="2.3 (definition 4), 3.4",
    story=(
        "On every server a tenant's virtual dominant share is what it has anywhere, over what the server alone could "
        "give it. Each server serves those whose weighted virtual dominant share there is least. Servers need no "
        "common measure of resources, and a tenant gets at least its part of every server that it may use."
    ),
    options=frozenset({Option.WEIGHT, Option.TASKS, Option.SERVERS, Option.ELIGIBLE, Option.DIVISIBLE, Option.TREE}),
    level_scope=LevelScope.SERVER_CLASS,
    share_sum=ShareSum.DOMINANT,
    solve=solve_ps_dsf,
    certify=certify_ps_dsf,
    resolve=resolve_ps_dsf,
)
