"""The online policies, one entry each: a new one is a new entry in `POLICIES` and nothing else.

Every policy is progressive filling. It is said by whose level is compared and on which pool (the measure), and by how
servers are ranked (the fit). Each names the exact mechanism that is its yardstick.

How near it comes: a policy that follows its mechanism, or is guided by it, ends within a few percent of it where tasks
are small beside servers, also where some tasks may use some servers only. Without targets a guided policy is the greedy
rule of its paper. DRFH and TSF are then near their mechanisms where most tasks may use most servers, else up to a half
off; PS-DSF is often far from its own, as it fills a class of servers with the first tenant that comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from fairbind.model import InvalidProblemError, PolicySettings, Snapshot, Targets
from fairbind.scheduling.policies.fit import BestFit, FirstFit, FitRule
from fairbind.scheduling.policies.guided import guide
from fairbind.scheduling.policies.level_pools import compute_residual_pools, find_target_classes, has_target_classes
from fairbind.scheduling.policies.measures import (
    DominantShares,
    Measure,
    SumsOfShares,
    TaskShares,
    build_class_shares,
    build_cluster_shares,
)
from fairbind.scheduling.policies.target_ratios import TargetRatios


@dataclass(frozen=True, slots=True)
class Policy:
    """One way to choose the next task and its server.

    id: the stable name in settings, metrics, file names and test ids. name, paper, order (who is next), server (which
    server): for people. build_measure: by what tenants are compared. build_fit: how servers are ranked.
    mechanism: the id, in `fairbind.fairness.mechanisms.registry`, of what it would give if tasks could be divided;
    None: no such.
    is_fair: False: tenants' levels do not matter, all tasks wait in one line. has_random_choices: it looks at two of
    the servers.
    follows_targets: it compares tenants by the snapshot's targets, which are made with that mechanism.
    is_guided: where the snapshot has targets, they say on which class of servers a tenant's next task belongs.
    needs_detail: it reads what tenants hold task by task or server by server.
    decides_class: tenants are compared by server class, so a task belongs on a server of the class that was decided.
    """

    id: str
    name: str
    paper: str
    order: str
    server: str
    build_measure: Callable[[Snapshot], Measure]
    build_fit: Callable[[Snapshot], FitRule]
    mechanism: str | None
    is_fair: bool = True
    has_random_choices: bool = False
    follows_targets: bool = False
    is_guided: bool = False
    needs_detail: bool = False
    decides_class: bool = False


_LEAST_SHARE = "the tenant with the least weighted dominant share of the cluster's totals"
_BEST_FIT = "the one whose free resources are most like the task's demand"
_FOLLOWING = "the tenant that holds the least part of what the mechanism gives for the demand of now"


def _follow(mechanism: str, name: str, paper: str, *, has_classes: bool) -> Policy:
    """Return the policy that follows a mechanism, under the mechanism's own id."""
    where = "on the server class where it lacks most, the one whose free resources are most like the task's demand"
    return Policy(
        id=mechanism,
        name=name,
        paper=paper,
        order=_FOLLOWING,
        server=where if has_classes else _BEST_FIT,
        build_measure=TargetRatios,
        build_fit=BestFit,
        mechanism=mechanism,
        follows_targets=True,
        needs_detail=True,
        decides_class=has_classes,
    )


