"""SchedulingPolicy objects: what the one of a cluster says.

It is named `default`; the API server refuses any other name. The parameters of a policy are grouped in a field named
after it (`alphaPfVds`, `dynamicDrf`, `twoChoicesDrfh`), which only this policy may have. The schema of the CRD refuses
invalid specs. They are checked here again, because a stored object can be older than the schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from fairbind.cluster.tenancy.spec_fields import read_quantity, read_whole_number
from fairbind.model.errors import InvalidProblemError
from fairbind.model.policy import (
    DEFAULT_ALPHA,
    DEFAULT_POLICY,
    DEFAULT_SERVER_CLASS_TOLERANCE,
    LEAST_ALPHA,
    Fit,
    PolicySettings,
    Unclaimed,
)
from fairbind.model.reservations import DEFAULT_RESERVATIONS, ReservationSettings
from fairbind.scheduling import POLICIES

APPLIED_NAME = "default"
TOLERANCES = (Fraction(0), Fraction(1, 2))
ALPHAS = (Fraction(str(LEAST_ALPHA)), Fraction(100))
EXPECTED_TENANTS = (1, 100_000)
SEEDS = (-(2**63), 2**63 - 1)
RESERVATION_FIELDS = ("mode", "maxSeconds", "most")
RESERVATION_MODES = ("On", "Off")
RESERVATION_SECONDS = (10, 86_400)
GROUPS = {"alphaPfVds": "alpha-pf-vds", "dynamicDrf": "dynamic-drf", "twoChoicesDrfh": "two-choices-drfh"}
"""Fields that hold the parameters of one policy, with its id."""


def parse_policy(policy_object: Mapping[str, Any]) -> PolicySettings:
    """Return what a SchedulingPolicy says; InvalidProblemError names the field that is invalid."""
    name = (policy_object.get("metadata") or {}).get("name", APPLIED_NAME)
    if name != APPLIED_NAME:
        raise InvalidProblemError(f"metadata.name must be {APPLIED_NAME}, not {name}")
    spec = policy_object.get("spec") or {}
    if not isinstance(spec, Mapping):
        raise InvalidProblemError(f"spec must be an object, not {spec!r}")
    policy = spec.get("policy", DEFAULT_POLICY)
    if policy not in POLICIES:
        raise InvalidProblemError(f"spec.policy must be one of {', '.join(sorted(POLICIES))}, not {policy!r}")
    resources = spec.get("fairnessResources")
    if resources is not None and not _is_list_of_names(resources):
        raise InvalidProblemError(f"spec.fairnessResources must be a list of resource names, not {resources!r}")
    tolerance = spec.get("serverClassTolerance", str(DEFAULT_SERVER_CLASS_TOLERANCE))
    selector = spec.get("nodeSelector") or {}
    if not isinstance(selector, Mapping) or not _is_list_of_names([*selector, *selector.values()]):
        raise InvalidProblemError(f"spec.nodeSelector must map label keys to values, not {selector!r}")
    return PolicySettings(
        policy=policy,
        fairness_resources=tuple(sorted(set(resources))) if resources else None,
        server_class_tolerance=float(read_quantity(tolerance, "spec.serverClassTolerance", TOLERANCES)),
        server_selector=tuple(sorted(selector.items())),
        unclaimed=_read_unclaimed(spec),
        reservations=read_reservations(spec.get("reservations"), "spec.reservations"),
        guided=read_guided(spec.get("guided", True), "spec.guided"),
        fit=read_fit(spec.get("fit", Fit.DOMINANT_RESOURCE), "spec.fit"),
        **_read_parameters(spec, policy),
    )


def _read_parameters(spec: Mapping[str, Any], policy: str) -> dict[str, Any]:
    """Return the settings that belong to single policies; those that are left out have their defaults."""
    groups: dict[str, Mapping[str, Any]] = {}
    for field, owner in GROUPS.items():
        groups[field] = spec.get(field) or {}
        if not isinstance(groups[field], Mapping):
            raise InvalidProblemError(f"spec.{field} must be an object, not {groups[field]!r}")
        if field in spec and policy != owner:
            raise InvalidProblemError(f"spec.{field} is read by spec.policy {owner} only, not by {policy}")
    alpha = groups["alphaPfVds"].get("alpha", str(DEFAULT_ALPHA))
    settings: dict[str, Any] = {"alpha": float(read_quantity(alpha, "spec.alphaPfVds.alpha", ALPHAS))}
    if "expectedTenants" in groups["dynamicDrf"]:
        expected = groups["dynamicDrf"]["expectedTenants"]
        where = "spec.dynamicDrf.expectedTenants"
        settings["expected_tenants"] = read_whole_number(expected, where, EXPECTED_TENANTS)
    settings["seed"] = read_whole_number(groups["twoChoicesDrfh"].get("seed", 0), "spec.twoChoicesDrfh.seed", SEEDS)
    return settings


def _read_unclaimed(spec: Mapping[str, Any]) -> Unclaimed:
    value = spec.get("unclaimedNamespaces", Unclaimed.TENANT)
    if value not in list(Unclaimed):
        raise InvalidProblemError(f"spec.unclaimedNamespaces must be one of {', '.join(Unclaimed)}, not {value!r}")
    return Unclaimed(value)


def read_reservations(value: object, where: str) -> ReservationSettings:
    """Return what an object says about reservations; None: the defaults. InvalidProblemError names the field."""
    fields = {} if value is None else value
    if not isinstance(fields, Mapping) or not set(fields) <= set(RESERVATION_FIELDS):
        raise InvalidProblemError(f"{where} must be an object of {', '.join(RESERVATION_FIELDS)}, not {value!r}")
    mode = fields.get("mode", "On")
    if mode not in RESERVATION_MODES:
        raise InvalidProblemError(f"{where}.mode must be one of {', '.join(RESERVATION_MODES)}, not {mode!r}")
    defaults = DEFAULT_RESERVATIONS
    seconds = read_whole_number(
        fields.get("maxSeconds", int(defaults.max_seconds)), f"{where}.maxSeconds", RESERVATION_SECONDS
    )
    most = _read_percentage(fields.get("most"), f"{where}.most") if "most" in fields else defaults.most
    return ReservationSettings(mode == "On", float(seconds), most)


def read_guided(value: object, where: str) -> bool:
    """Return whether an object lets the policy be guided. InvalidProblemError names the field."""
    if not isinstance(value, bool):
        raise InvalidProblemError(f"{where} must be true or false, not {value!r}")
    return value


def read_fit(value: object, where: str) -> Fit:
    """Return how an object lets demands and servers be compared. InvalidProblemError names the field."""
    if not isinstance(value, str) or value not in list(Fit):
        raise InvalidProblemError(f"{where} must be one of {', '.join(Fit)}, not {value!r}")
    return Fit(value)


def _read_percentage(value: object, where: str) -> Fraction:
    match = re.fullmatch(r"([1-9][0-9]?|100)%", value, re.ASCII) if isinstance(value, str) else None
    if match is None:
        raise InvalidProblemError(f"{where} must be a whole percentage from 1% to 100%, such as 10%, not {value!r}")
    return Fraction(int(match[1]), 100)


def _is_list_of_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
