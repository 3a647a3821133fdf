"""Dominant resource with bottlenecked fairness: fairness among tenants with one dominant resource, efficiency beyond.

Tenants queue at their dominant resource. All tenants of a queue have the same weighted dominant share. Different queues
may have different shares, as long as no tenant envies one of another queue and each has at least an equal part of its
dominant resource. Under these conditions as many tasks run as possible.

Paper: Zhao, Du, Chen, "A New Multi-Resource Allocation Mechanism: A Tradeoff between Fairness and Efficiency in Cloud
Computing", China Communications 2018, sections 5.1 (rules 1 and 2) and 5.3 (the linear program, whose formulas are lost
in print and follow from the proofs): with N_i = lambda_q w_i / D_{i r_i} for each tenant i of queue q,

    maximise sum_i N_i   subject to   sum_i N_i D_ir <= 1,  N_i D_{i r_i} >= N_j D_{j r_i} across queues,  lambda >= 1.

Complexity: a linear program with one variable per queue, so at most R variables and R (R + 1) rows for any I.

Differences from the paper:
* lambda >= 1 is a row of the program. The paper proves the sharing incentive without it, and that proof is wrong: a
  tenant was seen with only 18 % of an equal part.
* Theorem 3, strategy-proofness, is wrong too: a tenant can gain by asking for more of the other queue's scarce
  resource. In the example of section 6.2, user a gets 2 tasks instead of 1.59 by asking for 3 CPUs and 5 GB instead of
  3 and 1.
* Weights: w_i is the part of everything that the tenant is entitled to; envy compares bundles per weight.
* The program can have many optima. Among them the lexicographic max-min of the lambdas is chosen: as equal as possible,
  and independent of the order of queues and tenants.
* A tenant with several dominant resources queues at the first of them in the order of the problem's resources. Only
  here does the order of resources matter; the answer is discontinuous there.
* Finite tasks are not taken. For a tenant with fewer tasks than its queue's lambda implies, N_i is no longer
  proportional to lambda. The capacity rows then bound a concave function from above, so the feasible set is not convex
  and there are several maxima with no reason to prefer one. Fixing such tenants and starting again does not help:
  without them, the best lambda of their queue can be lower than the one at which they were fixed.

Guarantees: sharing incentive and envy-freeness, by the program's rows; Pareto optimality if all demands are positive
(otherwise a queue stops as soon as one of its tenants has to).

>>> import numpy as np
>>> from fairbind.fairness.problems.instance import reduce_problem
>>> from fairbind.fairness.problems.problem import make_problem
>>> instance = reduce_problem(make_problem([[18, 36]], [[3, 1], [5, 3], [1, 4], [2, 7]]))
>>> (solve_drbf(instance).tasks_ik[:, 0] * [49, 245, 35, 735]).round(6).tolist()
[78.0, 234.0, 138.0, 1656.0]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairbind.fairness.mechanisms.mechanism import LevelScope, Mechanism, Option, ShareSum
from fairbind.fairness.mechanisms.tolerances import (
    BOUND_MISMATCH,
    EQUAL_SHARES,
    POSITIVE_PRICE,
    PRICE_MISMATCH,
    SUMMATION_ERROR,
)
from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance, IntArray
from fairbind.fairness.problems.problem import BoolArray, FloatArray
from fairbind.fairness.problems.verify import FEASIBILITY, CertificateError, check_feasible
from fairbind.model.errors import SolverError


@dataclass(frozen=True, slots=True, eq=False)
class _Program:
    """The program in the lambdas of the Q queues with tenants: rows @ lambda <= bound, shapes (M, Q), (M,).

    queue_i: each group's queue. gain_q: tasks per unit of each lambda, scaled so that the largest is 1.
    """

    queue_i: IntArray
    rows: FloatArray
    bound: FloatArray
    gain_q: FloatArray


def compute_dominant_resources(instance: Instance) -> IntArray:
    """Return each group's dominant resource, the first one if there are several, shape (I,)."""
    largest_i1 = instance.demand_ir.max(axis=1, keepdims=True)
    dominant_i: IntArray = (instance.demand_ir >= largest_i1 * (1 - EQUAL_SHARES)).argmax(axis=1)
    return dominant_i


