"""The JSON Schema of a scenario, for editors and for programs that write scenarios.

It says all that a schema can. Which names are known, and what is there when an event comes, are rules that `parsing`
adds.
"""

from __future__ import annotations

from typing import Any, Final

from fairbind.cluster.tenancy.policies import RESERVATION_MODES, RESERVATION_SECONDS
from fairbind.cluster.tenancy.tenants import LENDING, PRIORITIES
from fairbind.simulator.baselines.registry import list_policies
from fairbind.simulator.parse_events import MOST_NODES
from fairbind.simulator.parse_gangs import MOST_TASKS
from fairbind.simulator.parse_pods import POD_FIELDS
from fairbind.simulator.parsing import (
    DEFAULT_MEASURE_EVERY,
    MOST_RATE,
    MOST_SEED,
    MOST_SIGMA,
    MOST_SLOTS,
    TAINT_EFFECTS,
    UNLIMITED_PODS,
)
from fairbind.simulator.slots import DEFAULT_SLOTS
from fairbind.what_if.reading import LEAST_SECONDS, MOST_SECONDS, NANOSECONDS

_TIME: Final = {"type": "number", "minimum": 0, "maximum": MOST_SECONDS}
_SPAN: Final = {"type": "number", "minimum": LEAST_SECONDS, "maximum": MOST_SECONDS}
_NAME: Final = {"type": "string", "pattern": "^[A-Za-z0-9]([-A-Za-z0-9_.]{0,98}[A-Za-z0-9])?$"}
_TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_QUANTITIES: Final = {"type": "object", "additionalProperties": {"type": ["number", "string"]}}
_WEIGHT: Final = {"type": ["number", "string"]}
_NODES: Final = {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"type": "string"}}


def _make_object(
    description: str, properties: dict[str, Any], *, required: tuple[str, ...] = (), **more: object
) -> dict[str, Any]:
    return {
        "description": description,
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        **({"required": list(required)} if required else {}),
        **more,
    }


def _make_list(description: str, items: object, *, least: int = 1) -> dict[str, Any]:
    return {"description": description, "type": "array", "minItems": least, "items": items}


_SHAPE: Final = _make_object(
    "Equal nodes, named SHAPE-0, SHAPE-1 and so on.",
    {
        "shape": {"description": "The name of the shape.", **_NAME},
        "count": {
            "description": "How many are there at the start.",
            "type": "integer",
            "minimum": 0,
            "maximum": MOST_NODES,
            "default": 1,
        },
        "capacity": {
            "description": "What one node has for pods, in quantities of Kubernetes. "
            f"Where `pods` is left out, a node takes {UNLIMITED_PODS:,} of them.",
            "minProperties": 1,
            **_QUANTITIES,
        },
        "labels": {"description": "Labels of each node; its host name comes by itself.", **_TEXTS},
        "taints": _make_list(
            "Taints of each node.",
            _make_object(
                "A taint.",
                {"key": {"type": "string"}, "value": {"type": "string"}, "effect": {"enum": list(TAINT_EFFECTS)}},
                required=("key", "effect"),
            ),
            least=0,
        ),
    },
    required=("shape", "capacity"),
)


def _make_amounts(description: str) -> dict[str, Any]:
    return _make_list(
        description,
        _make_object(
            "Amounts on some nodes, in sum.",
            {
                "nodes": {"description": "A label selector; without it all nodes.", "type": "object"},
                "resources": {"type": "object", "additionalProperties": {"type": ["string", "number"]}},
            },
            required=("resources",),
        ),
        least=0,
    )


_TENANT: Final = _make_object(
    "A tenant. It has the namespace of its name.",
    {
        "name": _NAME,
        "weight": {"description": "From 0.001 to 1000, a number or a quantity.", "default": 1, **_WEIGHT},
        "resourceWeights": {
            "description": "Weights of its shares of single resources.",
            "type": "object",
            "additionalProperties": _WEIGHT,
        },
        "namespaces": _make_list("Further namespaces.", _NAME, least=0),
        "parent": {"description": "The tenant above it, `null` for the root.", "type": ["string", "null"]},
        "priority": {
            "description": "Priority among siblings.",
            "type": "integer",
            "minimum": PRIORITIES[0],
            "maximum": PRIORITIES[1],
            "default": 0,
        },
        "guarantee": _make_amounts("Amounts that it gets before siblings that are above theirs."),
        "lending": {
            "description": "Use by others of what it does not use of its guarantee.",
            "enum": list(LENDING),
            "default": "Always",
        },
        "limit": _make_amounts("The most that it may hold, as `spec.limit` of a Tenant."),
        "minRuntimeSeconds": {"description": "Kept, and not used yet.", "type": "integer", "minimum": 0, "default": 0},
        "users": _make_object(
            "Each value of a label of its pods is a child of its own.",
            {"label": {"description": "The label's key.", "type": "string"}},
            required=("label",),
        ),
    },
    required=("name",),
)