_ENTRIES = (
    Policy(
        id="best-fit-drfh",
        name="Best-Fit DRFH",
        paper="Wang, Liang, Li, TPDS 2015, eq. (9); weights and mixed tasks: Ghodsi et al., NSDI 2011, 4.2 and 4.3",
        order=_LEAST_SHARE,
        server=_BEST_FIT,
        build_measure=guide(build_cluster_shares),
        build_fit=BestFit,
        mechanism="drfh",
        is_guided=True,
    ),
    Policy(
        id="first-fit-drfh",
        name="First-Fit DRFH",
        paper="Wang, Liang, Li, TPDS 2015, section 6; Ghodsi et al., NSDI 2011, algorithm 1",
        order=_LEAST_SHARE,
        server="the first by name on which the task fits",
        build_measure=guide(build_cluster_shares),
        build_fit=FirstFit,
        mechanism="drfh",
        is_guided=True,
    ),
    Policy(
        id="two-choices-drfh",
        name="Two-Choices DRFH",
        paper="DRFH with the choice of servers of Mitzenmacher, The Power of Two Choices, TPDS 2001",
        order=_LEAST_SHARE,
        server="the better fit of two that are drawn at random; the best fit of all when the pod fits on neither",
        build_measure=guide(build_cluster_shares),
        build_fit=BestFit,
        mechanism="drfh",
        is_guided=True,
        has_random_choices=True,
    ),
    Policy(
        id="ps-dsf",
        name="PS-DSF",
        paper="Khamse-Ashari et al., An Efficient and Fair Multi-Resource Allocation Mechanism, definition 4",
        order="the tenant and server class with the least weighted virtual dominant share",
        server="inside that class the one whose free resources are most like the task's demand",
        build_measure=guide(build_class_shares),
        build_fit=BestFit,
        mechanism="ps-dsf",
        is_guided=True,
        decides_class=True,
    ),
    Policy(
        id="rps-dsf",
        name="Residual PS-DSF",
        paper="Shan et al. 2018: PS-DSF with what is left in place of the capacity",
        order="the tenant and server class with the least weighted virtual dominant share of what the class has left",
        server="inside that class the one whose free resources are most like the task's demand",
        build_measure=lambda snapshot: DominantShares(compute_residual_pools(snapshot)),
        build_fit=BestFit,
        mechanism="ps-dsf",
        decides_class=True,
    ),
    Policy(
        id="tsf",
        name="Task-Share Fairness",
        paper="Wang et al., Multi-Resource Fair Sharing for Datacenter Jobs with Placement Constraints, SC 2016",
        order="the tenant with the least weighted task share: each task counts 1 / (how many the cluster could run)",
        server=_BEST_FIT,
        build_measure=guide(TaskShares),
        build_fit=BestFit,
        mechanism="tsf",
        is_guided=True,
        needs_detail=True,
    ),
    Policy(
        id="asset-fairness",
        name="Asset Fairness",
        paper="Ghodsi et al., NSDI 2011, section 5.1",
        order="the tenant with the least weighted sum of its shares of all resources",
        server=_BEST_FIT,
        build_measure=SumsOfShares,
        build_fit=BestFit,
        mechanism="asset-fairness",
    ),
    _follow("alpha-pf-vds", "Alpha-PF-VDS", "Khamse-Ashari et al., inequality (16)", has_classes=True),
    _follow("drfh", "DRFH, followed", "Wang, Liang, Li, TPDS 2015, section 4", has_classes=True),
    _follow("per-server-drf", "DRF on each server, followed", "Wang, Liang, Li, TPDS 2015, 3.4", has_classes=True),
    _follow("drf", "DRF, followed", "Ghodsi et al., NSDI 2011, section 4", has_classes=False),
    _follow("ceei", "CEEI, followed", "Ghodsi et al., NSDI 2011, section 5.2", has_classes=False),
    _follow("drbf", "DRBF, followed", "Zhao, Du, Chen, 2018, section 5", has_classes=False),
    _follow(
        "dynamic-drf", "Dynamic DRF, followed", "Kash, Procaccia, Shah, JAIR 2014; Li et al. 2019", has_classes=False
    ),
    Policy(
        id="fifo",
        name="First in, first out",
        paper="the baseline of the papers",
        order="the task of any tenant that has waited longest, higher priorities first",
        server=_BEST_FIT,
        build_measure=build_cluster_shares,
        build_fit=BestFit,
        mechanism=None,
        is_fair=False,
    ),
)

POLICIES: Mapping[str, Policy] = MappingProxyType({policy.id: policy for policy in _ENTRIES})
"""Every policy by its id."""


def get_policy(policy_id: str, policies: Mapping[str, Policy] = POLICIES) -> Policy:
    """Return the policy; raise InvalidProblemError, naming the nearest known ids, when there is none of that id."""
    policy = policies.get(policy_id)
    if policy is None:
        near = get_close_matches(policy_id, policies, n=1) or sorted(policies)
        raise InvalidProblemError(f"policy is {policy_id!r}; did you mean {' or '.join(near)}?")
    return policy


def reads_targets(settings: PolicySettings) -> bool:
    """Tell whether the policy that is chosen makes use of targets."""
    policy = POLICIES[settings.policy]
    return policy.follows_targets or (policy.is_guided and settings.guided)


def find_decided_classes(
    settings: PolicySettings, targets: Targets | None, build_snapshot: Callable[[], Snapshot]
) -> NDArray[np.int32] | None:
    """Return the class of each server, shape (K,), where a task belongs on the class that was decided.

    None: another server is as good. targets: the last ones, of whatever mechanism. build_snapshot: gives the snapshot
    of now; it is not called where nothing decides a class.
    """
    decides_class = POLICIES[settings.policy].decides_class
    if not decides_class and not (reads_targets(settings) and has_target_classes(targets)):
        return None
    snapshot = build_snapshot()
    classes = find_target_classes(snapshot) if has_target_classes(snapshot.targets) else None
    if classes is not None:
        return classes.class_k
    return snapshot.servers.class_k if decides_class else None
