"""The exact problem of a snapshot, and what becomes of its answer."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.model import Holding, PolicySettings, Snapshot, Tenant
from fairbind.model.errors import InvalidProblemError
from fairbind.scheduling import POLICIES
from fairbind.scheduling.fair_shares.problem import (
    ExactProblem,
    ExactShares,
    is_same,
    make_exact_problem,
    solve_exactly,
)
from rejections import unsupported
from scheduling.worlds import apply_report, build_class, build_placement, build_servers, build_snapshot, decide, weigh

FOLLOWERS = sorted(policy.id for policy in POLICIES.values() if policy.follows_targets)


def pose(snapshot: Snapshot, policy: str = "best-fit-drfh", **settings: float) -> ExactProblem:
    exact = make_exact_problem(snapshot, PolicySettings(policy, **settings))  # type: ignore[arg-type]
    assert exact is not None
    return exact


def solve(snapshot: Snapshot, policy: str = "best-fit-drfh", **settings: float) -> ExactShares:
    return solve_exactly(pose(snapshot, policy, **settings))


def build_paper(*, tasks: int = 99, extra: Tenant | None = None) -> Snapshot:
    """The example of NSDI 2011, section 4.1: 9 CPUs and 18 GB, tasks (1, 4) and (3, 1); both get two thirds."""
    servers = build_servers({"s": (9, 18)})
    placement = build_placement(servers)
    classes = [build_class("a", (1, 4), placement, tasks), build_class("b", (3, 1), placement, tasks)]
    return build_snapshot(servers, classes, tenants=[extra] if extra else [])


def test_every_policy_but_fifo_names_a_mechanism_that_is_there() -> None:
    assert {policy.id for policy in POLICIES.values() if policy.mechanism is None} == {"fifo"}
    assert {policy.mechanism for policy in POLICIES.values()} - {None} == set(MECHANISMS)


def test_a_policy_without_a_mechanism_has_no_problem_and_nor_has_nobody() -> None:
    assert make_exact_problem(build_paper(), PolicySettings("fifo")) is None
    empty = build_snapshot(build_servers({"s": (9, 18)}), [], tenants=[Tenant("a")])
    assert make_exact_problem(empty, PolicySettings()) is None
    nothing = build_snapshot(build_servers({}), [], tenants=[Tenant("a", allocated_r=(1, 1))])
    assert make_exact_problem(nothing, PolicySettings()) is None


@pytest.mark.parametrize("policy", ["best-fit-drfh", "two-choices-drfh", "ps-dsf", "drf", "dynamic-drf"])
def test_the_example_of_the_paper_comes_out(policy: str) -> None:
    answer = solve(build_paper(extra=Tenant("idle")), policy)

    assert answer.fair_shares == {"a": pytest.approx(2 / 3), "b": pytest.approx(2 / 3), "idle": 0.0}
    assert answer.targets.resources == ("cpu", "memory")
    assert answer.targets.shares["a"] == pytest.approx((1 / 3, 2 / 3))
    assert "idle" not in answer.targets.shares


def test_what_is_held_and_what_waits_is_wanted_and_the_sum_is_the_demand() -> None:
    """The same tasks before and after they were placed are the same problem."""
    before = build_paper()
    after = apply_report(before, decide(before))

    assert solve(after).fair_shares == pytest.approx(solve(before).fair_shares)
    lumped = replace(after, tenants=tuple(replace(tenant, holdings=()) for tenant in after.tenants))
    assert solve(lumped).fair_shares == pytest.approx(solve(before).fair_shares)


def test_nobody_gets_more_than_it_wants() -> None:
    answer = solve(build_paper(tasks=1))

    assert answer.fair_shares == pytest.approx({"a": 4 / 18, "b": 3 / 9})


def test_blocked_tasks_and_tasks_that_fit_nowhere_are_not_wanted() -> None:
    servers = build_servers({"s": (8, 8)})
    placement = build_placement(servers)
    classes = [
        build_class("a", (1, 1), placement, 2),
        build_class("a", (1, 2), placement, 5, blocked=unsupported("not honoured")),
        build_class("a", (9, 1), placement, 5),
        build_class("b", (1, 1), build_placement(servers, only=[]), 5),
        build_class("c", (1, 1), placement, 20),
    ]

    answer = solve(build_snapshot(servers, classes))

    assert answer.fair_shares == pytest.approx({"a": 2 / 8, "b": 0, "c": 6 / 8})


def test_real_constraints_and_unusable_servers_count() -> None:
    """Tenant b may use y only, z is cordoned off, and of x a system pod has taken half before."""
    servers = build_servers({"x": (10, 10), "y": (10, 10), "z": (90, 90)}, unusable=["z"])
    classes = [
        build_class("a", (1, 1), build_placement(servers), 99),
        build_class("b", (1, 1), build_placement(servers, only=["y", "z"]), 99),
        build_class("c", (1, 1), build_placement(servers, only=["y"]), 2),
    ]
    exact = pose(build_snapshot(servers, classes))

    assert exact.problem.server_names == ("x", "y")
    assert exact.problem.eligible_ik.tolist() == [[True, True], [False, True], [False, True]]
    assert exact.class_of == {"x": 0, "y": 1}
    assert solve_exactly(exact).fair_shares == pytest.approx({"a": 0.5, "b": 0.4, "c": 0.1})


def test_nearly_equal_servers_are_one_class_unless_a_task_divides_them() -> None:
    servers = build_servers({"x1": (100, 100), "x2": (101, 100), "y": (300, 100)}, tolerance=0.02)
    everywhere = build_placement(servers)
    whole = pose(build_snapshot(servers, [build_class("a", (1, 1), everywhere)])).problem
    classes = [build_class("a", (1, 1), everywhere), build_class("b", (1, 1), build_placement(servers, only=["x2"]))]
    divided = pose(build_snapshot(servers, classes)).problem

    assert (whole.server_names, whole.count_k.tolist()) == (("x1", "y"), [2.0, 1.0])
    assert whole.capacity_kr.tolist() == [[100.5, 100.0], [300.0, 100.0]]
    assert divided.server_names == ("x1", "x2", "y")
    assert divided.total_r.tolist() == [501.0, 300.0]


def test_only_resources_that_count_and_exist_take_part() -> None:
    servers = build_servers({"s": (8, 8, 0, 8)})
    classes = [build_class("a", (1, 2, 0, 8), build_placement(servers), 4)]
    snapshot = build_snapshot(servers, classes, resources=("cpu", "memory", "gpu", "pods"))
    snapshot = replace(snapshot, counts_r=(True, True, True, False))

    exact = pose(snapshot)

    assert exact.problem.resources == ("cpu", "memory")
    assert solve_exactly(exact).fair_shares == {"a": pytest.approx(1.0)}


def test_held_tasks_run_where_their_placement_says_or_where_the_tenant_is() -> None:
    servers = build_servers({"x": (10, 10), "y": (10, 11), "z": (10, 12)})
    only_x = build_placement(servers, only=["x"])
    held = Tenant(
        "a",
        allocated_r=(7, 7),
        holdings=(Holding((1, 1), (1, 1), 2, only_x), Holding((1, 2), (1, 2), 1)),
        allocated_by_server={"y": (3, 4)},
    )
    exact = pose(build_snapshot(servers, [], tenants=[held, Tenant("b", allocated_r=(1, 3))]))

    rows = dict(zip(map(tuple, exact.problem.demand_ir.tolist()), exact.problem.eligible_ik.tolist(), strict=True))
    assert rows[1.0, 1.0] == [True, False, False]
    assert rows[1.0, 2.0] == [False, True, False]
    assert rows[4.0, 3.0] == [False, True, False]  # what is left of the seven
    assert rows[1.0, 3.0] == [True, True, True]  # nobody knows
    assert [exact.tenants[n] for n in exact.tenant_i] == ["a", "a", "a", "b"]


def test_weights_reach_the_mechanism_and_what_it_does_not_take_is_named() -> None:
    servers = build_servers({"x": (60, 60), "y": (60, 61)})
    classes = [build_class("a", (1, 1), build_placement(servers), 99)]
    classes += [build_class("b", (1, 1), build_placement(servers, only=["x"]), 99)]
    snapshot = build_snapshot(servers, classes, tenants=[weigh("a", 2), weigh("b", 1, cpu=2)])

    assert pose(snapshot).left_out == ()
    assert pose(snapshot).problem.resource_weight_ir.tolist() == [[1, 1], [2, 1]]
    assert pose(snapshot, "tsf").left_out == ("resourceWeights",)
    assert pose(snapshot, "ceei").left_out == ("resourceWeights", "eligible")
    assert pose(snapshot, "drf").left_out == ("eligible",)
    assert pose(snapshot, "ceei").class_of == {}
    # b cannot use y, so the pool is divided as if it wanted no more than x holds.
    assert pose(snapshot, "drf").problem.tasks_i.tolist() == [99, 60]


def test_alpha_reaches_the_mechanism_that_takes_it() -> None:
    servers = build_servers({"s": (60, 60)})
    placement = build_placement(servers)
    classes = [build_class("a", (1, 1), placement, 99), build_class("b", (1, 0), placement, 99)]
    classes += [build_class("c", (0, 1), placement, 99)]
    snapshot = build_snapshot(servers, classes)

    efficient, fair = solve(snapshot, "alpha-pf-vds", alpha=1.0), solve(snapshot, "alpha-pf-vds", alpha=4.0)

    assert pose(snapshot, "drf", alpha=4.0).alpha is None
    assert efficient.fair_shares["a"] == pytest.approx(1 / 3)
    assert 0.4 < fair.fair_shares["a"] < 0.5


def test_expected_tenants_leave_room_and_are_never_fewer_than_there_are() -> None:
    snapshot = build_paper()

    assert solve(snapshot, "dynamic-drf", expected_tenants=4).fair_shares == pytest.approx({"a": 1 / 3, "b": 1 / 3})
    assert pose(snapshot, "dynamic-drf", expected_tenants=1).problem.expected_tenants == 2
    assert pose(snapshot, "dynamic-drf").problem.expected_tenants == 2
    assert pose(snapshot, "drf", expected_tenants=9).problem.expected_tenants is None


def test_expected_tenants_need_equal_weights() -> None:
    """Those of tenants who have not come are not known; as the page on policies says, there is no answer then."""
    snapshot = build_paper()
    heavier = replace(snapshot, tenants=(weigh("a", 2), weigh("b", 1)))

    with pytest.raises(InvalidProblemError, match=r"^expectedTenants: 3: where weights differ"):
        solve(heavier, "dynamic-drf", expected_tenants=3)
    assert solve(heavier, "dynamic-drf", expected_tenants=2).fair_shares["a"] > 2 / 3
    alike = replace(snapshot, tenants=(weigh("a", 2), weigh("b", 2)))
    assert solve(alike, "dynamic-drf", expected_tenants=4).fair_shares == pytest.approx({"a": 1 / 3, "b": 1 / 3})


def test_tenants_come_in_the_order_of_their_arrival() -> None:
    snapshot = build_paper()
    late = replace(snapshot, tenants=(Tenant("a", since=5.0), Tenant("b", since=4.0)))

    assert pose(late, "dynamic-drf").problem.tenant_names == ("b", "a")
    assert pose(snapshot, "dynamic-drf").problem.tenant_names == ("a", "b")


@pytest.mark.parametrize("policy", ["drbf", "dynamic-drf"])
def test_mechanisms_of_endless_tenants_divide_again_what_some_do_not_want(policy: str) -> None:
    servers = build_servers({"s": (60, 60)})
    placement = build_placement(servers)
    classes = [build_class(name, (1, 1), placement, tasks) for name, tasks in (("a", 6), ("b", 21), ("c", 99))]

    answer = solve(build_snapshot(servers, classes, tenants=[weigh("d")]), policy)

    assert answer.fair_shares == pytest.approx({"a": 0.1, "b": 0.35, "c": 0.55, "d": 0.0})


def test_the_order_of_tenants_and_classes_does_not_matter() -> None:
    snapshot = build_mixed()
    turned = replace(
        snapshot, tenants=tuple(reversed(snapshot.tenants)), task_classes=tuple(reversed(snapshot.task_classes))
    )

    assert solve(turned).fair_shares == pytest.approx(solve(snapshot).fair_shares, rel=1e-6)


def test_the_order_in_which_tasks_came_leaves_the_same_problem() -> None:
    """DRFH has several solutions here, and policies are guided by one: a replay must be guided by the same."""
    servers = build_servers({"x": (1000, 1000), "y": (1000, 3000), "z": (500, 800)})
    dice = np.random.Generator(np.random.PCG64(1))
    classes = [
        build_class(name, (int(dice.integers(1, 9)), int(dice.integers(1, 9))), build_placement(servers, only=only), 40)
        for name in "ab"
        for only in (["x", "y"], ["y", "z"], ["x", "y", "z"], ["x", "y", "z"], ["x", "y", "z"])
    ]
    first = pose(build_snapshot(servers, classes))
    for _ in range(20):
        turned = [classes[n] for n in dice.permutation(len(classes)).tolist()]
        assert is_same(pose(build_snapshot(servers, turned)), first)


def build_mixed() -> Snapshot:
    """Tenant a has tasks of two shapes, b of one."""
    servers = build_servers({"s": (1000, 1000)})
    placement = build_placement(servers)
    classes = [build_class("a", (1, 0), placement, 2000), build_class("a", (0, 1), placement, 2000)]
    return build_snapshot(servers, [*classes, build_class("b", (1, 0), placement, 2000)])


def test_a_tenant_of_two_shapes_keeps_its_half() -> None:
    """By the sum over its tasks it would get a third of the CPU; see the story of the module."""
    answer = solve(build_mixed())

    assert answer.targets.shares["a"] == pytest.approx((0.5, 1.0))
    assert answer.targets.shares["b"] == pytest.approx((0.5, 0.0))


def test_two_shapes_of_one_resource_are_worth_one_weight() -> None:
    """Splitting tasks into many kinds must not pay."""
    servers = build_servers({"s": (1000, 1000)})
    placement = build_placement(servers)
    classes = [build_class("a", (1, k), placement, 2000) for k in (0, 2, 4, 6)]
    classes = [replace(c, demand_r=(10, c.demand_r[1]), share_demand_r=(10, c.demand_r[1])) for c in classes]
    snapshot = build_snapshot(servers, [*classes, build_class("b", (10, 0), placement, 2000)])

    exact = pose(snapshot)

    assert len(exact.problem.tenant_names) == 5
    assert exact.problem.tenant_names[:2] == ("a", "a#2")
    assert exact.problem.weight_i[:4].sum() == pytest.approx(1.0)
    assert solve_exactly(exact).fair_shares == pytest.approx({"a": 0.5, "b": 0.5}, rel=1e-3)


def test_a_part_that_is_stopped_leaves_its_weight_to_the_others() -> None:
    """Half of a's tasks can use the small server only; with half of its weight there it would end at a third."""
    servers = build_servers({"big": (1000, 1000), "small": (20, 20)})
    everywhere = build_placement(servers)
    classes = [
        build_class("a", (1, 0), build_placement(servers, only=["small"]), 2000),
        build_class("a", (1, 0), everywhere, 2000),
        build_class("b", (1, 0), everywhere, 2000),
    ]

    answer = solve(build_snapshot(servers, classes))

    assert answer.rounds > 1
    assert answer.fair_shares == pytest.approx({"a": 0.5, "b": 0.5}, rel=2e-3)


