"""Each property's `find` on allocations made by hand: what it must see, what it must not, and what it says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pytest

from fairbind.fairness.mechanisms.mechanism import Option
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.problem import Problem, make_problem
from fairbind.fairness.properties import PROPERTIES, Witness, properties_for
from fairbind.fairness.properties.reductions import find_bottleneck
from fairbind.fairness.properties.shares import compute_slice
from fairbind.fairness.properties.strategy import Lie, apply_lies, compute_true_tasks
from fairbind.fairness.properties.witness import Property
from fairbind.fairness.solve import compute_allocation, compute_dominant_shares

Rows: TypeAlias = Sequence[Sequence[float]]

TWO = make_problem([[9, 18]], [[1, 4], [3, 1]])


def allocate(problem: Problem, tasks_ik: Rows) -> Allocation:
    tasks = np.array(tasks_ik, dtype=float).reshape(problem.eligible_ik.shape)
    totals_i = tasks.sum(axis=1)
    return Allocation(problem, "by hand", tasks, totals_i, compute_dominant_shares(problem, totals_i), {})


def find(property_id: str, problem: Problem, tasks_ik: Rows, mechanism: str = "drf") -> Witness | None:
    return PROPERTIES[property_id].find(problem, mechanism, allocate(problem, tasks_ik))


def test_a_slice_is_a_part_of_every_server_that_one_may_use() -> None:
    problem = make_problem(
        [[10, 10], [20, 0], [4, 8]], [[1, 1], [1, 0]], eligible_ik=[[1, 1, 1], [1, 1, 0]], weight_i=[1, 3]
    )
    assert compute_slice(problem).tolist() == [0.25 * (10 + 4), 0.75 * (10 + 20)]


def test_a_slice_with_weights_per_resource_is_never_more_than_everything() -> None:
    problem = make_problem([[10, 10]], [[1, 1], [1, 1]], resource_weight_ir=[[1, 3], [1, 1]])
    assert compute_slice(problem).tolist() == [2.5, 2.5]


def test_who_runs_less_than_its_slice_is_named() -> None:
    witness = find("sharing-incentive", TWO, [[2.25], [1.2]])
    assert witness is not None
    assert witness.text == "t1 runs 1.2 tasks; its slice of every server would run 1.5 (20 % less)"
    assert witness.size == pytest.approx(0.2)
    assert find("sharing-incentive", TWO, [[2.25], [1.5]]) is None


def test_who_has_all_its_tasks_wants_no_slice() -> None:
    problem = make_problem([[9, 18]], [[1, 4], [3, 1]], tasks_i=[np.inf, 1])
    assert find("sharing-incentive", problem, [[3], [1]]) is None
    assert find("sharing-incentive", problem, [[3], [0.5]]) is not None


def test_one_equal_partition_that_is_no_better_is_enough() -> None:
    """Wang et al., TPDS 2015, proposition 4: t1's slice of every server would run more, another partition would not."""
    problem = make_problem([[1, 2], [4, 3]], [[1, 1], [3, 2]])
    allocation = compute_allocation(problem, "drfh")
    assert PROPERTIES["sharing-incentive"].find(problem, "drfh", allocation) is not None
    assert PROPERTIES["weak-sharing-incentive"].find(problem, "drfh", allocation) is None


@pytest.mark.parametrize("divisible", [[True, True], [False, False]])
@pytest.mark.parametrize(("tasks", "instead"), [(0.9, 1.0), (1.0, None), (1.9, None)])
def test_every_equal_partition_is_looked_at(tasks: float, instead: float | None, divisible: list[bool]) -> None:
    """Its half of all may be worth as little as 1 task: all its processors on s1, and memory half there, half on s0.

    Of a server's time it has the same part of both, and so 2 tasks in any partition.
    """
    problem = make_problem([[1, 1], [3, 3]], [[1, 1], [1, 1]], divisible_k=divisible)
    instead = instead if all(divisible) else 2.0
    witness = find("weak-sharing-incentive", problem, [[0, tasks], [1, 1]])
    assert (witness is None) is (instead is None)
    if witness is not None:
        assert witness.evidence == {"tenant": "t0", "tasks": tasks, "partition": pytest.approx(instead)}


