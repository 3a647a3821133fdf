"""Small problems on which a mechanism violates a property: `guarantees` refers to them, and tests replay them.

Each has the form that a reader would type: `problem` as `parse_problem` takes it, `options` of the call, and `lies`
(the reports of tenants that lie, instead of their entries in the problem). The smallest known examples were kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Counterexample: TypeAlias = Mapping[str, Any]
Numbers: TypeAlias = Sequence[float]

_RESOURCES = ("cpu", "memory")


def _amounts(numbers: Numbers) -> dict[str, float]:
    return dict(zip(_RESOURCES, numbers, strict=False))


def _example(
    capacity_kr: Sequence[Numbers],
    demand_ir: Sequence[Numbers],
    *,
    weights: Numbers | None = None,
    tasks: Sequence[float | None] | None = None,
    eligible: Sequence[Sequence[int]] | None = None,
    expected_tenants: int | None = None,
    options: Mapping[str, float] | None = None,
    lies: Sequence[Mapping[str, Any]] = (),
) -> Counterexample:
    """Return a counterexample from numbers. tasks: None for unlimited. eligible: server numbers, from 0, per tenant."""
    servers = [{"name": f"s{k + 1}", "capacity": _amounts(row)} for k, row in enumerate(capacity_kr)]
    tenants: list[dict[str, Any]] = [{"name": f"t{i + 1}", "demand": _amounts(row)} for i, row in enumerate(demand_ir)]
    for i, tenant in enumerate(tenants):
        if weights is not None:
            tenant["weight"] = weights[i]
        if tasks is not None and tasks[i] is not None:
            tenant["tasks"] = tasks[i]
        if eligible is not None:
            tenant["eligible"] = [f"s{k + 1}" for k in eligible[i]]
    problem: dict[str, Any] = {
        "resources": list(_RESOURCES[: len(capacity_kr[0])]),
        "servers": servers,
        "tenants": tenants,
    }
    if expected_tenants is not None:
        problem["expectedTenants"] = expected_tenants
    example: dict[str, Any] = {"problem": problem, "options": dict(options or {})}
    if lies:
        example["lies"] = [dict(lie) for lie in lies]
    return example


# With twice the processors a task of t1 is a smaller share: t1 gets more tasks, and t2 fewer.
DRF_RESOURCES = _example([(1, 1)], [(2, 1), (1, 2)])
# Without t2, t3 may have all of the memory, and takes processors from t1, who needs no memory.
DRF_POPULATION = _example([(1, 1)], [(1, 0), (0, 1), (1, 2)])

# Ghodsi et al., theorem 1: t2 gets 12 of 30 of either resource.
ASSET_SHARING = _example([(30, 30)], [(1, 3), (1, 1)])
# The example of their section 4.1: 2.52 and 2.16 tasks where drf gives 3 and 2.
ASSET_REDUCTION = _example([(9, 18)], [(1, 4), (3, 1)])
# Theorem 2: 3 tasks each, of which 9 and 12 of the bottleneck.
ASSET_BOTTLENECK = _example([(21, 21)], [(3, 2), (4, 1)])
ASSET_POPULATION = _example([(1, 2)], [(1, 0), (0, 1), (2, 1)])
# Theorem 3: with twice the memory a task of t2 costs a quarter less and one of t1 only a sixth, so t1 gets fewer.
ASSET_RESOURCES = _example([(70, 70)], [(4, 2), (1, 1)])

# Ghodsi et al., figure 6: t1 makes memory dear for t2 by claiming that it needs eight times as much.
CEEI_LIE = _example([(100, 100)], [(16, 1), (1, 2)], lies=[{"tenant": "t1", "demand": {"cpu": 16, "memory": 8}}])
CEEI_REDUCTION = _example([(3, 4)], [(1, 2), (2, 1)])
# While t3 is there, memory is dear, and t1 cannot take t2's processors.
CEEI_POPULATION = _example([(1, 1)], [(1, 2), (3, 1), (1, 3)])
CEEI_RESOURCES = DRF_RESOURCES

# On s1 and s2 as one, a task of t1 takes 2/3 of the memory and one of t2 1/3 of either, though t1's slice of s1 is 1/2.
DRFH_SHARING = _example([(1, 2), (2, 1)], [(1, 2), (1, 1)])
# Only s2 counts, where the processors are the bottleneck; but they are compared with the memory of s1.
DRFH_BOTTLENECK = _example([(2, 1), (1, 2)], [(1, 1), (1, 2)], eligible=[[1], [1]])
DRFH_RESOURCES = _example([(1, 1), (2, 1)], [(2, 1), (2, 2)])

# Both may use s2 only, but task shares are measured by s1, too, where their tasks differ as they do not on s2.
TSF_SHARING = TSF_BOTTLENECK = _example([(3, 4), (1, 3)], [(1, 2), (1, 1)], eligible=[[1], [1]])
TSF_RESOURCES = _example([(2, 1), (1, 1)], [(1, 3), (2, 1)])

# The example of section 6.2 of Zhao et al., whose theorem 3 says that no lie pays: t1 asks for more of what the other
# queue is short of.
DRBF_LIE = _example(
    [(18, 36)],
    [(3, 1), (5, 3), (1, 4), (2, 7)],
    lies=[{"tenant": "t1", "demand": {"cpu": 3, "memory": 5}}],
)
DRBF_REDUCTION = _example([(2, 2)], [(3, 1), (1, 2)])
# t1 stops with t3, who needs processors, while memory is left for both.
DRBF_PARETO = _example([(3, 1)], [(0, 2), (1, 0), (2, 1)])
DRBF_POPULATION = CEEI_POPULATION
DRBF_RESOURCES = DRF_RESOURCES

# When t3 comes, its part is a third; before, t1 and t2 had got more than that, and keep it.
DYNAMIC_ENVY = _example([(1, 1)], [(1, 2), (2, 1), (2, 1)])
# The same with so much that it is about whole tasks.
DYNAMIC_ENVY_OF_TASKS = _example([(100, 100)], [(1, 2), (2, 1), (2, 1)])
DYNAMIC_REDUCTION = _example([(1, 1)], [(1, 2), (2, 1), (1, 1)])
# Three came and five will: two fifths of everything wait for them.
DYNAMIC_WAITING = _example([(10, 10)], [(1, 2), (2, 1), (1, 1)], expected_tenants=5)
DYNAMIC_WAITING_AT_BOTTLENECK = _example([(10, 10)], [(2, 1), (1, 1)], expected_tenants=4)
DYNAMIC_POPULATION = _example([(4, 3)], [(6, 1), (1, 5), (6, 5)])
DYNAMIC_RESOURCES = DRF_RESOURCES

# Two servers that hardly differ: each goes to one tenant, though together they could run almost twice as much.
PS_DSF_PARETO = _example([(20, 20), (19, 21)], [(10, 1), (1, 10)])
# t2 has few tasks and could run them on s2, but sits on s1, where its share is below that of t1, who has no other.
PS_DSF_SATISFIED = _example([(1,), (1,)], [(1,), (1,)], tasks=[None, 0.5], eligible=[[0], [0, 1]])
# t2 leaves s2 to t1, who then has less need of s1, where t2 gains more than it had on s2.
PS_DSF_HIDING = _example([(6, 4), (2, 1)], [(1, 3), (3, 1)], lies=[{"tenant": "t2", "eligible": ["s1"]}])
# t2 says that it needs half the memory, and gets all its tasks; what they hold runs more of the true ones, too.
# (It could be left with 1.2 of them, which hold what 0.6 true ones need: that is a division as well.)
PS_DSF_DEMAND_LIE = _example(
    [(8, 3), (5, 3)],
    [(5, 1), (2, 5)],
    tasks=[None, 1.5],
    lies=[{"tenant": "t2", "demand": {"cpu": 2, "memory": 2.5}}],
)
# Without t2, t3 runs more of its few tasks on s1, which suits t1 better than s2.
PS_DSF_POPULATION = _example([(2, 12), (4, 3)], [(1, 8), (6, 1), (1, 1)], tasks=[None, None, 1.5])
PS_DSF_RESOURCES = DRF_RESOURCES

_PROPORTIONAL_LESS = _example([(5, 2), (3, 5)], [(1, 1), (1, 2), (1, 1)], options={"alpha": 0.5})
ALPHA_SHARING = ALPHA_ENVY = _PROPORTIONAL_LESS
# On one server there is one equal partition.
ALPHA_WEAK_SHARING = _example([(6, 2)], [(4, 1), (3, 4)], options={"alpha": 0.5})
ALPHA_ENVY_OF_TASKS = _example([(500, 200), (300, 500)], [(1, 1), (1, 2), (1, 1)], options={"alpha": 0.5})
# A large alpha is almost PS-DSF.
ALPHA_PARETO = _example([(2, 2), (1, 3)], [(4, 1), (1, 4)], options={"alpha": 4})
ALPHA_LIE = CEEI_LIE
# t1 leaves s1 to the others, who then have less need of s2.
ALPHA_HIDING = _example([(2, 2), (6, 4)], [(2, 3), (3, 1), (2, 4)], lies=[{"tenant": "t1", "eligible": ["s2"]}])
ALPHA_REDUCTION = CEEI_REDUCTION
ALPHA_POPULATION = CEEI_POPULATION
ALPHA_RESOURCES = _example([(5, 6)], [(1, 2), (2, 1)])

# Wang et al., figures 2 to 4: each server suits one tenant; 6 tasks each could be 10.
PER_SERVER_PARETO = _example([(2, 12), (12, 2)], [(0.2, 1), (1, 0.2)])
# t2 gets a part of s2 as if it had nothing on s1.
PER_SERVER_ONE_RESOURCE = _example([(3,), (2,)], [(2,), (2,)], eligible=[[0], [0, 1]])
PER_SERVER_BOTTLENECK = _example([(1, 1), (2, 1)], [(2, 1), (2, 2)], eligible=[[0, 1], [0]])
# t1 leaves s1, where a task costs it as much as t2, so that t2 gets its few tasks there and is done earlier on s2.
PER_SERVER_HIDING = _example(
    [(3, 24), (24, 24)],
    [(1, 1), (1, 8), (1, 1)],
    tasks=[None, 2.5, None],
    eligible=[[0, 1], [0, 1], [0]],
    lies=[{"tenant": "t1", "eligible": ["s2"]}],
)
# On the servers of PER_SERVER_PARETO each leaves to the other what suits that one better: 10 tasks each instead of 6.
PER_SERVER_COLLUSION = _example(
    [(2, 12), (12, 2)],
    [(0.2, 1), (1, 0.2)],
    lies=[{"tenant": "t1", "eligible": ["s1"]}, {"tenant": "t2", "eligible": ["s2"]}],
)
PER_SERVER_POPULATION = DRF_POPULATION
PER_SERVER_RESOURCES = DRF_RESOURCES
