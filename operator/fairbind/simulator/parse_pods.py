"""Reads the pods of a scenario: the scheduling fields of a pod's spec, which the operator's own reader reads too."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from fairbind.cluster.objects import wire
from fairbind.cluster.objects.convert import UNREADABLE
from fairbind.cluster.objects.decode import PODS
from fairbind.cluster.objects.facts import PodFacts
from fairbind.cluster.objects.quantity import QuantityError, to_base_units
from fairbind.fairness.problems.fields import Path, show_path
from fairbind.model import MAX_AMOUNT, InvalidProblemError
from fairbind.simulator.reading import check_known, complain, read_mapping, read_object, read_whole, refuse

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
_NEAR = 0.95
_LEAST_PRIORITY, _MOST_PRIORITY = -(2**31), 2**31 - 1


def read_pod(value: object, path: Path, namespace: str) -> tuple[PodFacts, PodFacts]:
    """Return a pod before and after it is bound, as the operator reads it."""
    members = read_object(value, path, POD_FIELDS)
    requests = read_amounts(members["requests"], (*path, "requests"), least=0) if "requests" in members else {}
    spec = {field: part for field, part in members.items() if field not in {"requests", "labels"}}
    if requests and "containers" in spec:
        complain((*path, "requests"), "must not stand beside containers, which have their own")
    spec.setdefault("containers", [{"name": "main", "resources": {"requests": requests}}])
    if "priority" in spec:
        read_whole(spec["priority"], (*path, "priority"), _LEAST_PRIORITY, _MOST_PRIORITY)
    _check_names(spec, wire.PodSpec, path)
    try:
        msgspec.convert(spec, wire.PodSpec)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        shown = f"{show_path(path)}{place.removesuffix('`')}"
        raise InvalidProblemError(f"{shown}: {message[:1].lower()}{message[1:]}") from error
    labels = read_labels(members["labels"], (*path, "labels")) if "labels" in members else {}
    return _decode_pod(spec, labels, namespace, path), _decode_pod(
        {**spec, "nodeName": "node"}, labels, namespace, path
    )


def _decode_pod(spec: Mapping[str, object], labels: Mapping[str, str], namespace: str, path: Path) -> PodFacts:
    pod = {"metadata": {"namespace": namespace, "labels": labels}, "spec": {**spec, "schedulerName": SCHEDULER}}
    facts = PODS.decode_item(msgspec.json.encode(pod))
    if facts.unsupported == UNREADABLE:
        complain(path, facts.unsupported_detail or "makes no sense")
    return facts


def _check_names(value: object, wanted: Any, path: Path) -> None:
    """Refuse a name that is nearly one that is read: fields that are not read stand beside them in real manifests."""
    if get_origin(wanted) is UnionType:
        for choice in get_args(wanted):
            _check_names(value, choice, path)
    elif isinstance(value, list) and get_origin(wanted) is list:
        for place, part in enumerate(value):
            _check_names(part, get_args(wanted)[0], (*path, place))
    elif isinstance(value, Mapping) and isinstance(wanted, type) and issubclass(wanted, msgspec.Struct):
        hints = get_type_hints(wanted, vars(wire))
        known = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(wanted)}
        for name, part in value.items():
            if name in known:
                _check_names(part, known[name], (*path, name))
            elif difflib.get_close_matches(name, known, n=1, cutoff=_NEAR):
                check_known(name, (*path, name), known, "is no field here")


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