def test_a_gpu_task_does_not_bind_its_tenants_other_tasks() -> None:
    """As one average task it could use the GPU server only, and b would get all of the plain one."""
    servers = build_servers({"gpu": (100, 100, 4), "plain": (100, 100, 0)})
    everywhere = build_placement(servers)
    classes = [
        build_class("a", (1, 1, 1), everywhere, 2),
        build_class("a", (1, 1, 0), everywhere, 500),
        build_class("b", (1, 1, 0), everywhere, 500),
    ]
    answer = solve(build_snapshot(servers, classes, resources=("cpu", "memory", "gpu")))

    assert answer.fair_shares["b"] == pytest.approx(0.5, rel=0.01)
    assert answer.targets.shares["a"][:2] == pytest.approx((0.5, 0.5), rel=0.01)
    assert answer.targets.shares["a"][2] > 0


def test_too_many_shapes_become_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairbind.scheduling.fair_shares.demand_groups.MAX_PARTS", 3)
    servers = build_servers({"s": (1000, 1000)})
    placement = build_placement(servers)
    classes = [build_class("a", (10, k), placement, 5) for k in range(1, 10)]

    exact = pose(build_snapshot(servers, classes))

    assert len(exact.problem.tenant_names) <= 3
    assert (exact.problem.tasks_i @ exact.problem.demand_ir).tolist() == pytest.approx([450, 225])


