"""Reads the pods of a scenario: the scheduling fields of a pod's spec, which the operator's own reader reads too."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from fairbind.cluster.objects import manifest_wire, wire
from fairbind.cluster.objects.convert import UNREADABLE
from fairbind.cluster.objects.decode import PODS
from fairbind.cluster.objects.facts import PodFacts
from fairbind.cluster.objects.quantity import QuantityError, to_base_units
from fairbind.fairness.problems.fields import Path
from fairbind.model import MAX_AMOUNT
from fairbind.what_if.admission import PodRefusedError, admit, complete
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.reading import check_known, complain, convert_value, read_mapping, read_object, read_whole, refuse

SCHEDULER: Final = "fairbind"
POD_FIELDS: Final = (
    "requests",
    "labels",
    *(
        field.encode_name
        for field in msgspec.structs.fields(wire.PodSpec)
        if field.name not in {"node_name", "scheduler_name"}
    ),
)
_SIMILAR = 0.95
_ALL_FIELDS: Final[Mapping[type, frozenset[str]]] = {
    wire.Toleration: frozenset({"tolerationSeconds"}),
    wire.PodAffinityTerm: frozenset({"matchLabelKeys", "mismatchLabelKeys"}),
    **dict.fromkeys(
        (
            wire.Affinity,
            wire.Gate,
            wire.LabelSelector,
            wire.NodeAffinity,
            wire.NodeSelector,
            wire.NodeSelectorTerm,
            wire.PodAffinity,
            wire.PreferredPodTerm,
            wire.PreferredTerm,
            wire.SelectorRequirement,
            wire.SpreadConstraint,
        ),
        frozenset(),
    ),
}
"""The types of which all fields of Kubernetes are known: those that are read, and these."""
_CHOICES: Final[Mapping[tuple[type, str], tuple[str, ...]]] = {
    (wire.Toleration, "operator"): ("Exists", "Equal", "Lt", "Gt", ""),
    (wire.Toleration, "effect"): ("NoSchedule", "PreferNoSchedule", "NoExecute", ""),
    (wire.SelectorRequirement, "operator"): ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
    (wire.SpreadConstraint, "whenUnsatisfiable"): ("DoNotSchedule", "ScheduleAnyway"),
    (wire.SpreadConstraint, "nodeAffinityPolicy"): ("Honor", "Ignore"),
    (wire.SpreadConstraint, "nodeTaintsPolicy"): ("Honor", "Ignore"),
}
_NUMBERS: Final[Mapping[tuple[type, str], tuple[int, int]]] = {
    (wire.SpreadConstraint, "maxSkew"): (1, 2**31 - 1),
    (wire.SpreadConstraint, "minDomains"): (1, 2**31 - 1),
    (wire.PreferredTerm, "weight"): (1, 100),
    (wire.PreferredPodTerm, "weight"): (1, 100),
}
_NEEDED: Final[Mapping[type, tuple[str, ...]]] = {
    wire.SelectorRequirement: ("key", "operator"),
    wire.SpreadConstraint: ("maxSkew", "topologyKey", "whenUnsatisfiable"),
    wire.PodAffinityTerm: ("topologyKey",),
    wire.PreferredTerm: ("weight", "preference"),
    wire.PreferredPodTerm: ("weight", "podAffinityTerm"),
}
KNOWN_TYPES: Final = 64
"""More than there are types of what a pod's spec has."""
_LEAST_PRIORITY, _MOST_PRIORITY = -(2**31), 2**31 - 1


def read_pod(
    value: object, path: Path, namespace: str, listed: ListedObjects | None = None
) -> tuple[PodFacts, PodFacts]:
    """Return a pod before and after it is bound, as the operator reads it: with what an API server adds to it.

    listed: a cluster whose LimitRanges and default priority count; None: there are none.
    """
    members = read_object(value, path, POD_FIELDS)
    requests = read_amounts(members["requests"], (*path, "requests"), least=0) if "requests" in members else {}
    spec = {field: part for field, part in members.items() if field not in {"requests", "labels"}}
    if requests and "containers" in spec:
        complain((*path, "requests"), "must not stand beside containers, which have their own")
    spec.setdefault("containers", [{"name": "main", "resources": {"requests": requests}}])
    if "priority" in spec:
        read_whole(spec["priority"], (*path, "priority"), _LEAST_PRIORITY, _MOST_PRIORITY)
    _check_names(spec, wire.PodSpec, path)
    made: manifest_wire.PodSpec = convert_value(spec, manifest_wire.PodSpec, path)
    labels = read_labels(members["labels"], (*path, "labels")) if "labels" in members else {}
    complete(made, labels)
    if listed is not None:
        try:
            admit(made, namespace, listed)
        except PodRefusedError as error:
            complain(path, f"the API server would refuse it: {error}")
    completed = msgspec.to_builtins(made)
    return _decode_pod(completed, labels, namespace, path), _decode_pod(
        {**completed, "nodeName": "node"}, labels, namespace, path
    )


