"""The online policies, one entry each: a new one is a new entry in `POLICIES` and nothing else.

Every policy is progressive filling; it is said by whose level is compared on which pool, and by how servers are ranked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

from fairbind.model import InvalidProblemError, Snapshot
from fairbind.scheduling.fit import BestFit, FirstFit
from fairbind.scheduling.levels import Pools, compute_class_pools, compute_cluster_pool, compute_residual_pools
from fairbind.scheduling.shapes import FitRule


@dataclass(frozen=True, slots=True)
class Policy:
    """One way to choose the next task and its server.

    id: the stable name in settings, metrics, file names and test ids. name, paper, turn (who is next), server (which
    server): for people. build_pools: the pools on which tenants' levels are compared. build_fit: how servers are
    ranked. is_fair: False: tenants' levels do not matter, all tasks wait in one line.
    """

    id: str
    name: str
    paper: str
    turn: str
    server: str
    build_pools: Callable[[Snapshot], Pools]
    build_fit: Callable[[Snapshot], FitRule]
    is_fair: bool = True


_ENTRIES = (
    Policy(
        id="best-fit-drfh",
        name="Best-Fit DRFH",
        paper="Wang, Liang, Li, TPDS 2015, eq. (9); weights and mixed tasks: Ghodsi et al., NSDI 2011, 4.2 and 4.3",
        turn="the tenant with the least weighted dominant share of the cluster's totals",
        server="the one whose free resources are most like the task's demand",
        build_pools=compute_cluster_pool,
        build_fit=BestFit,
    ),
    Policy(
        id="first-fit-drfh",
        name="First-Fit DRFH",
        paper="Wang, Liang, Li, TPDS 2015, section 6; Ghodsi et al., NSDI 2011, algorithm 1",
        turn="the tenant with the least weighted dominant share of the cluster's totals",
        server="the first by name on which the task fits",
        build_pools=compute_cluster_pool,
        build_fit=FirstFit,
    ),
    Policy(
        id="ps-dsf",
        name="PS-DSF",
        paper="Khamse-Ashari et al., An Efficient and Fair Multi-Resource Allocation Mechanism, definition 4",
        turn="the tenant and server class with the least weighted virtual dominant share",
        server="inside that class the one whose free resources are most like the task's demand",
        build_pools=compute_class_pools,
        build_fit=BestFit,
    ),
    Policy(
        id="rps-dsf",
        name="Residual PS-DSF",
        paper="Shan et al. 2018: PS-DSF with what is left in place of the capacity",
        turn="the tenant and server class with the least weighted virtual dominant share of what the class has left",
        server="inside that class the one whose free resources are most like the task's demand",
        build_pools=compute_residual_pools,
        build_fit=BestFit,
    ),
    Policy(
        id="fifo",
        name="First in, first out",
        paper="the baseline of the papers",
        turn="the task that has waited longest, whoever's it is, higher priorities first",
        server="the one whose free resources are most like the task's demand",
        build_pools=compute_cluster_pool,
        build_fit=BestFit,
        is_fair=False,
    ),
)

POLICIES: Mapping[str, Policy] = MappingProxyType({policy.id: policy for policy in _ENTRIES})
"""Every policy by its id."""


def get_policy(policy_id: str) -> Policy:
    """Return the policy; raise InvalidProblemError, naming the nearest known ids, when there is none of that id."""
    policy = POLICIES.get(policy_id)
    if policy is None:
        near = get_close_matches(policy_id, POLICIES, n=1) or sorted(POLICIES)
        raise InvalidProblemError(f"policy is {policy_id!r}; did you mean {' or '.join(near)}?")
    return policy