def test_those_who_gain_by_no_partition_alone_gain_by_none_together() -> None:
    """Either of them alone could be left with its processors on one server and its memory on the other; both cannot."""
    problem = make_problem([[2, 1], [1, 2]], [[1, 1], [1, 1]])
    assert find("weak-sharing-incentive", problem, [[0, 0], [1, 1]]) is None
    both = find("weak-sharing-incentive", problem, [[0, 0], [0, 0]])
    three = make_problem([[4, 1], [4, 1]], [[1, 1], [1, 1], [1, 1]])
    assert (both is None, find("weak-sharing-incentive", three, [[0, 0]] * 3) is None) == (False, False)


@pytest.mark.parametrize(("tasks", "weights", "holds"), [([3, 9], [1, 3], True), ([4, 8], [1, 3], False)])
def test_weights_divide_the_partition(tasks: list[float], weights: list[float], *, holds: bool) -> None:
    problem = make_problem([[4], [8]], [[1], [1]], weight_i=weights)
    assert (find("weak-sharing-incentive", problem, [[tasks[0], 0], [0, tasks[1]]]) is None) is holds
    satisfied = make_problem([[4], [8]], [[1], [1]], weight_i=weights, tasks_i=[4, 8])
    assert find("weak-sharing-incentive", satisfied, [[tasks[0], 0], [0, tasks[1]]]) is None


def test_who_envies_whom_is_named() -> None:
    problem = make_problem([[10, 10]], [[1, 1], [1, 2]])
    witness = find("envy-freeness", problem, [[1], [4]])
    assert witness is not None
    assert witness.evidence == {"tenant": "t0", "envied": "t1", "tasks": 1.0, "tasksInstead": 4.0}
    assert "t0 envies t1" in witness.text
    assert find("envy-freeness", problem, [[3.5], [3]]) is None


def test_weights_scale_envy() -> None:
    problem = make_problem([[12]], [[1], [1]], weight_i=[1, 3])
    assert find("envy-freeness", problem, [[3], [9]]) is None
    witness = find("envy-freeness", problem, [[4], [8]])
    assert witness is not None
    assert witness.evidence["tenant"] == "t1"


def test_envy_looks_server_by_server() -> None:
    """What t1 has, added up, would run a task of t0; on no server it has both resources."""
    problem = make_problem([[4, 1], [1, 4]], [[1.0, 1.0], [1.0, 0.1]], eligible_ik=[[1, 0], [1, 1]])
    assert find("envy-freeness", problem, [[0.5, 0], [0.5, 1]]) is None
    assert find("envy-freeness", problem, [[0.02, 0], [0.5, 1]]) is not None


def test_nobody_envies_for_tasks_that_it_does_not_have() -> None:
    problem = make_problem([[12]], [[1], [1]], tasks_i=[2, np.inf])
    assert find("envy-freeness", problem, [[2], [10]]) is None


def test_time_of_a_server_is_envied_as_time() -> None:
    """t1 has nine tenths of the time: for t0, 9 tasks; from the resources in use it could not tell."""
    problem = make_problem([[10, 10]], [[1.0, 1.0], [2.0, 0.1]], divisible_k=[False])
    witness = find("envy-freeness", problem, [[1], [4.5]])
    assert witness is not None
    assert witness.evidence["tasksInstead"] == pytest.approx(9)


def test_room_for_more_is_a_dominating_allocation() -> None:
    witness = find("pareto-optimality", TWO, [[3], [1]])
    assert witness is not None
    assert witness.evidence["dominating"] == {"t0": pytest.approx(45 / 11), "t1": pytest.approx(18 / 11)}
    assert find("pareto-optimality", TWO, [[3], [2]]) is None


def test_better_places_are_a_dominating_allocation() -> None:
    """Two servers, each good for one tenant (Wang et al., TPDS 2015, figures 2 to 4): 6 tasks each could be 10."""
    problem = make_problem([[2, 12], [12, 2]], [[0.2, 1], [1, 0.2]])
    witness = find("pareto-optimality", problem, [[5, 1], [1, 5]])
    assert witness is not None
    assert witness.evidence["sumOfGains"] > 0.5
    assert find("pareto-optimality", problem, [[10, 0], [0, 10]]) is None


