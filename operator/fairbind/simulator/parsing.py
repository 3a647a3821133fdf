"""From the document that people write to a `Scenario`, or an error that says where the document is wrong.

Nothing is guessed or corrected: the first field that cannot be meant raises InvalidProblemError with its path, its
value and what would be right.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from fairbind.cluster.objects import wire
from fairbind.cluster.objects.convert import UNREADABLE
from fairbind.cluster.objects.decode import NODES, PODS
from fairbind.cluster.objects.facts import PODS as SLOTS
from fairbind.cluster.objects.facts import NodeFacts, PodFacts
from fairbind.cluster.objects.quantity import QuantityError, to_base_units
from fairbind.cluster.tenancy.tenants import TenantSpec, parse_tenant
from fairbind.fairness.problems.parse import Path, show_path, show_value
from fairbind.model import MAX_AMOUNT, InvalidProblemError
from fairbind.model.policy import DEFAULT_POLICY
from fairbind.scheduling import POLICIES
from fairbind.simulator.reading import (
    LEAST_SECONDS,
    MOST_SECONDS,
    NANOSECONDS,
    check_known,
    complain,
    read_choice,
    read_list,
    read_mapping,
    read_number,
    read_object,
    read_span,
    read_text,
    read_time,
    read_whole,
    refuse,
)
from fairbind.simulator.scenario import (
    Action,
    AddNodes,
    AllAt,
    Arrival,
    Cordon,
    Duration,
    Entry,
    Event,
    Every,
    Exponential,
    Fixed,
    Lognormal,
    Poisson,
    RemoveNodes,
    RemoveTenant,
    Scenario,
    SetTenant,
    Shape,
    StartAutoscaler,
    Times,
    Uniform,
)

SCHEDULER: Final = "fairbind"
HOST_NAME: Final = "kubernetes.io/hostname"
DEFAULT_MEASURE_EVERY: Final = 10 * NANOSECONDS
UNLIMITED_PODS: Final = 1_000_000
"""The slots of a node whose capacity does not say how many it has: so many that they never decide."""

SCENARIO_FIELDS: Final = (
    "name", "seed", "horizon", "cluster", "tenants", "workload", "events", "policies", "measureEvery",
)  # fmt: skip
SHAPE_FIELDS: Final = ("shape", "count", "capacity", "labels", "taints")
TAINT_FIELDS: Final = ("key", "value", "effect")
TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
TENANT_FIELDS: Final = ("name", "weight", "resourceWeights", "namespaces")
ENTRY_FIELDS: Final = ("tenant", "name", "tasks", "arrival", "duration", "pod", "namespace")
ARRIVAL_FIELDS: Final = ("at", "every", "poisson", "times")
DURATION_FIELDS: Final = ("exponential", "lognormal", "uniform")
ACTIONS: Final = (
    "addNodes", "removeNodes", "cordon", "uncordon", "tenant", "removeTenant", "autoscaler",
)  # fmt: skip
POD_FIELDS: Final = (
    "requests",
    "labels",
    *(
        field.encode_name
        for field in msgspec.structs.fields(wire.PodSpec)
        if field.name not in {"node_name", "scheduler_name"}
    ),
)
MOST_NODES: Final = 1_000_000
MOST_TASKS: Final = 10_000_000
MOST_RATE: Final = 1e6
MOST_SEED: Final = 2**63 - 1
MOST_SIGMA: Final = 20.0

_TENANT_PARTS: Final = {"weight": "weight", "resourceWeights": "resource_weights", "namespaces": "namespaces"}
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,98}[A-Za-z0-9])?", re.ASCII)
_NEAR = 0.95
_LEAST_PRIORITY, _MOST_PRIORITY = -(2**31), 2**31 - 1


def parse_scenario(document: object) -> Scenario:
    """Return the scenario that the document describes. Raises InvalidProblemError at the first field that is wrong."""
    members = read_object(document, (), SCENARIO_FIELDS, required=("cluster", "tenants", "workload"))
    horizon = read_span(members["horizon"], ("horizon",)) if "horizon" in members else None
    shapes = _read_shapes(members["cluster"])
    tenants = _read_tenants(members["tenants"])
    events = _read_events(members["events"]) if "events" in members else []
    changes = [event.action.spec for _, event in events if isinstance(event.action, SetTenant)]
    namespaces: dict[str, list[str]] = {}
    for spec in (*tenants, *changes):
        namespaces.setdefault(spec.name, []).extend(sorted(spec.namespaces))
    workload = _read_workload(members["workload"], namespaces, horizon)
    numbered = [_number(spec, place) for place, spec in enumerate(tenants)]
    stage = _Stage(shapes, numbered, {entry.tenant for entry in workload})
    ordered = sorted(events, key=lambda pair: pair[1].at)
    return Scenario(
        name=_read_name(members["name"], ("name",)) if "name" in members else "scenario",
        seed=read_whole(members["seed"], ("seed",), 0, MOST_SEED) if "seed" in members else 0,
        horizon=horizon,
        shapes=shapes,
        tenants=tuple(numbered),
        workload=workload,
        events=tuple(Event(event.at, stage.enact(event.action, ("events", place))) for place, event in ordered),
        policies=_read_policies(members["policies"]) if "policies" in members else (DEFAULT_POLICY,),
        measure_every=_read_measure_every(members, horizon),
    )


def check_policies(policies: Iterable[str], known: Iterable[str] = POLICIES) -> None:
    """Raise InvalidProblemError for a policy that does not exist or stands there twice."""
    known, seen = list(known), set[str]()
    for place, policy in enumerate(policies):
        check_known(policy, ("policies", place), known, f"{show_value(policy)} is no policy")
        if policy in seen:
            complain(("policies", place), f"must differ from all others, but {show_value(policy)} is there already")
        seen.add(policy)


def _number(spec: TenantSpec, place: int) -> TenantSpec:
    """Return a tenant that came as so many others had come: order is all that matters of the time."""
    return replace(spec, created=float(place))


def _read_measure_every(members: Mapping[str, object], horizon: int | None) -> int:
    if "measureEvery" not in members:
        return DEFAULT_MEASURE_EVERY
    every = read_span(members["measureEvery"], ("measureEvery",))
    if horizon is not None and horizon // every > MOST_TASKS:
        complain(("measureEvery",), f"must leave at most {MOST_TASKS} measurements up to the horizon")
    return every


def _read_policies(value: object) -> tuple[str, ...]:
    policies = tuple(
        read_text(policy, ("policies", place)) for place, policy in enumerate(read_list(value, ("policies",), "ids"))
    )
    check_policies(policies)
    return policies


def _read_name(value: object, path: Path) -> str:
    name = read_text(value, path)
    if not _NAME.fullmatch(name):
        refuse(value, path, "a name of at most 100 letters, digits, dots, dashes and underscores")
    return name


def _add_name(name: str, path: Path, names: dict[str, Path]) -> None:
    if name in names:
        complain(path, f"must differ from all others, but {show_value(name)} is {show_path(names[name])} already")
    names[name] = path


# --- the cluster ---


def _read_shapes(value: object) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    names: dict[str, Path] = {}
    for place, entry in enumerate(read_list(value, ("cluster",), "shapes")):
        path: Path = ("cluster", place)
        members = read_object(entry, path, SHAPE_FIELDS, required=("shape", "capacity"))
        name = _read_name(members["shape"], (*path, "shape"))
        _add_name(name, (*path, "shape"), names)
        count = read_whole(members["count"], (*path, "count"), 0, MOST_NODES) if "count" in members else 1
        shapes[name] = Shape(name, count, _read_node(members, path))
    return shapes


def _read_node(members: Mapping[str, object], path: Path) -> NodeFacts:
    amounts = _read_amounts(members["capacity"], (*path, "capacity"), least=1)
    if not amounts:
        complain((*path, "capacity"), "must have more than 0 of at least one resource, not {}")
    taints = [
        _read_taint(taint, (*path, "taints", place))
        for place, taint in enumerate(_read_optional_list(members, "taints", path))
    ]
    node = {
        "metadata": {"labels": _read_labels(members["labels"], (*path, "labels")) if "labels" in members else {}},
        "spec": {"taints": taints},
        "status": {
            "allocatable": {SLOTS: str(UNLIMITED_PODS), **amounts},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return NODES.decode_item(msgspec.json.encode(node))


def _read_optional_list(members: Mapping[str, object], field: str, path: Path) -> Sequence[object]:
    value = members.get(field, [])
    if not isinstance(value, list | tuple):
        refuse(value, (*path, field), "a list")
    return value


def _read_taint(value: object, path: Path) -> dict[str, str]:
    members = read_object(value, path, TAINT_FIELDS, required=("key", "effect"))
    effect = read_text(members["effect"], (*path, "effect"))
    if effect not in TAINT_EFFECTS:
        refuse(effect, (*path, "effect"), f"one of {', '.join(TAINT_EFFECTS)}")
    taint = {"key": read_text(members["key"], (*path, "key")), "effect": effect}
    if "value" in members:
        taint["value"] = _read_label_value(members["value"], (*path, "value"))
    return taint


def _read_labels(value: object, path: Path) -> dict[str, str]:
    members = read_mapping(value, path, "an object of texts")
    return {name: _read_label_value(text, (*path, name)) for name, text in members.items()}


def _read_label_value(value: object, path: Path) -> str:
    if not isinstance(value, str):
        refuse(value, path, "text (put it in quotes)")
    return value


def _read_amounts(value: object, path: Path, *, least: int) -> dict[str, str]:
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


# --- tenants ---


def _read_tenants(value: object) -> list[TenantSpec]:
    names: dict[str, Path] = {}
    namespaces: dict[str, Path] = {}
    specs = []
    for place, entry in enumerate(read_list(value, ("tenants",), "tenants")):
        path: Path = ("tenants", place)
        spec = _read_tenant(entry, path)
        _add_name(spec.name, (*path, "name"), names)
        for namespace in sorted(spec.namespaces):
            _add_name(namespace, (*path, "namespaces"), namespaces)
        specs.append(spec)
    return specs


def _read_tenant(value: object, path: Path) -> TenantSpec:
    members = read_object(value, path, TENANT_FIELDS, required=("name",))
    name = _read_name(members["name"], (*path, "name"))
    extra = [
        _read_name(namespace, (*path, "namespaces", place))
        for place, namespace in enumerate(_read_optional_list(members, "namespaces", path))
    ]
    spec = {field: members[field] for field in ("weight", "resourceWeights") if field in members}
    try:
        return parse_tenant({"metadata": {"name": name}, "spec": {**spec, "namespaces": [name, *extra]}})
    except InvalidProblemError as error:
        field, _, rest = str(error).removeprefix("spec.").partition(" must ")
        raise InvalidProblemError(f"{show_path(path)}.{field}: must {rest}") from error


# --- the workload ---


def _read_workload(value: object, tenants: Mapping[str, Sequence[str]], horizon: int | None) -> tuple[Entry, ...]:
    names: dict[str, Path] = {}
    entries = []
    for place, document in enumerate(read_list(value, ("workload",), "entries")):
        path: Path = ("workload", place)
        entry = _read_entry(document, path, tenants, horizon)
        _add_name(f"{entry.waiting.namespace}/{entry.name}", (*path, "name"), names)
        entries.append(entry)
    return tuple(entries)


def _read_entry(value: object, path: Path, tenants: Mapping[str, Sequence[str]], horizon: int | None) -> Entry:
    """Return an entry. tenants: the namespaces of each."""
    members = read_object(value, path, ENTRY_FIELDS, required=("tenant", "name", "duration", "pod"))
    tenant = read_text(members["tenant"], (*path, "tenant"))
    check_known(tenant, (*path, "tenant"), tenants, f"{show_value(tenant)} is no tenant here")
    name = _read_name(members["name"], (*path, "name"))
    namespace = tenant
    if "namespace" in members:
        namespace = read_text(members["namespace"], (*path, "namespace"))
        check_known(
            namespace,
            (*path, "namespace"),
            dict.fromkeys(tenants[tenant]),
            f"{show_value(namespace)} is no namespace of the tenant",
        )
    arrival = _read_arrival(members.get("arrival", {"at": 0}), (*path, "arrival"))
    waiting, placed = _read_pod(members["pod"], (*path, "pod"), namespace)
    return Entry(
        tenant=tenant,
        name=name,
        tasks=_read_tasks(members, path, arrival, horizon),
        arrival=arrival,
        duration=_read_duration(members["duration"], (*path, "duration")),
        waiting=waiting,
        placed=placed,
    )


def _read_tasks(members: Mapping[str, object], path: Path, arrival: Arrival, horizon: int | None) -> int | None:
    path = (*path, "tasks")
    tasks = read_whole(members["tasks"], path, 1, MOST_TASKS) if "tasks" in members else None
    match arrival:
        case Times(times):
            if tasks not in {None, len(times)}:
                complain(path, f"must be the number of times in arrival.times, {len(times)}, or left out")
            return len(times)
        case AllAt():
            if tasks is None:
                complain(path, "is missing; only with every or poisson and a horizon, or with times, it may be")
        case Every() | Poisson():
            if tasks is None and horizon is None:
                complain(path, "is missing; without it there must be a horizon")
            if tasks is None and horizon is not None:
                a_second = arrival.rate if isinstance(arrival, Poisson) else NANOSECONDS / arrival.every
                if a_second * horizon / NANOSECONDS > MOST_TASKS:
                    complain(path, f"is missing, and up to the horizon there would be more than {MOST_TASKS}")
    return tasks


def _read_arrival(value: object, path: Path) -> Arrival:
    members = read_object(value, path, ARRIVAL_FIELDS)
    kinds = [field for field in ("every", "poisson", "times") if field in members]
    if len(kinds) > 1 or not members:
        complain(path, "must have at, or one of every, poisson and times")
    if kinds == ["times"]:
        if "at" in members:
            complain((*path, "at"), "must not stand beside times, which are times from the start")
        times = read_list(members["times"], (*path, "times"), "times")
        return Times(tuple(read_time(time, (*path, "times", place)) for place, time in enumerate(times)))
    at = read_time(members["at"], (*path, "at")) if "at" in members else 0
    if kinds == ["every"]:
        return Every(at, read_span(members["every"], (*path, "every")))
    if kinds == ["poisson"]:
        return Poisson(at, read_number(members["poisson"], (*path, "poisson"), LEAST_SECONDS, MOST_RATE))
    return AllAt(at)


def _read_duration(value: object, path: Path) -> Duration:
    if value == "forever":
        return Fixed(None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Fixed(read_span(value, path))
    if not isinstance(value, Mapping):
        refuse(value, path, "a number of seconds, forever, or an object with exponential, lognormal or uniform")
    kind, parameters = read_choice(value, path, DURATION_FIELDS)
    path = (*path, kind)
    if kind == "exponential":
        return Exponential(read_number(parameters, path, LEAST_SECONDS, MOST_SECONDS))
    if kind == "lognormal":
        members = read_object(parameters, path, ("median", "sigma"), required=("median", "sigma"))
        return Lognormal(
            read_number(members["median"], (*path, "median"), LEAST_SECONDS, MOST_SECONDS),
            read_number(members["sigma"], (*path, "sigma"), 0.0, MOST_SIGMA),
        )
    if not isinstance(parameters, list | tuple) or len(parameters) != len(("low", "high")):
        refuse(parameters, path, "a list of two numbers, the least and the largest")
    low = read_number(parameters[0], (*path, 0), 0.0, MOST_SECONDS)
    return Uniform(low, read_number(parameters[1], (*path, 1), max(low, LEAST_SECONDS), MOST_SECONDS))


# --- pods ---


def _read_pod(value: object, path: Path, namespace: str) -> tuple[PodFacts, PodFacts]:
    """Return a pod before and after it is bound, as the operator reads it."""
    members = read_object(value, path, POD_FIELDS)
    requests = _read_amounts(members["requests"], (*path, "requests"), least=0) if "requests" in members else {}
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
    labels = _read_labels(members["labels"], (*path, "labels")) if "labels" in members else {}
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


# --- events ---

_Placed = tuple[int, Event]
"""An event with its place in the document."""


def _read_events(value: object) -> list[_Placed]:
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
            changed = _number(event.action.spec, MOST_NODES + place)
            event = replace(event, action=replace(event.action, spec=changed))
        events.append((place, event))
    return events


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
            spec = _read_tenant(value, path)
            assert isinstance(value, Mapping)
            return SetTenant(spec, tuple(field for name, field in _TENANT_PARTS.items() if name in value))
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
        _add_name(read_text(name, (*path, place)), (*path, place), names)
    return tuple(names)


class _Stage:
    """What is there while the events pass, as far as the scenario alone says it. wanting: tenants that have tasks."""

    def __init__(self, shapes: Mapping[str, Shape], tenants: Iterable[TenantSpec], wanting: set[str]) -> None:
        self._tenants = {spec.name: spec for spec in tenants}
        self._wanting = wanting
        self._next = {name: shape.count for name, shape in shapes.items()}
        self._nodes = {f"{name}-{number}" for name, shape in shapes.items() for number in range(shape.count)}
        self._scaled: set[str] = set()

    def enact(self, action: Action, path: Path) -> Action:
        """Refuse an action that cannot be meant now; return it with what it leaves as it was."""
        match action:
            case AddNodes(shape, count):
                self._check_shape(shape, (*path, "addNodes", "shape"))
                first = self._next[shape]
                self._next[shape] = first + count
                self._nodes.update(f"{shape}-{number}" for number in range(first, first + count))
            case RemoveNodes(names):
                self._check_nodes(names, (*path, "removeNodes"))
                self._nodes.difference_update(names)
            case Cordon(names, is_cordoned):
                self._check_nodes(names, (*path, "cordon" if is_cordoned else "uncordon"))
            case SetTenant(spec, fields):
                known = {*self._tenants, *self._wanting}
                check_known(spec.name, (*path, "tenant", "name"), known, f"{show_value(spec.name)} is no tenant here")
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
        check_known(shape, path, self._next, f"{show_value(shape)} is no shape of the cluster")

    def _check_nodes(self, names: Sequence[str], path: Path) -> None:
        for place, name in enumerate(names):
            shape, _, number = name.rpartition("-")
            may_be_bought = shape in self._scaled and number.isdecimal()
            if name not in self._nodes and not may_be_bought:
                complain((*path, place), f"{show_value(name)} is no node then{_suggest_node(name, self._nodes)}")


def _suggest_node(name: str, nodes: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(nodes), n=1)
    return f"; did you mean {near[0]}?" if near else ""
