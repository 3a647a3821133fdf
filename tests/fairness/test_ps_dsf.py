from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fairbind.fairness.mechanisms.drf import DRF
from fairbind.fairness.mechanisms.ps_dsf import MOST_FILLS, PS_DSF, Search, compute_gap, find_division
from fairbind.fairness.mechanisms.tolerances import ACCEPTED_GAP, CONVERGED_GAP, SUFFICIENT_GAP
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import reduce_problem
from fairbind.fairness.problems.problem import FloatArray, Problem, make_problem
from fairbind.fairness.solve import compute_allocation
from fairbind.fairness.solvers.market.interior_point import find_equilibrium
from fairbind.fairness.solvers.market.market import Market, make_market, sum_others, with_loads
from fairbind.fairness.solvers.psdsf.psdsf_active_set import Division, solve_active_set
from fairbind.fairness.solvers.psdsf.psdsf_market_start import find_market_start, make_feasible
from fairbind.fairness.solvers.psdsf.server_filling import Sweeps, fill_server
from fairbind.fairness.solvers.psdsf.tolerances import ACCEPTED_MARKET_GAP, MARKET_GAP
from fairbind.fairness.solvers.warm import WarmStart
from fairbind.model.errors import SolverError
from fairness.eisenberg_gale import compute_eisenberg_gale_totals
from fairness.families import Family, families_for
from fairness.servers_oracle import compute_best_gain

FAMILIES = [family for family in families_for(PS_DSF.options) if "thousand" not in family.name]


def make_large(seed: int, *, tenants: int = 300, servers: int = 8, jitter: float | None = None) -> Problem:
    """More than the sweeps may solve. jitter: servers are nearly the same."""
    generator = np.random.default_rng(seed)
    capacity_kr = np.exp(generator.uniform(3, 5.3, (servers, 3)))
    if jitter is not None:
        capacity_kr = capacity_kr[0] * (1 + jitter * generator.uniform(-1, 1, capacity_kr.shape))
    demand_ir = np.exp(generator.uniform(-1.2, 1.8, (tenants, 3)))
    return make_problem(capacity_kr, demand_ir, tenant_names=[f"t{i:04d}" for i in range(tenants)])


def make_mixed(seed: int) -> Problem:
    """Zero demands, weights, finite tasks, eligibility and servers that are not divisible, all at once, and large."""
    generator = np.random.default_rng(seed)
    problem = make_large(seed, tenants=150, servers=6)
    demand_ir = problem.demand_ir * (generator.random(problem.demand_ir.shape) < 0.6)
    demand_ir[:, 0] += 0.01
    alone_i = (problem.total_r / np.where(demand_ir > 0, demand_ir, 1e-9)).min(axis=1)
    eligible_ik = generator.random(problem.eligible_ik.shape) < 0.7
    eligible_ik[:, 0] = True
    divisible_k = np.ones(6, dtype=bool)
    divisible_k[2] = False
    return replace(
        problem,
        demand_ir=demand_ir,
        weight_i=np.exp(generator.uniform(-2, 2, 150)),
        tasks_i=np.where(generator.random(150) < 0.3, alone_i * generator.random(150) / 75, np.inf),
        eligible_ik=eligible_ik,
        divisible_k=divisible_k,
    )


def make_limited(seed: int) -> Problem:
    """Half of the tenants have an end of tasks, some before and some after what they get; eligibility, weights."""
    generator = np.random.default_rng(seed)
    problem = make_large(seed, tenants=200, servers=12)
    equal_part_i = (problem.total_r / problem.demand_ir).min(axis=1) / 200
    eligible_ik = generator.random(problem.eligible_ik.shape) < 0.8
    eligible_ik[:, 0] = True
    return replace(
        problem,
        weight_i=generator.choice([1.0, 2.0, 3.0, 4.0], 200),
        tasks_i=np.where(generator.random(200) < 0.5, np.inf, equal_part_i * generator.uniform(0.2, 3, 200)),
        eligible_ik=eligible_ik,
    )


