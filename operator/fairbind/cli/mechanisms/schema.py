"""The JSON Schema of a problem, for editors and for programs that write problems.

It says what a schema can say well. Which names differ from each other, which are known, and that no demand and no
utility is all zero are rules that `fairbind.fairness.problems.parse` adds.
"""

from __future__ import annotations

import json
from typing import Any, Final

from fairbind.fairness.problems.parse import MAX_MAGNITUDE, MIN_MAGNITUDE
from fairbind.model.policy import LEAST_ALPHA

_POSITIVE: Final = {"type": "number", "minimum": MIN_MAGNITUDE, "maximum": MAX_MAGNITUDE}
_AMOUNT: Final = {"anyOf": [{"const": 0}, _POSITIVE]}
_QUANTITY: Final = {
    "description": "A Kubernetes quantity, such as 500m or 8Gi.",
    "type": "string",
    "pattern": r"^[+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3}|[numkMGTPE]|[KMGTPE]i)?$",
}

PROBLEM_SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A problem of fair division",
    "description": "Servers with capacities, tenants with demands, in any units that agree for each resource.",
    "type": "object",
    "required": ["resources", "servers", "tenants"],
    "additionalProperties": False,
    "properties": {
        "resources": {
            "description": "What is divided.",
            "type": "array",
            "minItems": 1,
            "uniqueItems": True,
            "items": {"$ref": "#/$defs/name"},
        },
        "servers": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/server"}},
        "tenants": {
            "description": "In the order of their arrival.",
            "type": "array",
            "minItems": 1,
            "items": {"$ref": "#/$defs/tenant"},
        },
        "expectedTenants": {
            "description": "How many tenants will ever come, those here among them (dynamic-drf). Default: those here.",
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_MAGNITUDE,
        },
        "pool": {
            "description": "Treat all servers as one that has everything.",
            "type": "boolean",
            "default": False,
        },
    },
    "$defs": {
        "name": {"type": "string", "minLength": 1},
        "amounts": {
            "description": "By resource; what is left out is 0.",
            "type": "object",
            "additionalProperties": {"anyOf": [*_AMOUNT["anyOf"], _QUANTITY]},
        },
        "server": {
            "description": "One server, or several that are equal.",
            "type": "object",
            "required": ["name", "capacity"],
            "additionalProperties": False,
            "properties": {
                "name": {"$ref": "#/$defs/name"},
                "capacity": {"description": "Of one server.", "$ref": "#/$defs/amounts"},
                "count": {
                    "description": "How many equal servers this entry stands for; they are one class.",
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_MAGNITUDE,
                    "default": 1,
                },
                "alpha": {
                    "description": "Exponent of alpha-pf-vds here. Default: the command's.",
                    **_POSITIVE,
                    "minimum": LEAST_ALPHA,
                },
                "utilityA": {
                    "description": "A of the utility of alpha-pf-vds here, g'(z) = (A / z) ** alpha + B / z.",
                    **_AMOUNT,
                    "default": 1,
                },
                "utilityB": {
                    "description": "B of the same; above 0 where A is 0. z: tasks / (weight x tasks of one server).",
                    **_AMOUNT,
                    "default": 0,
                },
                "divisible": {
                    "description": "false: the server's time is shared, not its resources.",
                    "type": "boolean",
                    "default": True,
                },
            },
        },
        "tenant": {
            "type": "object",
            "required": ["name", "demand"],
            "additionalProperties": False,
            "properties": {
                "name": {"$ref": "#/$defs/name"},
                "demand": {
                    "description": "What one task needs: more than 0 of some resource.",
                    "$ref": "#/$defs/amounts",
                    "minProperties": 1,
                },
                "weight": {
                    "description": "What share it is entitled to: a number or a quantity.",
                    "anyOf": [_POSITIVE, _QUANTITY],
                    "default": 1,
                },
                "tasks": {"description": "How many it has. Default: no end.", **_AMOUNT},
                "eligible": {
                    "description": "Names of the servers that it may use. Default: all. []: none.",
                    "type": "array",
                    "uniqueItems": True,
                    "items": {"type": "string"},
                },
                "resourceWeights": {
                    "description": "Weights of its shares of single resources; what is left out is 1.",
                    "type": "object",
                    "additionalProperties": {"anyOf": [_POSITIVE, _QUANTITY]},
                },
            },
        },
    },
}


def compute_schema(of: str = "problem") -> str:
    """Return the schema of a problem, a scenario or a sweep as JSON."""
    if of == "problem":
        return json.dumps(PROBLEM_SCHEMA, indent=2)
    if of == "sweep":
        from fairbind.simulator.sweep.schema import SWEEP_SCHEMA  # noqa: PLC0415 - the scheduler, for the policies' ids

        return json.dumps(SWEEP_SCHEMA, indent=2)
    from fairbind.simulator.schema import SCENARIO_SCHEMA  # noqa: PLC0415 - the scheduler, for the policies' ids

    return json.dumps(SCENARIO_SCHEMA, indent=2)
