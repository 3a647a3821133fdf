"""Reads the tenants and the events of a scenario, and refuses events about what is not there at their time."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from fairbind.cluster.tenancy.tenants import TenantSpec, parse_tenant
from fairbind.fairness.problems.fields import Path, show_path, show_value
from fairbind.model import InvalidProblemError
from fairbind.simulator.scenario import (
    Action,
    AddNodes,
    Cordon,
    Event,
    NodeNames,
    RemoveNodes,
    RemoveTenant,
    SetTenant,
    Shape,
    StartAutoscaler,
)
from fairbind.what_if.reading import (
    add_name,
    check_known,
    complain,
    read_choice,
    read_list,
    read_name,
    read_object,
    read_optional_list,
    read_text,
    read_time,
    read_whole,
    refuse,
)

ACTIONS: Final = (
    "addNodes", "removeNodes", "cordon", "uncordon", "tenant", "removeTenant", "autoscaler",
)  # fmt: skip
MOST_NODES: Final = 1_000_000
TENANT_PARTS: Final = {
    "weight": "weight", "resourceWeights": "resource_weights", "namespaces": "namespaces", "limit": "limit",
    "parent": "parent", "priority": "priority", "guarantee": "guarantee", "lending": "lends",
    "minRuntimeSeconds": "min_runtime_seconds", "users": "users_label",
}  # fmt: skip
"""The keys of a tenant, which are those of a Tenant's spec, and where the value has them."""


def read_tenant(value: object, path: Path) -> TenantSpec:
    """Return a tenant; it has the namespace of its name."""
    members = read_object(value, path, ("name", *TENANT_PARTS), required=("name",))
    name = read_name(members["name"], (*path, "name"))
    extra = [
        read_name(namespace, (*path, "namespaces", place))
        for place, namespace in enumerate(read_optional_list(members, "namespaces", path))
    ]
    spec = {field: part for field, part in members.items() if field not in {"name", "namespaces"}}
    try:
        return parse_tenant({"metadata": {"name": name}, "spec": {**spec, "namespaces": [name, *extra]}})
    except InvalidProblemError as error:
        field, _, rest = str(error).removeprefix("spec.").partition(" must ")
        raise InvalidProblemError(f"{show_path(path)}.{field}: must {rest}") from error


def number_tenant(spec: TenantSpec, place: int) -> TenantSpec:
    """Return a tenant that came as so many others had come: order is all that matters of the time."""
    return replace(spec, created=float(place))


def check_parent(spec: TenantSpec, path: Path, tenants: Iterable[str]) -> None:
    """Refuse a parent that is no tenant then: a cluster would put the tenant below the root. path: of the tenant."""
    if spec.parent is not None:
        check_known(spec.parent, (*path, "parent"), tenants, f"{show_value(spec.parent)} is no tenant then")


Placed = tuple[int, Event]
"""An event with its place in the document."""


def read_events(value: object) -> list[Placed]:
    """Return the events as they stand in the document."""
    if not isinstance(value, list | tuple):
        refuse(value, ("events",), "a list of events")
    events = []
    for place, document in enumerate(value):
        path: Path = ("events", place)
        members = read_object(document, path, ("at", *ACTIONS), required=("at",))
        at = read_time(members["at"], (*path, "at"))
        action = {field: part for field, part in members.items() if field != "at"}
        field, part = read_choice(action, path, ACTIONS)
        event = Event(at, _read_action(field, part, (*path, field)))
        if isinstance(event.action, SetTenant):
            changed = number_tenant(event.action.spec, MOST_NODES + place)
            event = replace(event, action=replace(event.action, spec=changed))
        events.append((place, event))
    return events


def list_parents(events: Iterable[Placed]) -> list[str]:
    """Return the tenants that events name as parents: an event may bring one of them, which has no tasks of its own."""
    specs = [event.action.spec for _, event in events if isinstance(event.action, SetTenant)]
    return [spec.parent for spec in specs if spec.parent is not None]