def make_market_of(problem: Problem) -> Market:
    return make_market(reduce_problem(problem), np.ones(len(problem.server_names)))


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_nobody_gains_by_the_definitions_own_words(family: Family) -> None:
    problem = family.make(np.random.default_rng(31))
    assert compute_best_gain(problem, compute_allocation(problem, "ps-dsf").tasks_ik) < 1e-8


def test_a_large_problem_keeps_the_definition() -> None:
    problem = make_large(1)
    assert compute_best_gain(problem, compute_allocation(problem, "ps-dsf").tasks_ik) < 1e-8


def test_the_definition_sees_what_is_off_by_a_thousandth() -> None:
    """Otherwise the tests above would not say much."""
    problem = make_mixed(0)
    tasks_ik = compute_allocation(problem, "ps-dsf").tasks_ik.copy()
    tasks_ik[int(tasks_ik.sum(axis=1).argmax())] *= 0.999
    assert compute_best_gain(problem, tasks_ik) > 5e-4


@pytest.mark.parametrize("jitter", [None, 1e-2, 1e-4, 1e-6])
def test_large_problems_are_exact(jitter: float | None) -> None:
    allocation = compute_allocation(make_large(2, jitter=jitter), "ps-dsf")
    assert allocation.certificate["largestGap"] < 1e-9


def test_sweeps_alone_do_not_solve_nearly_identical_servers() -> None:
    """Otherwise the test above would not show that anything else does."""
    market = make_market_of(make_large(2, jitter=1e-4))
    sweeps = Sweeps(market)
    sweeps.run(60)
    assert compute_gap(market, sweeps.part_ki) > 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_mixed_problems_are_exact(seed: int) -> None:
    problem = make_mixed(seed)
    allocation = compute_allocation(problem, "ps-dsf")
    assert allocation.certificate["largestGap"] < 1e-9
    assert compute_best_gain(problem, allocation.tasks_ik) < 1e-8


def test_markets_alone_solve_a_large_mixed_problem() -> None:
    """Two thousand parts of servers among tenants of which half have an end of tasks: no sweeps but the first few."""
    market = make_market_of(make_limited(0))
    assert np.isfinite(market.limit_i).mean() > 0.4
    sweeps = Sweeps(market)
    sweeps.run(8)
    rough = Division(sweeps.part_ki.copy(), sweeps.level_kr.copy())
    assert compute_gap(market, rough.part_ki) > 1e-3
    gaps = []
    for number in range(6):
        rough = find_market_start(market, rough, is_near=number > 0)
        gaps.append(compute_gap(market, make_feasible(market, solve_active_set(market, rough)).part_ki))
    assert max(gaps[-3:]) < 1e-10


def test_servers_that_are_not_divisible_are_a_linear_market() -> None:
    generator = np.random.default_rng(5)
    for _ in range(4):
        problem = make_problem(
            np.exp(generator.uniform(3, 5, (3, 2))),
            np.exp(generator.uniform(-1, 2, (5, 2))),
            divisible_k=[False] * 3,
            weight_i=generator.uniform(0.5, 3, 5),
        )
        totals_i = compute_allocation(problem, "ps-dsf").totals_i
        np.testing.assert_allclose(totals_i, compute_eisenberg_gale_totals(problem), rtol=3e-5)


def test_one_server_is_drf() -> None:
    for family in families_for(PS_DSF.options):
        problem = family.make(np.random.default_rng(6))
        if family.is_one_pool and family.options <= DRF.options:
            expected_i = compute_allocation(problem, "drf").totals_i
            np.testing.assert_allclose(compute_allocation(problem, "ps-dsf").totals_i, expected_i, rtol=1e-8)


def test_twins_and_nearly_twins() -> None:
    """Two equal servers are one; two that differ by a thousandth serve one tenant each: the known discontinuity."""
    demand_ir = [[1.0, 0.1], [0.1, 1.0]]
    equal_i = compute_allocation(make_problem(np.ones((2, 2)), demand_ir), "ps-dsf").totals_i
    nearly_i = compute_allocation(make_problem([[1.0, 1.0], [0.999, 1.001]], demand_ir), "ps-dsf").totals_i
    np.testing.assert_allclose(equal_i, [20 / 11, 20 / 11], rtol=1e-12)
    np.testing.assert_allclose(nearly_i, [1, 1.001], rtol=1e-12)


