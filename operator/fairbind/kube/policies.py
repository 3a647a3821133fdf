"""SchedulingPolicy objects: which of them counts, and what it says.

The one named `default` applies to the whole cluster; any other is ignored and told so in its conditions. The schema of
the CRD refuses what cannot be meant, so what is checked again here can only come from objects that were stored before
the CRD was what it is now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairbind.model.errors import InvalidProblemError
from fairbind.model.policy import DEFAULT_POLICY, DEFAULT_SERVER_CLASS_TOLERANCE, PolicySettings
from fairbind.scheduling import POLICIES

APPLIED_NAME = "default"
MAX_TOLERANCE = 0.5


def parse_policy(policy_object: Mapping[str, Any]) -> PolicySettings:
    """Return what a SchedulingPolicy says; InvalidProblemError names the field that cannot be meant."""
    spec = policy_object.get("spec") or {}
    if not isinstance(spec, Mapping):
        raise InvalidProblemError(f"spec must be an object, not {spec!r}")
    policy = spec.get("policy", DEFAULT_POLICY)
    if policy not in POLICIES:
        raise InvalidProblemError(f"spec.policy must be one of {', '.join(sorted(POLICIES))}, not {policy!r}")
    resources = spec.get("fairnessResources")
    if resources is not None and not _is_list_of_names(resources):
        raise InvalidProblemError(f"spec.fairnessResources must be a list of resource names, not {resources!r}")
    tolerance = spec.get("serverClassTolerance", DEFAULT_SERVER_CLASS_TOLERANCE)
    if isinstance(tolerance, bool) or not isinstance(tolerance, int | float) or not 0 <= tolerance <= MAX_TOLERANCE:
        raise InvalidProblemError(f"spec.serverClassTolerance must be from 0 to {MAX_TOLERANCE}, not {tolerance!r}")
    selector = spec.get("nodeSelector") or {}
    if not isinstance(selector, Mapping) or not _is_list_of_names([*selector, *selector.values()]):
        raise InvalidProblemError(f"spec.nodeSelector must map label keys to values, not {selector!r}")
    return PolicySettings(
        policy=policy,
        fairness_resources=tuple(sorted(set(resources))) if resources else None,
        server_class_tolerance=float(tolerance),
        server_selector=tuple(sorted(selector.items())),
    )


def _is_list_of_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