@pytest.mark.parametrize("policy", FOLLOWERS)
def test_every_mechanism_that_can_be_followed_answers(policy: str) -> None:
    answer = solve(build_paper(), policy)

    assert answer.targets.mechanism == policy
    assert min(answer.fair_shares.values()) > 0.2
    report = decide(replace(build_paper(), targets=answer.targets), policy)
    assert report.complete
    assert len(report.bindings) >= 3


def test_classes_of_the_targets_add_up_to_the_shares() -> None:
    servers = build_servers({"c": (120, 20), "m": (20, 120)})
    placement = build_placement(servers)
    classes = [build_class("a", (1, 5), placement, 99), build_class("b", (5, 1), placement, 99)]

    targets = solve(build_snapshot(servers, classes, tenants=[Tenant("b", Fraction(1))]), "drfh").targets

    assert targets.class_names == ("c", "m")
    assert dict(targets.class_of) == {"c": 0, "m": 1}
    assert targets.shares_by_class == {"a": pytest.approx((0, 5 / 7)), "b": pytest.approx((5 / 7, 0))}
    assert {name: max(row) for name, row in targets.shares.items()} == pytest.approx({"a": 5 / 7, "b": 5 / 7})


def test_parts_keep_the_sharing_incentive() -> None:
    """Each tenant of mixed tasks holds at least what a filling in its own part of the cluster would hold."""
    for seed in range(12):
        snapshot = build_random_mixed(np.random.default_rng(seed))
        answer = solve(snapshot)
        weights = {tenant.name: float(tenant.weight) for tenant in snapshot.tenants}
        for name, weight in weights.items():
            alone = solve(cut_out(snapshot, name, Fraction(weight / sum(weights.values()))))
            fraction = weight / sum(weights.values())
            assert answer.fair_shares[name] >= alone.fair_shares[name] * fraction * 0.99, (seed, name)