# Two tenants have all their tasks wherever they sit; where they do decides what is left for the others.
AMBIGUOUS_SERVERS = [[12.0, 10.0], [9.0, 5.0], [8.0, 10.0]]
AMBIGUOUS_DEMANDS = [[5.0, 2.0], [3.0, 3.0], [5.0, 3.0], [3.0, 4.0]]


def make_ambiguous(names: str) -> Problem:
    return make_problem(AMBIGUOUS_SERVERS, AMBIGUOUS_DEMANDS, server_names=list(names), tasks_i=[1, np.inf, 1, np.inf])


def test_of_many_divisions_the_names_decide() -> None:
    """Not the order in which servers are written."""
    problem = make_ambiguous("abc")
    written_backwards = replace(problem, server_names=("c", "b", "a"), capacity_kr=problem.capacity_kr[::-1].copy())
    first, other = (compute_allocation(make_ambiguous(names), "ps-dsf") for names in ("abc", "cba"))
    assert compute_best_gain(problem, first.tasks_ik) < 1e-6
    assert compute_best_gain(problem, other.tasks_ik) < 1e-6
    assert first.totals_i[3] > 1.1 * other.totals_i[3]
    again = compute_allocation(written_backwards, "ps-dsf")
    np.testing.assert_array_equal(again.tasks_ik, first.tasks_ik[:, ::-1])


@pytest.mark.parametrize("make", [make_large, make_mixed])
def test_the_order_of_writing_does_not_matter(make: object) -> None:
    problem: Problem = make(3)  # type: ignore[operator]
    generator = np.random.default_rng(0)
    i, k, r = (generator.permutation(size) for size in (*problem.eligible_ik.shape, len(problem.resources)))
    shuffled = Problem(
        resources=tuple(np.array(problem.resources)[r]),
        server_names=tuple(np.array(problem.server_names)[k]),
        capacity_kr=problem.capacity_kr[np.ix_(k, r)],
        count_k=problem.count_k[k],
        divisible_k=problem.divisible_k[k],
        alpha_k=problem.alpha_k[k],
        utility_a_k=problem.utility_a_k[k],
        utility_b_k=problem.utility_b_k[k],
        tenant_names=tuple(np.array(problem.tenant_names)[i]),
        demand_ir=problem.demand_ir[np.ix_(i, r)],
        weight_i=problem.weight_i[i],
        tasks_i=problem.tasks_i[i],
        eligible_ik=problem.eligible_ik[np.ix_(i, k)],
        resource_weight_ir=problem.resource_weight_ir[np.ix_(i, r)],
    )
    expected_i = compute_allocation(problem, "ps-dsf").totals_i[i]
    np.testing.assert_allclose(compute_allocation(shuffled, "ps-dsf").totals_i, expected_i, rtol=1e-7)


def fill_by_bisection(
    load_ri: FloatArray, weight_i: FloatArray, floor_i: FloatArray, cap_i: FloatArray
) -> tuple[FloatArray, FloatArray]:
    part_i, level_r = np.zeros(weight_i.size), np.full(load_ri.shape[0], np.inf)
    frozen_i = np.zeros(weight_i.size, dtype=bool)

    def get_parts(level: float) -> FloatArray:
        filled_i = np.minimum(np.maximum(level - floor_i, 0.0) * weight_i, cap_i)
        return np.where(frozen_i, part_i, filled_i)

    def fits(level: float) -> bool:
        return bool((load_ri @ get_parts(level) <= 1 + 1e-13)[np.isinf(level_r)].all())

    while not frozen_i.all():
        low, high = 0.0, 1e6
        if fits(high):
            return get_parts(high), level_r
        for _ in range(100):
            low, high = ((low + high) / 2, high) if fits((low + high) / 2) else (low, (low + high) / 2)
        full_r = np.isinf(level_r) & (load_ri @ get_parts(high * (1 + 1e-9)) > 1 + 1e-13)
        users_i = (load_ri[full_r] > 0).any(axis=0)
        part_i, level_r = np.where(users_i, get_parts(low), part_i), np.where(full_r, low, level_r)
        frozen_i |= users_i
    return part_i, level_r


