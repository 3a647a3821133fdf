"""The one problem that every mechanism takes: servers with capacities, tenants with demands.

Amounts are float64. The caller chooses the unit of each resource, the same for capacities and demands; no mechanism
depends on the choice. A server entry stands for `count` equal servers and is one pooled class: its tasks are the tasks
on all of them together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fairbind.fairness.problems.tree import Tree
from fairbind.model.errors import InvalidProblemError

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

POOL_NAME = "pool"

_AMOUNT = "a finite number from 0 on"
_POSITIVE = "a finite number above 0"


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Servers, tenants and their demands. All arrays are read-only; K entries, I tenants, R resources.

    capacity_kr: capacity of ONE server of entry k, shape (K, R), >= 0. count_k: servers in the entry, > 0.
    divisible_k: False where a server's time, not its resources, is shared (paper of PS-DSF, equation 17).
    alpha_k: the exponent of alpha-pf-vds on entry k; NaN: the call's own. utility_a_k, utility_b_k: A and B of the
    utility there, g'(z) = (A / z) ** alpha + B / z, >= 0 and not both 0 (1 and 0: alpha alone).
    demand_ir: demand of one task, shape (I, R), >= 0, never all zero. weight_i: > 0. tasks_i: number of tasks of the
    tenant, inf for unlimited. eligible_ik: whether tenant i may use entry k. resource_weight_ir: > 0, divides the share
    of r. expected_tenants: how many tenants will arrive in all (dynamic-drf). is_pooled: all entries count as one
    server. tree: who is below whom, with guarantees and limits; None where all tenants are siblings without these. The
    tenants here are those with tasks. The order of tenants is their order of arrival.
    """

    resources: tuple[str, ...]
    server_names: tuple[str, ...]
    capacity_kr: FloatArray
    count_k: FloatArray
    divisible_k: BoolArray
    alpha_k: FloatArray
    utility_a_k: FloatArray
    utility_b_k: FloatArray
    tenant_names: tuple[str, ...]
    demand_ir: FloatArray
    weight_i: FloatArray
    tasks_i: FloatArray
    eligible_ik: BoolArray
    resource_weight_ir: FloatArray
    expected_tenants: int | None = None
    is_pooled: bool = False
    tree: Tree | None = None

    def __post_init__(self) -> None:
        """Check that shapes agree and values are valid, and freeze the arrays.

        Raises InvalidProblemError, which is a ValueError.
        """
        servers, tenants, resources = len(self.server_names), len(self.tenant_names), len(self.resources)
        shapes = {
            "capacity_kr": (servers, resources),
            "count_k": (servers,),
            "divisible_k": (servers,),
            "alpha_k": (servers,),
            "utility_a_k": (servers,),
            "utility_b_k": (servers,),
            "demand_ir": (tenants, resources),
            "weight_i": (tenants,),
            "tasks_i": (tenants,),
            "eligible_ik": (tenants, servers),
            "resource_weight_ir": (tenants, resources),
        }
        for field, shape in shapes.items():
            array = getattr(self, field)
            if array.shape != shape:
                raise InvalidProblemError(f"{field} has shape {array.shape}, not {shape}")
            array.setflags(write=False)
        _check_values(self)

    @property
    def total_r(self) -> FloatArray:
        """C_r: the capacity of all servers of all entries, shape (R,)."""
        total_r: FloatArray = self.count_k @ self.capacity_kr
        return total_r

    def pooled(self) -> Problem:
        """Return the problem with one server that has everything.

        Entries must agree on their utilities and on divisible, which the pool keeps, and each tenant must be eligible
        everywhere.
        """
        return replace(
            self,
            server_names=(POOL_NAME,) if len(self.server_names) != 1 else self.server_names,
            capacity_kr=self.total_r[None, :],
            count_k=np.ones(1),
            divisible_k=self.divisible_k[:1],
            alpha_k=self.alpha_k[:1],
            utility_a_k=self.utility_a_k[:1],
            utility_b_k=self.utility_b_k[:1],
            eligible_ik=self.eligible_ik[:, :1],
            is_pooled=True,
            tree=None if self.tree is None else self.tree.pooled(),
        )