def test_fair_shares_of_mixed_tasks_are_those_of_a_filling_with_tiny_tasks() -> None:
    """On one server, where nothing is lost between servers; a second way, of thousands of steps, to the same shares."""
    for seed in (2, 4, 5, 7):
        snapshot = build_random_mixed(np.random.default_rng(seed))
        answer = solve(snapshot)
        filled = dict(decide(snapshot).weighted_shares)
        for tenant in snapshot.tenants:
            share = filled[tenant.name] * float(tenant.weight)
            assert answer.fair_shares[tenant.name] == pytest.approx(share, abs=0.02), (seed, tenant.name)


def cut_out(snapshot: Snapshot, name: str, part: Fraction) -> Snapshot:
    """The tenant alone in its part of each server."""
    capacity_kr = np.array(snapshot.servers.capacity_kr * float(part), dtype=np.int64)
    servers = replace(snapshot.servers, capacity_kr=capacity_kr, free_kr=capacity_kr.copy())
    own = tuple(task_class for task_class in snapshot.task_classes if task_class.tenant == name)
    total_r = tuple(int(total) for total in capacity_kr.sum(axis=0))
    tenants = tuple(tenant for tenant in snapshot.tenants if tenant.name == name)
    return replace(snapshot, servers=servers, task_classes=own, tenants=tenants, total_r=total_r)