def test_a_server_is_filled_as_by_bisection() -> None:
    generator = np.random.default_rng(7)
    for _ in range(300):
        tenants, slots = generator.integers(1, 6), generator.integers(1, 4)
        load_ri = generator.random((slots, tenants)) * (generator.random((slots, tenants)) < 0.7)
        load_ri[generator.integers(slots, size=tenants), np.arange(tenants)] = 1.0
        weight_i = np.exp(generator.uniform(-2, 2, tenants))
        floor_i = generator.choice([0, 0.3, 1], tenants) * generator.random(tenants)
        cap_i = np.where(generator.random(tenants) < 0.4, np.inf, generator.choice([0, 0.3, 0.9], tenants))
        cap_i *= generator.uniform(0.5, 1, tenants)
        part_i, level_r = fill_server(load_ri, weight_i, floor_i, cap_i)
        expected_i, expected_r = fill_by_bisection(load_ri, weight_i, floor_i, cap_i)
        np.testing.assert_allclose(part_i, expected_i, atol=1e-7)
        np.testing.assert_allclose(level_r, expected_r, atol=1e-7)


def test_the_active_set_method_finds_the_exact_amounts_again() -> None:
    market = make_market_of(make_large(4))
    exact, gap = find_division(market)
    assert gap < 1e-10
    generator = np.random.default_rng(0)
    rough = Division(exact.part_ki * generator.uniform(0.999, 1.001, exact.part_ki.shape), exact.level_kr)
    assert compute_gap(market, rough.part_ki) > 1e-4
    solved = make_feasible(market, solve_active_set(market, rough))
    assert compute_gap(market, solved.part_ki) < 1e-10
    np.testing.assert_allclose(market.get_totals(solved.part_ki), market.get_totals(exact.part_ki), rtol=1e-4)


def test_the_active_set_method_bears_levels_of_nothing() -> None:
    """A sweep can leave them where a slot was full before anybody came; they are no reason to warn of."""
    market = make_market_of(make_large(4))
    exact, _ = find_division(market)
    level_kr = exact.level_kr.copy()
    level_kr[0, level_kr[0].argmin()] = 0.0
    solved = make_feasible(market, solve_active_set(market, Division(exact.part_ki, level_kr)))
    assert np.isfinite(solved.part_ki).all()


def test_a_good_division_is_not_improved_for_ever() -> None:
    market = make_market_of(make_large(4))
    exact, _ = find_division(market)
    good = Division(exact.part_ki * (1 - 1e-12), exact.level_kr)
    search = Search(market)
    for _ in range(8):
        assert not search.is_done() or search.gap < ACCEPTED_GAP
        search.keep(good)
    assert search.is_done()
    assert CONVERGED_GAP < search.gap < ACCEPTED_GAP