def _make_program(instance: Instance) -> _Program:
    resource_q, queue_i = np.unique(compute_dominant_resources(instance), return_inverse=True)
    queue_i = queue_i.reshape(-1)
    queues, resources = resource_q.size, instance.demand_ir.shape[1]
    # What a tenant holds at lambda = 1 and weight 1: all of the dominant resource, so much of the others.
    bundle_ir = instance.demand_ir / instance.share_per_task_i[:, None]
    use_qr, envied_qr = np.zeros((queues, resources)), np.zeros((queues, resources))
    np.add.at(use_qr, queue_i, bundle_ir * instance.weight_i[:, None])
    np.maximum.at(envied_qr, queue_i, bundle_ir)
    unit_qq = np.eye(queues)
    envy = [
        envied_qr[other, resource_q[own]] * unit_qq[other] - unit_qq[own]
        for own in range(queues)
        for other in range(queues)
        if own != other
    ]
    gain_q = np.bincount(queue_i, instance.weight_i / instance.share_per_task_i, minlength=queues)
    return _Program(
        queue_i=queue_i,
        rows=np.vstack([use_qr.T, *envy, -unit_qq]),
        bound=np.concatenate([np.ones(resources), np.zeros(len(envy)), -np.ones(queues)]),
        gain_q=gain_q / gain_q.max(),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Stage:
    """One linear program of the chain: maximise gain @ z with rows @ z <= bound, = bound where is_equality."""

    gain: FloatArray
    rows: FloatArray
    bound: FloatArray
    is_equality: BoolArray


def _make_first_stage(program: _Program) -> _Stage:
    """Return the program that runs as many tasks as possible; z is the lambdas."""
    return _Stage(program.gain_q, program.rows, program.bound, np.zeros(program.bound.shape, dtype=np.bool_))


def _make_level_stage(program: _Program, is_tight: BoolArray, is_free_q: BoolArray, lambda_q: FloatArray) -> _Stage:
    """Return the program that raises the least lambda of the free queues without losing a task.

    z is the lambdas and that level. is_tight: rows that every solution with as many tasks meets with equality. Queues
    that are not free keep their lambda.
    """
    queues = is_free_q.size
    own_rows = np.where(is_free_q[:, None], -np.eye(queues), np.eye(queues))
    return _Stage(
        gain=np.append(np.zeros(queues), 1.0),
        rows=np.block(
            [[program.rows, np.zeros((program.bound.size, 1))], [own_rows, is_free_q[:, None].astype(np.float64)]]
        ),
        bound=np.concatenate([program.bound, np.where(is_free_q, 0.0, lambda_q)]),
        is_equality=np.concatenate([is_tight, ~is_free_q]),
    )


def _find_priced(price: FloatArray) -> BoolArray:
    """Return which rows have a price: every optimal solution meets them with equality."""
    is_priced: BoolArray = price > POSITIVE_PRICE * np.abs(price).max(initial=0.0)
    return is_priced


def solve_drbf(instance: Instance) -> Solution:
    """Return the allocation of one pool; the evidence has the prices of the rows of every program of the chain."""
    program = _make_program(instance)
    lambda_q, price = _solve_stage(_make_first_stage(program))
    is_tight = _find_priced(price)
    prices = [price]
    is_free_q = np.ones(lambda_q.shape, dtype=np.bool_)
    while is_free_q.any():
        z, price = _solve_stage(_make_level_stage(program, is_tight, is_free_q, lambda_q))
        prices.append(price)
        is_stuck_q = is_free_q & _find_priced(price[program.bound.size :])
        lambda_q = np.where(is_stuck_q, z[-1], np.where(is_free_q, z[:-1], lambda_q))
        is_free_q &= ~is_stuck_q
    tasks_i = lambda_q[program.queue_i] * instance.weight_i / instance.share_per_task_i
    return Solution(tasks_i[:, None], {"prices": prices})


def _solve_stage(stage: _Stage) -> tuple[FloatArray, FloatArray]:
    """Return (z, prices of the rows), by HiGHS."""
    import highspy  # noqa: PLC0415  # see fairbind.fairness: imported where it is used

    from fairbind.fairness.solvers.maxmin.level_lp import make_highs, run  # noqa: PLC0415

    rows, columns = stage.rows.shape
    model = highspy.HighsLp()
    model.sense_ = highspy.ObjSense.kMaximize
    model.num_col_, model.num_row_ = columns, rows
    model.col_cost_ = stage.gain
    model.col_lower_, model.col_upper_ = np.full(columns, -np.inf), np.full(columns, np.inf)
    model.row_lower_ = np.where(stage.is_equality, stage.bound, -np.inf)
    model.row_upper_ = stage.bound
    row, column = np.nonzero(stage.rows)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.append(0, np.cumsum(np.bincount(row, minlength=rows))).astype(np.int32)
    model.a_matrix_.index_ = column.astype(np.int32)
    model.a_matrix_.value_ = stage.rows[row, column]
    highs = make_highs()
    highs.passModel(model)
    run(highs)
    solution = highs.getSolution()
    z, price = np.array(solution.col_value), np.array(solution.row_dual)
    return _meet_rows(stage, z, _find_priced(np.abs(price)) | stage.is_equality), price


def _meet_rows(stage: _Stage, z: FloatArray, is_tight: BoolArray) -> FloatArray:
    """Return z with the smallest relative change that meets these rows up to rounding.

    HiGHS meets them up to an absolute tolerance, which is large for a queue with a small part of a row.
    """
    terms = stage.rows[is_tight] * np.abs(z)
    size = np.abs(terms).sum(axis=1, keepdims=True)
    missing = stage.bound[is_tight] - stage.rows[is_tight] @ z
    change = np.linalg.lstsq(terms / size, missing / size[:, 0], rcond=None)[0]
    met: FloatArray = z + np.abs(z) * change
    return met


def certify_drbf(instance: Instance, solution: Solution) -> Mapping[str, Any]:
    """Prove rules 1 and 2, the lower bound, that no more tasks can run, and that the lambdas are the most equal ones.

    Within a queue the tenants are compared. Between queues the prices of each program of the chain are the proof: they
    add up to the objective, and rows with a price are met with equality, so nothing better is feasible.
    """
    excess = check_feasible(instance, solution.tasks_ik, "drbf")
    program = _make_program(instance)
    lambda_q, spread = _measure_queues(instance, solution, program)
    size = np.abs(program.rows) @ lambda_q + np.abs(program.bound)
    violation_m = (program.rows @ lambda_q - program.bound) / size
    violation = float(violation_m.max())
    tenant_q = instance.rank_i[np.unique(program.queue_i, return_index=True)[1]]
    if not violation <= FEASIBILITY:
        tenant = int(tenant_q[program.rows[violation_m.argmax()].argmin()])  # the queue with a minus has too little
        words = f"{{tenant}} envies another queue or has less than an equal part, by {violation:.3g}"
        raise CertificateError("drbf", words, violation, tenant=tenant)
    first, *others = solution.evidence["prices"]
    distance = _check_stage(_make_first_stage(program), lambda_q, first, tenant_q)
    is_free_q = np.ones(lambda_q.shape, dtype=np.bool_)
    for price in others:
        stage = _make_level_stage(program, _find_priced(first), is_free_q, lambda_q)
        level = lambda_q[is_free_q].min(initial=np.inf)
        distance = max(distance, _check_stage(stage, np.append(lambda_q, level), price, tenant_q))
        is_free_q &= ~_find_priced(price[program.bound.size :])
    if is_free_q.any():
        words = "nothing shows that {tenant} has as much as it can"
        raise CertificateError("drbf", words, np.inf, tenant=int(tenant_q[is_free_q.argmax()]))
    return {
        "method": "prices",
        "queues": lambda_q.size,
        "lambdas": lambda_q.tolist(),
        "largestExcess": max(excess, violation, 0.0),
        "largestSpread": spread,
        "largestGap": distance,
    }


def _measure_queues(instance: Instance, solution: Solution, program: _Program) -> tuple[FloatArray, float]:
    """Return (lambda of each queue, largest relative difference within one); raise SolverError if too large."""
    lambda_i = solution.tasks_ik[:, 0] * instance.share_per_task_i / instance.weight_i
    most_q = np.zeros(program.gain_q.shape)
    np.maximum.at(most_q, program.queue_i, lambda_i)
    with np.errstate(divide="ignore", invalid="ignore"):
        behind_i = np.nan_to_num(most_q[program.queue_i] / lambda_i - 1, nan=np.inf, posinf=np.inf)
    spread = float(behind_i.max())
    if not spread <= FEASIBILITY:
        words = f"a tenant with the same dominant resource has {spread:.3g} more than {{tenant}}"
        raise CertificateError("drbf", words, spread, tenant=int(instance.rank_i[behind_i.argmax()]))
    return most_q, spread


def _check_stage(stage: _Stage, z: FloatArray, price: FloatArray, tenant_q: IntArray) -> float:
    """Return how far a row with a price is from equality, in parts of its smallest term; raise if too far.

    tenant_q: the first tenant of each queue, for the error.
    """
    if price.shape != stage.bound.shape or (price[~stage.is_equality] < -POSITIVE_PRICE * np.abs(price).max()).any():
        raise SolverError("drbf: prices of another program, or a negative one")
    missing = np.abs(stage.gain - price @ stage.rows)
    if (missing > PRICE_MISMATCH * np.maximum(np.abs(price) @ np.abs(stage.rows), np.abs(stage.gain).max())).any():
        raise SolverError("drbf: prices do not add up to what is gained")
    terms = np.abs(stage.rows) * np.abs(z)
    smallest = np.where(terms > 0, terms, np.inf).min(axis=1)
    slack = np.maximum(np.abs(stage.bound - stage.rows @ z) - SUMMATION_ERROR * terms.sum(axis=1), 0.0)
    distance_m = np.where(_find_priced(np.abs(price)) | stage.is_equality, slack / smallest, 0.0)
    distance = float(distance_m.max(initial=0.0))
    if not distance <= BOUND_MISMATCH:
        own_q = terms[distance_m.argmax(), : tenant_q.size]
        tenant = int(tenant_q[np.where(own_q > 0, own_q, np.inf).argmin()])
        raise CertificateError("drbf", f"{{tenant}} could have {distance:.3g} of its own more", distance, tenant=tenant)
    return distance


DRBF = Mechanism(
    id="drbf",
    name="Dominant resource with bottlenecked fairness",
    paper=(
        'Zhao, Du, Chen, "A New Multi-Resource Allocation Mechanism: A Tradeoff between Fairness and Efficiency in '
        'Cloud Computing", China Communications 2018'
    ),
    section="5.1, 5.3 (Algorithm 1), with a floor under every queue",
    story=(
        "Tenants queue at the resource that they need most of. All in a queue have the same weighted dominant "
        "share, at least an equal part, and none envies a tenant of another queue; within these rules as many tasks "
        "run as possible, so one queue may have more than another where that leaves less idle."
    ),
    options=frozenset({Option.WEIGHT}),
    level_scope=LevelScope.CLUSTER,
    share_sum=ShareSum.DOMINANT,
    solve=solve_drbf,
    certify=certify_drbf,
    is_one_bidder=True,
)