def build_random_mixed(draw: np.random.Generator) -> Snapshot:
    """One server, three tenants with up to three kinds of tiny tasks each, in turns that mix the kinds evenly."""
    servers = build_servers({"s": (int(draw.integers(300, 1000)) * 1000, int(draw.integers(300, 1000)) * 1000)})
    placement = build_placement(servers)
    classes, tenants = [], []
    for name in "abc":
        tenants.append(weigh(name, int(draw.integers(1, 4))))
        for demand_group in range(int(draw.integers(1, 4))):
            small, large = int(draw.integers(100, 900)), int(draw.integers(1400, 2800))
            demand_r = [(large, small), (small, large), (large, 0), (0, large)][draw.integers(4)]
            count = int(draw.choice([400, 1500]))
            tasks = [
                replace(task, uid=f"{task.uid}{demand_group}", queue_time=n / count)
                for n, task in enumerate(build_class(name, demand_r, placement, count).tasks)
            ]
            classes.append(build_class(name, demand_r, placement, tasks))
    return build_snapshot(servers, classes, tenants=tenants)


@pytest.mark.parametrize("alpha", [2.0, 3.0, 10.0])
@pytest.mark.parametrize("tasks", [1, 2, 7])
def test_tenants_with_few_tasks_in_a_large_cluster_are_no_obstacle(tasks: int, alpha: float) -> None:
    """Their fair share is all that they want; what they lack of it by rounding must not decide for the others."""
    servers = build_servers({f"s{n:03}": (32, 16) for n in range(100)} | {"t": (32, 32)})
    placement = build_placement(servers)
    classes = [build_class("a", (1, 1), placement, 9999), build_class("b", (4, 1), placement, 9999)]
    classes += [build_class("few", (4, 1), placement, tasks), build_class("small", (1, 8), placement, 1)]

    answer = solve(build_snapshot(servers, classes), "alpha-pf-vds", alpha=alpha)

    assert answer.fair_shares["few"] == pytest.approx(4 * tasks / (101 * 32), rel=1e-8)
    assert answer.fair_shares["small"] == pytest.approx(8 / (100 * 16 + 32), rel=1e-8)
    assert min(answer.fair_shares["a"], answer.fair_shares["b"]) > 0.3