def test_the_market_of_a_division_leads_back_to_it() -> None:
    market = make_market_of(make_large(5))
    exact, _ = find_division(market)
    for is_near in (False, True):
        started = find_market_start(market, exact, is_near=is_near)
        np.testing.assert_allclose(market.get_totals(started.part_ki), market.get_totals(exact.part_ki), rtol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_a_market_has_an_outcome_however_little_there_is_of_a_server(scale: float) -> None:
    """An even split may be more than a slot has a thousand times over; the search begins inside all the same."""
    generator = np.random.default_rng(11)
    for seed in range(20):
        market = make_market_of(make_exactly_filling(seed))
        few_kr = np.where(generator.random(market.load_kri.shape[:2]) < 0.7, scale, 1.0)
        equilibrium = find_equilibrium(with_loads(market, market.load_kri * few_kr[:, :, None]), gap=MARKET_GAP)
        assert equilibrium.gap <= ACCEPTED_MARKET_GAP
        assert (equilibrium.part_ki >= 0).all()


def test_a_search_goes_on_from_parts_that_make_no_sense() -> None:
    """Numbers that went astray point at a slot that none of the tenants needs; the next sweep knows better."""
    market = make_market_of(make_problem([[4.0, 1.0], [2.0, 2.0]], [[1.0, 0.0], [2.0, 0.0], [0.5, 1.0]]))
    level_kr = np.full(market.load_kri.shape[:2], np.inf)
    _, gap = find_division(market, Division(np.where(market.usable_ki, -5.0, 0.0), level_kr))
    assert gap <= ACCEPTED_GAP


def test_sums_of_the_others_keep_small_numbers() -> None:
    value_ki = np.array([[1e20, 1.0], [3.0, 2.0], [4.0, 1e-9]])
    np.testing.assert_array_equal(sum_others(value_ki), [[7.0, 2.0 + 1e-9], [1e20, 1.0 + 1e-9], [1e20, 3.0]])


@pytest.mark.parametrize("change", ["weight", "demand", "count", "new tenant", "gone server"])
def test_a_warm_start_is_certified_as_well(change: str) -> None:
    problem = make_mixed(8)
    warm = WarmStart()
    compute_allocation(problem, "ps-dsf", warm=warm)
    weight_i, demand_ir, count_k = problem.weight_i.copy(), problem.demand_ir.copy(), problem.count_k.copy()
    if change == "weight":
        weight_i[3] *= 2
    elif change == "demand":
        demand_ir[4] *= [2.0, 1.0, 0.5]
    elif change == "count":
        count_k[1] += 1
    after = replace(problem, weight_i=weight_i, demand_ir=demand_ir, count_k=count_k)
    if change == "new tenant":
        after = replace(problem, tenant_names=("new", *problem.tenant_names[1:]))
    elif change == "gone server":
        fields = ("capacity_kr", "count_k", "divisible_k", "alpha_k", "utility_a_k", "utility_b_k", "server_names")
        after = replace(
            problem,
            **{name: getattr(problem, name)[1:] for name in fields},
            eligible_ik=problem.eligible_ik[:, 1:],
        )
    allocation = compute_allocation(after, "ps-dsf", warm=warm)
    assert allocation.certificate["largestGap"] < 1e-9


def test_a_warm_start_begins_where_the_last_answer_was() -> None:
    """A division that the names would not have led to is kept."""
    problem = make_ambiguous("abc")
    other = compute_allocation(make_ambiguous("cba"), "ps-dsf")
    market = make_market_of(problem)
    sweeps = Sweeps(market)
    sweeps.part_ki = (other.tasks_ik / reduce_problem(problem).gamma_ik).T
    assert sweeps.run(1) < 1e-12
    warm = WarmStart()
    compute_allocation(problem, "ps-dsf", warm=warm)
    warm.state = Division(sweeps.part_ki, sweeps.level_kr)
    np.testing.assert_allclose(compute_allocation(problem, "ps-dsf", warm=warm).totals_i, other.totals_i, rtol=1e-9)


def test_an_even_split_is_refused() -> None:
    instance = reduce_problem(make_problem([[9, 18], [18, 9]], [[1, 4], [3, 1]]))
    with pytest.raises(SolverError, match="could get"):
        PS_DSF.certify(instance, Solution(instance.gamma_ik / 2))


def test_a_division_with_somebody_above_the_level_is_refused() -> None:
    """Everything is used up, but one of two equals has more than the other."""
    instance = reduce_problem(make_problem([[10.0]], [[1.0], [1.0]], tasks_i=[100, 101]))
    PS_DSF.certify(instance, Solution(np.array([[5.0], [5.0]]) * instance.gamma_ik / 10))
    with pytest.raises(SolverError, match="could get"):
        PS_DSF.certify(instance, Solution(np.array([[5.1], [4.9]]) * instance.gamma_ik / 10))


def make_exactly_filling(seed: int) -> Problem:
    """Half of the tenants have as many tasks as exactly fill a server, or all servers of an entry."""
    generator = np.random.default_rng(seed)
    capacity_kr = generator.permutation(2.0 ** np.arange(2, 7))[: generator.integers(2, 6), None] * [1.0, 4.0]
    count_k = generator.choice([1, 2, 3, 10, 100], capacity_kr.shape[0])
    tenants = int(generator.integers(3, 13))
    demand_ir = np.column_stack(
        [generator.choice([0.1, 0.25, 0.5, 1, 2, 4, 8], tenants), generator.choice([0.5, 1, 2, 4, 8, 16, 32], tenants)]
    )
    server_i = generator.integers(capacity_kr.shape[0], size=tenants)
    tasks_i = (capacity_kr[server_i] / demand_ir).min(axis=1)
    tasks_i *= np.where(generator.random(tenants) < 0.3, count_k[server_i], 1)
    is_limited_i = generator.random(tenants) < 0.5
    eligible_ik = np.ones((tenants, capacity_kr.shape[0]), dtype=bool)
    for tenant in np.flatnonzero(is_limited_i & (generator.random(tenants) < 0.5)):
        eligible_ik[tenant] = np.arange(capacity_kr.shape[0]) == server_i[tenant]
    return make_problem(
        capacity_kr,
        demand_ir,
        count_k=count_k,
        weight_i=generator.choice([1.0, 2.0, 3.0], tenants),
        tasks_i=np.where(is_limited_i, tasks_i, np.inf),
        eligible_ik=eligible_ik,
    )


@pytest.mark.parametrize("mechanism", ["ps-dsf", "alpha-pf-vds"])
def test_jobs_that_exactly_fill_a_server_are_divided(mechanism: str) -> None:
    """A job fills its server but for rounding; any other user of the server begins at a far higher level."""
    for seed in range(60):
        problem = make_exactly_filling(seed)
        tasks_ik = compute_allocation(problem, mechanism).tasks_ik
        if mechanism == "ps-dsf":
            assert compute_best_gain(problem, tasks_ik) < 1e-6


def test_a_server_that_a_job_fills_but_for_rounding_is_full() -> None:
    """The third tenant fills the second slot up to 1e-16; the fourth begins at level 114."""
    load_ri = np.array([[1, 1, 0.5, 1, 1], [0.25, 0.03125, 0.9999999999999999, 0.625, 0.5]])
    weight_i = np.array([3, 2, 1, 1, 3]) / 14
    floor_i = np.array([4.666666666666667, 142.77777777777777, 0, 114.22222222222224, 1.0370370370370372])
    part_i, level_r = fill_server(load_ri, weight_i, floor_i, np.array([0, np.inf, 1, np.inf, 0]))
    assert (load_ri @ part_i <= 1 + 1e-12).all()
    np.testing.assert_allclose(level_r[1], 14.0)


def test_a_division_that_is_overfull_or_more_than_wanted_is_no_division() -> None:
    """Nothing is left of an overfull server, so no tenant could get more of it."""
    market = make_market_of(make_exactly_filling(0))
    for part in (2.0, 1 + 1e-6):
        part_ki = np.where(market.usable_ki, part, 0.0)
        search = Search(market)
        search.keep(Division(part_ki, np.zeros(market.load_kri.shape[:2])))
        assert search.gap == np.inf
        assert not search.is_done()


def test_the_search_counts_how_many_servers_it_fills(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few tenants on few servers, and no division is ever good enough: the sweeps end all the same."""
    filled: list[int] = []
    run = Sweeps.run

    def run_counting(sweeps: Sweeps, times: int) -> float:
        filled.append(times * len(sweeps.users))
        return run(sweeps, 1)

    monkeypatch.setattr(Sweeps, "run", run_counting)
    monkeypatch.setattr("fairbind.fairness.mechanisms.ps_dsf.compute_gap", lambda *_: 1.0)
    find_division(make_market_of(make_exactly_filling(1)))
    assert 0 < sum(filled) <= MOST_FILLS


def test_a_search_that_no_longer_gets_better_ends_where_it_suffices(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps: list[int] = []
    run = Sweeps.run

    def run_once(self: Sweeps, times: int) -> float:
        sweeps.append(times)
        return run(self, 1)

    monkeypatch.setattr(Sweeps, "run", run_once)
    monkeypatch.setattr("fairbind.fairness.mechanisms.ps_dsf.compute_gap", lambda *_: SUFFICIENT_GAP / 2)
    find_division(make_market_of(make_exactly_filling(1)))
    assert len(sweeps) == 2
