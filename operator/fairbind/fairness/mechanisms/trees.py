"""The answer of a mechanism with levels over the whole cluster for tenants in a tree, and its certificate.

docs/mechanisms/trees.md defines the division; `solvers.trees` computes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairbind.fairness.mechanisms.tolerances import OPTIMALITY_GAP
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.problems.tree import FloatArray, Tree
from fairbind.fairness.problems.verify import CertificateError, check_feasible
from fairbind.fairness.solvers.effort import Effort
from fairbind.fairness.solvers.trees.levels import Measure, divide, pack_prices, replay, unpack_prices

GUARANTEED = "guaranteed"


def solve_tree(instance: Instance, tree: Tree, measure: Measure, effort: Effort | None) -> Solution:
    """Return the division along the tree, with the prices that prove it."""
    division = divide(instance, tree, measure, effort)
    evidence: dict[str, Any] = dict(pack_prices(division.prices))
    for name, value in pack_prices(division.guaranteed).items():
        evidence[_name_guaranteed(name)] = value
    return Solution(_scale(instance, division.tasks_ik, division.totals_i), evidence)


def _scale(instance: Instance, tasks_ik: FloatArray, totals_i: FloatArray) -> FloatArray:
    """Return the tasks with exactly these totals. What is too small for a linear program to see is put anywhere."""
    lost = np.flatnonzero((tasks_ik.sum(axis=1) == 0) & (totals_i > 0))
    tasks_ik = tasks_ik.copy()
    tasks_ik[lost, instance.gamma_ik[lost].argmax(axis=1)] = totals_i[lost]
    placed_i = tasks_ik.sum(axis=1)
    part_i = np.divide(totals_i, placed_i, out=np.zeros_like(placed_i), where=placed_i > 0)
    scaled_ik: FloatArray = tasks_ik * part_i[:, None]
    return scaled_ik


def certify_tree(
    instance: Instance, tree: Tree, measure: Measure, solution: Solution, mechanism_id: str
) -> Mapping[str, Any]:
    """Prove that the totals are those of the filling within the prices' inequalities, which every division keeps."""
    excess = check_feasible(instance, solution.tasks_ik, mechanism_id)
    evidence = solution.evidence
    guaranteed = {
        name: evidence[_name_guaranteed(name)]
        for name in ("prices_nkr", "limitPrices_nl", "keptPrices_nf")
        if _name_guaranteed(name) in evidence
    }
    whole = {name: evidence[name] for name in ("prices_nkr", "limitPrices_nl", "keptPrices_nf") if name in evidence}
    prices = unpack_prices(whole)
    totals_i, kept = replay(instance, tree, measure, unpack_prices(guaranteed), prices)
    given_i = solution.tasks_ik.sum(axis=1)
    for tenant, on_k, amount in kept:
        short = 1 - float(solution.tasks_ik[tenant, on_k].sum()) / amount
        if short > OPTIMALITY_GAP:
            words = f"{{tenant}} lacks {short:.3g} of what is guaranteed to it on some servers"
            raise CertificateError(mechanism_id, words, short, tenant=int(instance.rank_i[tenant]))
    away_i = np.abs(given_i - totals_i) / np.maximum(totals_i, np.finfo(float).tiny)
    worst = int(away_i.argmax())
    if not away_i[worst] <= OPTIMALITY_GAP:
        words = f"{{tenant}} has {given_i[worst] / totals_i[worst]:.6g} of what the tree gives it"
        raise CertificateError(mechanism_id, words, float(away_i[worst]), tenant=int(instance.rank_i[worst]))
    return {
        "method": "filling of the tree",
        "inequalities": len(prices),
        "largestExcess": excess,
        "largestGap": float(away_i[worst]),
    }


def _name_guaranteed(name: str) -> str:
    return f"{GUARANTEED}{name[0].upper()}{name[1:]}"
