"""The JSON Schema of a problem, for editors and for programs that write problems.

It says what a schema can say well. Which names differ from each other, which are known, and that no demand and no
utility is all zero are rules that `fairbind.fairness.problems.parse` adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fairbind.cli.documents import format_document
from fairbind.fairness.problems.parse import MAX_MAGNITUDE, MIN_MAGNITUDE
from fairbind.fairness.problems.parse_tree import LEAST_PRIORITY, MOST_PRIORITY
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
        "bounds": {
            "description": "Amounts of all that the tenant and those below it hold, one entry beside the other.",
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["resources"],
                "additionalProperties": False,
                "properties": {
                    "resources": {
                        "description": "By resource; what is left out is not bounded.",
                        "type": "object",
                        "minProperties": 1,
                        "additionalProperties": {"anyOf": [*_AMOUNT["anyOf"], _QUANTITY]},
                    },
                    "servers": {
                        "description": "Names of the servers that count. Default: all.",
                        "type": "array",
                        "minItems": 1,
                        "uniqueItems": True,
                        "items": {"type": "string"},
                    },
                },
            },
        },
        "tenant": {
            "description": "One with tasks has a demand; one that others name as their parent has none.",
            "type": "object",
            "required": ["name"],
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
                "parent": {
                    "description": "Name of the tenant above. Default: none. At most 6 levels.",
                    "$ref": "#/$defs/name",
                },
                "priority": {
                    "description": "Among siblings, before their levels; high first.",
                    "type": "integer",
                    "minimum": LEAST_PRIORITY,
                    "maximum": MOST_PRIORITY,
                    "default": 0,
                },
                "guarantee": {
                    "description": "It gets this much before siblings that are above theirs.",
                    "$ref": "#/$defs/bounds",
                },
                "limit": {"description": "It holds no more than this.", "$ref": "#/$defs/bounds"},
                "mixed": {
                    "description": "true: one tenant whose tasks differ; those below it are the kinds, and no level.",
                    "type": "boolean",
                    "default": False,
                },
            },
        },
    },
}


def compute_schema(of: str = "problem", output: str = "json") -> str:
    """Return the schema of a problem, a scenario or a sweep as JSON or YAML."""
    return format_document(_find_schema(of), output)


def _find_schema(of: str) -> Mapping[str, Any]:
    if of == "problem":
        return PROBLEM_SCHEMA
    if of == "sweep":
        from fairbind.simulator.sweep.schema import SWEEP_SCHEMA  # noqa: PLC0415 - the scheduler, for the policies' ids

        return SWEEP_SCHEMA
    from fairbind.simulator.schema import SCENARIO_SCHEMA  # noqa: PLC0415 - the scheduler, for the policies' ids

    return SCENARIO_SCHEMA
