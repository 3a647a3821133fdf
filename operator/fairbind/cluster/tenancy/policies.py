"""SchedulingPolicy objects: which of them counts, and what it says.

The one named `default` applies to the whole cluster; any other is ignored and told so in its conditions. The schema of
the CRD refuses what cannot be meant, so what is checked again here can only come from objects that were stored before
the CRD was what it is now.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairbind.model.errors import InvalidProblemError
from fairbind.model.policy import (
    DEFAULT_ALPHA,
    DEFAULT_POLICY,
    DEFAULT_SERVER_CLASS_TOLERANCE,
    LEAST_ALPHA,
    PolicySettings,
    Unclaimed,
)
from fairbind.scheduling import POLICIES

APPLIED_NAME = "default"
MAX_TOLERANCE = 0.5
ALPHAS = (LEAST_ALPHA, 100.0)
MAX_EXPECTED_TENANTS = 100_000
SEEDS = (-(2**63), 2**63 - 1)


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
    tolerance = _read_number(spec, "serverClassTolerance", (0, MAX_TOLERANCE), DEFAULT_SERVER_CLASS_TOLERANCE)
    selector = spec.get("nodeSelector") or {}
    if not isinstance(selector, Mapping) or not _is_list_of_names([*selector, *selector.values()]):
        raise InvalidProblemError(f"spec.nodeSelector must map label keys to values, not {selector!r}")
    return PolicySettings(
        policy=policy,
        fairness_resources=tuple(sorted(set(resources))) if resources else None,
        server_class_tolerance=float(tolerance),
        server_selector=tuple(sorted(selector.items())),
        alpha=float(_read_number(spec, "alpha", ALPHAS, DEFAULT_ALPHA)),
        expected_tenants=_read_whole(spec, "expectedTenants", (1, MAX_EXPECTED_TENANTS), None),
        seed=_read_whole(spec, "seed", SEEDS, 0) or 0,
        unclaimed=_read_unclaimed(spec),
    )


def _read_number(
    spec: Mapping[str, Any], field: str, limits: tuple[float, float], default: float | None
) -> float | int:
    """Return a number of the spec; InvalidProblemError when it is something else or beyond the limits."""
    value = spec.get(field, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not limits[0] <= value <= limits[1]:
        raise InvalidProblemError(f"spec.{field} must be a number from {limits[0]:g} to {limits[1]:g}, not {value!r}")
    return value


def _read_whole(spec: Mapping[str, Any], field: str, limits: tuple[int, int], default: int | None) -> int | None:
    if field not in spec:
        return default
    value = _read_number(spec, field, limits, None)
    if not isinstance(value, int):
        raise InvalidProblemError(f"spec.{field} must be a whole number, not {value!r}")
    return value


def _read_unclaimed(spec: Mapping[str, Any]) -> Unclaimed:
    value = spec.get("unclaimedNamespaces", Unclaimed.TENANT)
    if value not in list(Unclaimed):
        raise InvalidProblemError(f"spec.unclaimedNamespaces must be one of {', '.join(Unclaimed)}, not {value!r}")
    return Unclaimed(value)


def _is_list_of_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