_ARRIVAL: Final = {
    **_make_object(
        "When the tasks arrive: all at `at`; or one `every` so many seconds, the first at `at`; or as a `poisson` "
        "process of so many a second, which begins at `at`; or each at one of `times`.",
        {
            "at": {"description": "Seconds from the start.", "default": 0, **_TIME},
            "every": {"description": "Seconds from one task to the next.", **_SPAN},
            "poisson": {
                "description": "Tasks a second.",
                "type": "number",
                "minimum": LEAST_SECONDS,
                "maximum": MOST_RATE,
            },
            "times": _make_list("Seconds from the start, one time for each task.", _TIME),
        },
        minProperties=1,
    ),
    "default": {"at": 0},
}

_DURATION: Final = {
    "description": "How long a task runs, in seconds.",
    "anyOf": [
        _SPAN,
        {"const": "forever"},
        _make_object("Exponential, with this mean.", {"exponential": _SPAN}, required=("exponential",)),
        _make_object(
            "Its logarithm is normal, with this standard deviation.",
            {
                "lognormal": _make_object(
                    "Median and sigma.",
                    {"median": _SPAN, "sigma": {"type": "number", "minimum": 0, "maximum": MOST_SIGMA}},
                    required=("median", "sigma"),
                )
            },
            required=("lognormal",),
        ),
        _make_object(
            "Uniform between the two.",
            {"uniform": {"type": "array", "minItems": 2, "maxItems": 2, "items": _TIME}},
            required=("uniform",),
        ),
        _make_object(
            "One for each of the tasks, in their order.",
            {"each": _make_list("Seconds, or forever.", {"anyOf": [_SPAN, {"const": "forever"}]})},
            required=("each",),
        ),
    ],
}

_POD: Final = _make_object(
    "The scheduling fields of a pod's spec, with two short forms: `requests` for a pod of one container, and the "
    "`labels` of the pod.",
    {
        **{field: {} for field in POD_FIELDS},
        "requests": {"description": "What the pod asks for, in quantities of Kubernetes.", **_QUANTITIES},
        "labels": {"description": "The pod's own labels.", **_TEXTS},
        "nodeSelector": {"description": "Labels that a node must have.", **_TEXTS},
        "priority": {"description": "Inside a tenant higher ones come first.", "type": "integer", "default": 0},
    },
)

_GANG: Final = _make_object(
    "Tasks that arrive together are a group: so many of them start together, or none of them.",
    {
        "min": {
            "description": "At most as many as a group has. The others start one by one.",
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_TASKS,
        },
        "size": {
            "description": "Tasks of a group. Default: all that arrive at one time. With `every` and `poisson` so many "
            "tasks arrive each time.",
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_TASKS,
        },
        "topology": _make_object(
            "Domains of which a group's tasks should be in one: the values of a label of nodes.",
            {
                "required": {"description": "The label's key. No group starts in two domains.", "type": "string"},
                "preferred": {
                    "description": "The label's key. A group that fits into no domain starts anywhere.",
                    "type": "string",
                },
            },
            minProperties=1,
            maxProperties=1,
        ),
    },
    required=("min",),
)

_ENTRY: Final = _make_object(
    "Equal tasks of a tenant, named NAME-0, NAME-1 and so on.",
    {
        "tenant": {"description": "Whose they are.", **_NAME},
        "name": _NAME,
        "tasks": {
            "description": "How many. It may be left out beside `times`, and beside `every` and `poisson` where there "
            "is a horizon.",
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_TASKS,
        },
        "arrival": _ARRIVAL,
        "duration": _DURATION,
        "pod": _POD,
        "namespace": {"description": "One of the tenant's. Default: the one of its name.", **_NAME},
        "gang": _GANG,
    },
    required=("tenant", "name", "duration", "pod"),
)