@pytest.mark.parametrize(("tasks", "time", "holds"), [(6.0, True, True), (4.0, True, False), (4.0, False, False)])
def test_room_is_counted_in_what_is_shared(tasks: float, *, time: bool, holds: bool) -> None:
    """All time may be used though both resources have room; limits and eligibility are kept, too."""
    problem = make_problem(
        [[10, 10], [5, 5]], [[1, 0.1], [0.1, 1]], divisible_k=[not time, True], eligible_ik=[[1, 0], [1, 0]]
    )
    assert (find("pareto-optimality", problem, [[tasks, 0], [4, 0]]) is None) is holds


def test_tasks_that_do_not_exist_are_no_gain() -> None:
    assert find("pareto-optimality", make_problem([[10]], [[1], [1]], tasks_i=[2, 3]), [[2], [3]]) is None


def test_a_lie_is_judged_by_the_true_tasks() -> None:
    """Ghodsi et al., NSDI 2011, section 6.1.2: for asset fairness a lie about one demand moves only the others."""
    lie = Lie(0, (1.0, 8.0), np.inf)
    told = compute_allocation(apply_lies(TWO, [lie]), "drf").totals_i[0]
    assert compute_true_tasks(TWO, "drf", [lie]) == pytest.approx([told])  # the processors bind its true tasks
    deflated = Lie(0, (0.5, 4.0), np.inf)
    told = compute_allocation(apply_lies(TWO, [deflated]), "drf").totals_i[0]
    assert compute_true_tasks(TWO, "drf", [deflated]) == pytest.approx([told / 2])


def test_two_lies_are_told_at_once() -> None:
    """Wang et al., figures 2 to 4: each leaves to the other the server that suits it."""
    problem = make_problem([[2, 12], [12, 2]], [[0.2, 1], [1, 0.2]])
    lies = [Lie(0, (0.2, 1.0), np.inf, hidden=(1,)), Lie(1, (1.0, 0.2), np.inf, hidden=(0,))]
    assert compute_allocation(problem, "per-server-drf").totals_i == pytest.approx([6, 6])
    assert compute_true_tasks(problem, "per-server-drf", lies) == pytest.approx([10, 10])
    assert compute_true_tasks(problem, "per-server-drf", lies[:1])[0] < 6


def find_lies(property_id: str, mechanism: str, problem: Problem) -> Witness | None:
    return PROPERTIES[property_id].find(problem, mechanism, compute_allocation(problem, mechanism))


HIDING = make_problem([[6, 4], [2, 1]], [[1, 3], [3, 1]])
"""Under ps-dsf the second tenant gains by hiding the second server."""


def test_hiding_servers_and_misstating_demands_are_told_apart() -> None:
    hiding = find_lies("eligibility-strategy-proofness", "ps-dsf", HIDING)
    assert hiding is not None
    assert hiding.property == "eligibility-strategy-proofness"
    assert hiding.evidence["claims"] == {"demand": {"r0": 3.0, "r1": 1.0}, "hidden": ["s1"], "tasks": None}
    assert hiding.size == pytest.approx(1 / 14)
    assert find_lies("strategy-proofness", "ps-dsf", HIDING) is None
    demand = find_lies("strategy-proofness", "ceei", make_problem([[100, 100]], [[16, 1], [1, 2]]))
    assert demand is not None
    assert demand.evidence["claims"]["hidden"] == []
    assert demand.evidence["claims"]["demand"] != {"r0": 16.0, "r1": 1.0}


def test_one_tenant_alone_is_a_group() -> None:
    witness = find_lies("group-strategy-proofness", "ps-dsf", HIDING)
    assert witness is not None
    assert witness.property == "group-strategy-proofness"
    assert [liar["tenant"] for liar in witness.evidence["liars"]] == ["t1"]


def test_in_a_group_each_must_gain() -> None:
    """Servers that suit one tenant each: together both gain, alone neither does; nor do they where one has both."""
    suited = make_problem([[2, 12], [12, 2]], [[0.2, 1], [1, 0.2]])
    witness = find_lies("group-strategy-proofness", "per-server-drf", suited)
    assert witness is not None
    assert [(liar["tenant"], liar["claims"]["hidden"]) for liar in witness.evidence["liars"]] == [
        ("t0", ["s1"]),
        ("t1", ["s0"]),
    ]
    assert witness.size == pytest.approx(2 / 3)
    assert find_lies("eligibility-strategy-proofness", "per-server-drf", suited) is None
    both_suit_one = make_problem([[2, 12], [12, 2]], [[0.2, 1], [0.2, 1]])
    assert find_lies("group-strategy-proofness", "per-server-drf", both_suit_one) is None


