"""Divides the servers of an instance along its tree, by levels over the whole cluster.

Filling needs inequalities, servers give them one at a time: the tree is filled within those that are known, and where
the end cannot be placed (`placing`), its prices are one more. When it can be placed, it is the answer: a filling within
fewer inequalities that keeps all others is the filling within all. So the inequalities are the whole proof, and
with them and a placement one checks the answer without a linear program.

Guarantees of some servers come first, alone: each tenant's tasks on servers that the same guarantees count are a unit,
and only what is guaranteed grows. What they get there is kept while the tree is filled with all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.tree import ROOT, BoolArray, FloatArray, IntArray, Tree
from fairbind.fairness.solvers.effort import Effort
from fairbind.fairness.solvers.trees.filling import Filling, Rows, State
from fairbind.fairness.solvers.trees.forest import Forest, Promises, Shares
from fairbind.fairness.solvers.trees.placing import Placing, Prices, Servers, make_inequality
from fairbind.fairness.solvers.trees.tolerances import PLACED
from fairbind.model.errors import SolverError

MOST_INEQUALITIES = 2000


@dataclass(frozen=True, slots=True, eq=False)
class Measure:
    """What a mechanism compares. level_i: of a tenant's task. shares: of inner tenants, see `forest`.

    divisor_nj: of the components of each inner tenant.
    """

    level_i: FloatArray
    shares: Shares
    divisor_nj: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Division:
    """An end of the filling: tasks by tenant and class (I, K), totals, and the prices of its inequalities.

    kept: tasks of a tenant, with the classes that they are kept on.
    """

    tasks_ik: FloatArray
    totals_i: FloatArray
    guaranteed: tuple[Prices, ...]
    prices: tuple[Prices, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Stage:
    """A filling to do: the forest over the units, what they can be placed on, and where they begin."""

    forest: Forest
    servers: Servers
    begin_u: FloatArray
    tenant_u: IntArray
    promised_only: bool


def divide(instance: Instance, tree: Tree, measure: Measure, effort: Effort | None = None) -> Division:
    """Return the division. Raises SolverError, also when more effort is needed."""
    kept: list[tuple[int, BoolArray, float]] = []
    guaranteed: tuple[Prices, ...] = ()
    if _needs_parts(tree):
        stage = _make_parts(instance, tree, measure)
        end, _, guaranteed = _fill(stage, instance, effort)
        kept = _keep(stage, end)
    stage = _make_whole(instance, tree, measure, kept)
    end, tasks_ik, prices = _fill(stage, instance, effort)
    return Division(tasks_ik, end.tasks_u, guaranteed, prices)


def replay(
    instance: Instance, tree: Tree, measure: Measure, guaranteed: Sequence[Prices], prices: Sequence[Prices]
) -> tuple[FloatArray, list[tuple[int, BoolArray, float]]]:
    """Return the totals at the end of the filling within these inequalities, and what is kept on which classes."""
    kept: list[tuple[int, BoolArray, float]] = []
    if _needs_parts(tree):
        stage = _make_parts(instance, tree, measure)
        kept = _keep(stage, _run(stage, instance, guaranteed))
    end = _run(_make_whole(instance, tree, measure, kept), instance, prices)
    return end.tasks_u, kept


def pack_prices(prices: Sequence[Prices]) -> dict[str, FloatArray]:
    """Return the prices as arrays, one row for each inequality."""
    if not prices:
        return {}
    return {
        "prices_nkr": np.array([one.class_kr for one in prices]),
        "limitPrices_nl": np.array([one.limit_l for one in prices]),
        "keptPrices_nf": np.array([one.kept_f for one in prices]),
    }


def unpack_prices(packed: Mapping[str, Any]) -> tuple[Prices, ...]:
    """Return what `pack_prices` packed."""
    if not packed:
        return ()
    rows = zip(packed["prices_nkr"], packed["limitPrices_nl"], packed["keptPrices_nf"], strict=True)
    return tuple(Prices(*row) for row in rows)


def _needs_parts(tree: Tree) -> bool:
    return not bool(tree.guarantees.on_bk.all())


def _run(stage: _Stage, instance: Instance, prices: Sequence[Prices]) -> State:
    rows = _make_rows(stage.servers)
    for one in prices:
        rows = rows.plus(*make_inequality(stage.servers, one))
    filling = Filling(stage.forest, rows, instance.demand_ir.shape[1], promised_only=stage.promised_only)
    return filling.run(filling.start(stage.begin_u))[-1]


def _fill(stage: _Stage, instance: Instance, effort: Effort | None) -> tuple[State, FloatArray, tuple[Prices, ...]]:
    """Return the end, its tasks by unit and class, and the prices of the inequalities that it took."""
    prices: list[Prices] = []
    placing = Placing(stage.servers)
    rows = _make_rows(stage.servers)
    path: list[State] = []
    for _ in range(MOST_INEQUALITIES):
        filling = Filling(stage.forest, rows, instance.demand_ir.shape[1], promised_only=stage.promised_only)
        path[-1:] = filling.run(path[-1] if path else filling.start(stage.begin_u), effort)
        end = path[-1]
        if len(instance.capacity_kr) == 1:  # the rows are all that there is
            return end, end.tasks_u[:, None], ()
        part, tasks_uk, found = placing.place(stage.begin_u, end.tasks_u)
        if part >= 1 - PLACED:
            return end, tasks_uk, tuple(prices)
        need_u, amount = make_inequality(stage.servers, found)
        if not need_u @ end.tasks_u > amount * (1 + PLACED / 100):
            raise SolverError(f"the tree's end cannot be placed, and no price says why ({part:.12g} can)")
        prices.append(found)
        rows = rows.plus(need_u, amount)
        path = [state.with_another_row() for state in path[: _count_before(path, need_u, amount)]]
    raise SolverError(f"the tree's end cannot be placed after {MOST_INEQUALITIES} inequalities")


def _count_before(path: Sequence[State], need_u: FloatArray, amount: float) -> int:
    """Return how many states of a path are before an inequality is near: with it as well, the path begins with them."""
    return sum(bool(need_u @ state.tasks_u < amount * (1 - PLACED)) for state in path)


def _make_rows(servers: Servers) -> Rows:
    """Return what all servers have of each resource that a unit can use, and the limits that count all servers."""
    needs_ur = servers.demand_ur > 0
    found_kr: BoolArray = servers.usable_uk.T.astype(float) @ needs_ur > 0
    there_r = np.where(found_kr, servers.capacity_kr, 0.0).sum(axis=0)
    is_there_u: BoolArray = np.asarray(servers.usable_uk.any(axis=1))
    of_all_l = np.flatnonzero(servers.on_lk.all(axis=1))
    return Rows(
        np.concatenate([(servers.demand_ur * is_there_u[:, None]).T, servers.need_lu[of_all_l]]),
        np.concatenate([there_r, servers.amount_l[of_all_l]]),
        np.concatenate([np.arange(there_r.size), np.full(of_all_l.size, -1)]),
    )


def _make_whole(instance: Instance, tree: Tree, measure: Measure, kept: list[tuple[int, BoolArray, float]]) -> _Stage:
    """Return the filling of all: each tenant is a unit, and begins with what is kept for it."""
    tenants = instance.weight_i.size
    below_vi = tree.find_below()
    begin_i = np.zeros(tenants)
    for tenant, _, amount in kept:
        begin_i[tenant] += amount
    forest = Forest(
        parent_v=tree.parent_v,
        weight_v=np.concatenate([instance.weight_i, tree.weight_n]),
        priority_v=tree.priority_v,
        level_u=measure.level_i,
        single_v=np.zeros(tree.parent_v.size, dtype=np.bool_),
        mixed_v=tree.find_mixed(),
        divisor_vj=np.concatenate([np.ones((tenants, measure.divisor_nj.shape[1])), measure.divisor_nj]),
        limit_u=np.where(instance.usable_ik.any(axis=1), instance.limit_i, 0.0),
        shares=measure.shares,
        promises=_make_promises(instance, tree, instance.usable_ik, np.arange(tenants), below_vi, kept),
    )
    servers = _make_servers(instance, tree, instance.usable_ik, np.arange(tenants), below_vi)
    servers = replace(
        servers,
        unit_f=np.array([tenant for tenant, _, _ in kept], dtype=np.intp),
        kept_f=np.array([amount for _, _, amount in kept]),
        on_fk=np.array([on_k for _, on_k, _ in kept], dtype=np.bool_).reshape(-1, instance.capacity_kr.shape[0]),
    )
    return _Stage(forest, servers, begin_i, np.arange(tenants), promised_only=False)


def _make_parts(instance: Instance, tree: Tree, measure: Measure) -> _Stage:
    """Return the filling of what is guaranteed: a tenant is a vertex over its tasks on servers that count equally."""
    tenants = instance.weight_i.size
    _, cell_k = np.unique(tree.guarantees.on_bk.T, axis=0, return_inverse=True)
    cell_k = np.asarray(cell_k).reshape(-1)
    usable_ic = np.array([instance.usable_ik[:, cell_k == c].any(axis=1) for c in range(int(cell_k.max()) + 1)]).T
    tenant_u, cell_u = np.nonzero(usable_ic)
    units, vertices = tenant_u.size, tree.parent_v.size
    usable_uk = instance.usable_ik[tenant_u] & (cell_u[:, None] == cell_k)
    shares = measure.shares
    forest = Forest(
        parent_v=np.concatenate([units + tenant_u, np.where(tree.parent_v == ROOT, ROOT, units + tree.parent_v)]),
        weight_v=np.concatenate([np.ones(units), instance.weight_i, tree.weight_n]),
        priority_v=np.concatenate([np.zeros(units, dtype=np.intp), tree.priority_v]),
        level_u=measure.level_i[tenant_u],
        single_v=np.arange(units + vertices) < units + tenants,
        mixed_v=np.concatenate([np.zeros(units, dtype=np.bool_), tree.find_mixed()]),
        divisor_vj=np.concatenate([np.ones((units + tenants, measure.divisor_nj.shape[1])), measure.divisor_nj]),
        limit_u=instance.limit_i[tenant_u],
        shares=lambda used_up_r: shares(used_up_r)[tenant_u],
        promises=_make_promises(instance, tree, usable_uk, tenant_u, tree.find_below(), []),
    )
    forest = replace(forest, promises=replace(forest.promises, vertex_p=forest.promises.vertex_p + units))
    servers = _make_servers(instance, tree, usable_uk, tenant_u, tree.find_below())
    several = np.flatnonzero(np.isfinite(instance.limit_i) & (np.bincount(tenant_u, minlength=tenants) > 1))
    servers = replace(  # all parts of a tenant together are no more than its tasks
        servers,
        need_lu=np.concatenate([servers.need_lu, (tenant_u == several[:, None]).astype(float)]),
        amount_l=np.concatenate([servers.amount_l, instance.limit_i[several]]),
        on_lk=np.concatenate([servers.on_lk, np.ones((several.size, cell_k.size), dtype=np.bool_)]),
    )
    return _Stage(forest, servers, np.zeros(units), tenant_u, promised_only=True)


def _keep(stage: _Stage, end: State) -> list[tuple[int, BoolArray, float]]:
    """Return the tasks that the end has, by tenant and classes."""
    return [
        (int(stage.tenant_u[u]), stage.servers.usable_uk[u], float(end.tasks_u[u]))
        for u in np.flatnonzero(end.tasks_u > 0).tolist()
    ]


def _make_promises(
    instance: Instance,
    tree: Tree,
    usable_uk: BoolArray,
    tenant_u: IntArray,
    below_vi: BoolArray,
    kept: list[tuple[int, BoolArray, float]],
) -> Promises:
    """Return the guarantees. Tasks of a unit count where the guarantee counts all servers that the unit can use."""
    bounds = tree.guarantees
    need_pi = below_vi[bounds.vertex_b] * instance.demand_ir[:, bounds.resource_b].T
    inside_pu: BoolArray = ~np.asarray((usable_uk[None] & ~bounds.on_bk[:, None]).any(axis=2)) & usable_uk.any(axis=1)
    base_p = np.zeros(bounds.amount_b.size)
    for tenant, on_k, amount in kept:
        counts_p = ~inside_pu[:, tenant] & ~(on_k & ~bounds.on_bk).any(axis=1)
        base_p += counts_p * need_pi[:, tenant] * amount
    return Promises(bounds.vertex_b.copy(), bounds.amount_b, need_pi[:, tenant_u] * inside_pu, base_p)


def _make_servers(
    instance: Instance, tree: Tree, usable_uk: BoolArray, tenant_u: IntArray, below_vi: BoolArray
) -> Servers:
    limits = tree.limits
    need_li = below_vi[limits.vertex_b] * instance.demand_ir[:, limits.resource_b].T
    return Servers(
        capacity_kr=instance.capacity_kr,
        demand_ur=instance.demand_ir[tenant_u],
        usable_uk=usable_uk,
        need_lu=need_li[:, tenant_u],
        amount_l=limits.amount_b,
        on_lk=limits.on_bk,
        unit_f=np.zeros(0, dtype=np.intp),
        kept_f=np.zeros(0),
        on_fk=np.zeros((0, instance.capacity_kr.shape[0]), dtype=np.bool_),
    )