def _decode_pod(spec: Mapping[str, object], labels: Mapping[str, str], namespace: str, path: Path) -> PodFacts:
    pod = {"metadata": {"namespace": namespace, "labels": labels}, "spec": {**spec, "schedulerName": SCHEDULER}}
    facts = PODS.decode_item(msgspec.json.encode(pod))
    if facts.unsupported == UNREADABLE:
        complain(path, facts.unsupported_detail or "makes no sense")
    return facts


def _check_names(value: object, wanted: Any, path: Path) -> None:
    """Refuse names and values that Kubernetes refuses, in what decides where a pod may go.

    Elsewhere fields that are not read stand beside those that are, so there only a name that is nearly one is refused.
    """
    if get_origin(wanted) is UnionType:
        for choice in get_args(wanted):
            _check_names(value, choice, path)
    elif isinstance(value, list) and get_origin(wanted) is list:
        for place, part in enumerate(value):
            _check_names(part, get_args(wanted)[0], (*path, place))
    elif isinstance(value, Mapping) and isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        known = _find_fields(wanted)
        others = _ALL_FIELDS.get(wanted)
        for name, part in value.items():
            if name in known:
                _check_names(part, known[name], (*path, name))
                _check_value(part, wanted, name, path)
            elif name not in others if others is not None else difflib.get_close_matches(name, known, cutoff=_SIMILAR):
                check_known(name, (*path, name), known, "is no field here")
        _check_needed(value, wanted, path)


@functools.lru_cache(KNOWN_TYPES)
def _find_fields(owner: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Return the types of all fields, by the names that Kubernetes has for them."""
    hints = get_type_hints(owner, vars(wire))
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(owner)}


def _check_value(value: object, owner: type, name: str, path: Path) -> None:
    """Refuse a value that Kubernetes refuses. Of another type it is refused where all types are."""
    choices, numbers = _CHOICES.get((owner, name)), _NUMBERS.get((owner, name))
    if choices is not None and isinstance(value, str) and value not in choices:
        refuse(value, (*path, name), f"one of {', '.join(filter(None, choices))}")
    if numbers is not None and isinstance(value, int):
        read_whole(value, (*path, name), *numbers)


def _check_needed(members: Mapping[str, object], owner: type, path: Path) -> None:
    for name in _NEEDED.get(owner, ()):
        if members.get(name) in (None, ""):
            complain((*path, name), "is missing")
    if owner is wire.SelectorRequirement:
        _check_requirement(members, path)


def _check_requirement(members: Mapping[str, object], path: Path) -> None:
    values, operator = members.get("values") or [], members["operator"]
    if not isinstance(values, list) or not isinstance(operator, str):
        return
    if operator in {"In", "NotIn"} and not values:
        complain((*path, "values"), f"must have at least one entry, as {operator} needs")
    if operator in {"Exists", "DoesNotExist"} and values:
        complain((*path, "values"), f"must not stand beside {operator}")
    if operator in {"Gt", "Lt"} and not (len(values) == 1 and _is_whole(values[0])):
        complain((*path, "values"), f"must be one whole number in quotes, as {operator} needs")


def _is_whole(text: object) -> bool:
    try:
        int(str(text))
    except ValueError:
        return False
    return True


def read_labels(value: object, path: Path) -> dict[str, str]:
    """Return labels."""
    members = read_mapping(value, path, "an object of texts")
    return {name: read_label_value(text, (*path, name)) for name, text in members.items()}


def read_label_value(value: object, path: Path) -> str:
    """Return the value of a label or a taint; YAML makes numbers and truths of texts that are not in quotes."""
    if not isinstance(value, str):
        refuse(value, path, "text (put it in quotes)")
    return value


def read_amounts(value: object, path: Path, *, least: int) -> dict[str, str]:
    """Return quantities by resource as Kubernetes writes them. least: in base units."""
    amounts = {}
    for resource, amount in read_mapping(value, path, "an object of quantities by resource").items():
        text = str(amount) if isinstance(amount, int | float) and not isinstance(amount, bool) else amount
        right = f"a quantity {'above' if least else 'from'} 0"
        if not isinstance(text, str):
            refuse(amount, (*path, resource), right)
        try:
            units = to_base_units(resource, text)
        except QuantityError:
            refuse(amount, (*path, resource), right)
        if not least <= units < MAX_AMOUNT:
            refuse(amount, (*path, resource), right if units < least else "a smaller quantity")
        amounts[resource] = text
    return amounts