def test_a_group_gains_what_the_least_of_its_members_gains() -> None:
    uneven = make_problem([[3, 12], [20, 2]], [[0.2, 1], [1, 0.2]])
    witness = find_lies("group-strategy-proofness", "per-server-drf", uneven)
    assert witness is not None
    gains = [liar["tasksByLying"] / liar["tasks"] - 1 for liar in witness.evidence["liars"]]
    assert max(gains) > 1.1 * min(gains)
    assert witness.size == pytest.approx(min(gains))


def test_one_whole_task_more_is_no_envy() -> None:
    problem = make_problem([[10]], [[1], [1]])
    name = "envy-freeness-up-to-one-task"
    assert find("envy-freeness", problem, [[4], [5]]) is not None
    assert find(name, problem, [[4], [5]]) is None
    assert find(name, problem, [[4], [5.9]]) is None  # only whole tasks count
    witness = find(name, problem, [[4], [6]])
    assert witness is not None
    assert witness.evidence == {"tenant": "t0", "envied": "t1", "tasks": 4.0, "tasksInstead": 6.0}
    assert "even with one task more" in witness.text


def test_whole_tasks_are_counted_server_by_server() -> None:
    """On each of two servers 1.9 tasks' worth: 3.8 in all, but only two whole ones."""
    problem = make_problem([[2], [2]], [[1], [1]])
    name = "envy-freeness-up-to-one-task"
    assert find(name, problem, [[0.1, 0.1], [1.9, 1.9]]) is not None
    assert find(name, problem, [[1, 0.0], [1.9, 1.9]]) is None
    assert find(name, problem, [[0, 0], [2 - 1e-9, 0]]) is not None  # rounding takes no task away


def test_weights_scale_whole_tasks() -> None:
    problem = make_problem([[16]], [[1], [1]], weight_i=[1, 3])
    assert find("envy-freeness-up-to-one-task", problem, [[4], [12]]) is None
    assert find("envy-freeness-up-to-one-task", problem, [[2], [12]]) is not None


def test_a_bottleneck_is_one_on_every_server() -> None:
    assert find_bottleneck(make_problem([[9, 18], [4, 4]], [[1, 1], [3, 2]])) == 0
    assert find_bottleneck(make_problem([[9, 18], [4, 4]], [[1, 1], [2, 3]])) is None
    only_first = make_problem([[9, 18], [4, 4]], [[1, 1], [2, 3]], eligible_ik=[[1, 1], [1, 0]])
    assert find_bottleneck(only_first) == 0
    assert find_bottleneck(make_problem([[9, 0]], [[1, 1]])) is None


def test_an_unfair_bottleneck_is_seen() -> None:
    """Asset fairness's own counterexample (Ghodsi et al., NSDI 2011, theorem 2): 3 tasks each, 9 and 12 of 21."""
    problem = make_problem([[21, 21]], [[3, 2], [4, 1]])
    witness = find("bottleneck-fairness", problem, [[3], [3]])
    assert witness is not None
    assert witness.evidence == {"tenant": "t0", "tasks": 3.0, "reference": pytest.approx(3.5)}
    assert find("bottleneck-fairness", problem, [[3.5], [2.625]]) is None


def test_what_drf_would_give_is_compared_on_one_server() -> None:
    assert find("single-server-reduction", TWO, [[3], [2]]) is None
    witness = find("single-server-reduction", TWO, [[2.52], [2.16]])
    assert witness is not None
    assert "alone on server s0, by drf, 3" in witness.text


def test_a_single_resource_is_compared() -> None:
    one = make_problem([[12]], [[1], [2]], weight_i=[1, 2])
    assert find("single-resource-reduction", one, [[4], [4]]) is None
    assert find("single-resource-reduction", one, [[6], [3]]) is not None


def test_losing_by_a_departure_is_seen() -> None:
    """Without t1, t2 has the first resource to itself, and so needs more of the second, which t0 had."""
    problem = make_problem([[1, 1]], [[0.0, 1.0], [1.0, 0.0], [1.0, 0.1]])
    allocation = compute_allocation(problem, "drf")
    assert allocation.totals_i == pytest.approx([0.95, 0.5, 0.5])
    witness = PROPERTIES["population-monotonicity"].find(problem, "drf", allocation)
    assert witness is not None
    assert (witness.evidence["tenant"], witness.evidence["leaves"]) == ("t0", "t1")
    assert witness.evidence["tasksAfter"] == pytest.approx(1 / 1.1)


