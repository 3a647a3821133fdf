"""What the world is: tenants, servers, tasks and decisions, in plain frozen values.

Nothing here reads a clock, does I/O or knows where the values came from. Amounts are integers in base units
(for Kubernetes: milli-CPU, bytes, device counts), so that no sum depends on the order of its terms.
"""

from __future__ import annotations

from fairbind.model.decisions import CycleReport, FairnessReason, Precedence, Wait
from fairbind.model.errors import FairbindError, InvalidProblemError, InvariantError, SolverError
from fairbind.model.groups import GroupTopology, GroupWait, TaskGroup
from fairbind.model.hierarchy import FLAT, Guarantee, Hierarchy, InnerTenant, Place
from fairbind.model.plans import Bind, Evict, Plan, list_binds, plan_each, split_binds
from fairbind.model.policy import Fit, PolicySettings, Unclaimed
from fairbind.model.preferences import EvenPreference, Preference, Preferences, PullPreference, ServerPreference
from fairbind.model.reasons import Rejection, RejectionKind, Rejections
from fairbind.model.servers import MAX_AMOUNT, ServerTable
from fairbind.model.shares import TOLERANCE, compute_dominant_share, compute_share_key, compute_weighted_share
from fairbind.model.snapshot import ClassChanges, Snapshot, leave_out
from fairbind.model.targets import TargetClasses, Targets
from fairbind.model.tasks import NO_EXCLUSIVE_KEYS, ExclusiveKeys, Pin, Placement, RunningTask, Task, TaskClass
from fairbind.model.tenants import Holding, Tenant
from fairbind.model.topology import (
    NO_DOMAIN,
    AffinityRule,
    DomainCounter,
    DomainRule,
    DomainRules,
    Domains,
    LimitRule,
    SeparationRule,
    SpreadRule,
)
from fairbind.model.until import (
    FREE_CAPACITY,
    ClaimChange,
    Event,
    FreeCapacity,
    FreeSlots,
    GroupComplete,
    ServerChange,
    TimeReached,
    Until,
    UsageBelow,
)

__all__ = [
    "FLAT",
    "FREE_CAPACITY",
    "MAX_AMOUNT",
    "NO_DOMAIN",
    "NO_EXCLUSIVE_KEYS",
    "TOLERANCE",
    "AffinityRule",
    "Bind",
    "ClaimChange",
    "ClassChanges",
    "CycleReport",
    "DomainCounter",
    "DomainRule",
    "DomainRules",
    "Domains",
    "EvenPreference",
    "Event",
    "Evict",
    "ExclusiveKeys",
    "FairbindError",
    "FairnessReason",
    "Fit",
    "FreeCapacity",
    "FreeSlots",
    "GroupComplete",
    "GroupTopology",
    "GroupWait",
    "Guarantee",
    "Hierarchy",
    "Holding",
    "InnerTenant",
    "InvalidProblemError",
    "InvariantError",
    "LimitRule",
    "Pin",
    "Place",
    "Placement",
    "Plan",
    "PolicySettings",
    "Precedence",
    "Preference",
    "Preferences",
    "PullPreference",
    "Rejection",
    "RejectionKind",
    "Rejections",
    "RunningTask",
    "SeparationRule",
    "ServerChange",
    "ServerPreference",
    "ServerTable",
    "Snapshot",
    "SolverError",
    "SpreadRule",
    "TargetClasses",
    "Targets",
    "Task",
    "TaskClass",
    "TaskGroup",
    "Tenant",
    "TimeReached",
    "Unclaimed",
    "Until",
    "UsageBelow",
    "Wait",
    "compute_dominant_share",
    "compute_share_key",
    "compute_weighted_share",
    "leave_out",
    "list_binds",
    "plan_each",
    "split_binds",
]