def make_problem(
    capacity_kr: npt.ArrayLike,
    demand_ir: npt.ArrayLike,
    *,
    count_k: npt.ArrayLike | None = None,
    divisible_k: npt.ArrayLike | None = None,
    alpha_k: npt.ArrayLike | None = None,
    utility_a_k: npt.ArrayLike | None = None,
    utility_b_k: npt.ArrayLike | None = None,
    weight_i: npt.ArrayLike | None = None,
    tasks_i: npt.ArrayLike | None = None,
    eligible_ik: npt.ArrayLike | None = None,
    resource_weight_ir: npt.ArrayLike | None = None,
    expected_tenants: int | None = None,
    is_pooled: bool = False,
    resources: Sequence[str] | None = None,
    server_names: Sequence[str] | None = None,
    tenant_names: Sequence[str] | None = None,
) -> Problem:
    """Return a problem from arrays, with the usual defaults and names r0, s0, t0 ... where none are given.

    >>> make_problem([[9, 18]], [[1, 4], [3, 1]]).tenant_names
    ('t0', 't1')
    """
    capacity = np.atleast_2d(np.array(capacity_kr, dtype=np.float64))
    demand = np.array(demand_ir, dtype=np.float64).reshape(-1, capacity.shape[1])
    (servers, width), tenants = capacity.shape, demand.shape[0]

    def floats(given: npt.ArrayLike | None, shape: tuple[int, ...], default: float) -> FloatArray:
        return np.full(shape, default) if given is None else np.array(given, dtype=np.float64)

    def flags(given: npt.ArrayLike | None, shape: tuple[int, ...]) -> BoolArray:
        return np.ones(shape, dtype=np.bool_) if given is None else np.array(given, dtype=np.bool_)

    return Problem(
        resources=tuple(resources) if resources is not None else tuple(f"r{r}" for r in range(width)),
        server_names=tuple(server_names) if server_names is not None else tuple(f"s{k}" for k in range(servers)),
        capacity_kr=capacity,
        count_k=floats(count_k, (servers,), 1.0),
        divisible_k=flags(divisible_k, (servers,)),
        alpha_k=floats(alpha_k, (servers,), np.nan),
        utility_a_k=floats(utility_a_k, (servers,), 1.0),
        utility_b_k=floats(utility_b_k, (servers,), 0.0),
        tenant_names=tuple(tenant_names) if tenant_names is not None else tuple(f"t{i}" for i in range(tenants)),
        demand_ir=demand,
        weight_i=floats(weight_i, (tenants,), 1.0),
        tasks_i=floats(tasks_i, (tenants,), np.inf),
        eligible_ik=flags(eligible_ik, (tenants, servers)),
        resource_weight_ir=floats(resource_weight_ir, (tenants, width), 1.0),
        expected_tenants=expected_tenants,
        is_pooled=is_pooled,
    )


def _check_values(problem: Problem) -> None:
    """Raise InvalidProblemError for the first invalid value or name. Complexity: one pass over the arrays.

    `parse` checks a problem file field by field. Arrays have no such reader, and a NaN or a negative demand would make
    solvers loop or return a meaningless proof.

    >>> make_problem([[9, 18]], [[1, -4]], tenant_names=["ada"])
    Traceback (most recent call last):
        ...
    fairbind.model.errors.InvalidProblemError: tenants[0].demand.r1 of ada: must be a finite number from 0 on, not -4.0
    """
    servers, tenants = problem.server_names, problem.tenant_names
    for what, names in (("resources", problem.resources), ("servers", servers), ("tenants", tenants)):
        _check_names(what, names)
    _check(_is_amount(problem.capacity_kr), problem.capacity_kr, "servers", "capacity", _AMOUNT, servers, problem)
    _check(_is_positive(problem.count_k), problem.count_k, "servers", "count", _POSITIVE, servers, problem)
    for field, utility_k in (("utilityA", problem.utility_a_k), ("utilityB", problem.utility_b_k)):
        _check(_is_amount(utility_k), utility_k, "servers", field, _AMOUNT, servers, problem)
    for k in np.flatnonzero((problem.utility_a_k == 0) & (problem.utility_b_k == 0))[:1]:
        raise InvalidProblemError(
            f"servers[{k}].utilityB of {servers[k]}: must be above 0 where utilityA is 0, not 0.0"
        )
    _check(_is_amount(problem.demand_ir), problem.demand_ir, "tenants", "demand", _AMOUNT, tenants, problem)
    for i in np.flatnonzero(~(problem.demand_ir > 0).any(axis=1))[:1]:
        raise InvalidProblemError(f"tenants[{i}].demand of {tenants[i]}: must ask for something")
    _check(_is_positive(problem.weight_i), problem.weight_i, "tenants", "weight", _POSITIVE, tenants, problem)
    _check(problem.tasks_i >= 0, problem.tasks_i, "tenants", "tasks", "a number from 0 on", tenants, problem)
    weights_ir = problem.resource_weight_ir
    _check(_is_positive(weights_ir), weights_ir, "tenants", "resourceWeights", _POSITIVE, tenants, problem)


def _is_amount(values: FloatArray) -> BoolArray:
    return np.isfinite(values) & (values >= 0)


def _is_positive(values: FloatArray) -> BoolArray:
    return np.isfinite(values) & (values > 0)


def _check_names(what: str, names: Sequence[str]) -> None:
    if len(set(names)) == len(names):
        return
    again = next(index for index, name in enumerate(names) if name in names[:index])
    raise InvalidProblemError(
        f"{what}[{again}].name: {names[again]!r} is the name of {what}[{names.index(names[again])}]"
    )


def _check(
    is_right: BoolArray, values: FloatArray, what: str, field: str, right: str, names: Sequence[str], problem: Problem
) -> None:
    if is_right.all():
        return
    row, *column = np.argwhere(~is_right)[0].tolist()
    resource = f".{problem.resources[column[0]]}" if column else ""
    value = float(values[(row, *column)])
    raise InvalidProblemError(f"{what}[{row}].{field}{resource} of {names[row]}: must be {right}, not {value!r}")