def _read_action(field: str, value: object, path: Path) -> Action:
    match field:
        case "addNodes":
            members = read_object(value, path, ("shape", "count"), required=("shape",))
            count = read_whole(members["count"], (*path, "count"), 1, MOST_NODES) if "count" in members else 1
            return AddNodes(read_text(members["shape"], (*path, "shape")), count)
        case "removeNodes":
            return RemoveNodes(_read_nodes(value, path))
        case "cordon" | "uncordon":
            return Cordon(_read_nodes(value, path), is_cordoned=field == "cordon")
        case "tenant":
            spec = read_tenant(value, path)
            assert isinstance(value, Mapping)
            return SetTenant(spec, tuple(field for name, field in TENANT_PARTS.items() if name in value))
        case "removeTenant":
            return RemoveTenant(read_text(value, path))
        case _:
            members = read_object(value, path, ("shape", "max", "delay"), required=("shape", "max"))
            return StartAutoscaler(
                read_text(members["shape"], (*path, "shape")),
                read_whole(members["max"], (*path, "max"), 1, MOST_NODES),
                read_time(members["delay"], (*path, "delay")) if "delay" in members else 0,
            )


def _read_nodes(value: object, path: Path) -> tuple[str, ...]:
    names: dict[str, Path] = {}
    for place, name in enumerate(read_list(value, path, "names of nodes")):
        add_name(read_text(name, (*path, place)), (*path, place), names)
    return tuple(names)


class Stage:
    """What is there while the events pass, as far as the scenario alone says it.

    wanting: tenants that have tasks, or others below them, now or later.
    """

    def __init__(self, shapes: Mapping[str, Shape], tenants: Iterable[TenantSpec], wanting: set[str]) -> None:
        self._tenants = {spec.name: spec for spec in tenants}
        self._wanting = wanting
        self._names = NodeNames(shapes)
        self._nodes = {node.name for shape in shapes.values() for node in shape.present}
        for name, shape in shapes.items():
            self._nodes.update(self._names.take(name, shape.count))
        self._scaled: set[str] = set()

    def enact(self, action: Action, path: Path) -> Action:
        """Refuse an action that is impossible now; return it with what it leaves as it was."""
        match action:
            case AddNodes(shape, count):
                self._check_shape(shape, (*path, "addNodes", "shape"))
                self._nodes.update(self._names.take(shape, count))
            case RemoveNodes(names):
                self._check_nodes(names, (*path, "removeNodes"))
                self._nodes.difference_update(names)
            case Cordon(names, is_cordoned):
                self._check_nodes(names, (*path, "cordon" if is_cordoned else "uncordon"))
            case SetTenant(spec, fields):
                known = {*self._tenants, *self._wanting}
                check_known(spec.name, (*path, "tenant", "name"), known, f"{show_value(spec.name)} is no tenant here")
                if "parent" in fields:
                    check_parent(spec, (*path, "tenant"), self._tenants)
                before = self._tenants.get(spec.name)
                if before is not None:
                    spec = replace(before, **{field: getattr(spec, field) for field in fields})
                self._tenants[spec.name] = spec
                return SetTenant(spec, fields)
            case RemoveTenant(name):
                check_known(name, (*path, "removeTenant"), self._tenants, f"{show_value(name)} is no tenant then")
                del self._tenants[name]
            case StartAutoscaler(shape):
                self._check_shape(shape, (*path, "autoscaler", "shape"))
                self._scaled.add(shape)
        return action

    def _check_shape(self, shape: str, path: Path) -> None:
        check_known(shape, path, self._names.shapes, f"{show_value(shape)} is no shape of the cluster")

    def _check_nodes(self, names: Sequence[str], path: Path) -> None:
        for place, name in enumerate(names):
            shape, _, number = name.rpartition("-")
            may_be_bought = shape in self._scaled and number.isdecimal()
            if name not in self._nodes and not may_be_bought:
                complain((*path, place), f"{show_value(name)} is no node then{_suggest_node(name, self._nodes)}")


def _suggest_node(name: str, nodes: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(nodes), n=1)
    return f"; did you mean {near[0]}?" if near else ""
