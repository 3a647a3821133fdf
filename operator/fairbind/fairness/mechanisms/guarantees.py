"""Lists for each mechanism and property whether it is proved, refuted by an example, or neither.

`GUARANTEES[mechanism][property]` has an entry for every mechanism of the registry and every property that applies to
it. Assumptions are sentences that `ASSUMPTIONS` can decide for a problem. A property that is proved under assumptions
has an example that shows why they are needed, where one is known. A property that fails names the assumptions under
which it still holds. The tests draw problems that meet the assumptions, look for witnesses, and replay each
counterexample.

Where a source is "here", the argument stands in the comment above the guarantee.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from fairbind.fairness.mechanisms import counterexamples
from fairbind.fairness.mechanisms.counterexamples import Counterexample
from fairbind.fairness.mechanisms.mechanism import Guarantee, Standing
from fairbind.fairness.problems.instance import DEFAULT_ALPHA, compute_gamma
from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.fairness.problems.tree import Tree

Assumption = Callable[[Problem, float | None], bool]

POSITIVE = "every tenant needs every resource"
ONE_SERVER = "there is one server entry"
ELIGIBLE = "every tenant may use every server"
ABLE = "every tenant can use every server"
ENDLESS = "no tenant runs out of tasks"
DIVISIBLE = "every server is divisible"
ALPHA_FROM_1 = "every alpha is at least 1"
ALPHA_1_OR_ONE_SERVER = "every alpha is 1 or there is one server entry"
ALL_CAME = "all tenants that are expected have come"
LEVELS_ONLY = "no guarantee, limit, priority or weight per resource counts"


def _alphas(problem: Problem, alpha: float | None) -> FloatArray:
    alpha_k = np.where(np.isnan(problem.alpha_k), DEFAULT_ALPHA if alpha is None else alpha, problem.alpha_k)
    return np.where(problem.utility_a_k == 0, 1.0, alpha_k)


def _has_one_server(problem: Problem) -> bool:
    return len(problem.server_names) == 1 or problem.is_pooled


def _can_all_use_all(problem: Problem, alpha: float | None) -> bool:
    del alpha
    return bool(problem.eligible_ik.all() and (compute_gamma(problem.capacity_kr, problem.demand_ir) > 0).all())


def _have_all_come(problem: Problem, alpha: float | None) -> bool:
    del alpha
    return problem.expected_tenants in {None, len(problem.tenant_names)}


def _count_levels_only(problem: Problem, alpha: float | None) -> bool:
    del alpha
    tree = problem.tree
    if tree is None:
        return bool((problem.resource_weight_ir == 1).all())
    bounds = tree.guarantees.amount_b.size + tree.limits.amount_b.size
    is_plain = (problem.resource_weight_ir == 1).all() and (tree.resource_weight_nr == 1).all()
    return bool(bounds == 0 and is_plain and (tree.priority_v == tree.priority_v[0]).all())


ASSUMPTIONS: Mapping[str, Assumption] = MappingProxyType(
    {
        POSITIVE: lambda problem, _: bool((problem.demand_ir > 0).all()),
        ONE_SERVER: lambda problem, _: _has_one_server(problem),
        ELIGIBLE: lambda problem, _: bool(problem.eligible_ik.all()),
        ABLE: _can_all_use_all,
        ENDLESS: lambda problem, _: bool(np.isinf(problem.tasks_i).all()),
        DIVISIBLE: lambda problem, _: bool(problem.divisible_k.all()),
        ALPHA_FROM_1: lambda problem, alpha: bool((_alphas(problem, alpha) >= 1).all()),
        ALPHA_1_OR_ONE_SERVER: lambda problem, alpha: (
            _has_one_server(problem) or bool((_alphas(problem, alpha) == 1).all())
        ),
        ALL_CAME: _have_all_come,
        LEVELS_ONLY: _count_levels_only,
    }
)
_JOINT = "; "

# The proofs that hold in trees, limits included; the others are about tenants that are all siblings. The page on trees
# has them: the filling ends when no tenant can grow.
PROVED_IN_TREES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "drfh": ("pareto-optimality", "subtree-sharing-incentive"),
        "tsf": ("pareto-optimality", "subtree-sharing-incentive"),
        "ps-dsf": ("subtree-sharing-incentive",),
    }
)


def split_assumptions(guarantee: Guarantee) -> tuple[str, ...]:
    """Return the sentences that a guarantee assumes."""
    return tuple(guarantee.assumptions.split(_JOINT)) if guarantee.assumptions else ()


def is_guaranteed(mechanism_id: str, property_id: str, problem: Problem, *, alpha: float | None = None) -> bool:
    """Return whether the property is proved for this mechanism on this problem.

    >>> from fairbind.fairness.problems.problem import make_problem
    >>> is_guaranteed("drf", "population-monotonicity", make_problem([[9, 18]], [[1, 4], [3, 1]]))
    True
    >>> is_guaranteed("drf", "population-monotonicity", make_problem([[9, 18]], [[1, 0], [3, 1]]))
    False
    """
    guarantee = GUARANTEES[mechanism_id][property_id]
    if problem.tree is not None and not _is_proved_in(problem.tree, mechanism_id, property_id):
        return False
    assumed = split_assumptions(guarantee)
    if guarantee.standing is Standing.NOT_REFUTED or (guarantee.standing is Standing.FAILS and not assumed):
        return False
    return all(ASSUMPTIONS[sentence](problem, alpha) for sentence in assumed)


def _is_proved_in(tree: Tree, mechanism_id: str, property_id: str) -> bool:
    """Return whether the proof is also one for tenants in this tree.

    What is guaranteed on some servers stays there, though others might run more if it moved.
    """
    keeps_places = not tree.guarantees.on_bk.all()
    is_hindered = property_id == "pareto-optimality" and keeps_places
    return property_id in PROVED_IN_TREES.get(mechanism_id, ()) and not is_hindered


def _proved(source: str, *assumed: str, beyond: Counterexample | None = None) -> Guarantee:
    """Return a property that holds under these assumptions; beyond: an example that breaks one of them."""
    return Guarantee(Standing.PROVED, _JOINT.join(assumed), source, beyond)


def _fails(source: str, counterexample: Counterexample, *unless: str) -> Guarantee:
    """Return a property that does not hold; unless: the assumptions under which it is proved."""
    return Guarantee(Standing.FAILS, _JOINT.join(unless), source, counterexample)


def _open(source: str, *assumed: str, beyond: Counterexample | None = None) -> Guarantee:
    """Return a property neither proved nor refuted under these assumptions; beyond: an example without them."""
    return Guarantee(Standing.NOT_REFUTED, _JOINT.join(assumed), source, beyond)


_DRF_PAPER = "Ghodsi et al., NSDI 2011"
_DRFH_PAPER = "Wang et al., TPDS 2015"
_PS_DSF_PAPER = "Khamse-Ashari et al."
_DRBF_PAPER = "Zhao et al., 2018"
_DYNAMIC_PAPER = "Kash et al., JAIR 2014; Li et al., 2019"
_SEARCHED = "searched for on random and adversarial problems"

# Here, for every mechanism that makes levels (tasks x something / weight) lexicographically max-min: if i had use for
# what j holds on a server, j needs all that i needs there; were j's level higher, a little of it could go to i. So j's
# level is at most i's, and then j's bundle runs no more of i's tasks than i has (for drfh because of i's dominant
# resource, for tsf because gamma_jk x min_r d_jr / d_ir <= gamma_ik on every server).
_LEXICOGRAPHIC = "here: what i could use of a higher level would have been given to it"
# The proof stands in docs/mechanisms/drfh.md. All that it asks of a level is that the stated level of a bundle is no
# less than the true level of the true tasks that could run with it.
_NO_LIE_PAYS = "in general here, for lexicographic optima: see the proof in the page on drfh"
_NO_GROUP_GAINS = "here: the same proof, for groups of which every member gains, in the page on drfh"
_FROM_ENVY_FREENESS = "follows from envy-freeness"
_FROM_SHARING = "follows from sharing incentive: the slices are such a partition"
_ALONE = "here: a group of one"
_ENTITLED = "here: each tenant's equal part of its dominant resource is a row of the program"

# At the first level at which a resource is full, siblings with tasks left are at it, and what all siblings hold of it
# sums to 1; so no level is below the weight's part, down to the leaves. The page on trees has the rest.
_FIRST_FULL = "here: levels when the first resource is full, in the page on trees"

_DRF: Mapping[str, Guarantee] = {
    "sharing-incentive": _proved(f"{_DRF_PAPER}, section 5"),
    "weak-sharing-incentive": _proved(_FROM_SHARING),
    "envy-freeness": _proved(f"{_DRF_PAPER}, section 5"),
    "envy-freeness-up-to-one-task": _proved(_FROM_ENVY_FREENESS),
    "pareto-optimality": _proved(f"{_DRF_PAPER}, section 5; Parkes et al., 2015, for zero demands"),
    "strategy-proofness": _proved(
        f"{_DRF_PAPER}, section 5; Parkes et al., 2015, for zero demands; Li et al., 2014, for finite tasks"
    ),
    "group-strategy-proofness": _proved(_NO_GROUP_GAINS),
    "single-server-reduction": _proved("by definition"),
    "single-resource-reduction": _proved(f"{_DRF_PAPER}, table 2"),
    "bottleneck-fairness": _proved(f"{_DRF_PAPER}, table 2"),
    # With positive demands each tenant that has not all its tasks stops at one level, which a departure only raises.
    "population-monotonicity": _proved(f"{_DRF_PAPER}, table 2", POSITIVE, beyond=counterexamples.DRF_POPULATION),
    "resource-monotonicity": _fails(f"{_DRF_PAPER}, section 5.3", counterexamples.DRF_RESOURCES),
}

_DRFH: Mapping[str, Guarantee] = {
    "sharing-incentive": _fails(
        f"{_DRFH_PAPER}, proposition 4; on one server it is drf", counterexamples.DRFH_SHARING, ONE_SERVER
    ),
    # Here, in general. Let those be low whose share of every resource is below their part; who is not low, or has all
    # its tasks, gains by no partition. The low keep what they have, and all that is left or held by others is divided
    # in proportion to what each still lacks. On each server a low tenant that wants more lacks a resource of which
    # all is held by tenants that are not above it, as the levels are lexicographically max-min. These are low, too,
    # and keep it, so the tenant runs no more with all that it is given.
    "weak-sharing-incentive": _proved(f"{_DRFH_PAPER}, proposition 5, for one level; in general here"),
    "envy-freeness": _proved(f"{_DRFH_PAPER}, proposition 1; {_LEXICOGRAPHIC}"),
    "envy-freeness-up-to-one-task": _proved(_FROM_ENVY_FREENESS),
    "pareto-optimality": _proved(f"{_DRFH_PAPER}, proposition 2; in general as a lexicographic optimum"),
    "strategy-proofness": _proved(f"{_DRFH_PAPER}, proposition 3, for one level; {_NO_LIE_PAYS}"),
    "eligibility-strategy-proofness": _proved(_NO_LIE_PAYS),
    "group-strategy-proofness": _proved(_NO_GROUP_GAINS),
    "single-server-reduction": _proved(f"{_DRFH_PAPER}, proposition 6"),
    "single-resource-reduction": _proved(f"{_DRFH_PAPER}, proposition 7"),
    # Here: if rho is the bottleneck of all servers for i, d_ir c_k,rho <= d_i,rho c_kr for all k, and so in the sums.
    "bottleneck-fairness": _fails(
        f"{_PS_DSF_PAPER}, section 2.2; proved then in {_DRFH_PAPER}, proposition 8",
        counterexamples.DRFH_BOTTLENECK,
        ABLE,
    ),
    "population-monotonicity": _proved(
        f"{_DRFH_PAPER}, proposition 9", ABLE, POSITIVE, beyond=counterexamples.DRF_POPULATION
    ),
    "resource-monotonicity": _fails("here", counterexamples.DRFH_RESOURCES),
    "subtree-sharing-incentive": _proved(_FIRST_FULL, ONE_SERVER, LEVELS_ONLY),
}

_TSF: Mapping[str, Guarantee] = {
    # With all servers for each tenant the even split gives all the same task share, and the least share is the most.
    "sharing-incentive": _fails(
        f"here, against table 1 of {_PS_DSF_PAPER}; proved then in Wang et al., SC 2016",
        counterexamples.TSF_SHARING,
        ELIGIBLE,
    ),
    "weak-sharing-incentive": _proved(_FROM_SHARING, ELIGIBLE),
    "envy-freeness": _proved(f"Wang et al., SC 2016; {_LEXICOGRAPHIC}"),
    "envy-freeness-up-to-one-task": _proved(_FROM_ENVY_FREENESS),
    "pareto-optimality": _proved("Wang et al., SC 2016; in general as a lexicographic optimum"),
    "strategy-proofness": _proved(f"Wang et al., SC 2016, for their model; {_NO_LIE_PAYS}"),
    "eligibility-strategy-proofness": _proved(_NO_LIE_PAYS),
    "group-strategy-proofness": _proved(_NO_GROUP_GAINS),
    "single-server-reduction": _proved(f"{_PS_DSF_PAPER}, section 2.2"),
    "single-resource-reduction": _proved("here: the task share is the share of the resource"),
    "bottleneck-fairness": _fails(
        f"{_PS_DSF_PAPER}, section 2.2; then the task share is the share of the bottleneck",
        counterexamples.TSF_BOTTLENECK,
        ABLE,
    ),
    "population-monotonicity": _proved(
        "here: all are at one level, which a departure only raises",
        ABLE,
        POSITIVE,
        beyond=counterexamples.DRF_POPULATION,
    ),
    "resource-monotonicity": _fails("here", counterexamples.TSF_RESOURCES),
    "subtree-sharing-incentive": _proved(_FIRST_FULL, ONE_SERVER, LEVELS_ONLY),
}

_ASSET_FAIRNESS: Mapping[str, Guarantee] = {
    "sharing-incentive": _fails(f"{_DRF_PAPER}, theorem 1", counterexamples.ASSET_SHARING),
    "weak-sharing-incentive": _fails("on one server it is sharing incentive", counterexamples.ASSET_SHARING),
    "envy-freeness": _proved(f"{_DRF_PAPER}, table 2"),
    "envy-freeness-up-to-one-task": _proved(_FROM_ENVY_FREENESS),
    "pareto-optimality": _proved(f"{_DRF_PAPER}, table 2"),
    "strategy-proofness": _proved(f"{_DRF_PAPER}, table 2; {_NO_LIE_PAYS}"),
    "group-strategy-proofness": _proved(_NO_GROUP_GAINS),
    "single-server-reduction": _fails(f"{_DRF_PAPER}, section 5.1", counterexamples.ASSET_REDUCTION),
    "single-resource-reduction": _proved(f"{_DRF_PAPER}, table 2"),
    "bottleneck-fairness": _fails(f"{_DRF_PAPER}, theorem 2", counterexamples.ASSET_BOTTLENECK),
    "population-monotonicity": _proved(f"{_DRF_PAPER}, table 2", POSITIVE, beyond=counterexamples.ASSET_POPULATION),
    "resource-monotonicity": _fails(f"{_DRF_PAPER}, theorem 3", counterexamples.ASSET_RESOURCES),
}

_CEEI: Mapping[str, Guarantee] = {
    "sharing-incentive": _proved(f"{_DRF_PAPER}, table 2: each tenant can afford its part of everything"),
    "weak-sharing-incentive": _proved(_FROM_SHARING),
    "envy-freeness": _proved(f"{_DRF_PAPER}, table 2: each tenant can afford what another has, by weight"),
    "envy-freeness-up-to-one-task": _proved(_FROM_ENVY_FREENESS),
    "pareto-optimality": _proved("first theorem of welfare economics"),
    "strategy-proofness": _fails(f"{_DRF_PAPER}, figure 6", counterexamples.CEEI_LIE),
    "group-strategy-proofness": _fails(_ALONE, counterexamples.CEEI_LIE),
    "single-server-reduction": _fails("here", counterexamples.CEEI_REDUCTION),
    "single-resource-reduction": _proved(f"{_DRF_PAPER}, table 2"),
    "bottleneck-fairness": _proved(f"{_DRF_PAPER}, table 2"),
    "population-monotonicity": _fails(
        f"{_DRF_PAPER}, section 6.1.2; this example here", counterexamples.CEEI_POPULATION
    ),
    "resource-monotonicity": _fails("here", counterexamples.CEEI_RESOURCES),
}

_DRBF: Mapping[str, Guarantee] = {
    "sharing-incentive": _proved(f"{_ENTITLED} (without it theorem 2 of {_DRBF_PAPER} is wrong)"),
    "weak-sharing-incentive": _proved(_FROM_SHARING),
    "envy-freeness": _proved(f"{_DRBF_PAPER}, theorem 1: rows of the program"),
    "envy-freeness-up-to-one-task": _proved(_FROM_ENVY_FREENESS),
    # A queue stops as soon as one of its tenants has to; with positive demands all have to.
    "pareto-optimality": _proved(_DRBF_PAPER, POSITIVE, beyond=counterexamples.DRBF_PARETO),
    "strategy-proofness": _fails(f"here, against theorem 3 of {_DRBF_PAPER}", counterexamples.DRBF_LIE),
    "group-strategy-proofness": _fails(_ALONE, counterexamples.DRBF_LIE),
    "single-server-reduction": _fails("here", counterexamples.DRBF_REDUCTION),
    "single-resource-reduction": _proved("here: there is one queue"),
    "bottleneck-fairness": _proved("here: equal parts of the bottleneck are rows of the program, and use all of it"),
    "population-monotonicity": _fails("here", counterexamples.DRBF_POPULATION),
    "resource-monotonicity": _fails("here", counterexamples.DRBF_RESOURCES),
}

_DYNAMIC_DRF: Mapping[str, Guarantee] = {
    "sharing-incentive": _proved(_DYNAMIC_PAPER, ALL_CAME, beyond=counterexamples.DYNAMIC_WAITING),
    "weak-sharing-incentive": _proved(_FROM_SHARING, ALL_CAME, beyond=counterexamples.DYNAMIC_WAITING),
    "envy-freeness": _fails("here: who came early may keep more", counterexamples.DYNAMIC_ENVY),
    "envy-freeness-up-to-one-task": _fails("here: who came early may keep more", counterexamples.DYNAMIC_ENVY_OF_TASKS),
    "pareto-optimality": _proved(_DYNAMIC_PAPER, ALL_CAME, beyond=counterexamples.DYNAMIC_WAITING),
    "strategy-proofness": _proved(_DYNAMIC_PAPER, POSITIVE),
    "group-strategy-proofness": _open(_SEARCHED, POSITIVE),
    "single-server-reduction": _fails("here: who came early may keep more", counterexamples.DYNAMIC_REDUCTION),
    "single-resource-reduction": _proved(
        "here: each tenant has its part at every step", ALL_CAME, beyond=counterexamples.DYNAMIC_WAITING
    ),
    "bottleneck-fairness": _proved(
        "here: each tenant has its part of the bottleneck at every step",
        ALL_CAME,
        ABLE,
        beyond=counterexamples.DYNAMIC_WAITING_AT_BOTTLENECK,
    ),
    "population-monotonicity": _fails("here: the others have waited for less", counterexamples.DYNAMIC_POPULATION),
    "resource-monotonicity": _fails("here", counterexamples.DYNAMIC_RESOURCES),
    "dynamic-sharing-incentive": _proved(_DYNAMIC_PAPER),
    "dynamic-envy-freeness": _proved(_DYNAMIC_PAPER),
    "dynamic-pareto-optimality": _proved(_DYNAMIC_PAPER),
}

# Envy-freeness here, as the paper's proof for its aggregated form: where i could use what j has on server k and envied
# it, i's virtual share there would be below j's (gamma_jk x min_r d_jr / d_ir <= gamma_ik), but some resource that i
# needs is used up by those who are not above i.
# What it gives on one resource: a tenant that is used to displace another has no higher level, along any chain of
# servers; but one that has all its tasks need not be stopped on every server, and the chain ends.
_PS_DSF: Mapping[str, Guarantee] = {
    "sharing-incentive": _proved(f"{_PS_DSF_PAPER}, table 1"),
    "weak-sharing-incentive": _proved(_FROM_SHARING),
    "envy-freeness": _proved(f"{_PS_DSF_PAPER}, table 1; here: server by server"),
    "envy-freeness-up-to-one-task": _proved(_FROM_ENVY_FREENESS),
    "pareto-optimality": _fails(f"{_PS_DSF_PAPER}, section 2.3; this example here", counterexamples.PS_DSF_PARETO),
    # Hiding pays whichever division is chosen: with the truth and with the lie there is one. The lie about a demand
    # pays by the choice: it allows another division, too, in which nothing is gained.
    "strategy-proofness": _fails(
        "here: with finite tasks, by which of several divisions is chosen", counterexamples.PS_DSF_DEMAND_LIE
    ),
    "eligibility-strategy-proofness": _fails("here: it can pay to hide a server", counterexamples.PS_DSF_HIDING),
    "group-strategy-proofness": _fails(_ALONE, counterexamples.PS_DSF_HIDING),
    "single-server-reduction": _proved(f"{_PS_DSF_PAPER}, section 2.3"),
    "single-resource-reduction": _proved(
        "here: no tenant below can be displaced, by however long a chain",
        ENDLESS,
        beyond=counterexamples.PS_DSF_SATISFIED,
    ),
    "bottleneck-fairness": _proved(f"{_PS_DSF_PAPER}, table 1", ENDLESS, beyond=counterexamples.PS_DSF_SATISFIED),
    "population-monotonicity": _open(_SEARCHED, POSITIVE, ENDLESS, beyond=counterexamples.PS_DSF_POPULATION),
    "resource-monotonicity": _fails("as drf on one server", counterexamples.PS_DSF_RESOURCES),
    "subtree-sharing-incentive": _proved(_FIRST_FULL, ONE_SERVER, LEVELS_ONLY),
}

# Finite tasks: for a tenant that has not all its own, those that have all theirs and are below it can be bounded by its
# own level, as sum_r lambda_kr d_mr <= sum_r lambda_kr c_kr / gamma_mk; the rest of the paper's proof stays.
_ALPHA_PF_VDS: Mapping[str, Guarantee] = {
    "sharing-incentive": _proved(
        f"{_PS_DSF_PAPER}, theorem 3; here: also with finite tasks",
        ALPHA_FROM_1,
        beyond=counterexamples.ALPHA_SHARING,
    ),
    "weak-sharing-incentive": _proved(_FROM_SHARING, ALPHA_FROM_1, beyond=counterexamples.ALPHA_WEAK_SHARING),
    "envy-freeness": _proved(
        f"{_PS_DSF_PAPER}, theorem 3; here: server by server", ALPHA_FROM_1, beyond=counterexamples.ALPHA_ENVY
    ),
    "envy-freeness-up-to-one-task": _proved(
        _FROM_ENVY_FREENESS, ALPHA_FROM_1, beyond=counterexamples.ALPHA_ENVY_OF_TASKS
    ),
    # One server alone maximises an increasing function of each tenant's tasks.
    "pareto-optimality": _fails(
        f"here; proved then in {_PS_DSF_PAPER}, theorem 3, and here: one server maximises what only more tasks raise",
        counterexamples.ALPHA_PARETO,
        ALPHA_1_OR_ONE_SERVER,
    ),
    "strategy-proofness": _fails(f"as ceei; {_DRF_PAPER}, figure 6", counterexamples.ALPHA_LIE),
    "eligibility-strategy-proofness": _fails(
        "here: who leaves a server may find less need of the others", counterexamples.ALPHA_HIDING
    ),
    "group-strategy-proofness": _fails(_ALONE, counterexamples.ALPHA_LIE),
    "single-server-reduction": _fails("here", counterexamples.ALPHA_REDUCTION),
    "single-resource-reduction": _proved(f"{_PS_DSF_PAPER}, theorem 4", ENDLESS),
    "bottleneck-fairness": _proved(f"{_PS_DSF_PAPER}, theorem 4", ENDLESS),
    "population-monotonicity": _fails("here", counterexamples.ALPHA_POPULATION),
    "resource-monotonicity": _fails("here", counterexamples.ALPHA_RESOURCES),
}

# Finite tasks here: all servers fill in step, so on each of them those that another resource or the end of its tasks
# stopped are not above who still moves. Who leaves lets every server fill later, and so the others stop no later.
_PER_SERVER_DRF: Mapping[str, Guarantee] = {
    "sharing-incentive": _proved(f"{_DRFH_PAPER}, section 4.5: on every server; here: also with finite tasks"),
    "weak-sharing-incentive": _proved(_FROM_SHARING),
    "envy-freeness": _proved(f"{_DRF_PAPER}, section 5, on every server; here: also with finite tasks"),
    "envy-freeness-up-to-one-task": _proved(_FROM_ENVY_FREENESS),
    "pareto-optimality": _fails(f"{_DRFH_PAPER}, section 3.4", counterexamples.PER_SERVER_PARETO, ONE_SERVER),
    "strategy-proofness": _proved(f"{_DRF_PAPER}, section 5, on every server", ENDLESS),
    "eligibility-strategy-proofness": _proved(
        "here: what it leaves on one server changes nothing on the others",
        ENDLESS,
        beyond=counterexamples.PER_SERVER_HIDING,
    ),
    "group-strategy-proofness": _fails(
        "here: two leave each other the servers that suit them", counterexamples.PER_SERVER_COLLUSION, ONE_SERVER
    ),
    "single-server-reduction": _proved("by definition"),
    "single-resource-reduction": _fails(
        "here; proved then: every server is divided equally", counterexamples.PER_SERVER_ONE_RESOURCE, ELIGIBLE
    ),
    "bottleneck-fairness": _fails(
        "here; proved then: every server is divided equally", counterexamples.PER_SERVER_BOTTLENECK, ABLE
    ),
    "population-monotonicity": _proved(
        f"{_DRF_PAPER}, table 2, on every server", POSITIVE, beyond=counterexamples.PER_SERVER_POPULATION
    ),
    "resource-monotonicity": _fails("as drf on one server", counterexamples.PER_SERVER_RESOURCES),
}

GUARANTEES: Mapping[str, Mapping[str, Guarantee]] = MappingProxyType(
    {
        "drf": _DRF,
        "drfh": _DRFH,
        "tsf": _TSF,
        "per-server-drf": _PER_SERVER_DRF,
        "ps-dsf": _PS_DSF,
        "alpha-pf-vds": _ALPHA_PF_VDS,
        "asset-fairness": _ASSET_FAIRNESS,
        "ceei": _CEEI,
        "drbf": _DRBF,
        "dynamic-drf": _DYNAMIC_DRF,
    }
)
