"""The JSON Schema of a sweep, for editors and for programs that write sweeps."""

from __future__ import annotations

from typing import Any, Final

from fairbind.simulator.baselines.registry import list_policies
from fairbind.simulator.parse_events import MOST_NODES
from fairbind.simulator.parsing import MOST_SEED
from fairbind.simulator.schema import SCENARIO_SCHEMA
from fairbind.simulator.sweep.grid import DEFAULT_CONFIDENCE, LEAST_CONFIDENCE, MOST_CELLS, MOST_CONFIDENCE

_SCENARIO: Final = {name: value for name, value in SCENARIO_SCHEMA.items() if name not in {"$schema", "title"}}
_SEED: Final = {"type": "integer", "minimum": 0, "maximum": MOST_SEED}


def _make_choices(description: str, values: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": description,
        "type": "array",
        "minItems": 1,
        "uniqueItems": True,
        "items": {"type": "object", "additionalProperties": values},
    }


SWEEP_SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A sweep of fairbind sweep",
    "description": "A scenario, and what is varied: each combination is simulated.",
    "type": "object",
    "required": ["scenario"],
    "additionalProperties": False,
    "properties": {
        "name": {
            "description": "What the results call it. Default: the scenario's name.",
            "type": "string",
            "minLength": 1,
        },
        "scenario": {
            "description": "The scenario itself, or the path of its file, relative to the sweep's own.",
            "anyOf": [{"type": "string", "minLength": 1}, _SCENARIO],
        },
        "policies": {
            "description": "Ids of policies. Default: those of the scenario.",
            "type": "array",
            "minItems": 1,
            "uniqueItems": True,
            "items": {"enum": sorted(list_policies())},
        },
        "seeds": {
            "description": "Seeds of the draws: a list, or `count` of them that begin at `from` (0 where left out). "
            "Default: the scenario's seed.",
            "anyOf": [
                {"type": "array", "minItems": 1, "uniqueItems": True, "items": _SEED},
                {
                    "type": "object",
                    "required": ["count"],
                    "additionalProperties": False,
                    "properties": {
                        "from": {**_SEED, "maximum": MOST_SEED - MOST_CELLS},
                        "count": {"type": "integer", "minimum": 1, "maximum": MOST_CELLS},
                    },
                },
            ],
        },
        "weights": _make_choices(
            "Weights by tenant, one object for each choice; tenants that are left out keep theirs. `{}` is the "
            "scenario as it is, and the default.",
            {"type": ["integer", "string"]},
        ),
        "sizes": _make_choices(
            "How many nodes are there at the start, by shape, one object for each choice; shapes that are left out "
            "keep their count. `{}` is the scenario as it is, and the default.",
            {"type": "integer", "minimum": 0, "maximum": MOST_NODES},
        ),
        "confidence": {
            "description": "The part of such intervals that holds the true mean.",
            "type": "number",
            "minimum": LEAST_CONFIDENCE,
            "maximum": MOST_CONFIDENCE,
            "default": DEFAULT_CONFIDENCE,
        },
    },
}