_EVENT: Final = _make_object(
    "What happens at a time: one thing.",
    {
        "at": {"description": "Seconds from the start.", **_TIME},
        "addNodes": _make_object(
            "Nodes come; they go on numbering their shape.",
            {
                "shape": _NAME,
                "count": {"type": "integer", "minimum": 1, "maximum": MOST_NODES, "default": 1},
            },
            required=("shape",),
        ),
        "removeNodes": {
            "description": "Nodes go; their pods are pending again and start from the beginning.",
            **_NODES,
        },
        "cordon": {"description": "Nodes take no new pods, and do not count.", **_NODES},
        "uncordon": {"description": "Nodes take pods again.", **_NODES},
        "tenant": {**_TENANT, "description": "A tenant changes, or comes; fields that are left out stay as they are."},
        "removeTenant": {"description": "A Tenant goes; its pods stay, as those of a namespace.", **_NAME},
        "autoscaler": _make_object(
            "From now on nodes are bought for pods marked Unschedulable, and empty ones of them are removed.",
            {
                "shape": _NAME,
                "max": {
                    "description": "Nodes that it has bought or ordered, at most.",
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MOST_NODES,
                },
                "delay": {
                    "description": "Seconds from the cycle that marked a pod to the node.",
                    "default": 0,
                    **_TIME,
                },
            },
            required=("shape", "max"),
        ),
    },
    required=("at",),
    minProperties=2,
    maxProperties=2,
)

SCENARIO_SCHEMA: Final[dict[str, Any]] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "A scenario of fairbind simulate",
    **_make_object(
        "A cluster, its tenants, what they run, and what happens.",
        {
            "name": {
                "description": "What the report calls it.",
                "type": "string",
                "minLength": 1,
                "default": "scenario",
            },
            "seed": {
                "description": "What all draws start from.",
                "type": "integer",
                "minimum": 0,
                "maximum": MOST_SEED,
                "default": 0,
            },
            "horizon": {
                "description": "Seconds. Without it: until nothing waits or runs, or nothing can change any more.",
                **_SPAN,
            },
            "cluster": _make_list("The nodes, by shape.", _SHAPE),
            "tenants": _make_list("Who shares the cluster.", _TENANT),
            "workload": _make_list("What they run.", _ENTRY),
            "events": _make_list("What happens meanwhile.", _EVENT, least=0),
            "policies": {
                "description": "Ids of the policies to simulate. Default: best-fit-drfh.",
                "type": "array",
                "minItems": 1,
                "uniqueItems": True,
                "items": {"enum": sorted(list_policies())},
            },
            "reservations": {
                "description": "What is reserved for tenants that are rightfully next, as in a SchedulingPolicy.",
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "mode": {"description": "Whether anything is.", "enum": list(RESERVATION_MODES), "default": "On"},
                    "maxSeconds": {
                        "description": "After so long without progress another node is reserved.",
                        "type": "integer",
                        "minimum": RESERVATION_SECONDS[0],
                        "maximum": RESERVATION_SECONDS[1],
                        "default": 600,
                    },
                    "most": {
                        "description": "The part of the capacity of which so much at most is reserved.",
                        "type": "string",
                        "pattern": "^([1-9][0-9]?|100)%$",
                        "default": "10%",
                    },
                },
            },
            "knownRunTimes": {
                "description": "Whether reservations know when each task ends, as by an activeDeadlineSeconds that is "
                "exact. If not, they learn it from tasks that have ended.",
                "type": "boolean",
                "default": False,
            },
            "guided": {
                "description": "Whether exact shares say to which class of nodes a pod goes, as in a SchedulingPolicy.",
                "type": "boolean",
                "default": True,
            },
            "fit": {
                "description": "How policies of best fit compare demands and servers, as in a SchedulingPolicy.",
                "enum": ["dominant-resource", "first-resource", "cosine"],
                "default": "dominant-resource",
            },
            "slots": {
                "description": "Into how many slots the policy `slots` divides the largest server.",
                "type": "integer",
                "minimum": 1,
                "maximum": MOST_SLOTS,
                "default": DEFAULT_SLOTS,
            },
            "composite": {
                "description": "From which sources the scenario was put together; said in every output.",
                "type": "string",
                "minLength": 1,
            },
            "notes": _make_list(
                "What was assumed, for the report and the summary.", {"type": "string", "minLength": 1}, least=0
            ),
            "measureEvery": {
                "description": "Seconds between two measurements.",
                "default": DEFAULT_MEASURE_EVERY // NANOSECONDS,
                **_SPAN,
            },
        },
        required=("cluster", "tenants", "workload"),
    ),
}
