"""The certificate of an answer as JSON: prices, levels and multipliers by the names of servers, resources and tenants.

All amounts are those of the solver: the total of every resource is 1, the weights of all tenants sum to 1, and equal
servers are one class. So a price belongs to all that there is of a resource (mechanisms on one pool), or to all that a
class has of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fairbind.fairness.mechanisms.mechanism import Option
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Allocation, Proof
from fairbind.fairness.solve import name_classes


def describe_proof(allocation: Allocation) -> dict[str, Any]:
    """Return what the certificate was checked with, as JSON values."""
    proof = allocation.proof
    if proof is None:
        return {}
    mechanism = MECHANISMS[allocation.mechanism]
    document: dict[str, Any] = {
        "classes": _describe_classes(allocation, proof, has_alpha=Option.ALPHA in mechanism.options),
        "values": {name: _describe_value(name, value, proof) for name, value in proof.values.items()},
    }
    notes = {name: note for name, note in mechanism.notes.items() if name in proof.values}
    return {**document, "notes": notes} if notes else document


def _describe_classes(allocation: Allocation, proof: Proof, *, has_alpha: bool) -> list[dict[str, Any]]:
    instance = proof.instance
    return [
        {
            "servers": names,
            "capacity": dict(zip(proof.resources, instance.capacity_kr[k].tolist(), strict=True)),
            "divisible": bool(instance.divisible_k[k]),
            **({"alpha": float(instance.alpha_k[k])} if has_alpha else {}),
            **({"linear": math.exp(instance.log_linear_k[k])} if instance.log_linear_k[k] > -np.inf else {}),
        }
        for k, names in enumerate(name_classes(instance, allocation.problem))
    ]


def _describe_value(name: str, value: Any, proof: Proof) -> Any:
    """Return an array as lists, its last axis as an object by resource where that is what it counts."""
    if not isinstance(value, np.ndarray):
        return [_describe_value(name, one, proof) for one in value] if isinstance(value, Sequence) else value
    if name.endswith("r") and value.shape[-1] == len(proof.resources):
        return _name_last_axis(value, proof.resources)
    return _to_finite(value.tolist())


def _name_last_axis(value: Any, names: Sequence[str]) -> list[Any] | Mapping[str, float]:
    if value.ndim == 1:
        return dict(zip(names, _to_finite(value.tolist()), strict=True))
    return [_name_last_axis(row, names) for row in value]


def _to_finite(value: Any) -> Any:
    """Return the numbers, null in place of those that JSON lacks: a resource that is not used up has no level."""
    if isinstance(value, list):
        return [_to_finite(one) for one in value]
    return value if math.isfinite(value) else None