def test_losing_by_growth_is_seen() -> None:
    """With more of the second resource a task of t0 is a smaller share: t0 gets more tasks, and t1 fewer."""
    problem = make_problem([[6, 12]], [[1, 3], [2, 1]])
    allocation = compute_allocation(problem, "drf")
    assert allocation.totals_i == pytest.approx([2.4, 1.8])
    witness = PROPERTIES["resource-monotonicity"].find(problem, "drf", allocation)
    assert witness is not None
    assert witness.text == "t1 runs 1.5 tasks instead of 1.8 when s0 gets half again of its r1 (16.7 % less)"
    assert compute_allocation(make_problem([[6, 18]], [[1, 3], [2, 1]]), "drf").totals_i == pytest.approx([3, 1.5])


ARRIVALS = make_problem([[1]], [[1], [1]])


@pytest.mark.parametrize(
    ("tasks", "broken"),
    [
        ([[0.5], [0.5]], set()),
        ([[0.6], [0.4]], {"dynamic-sharing-incentive", "dynamic-envy-freeness"}),
        ([[0.4], [0.6]], {"dynamic-sharing-incentive", "dynamic-envy-freeness"}),
        # t1 has less than t0, who got nothing since t1 came: that much envy is allowed.
        ([[0.5], [0.3]], {"dynamic-sharing-incentive", "dynamic-pareto-optimality"}),
    ],
)
def test_each_step_of_arrivals_is_looked_at(tasks: Rows, broken: set[str]) -> None:
    """The last step is given by hand; at the first, dynamic-drf gives t0 one half."""
    dynamic = {one for one in PROPERTIES if one.startswith("dynamic-")}
    assert {one for one in dynamic if find(one, ARRIVALS, tasks, "dynamic-drf")} == broken


def test_only_what_is_open_at_a_step_is_missed() -> None:
    problem = make_problem([[1]], [[1], [1]], expected_tenants=4)
    assert find("dynamic-pareto-optimality", problem, [[0.25], [0.25]], "dynamic-drf") is None
    witness = find("dynamic-pareto-optimality", problem, [[0.25], [0.2]], "dynamic-drf")
    assert witness is not None
    assert "after arrival 2 t0 could run 0.3 tasks instead of 0.25 inside the 50 % of the pool" in witness.text


def test_weights_decide_how_much_is_open() -> None:
    problem = make_problem([[1]], [[1], [1], [1]], weight_i=[1, 2, 5])
    assert find("dynamic-sharing-incentive", problem, [[0.125], [0.25], [0.625]], "dynamic-drf") is None
    assert find("dynamic-pareto-optimality", problem, [[0.125], [0.25], [0.625]], "dynamic-drf") is None
    assert find("dynamic-envy-freeness", problem, [[0.125], [0.25], [0.625]], "dynamic-drf") is None
    assert find("dynamic-sharing-incentive", problem, [[0.2], [0.2], [0.6]], "dynamic-drf") is not None
    assert find("dynamic-envy-freeness", problem, [[0.2], [0.2], [0.6]], "dynamic-drf") is not None


@pytest.mark.parametrize("one", PROPERTIES.values(), ids=lambda one: one.id)
def test_a_property_says_what_it_is(one: Property) -> None:
    assert PROPERTIES[one.id] is one
    assert one.definition.endswith(".")
    assert one.source
    assert one.name


def test_witnesses_are_plain_json() -> None:
    witness = find("sharing-incentive", TWO, [[1], [1]])
    assert witness is not None
    document = witness.to_document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_mechanism_has_the_properties_that_mean_something_for_it(mechanism: str) -> None:
    ids = {one.id for one in properties_for(mechanism)}
    others = {one for one in PROPERTIES if one.startswith("dynamic-")} if mechanism != "dynamic-drf" else set()
    if Option.ELIGIBLE not in MECHANISMS[mechanism].options:
        others.add("eligibility-strategy-proofness")
    if Option.TREE not in MECHANISMS[mechanism].options:
        others.add("subtree-sharing-incentive")
    assert ids == set(PROPERTIES) - others
