"""From the document that people write to a `Scenario`, or an error that says where the document is wrong.

Nothing is guessed or corrected: the first invalid field raises InvalidProblemError with its path, its
value and what would be right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from fairbind.cluster.objects.decode import NODES
from fairbind.cluster.objects.facts import PODS as SLOTS
from fairbind.cluster.objects.facts import NodeFacts
from fairbind.cluster.tenancy.policies import read_fit, read_guided, read_reservations
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.fairness.problems.fields import DocumentName, Path, show_value
from fairbind.model.policy import DEFAULT_POLICY, Fit
from fairbind.simulator.baselines.registry import list_policies, load_outside
from fairbind.simulator.parse_events import (
    MOST_NODES,
    Stage,
    check_parent,
    list_parents,
    number_tenant,
    read_events,
    read_tenant,
)
from fairbind.simulator.parse_gangs import MOST_TASKS, check_gang, read_gang
from fairbind.simulator.parse_pods import read_amounts, read_label_value, read_labels, read_pod
from fairbind.simulator.scenario import (
    AllAt,
    Arrival,
    Duration,
    Each,
    Entry,
    Event,
    Every,
    Exponential,
    Fixed,
    Lognormal,
    Poisson,
    Scenario,
    SetTenant,
    Shape,
    Times,
    Uniform,
)
from fairbind.simulator.slots import DEFAULT_SLOTS
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.reading import (
    LEAST_SECONDS,
    MOST_SECONDS,
    NANOSECONDS,
    add_name,
    check_known,
    complain,
    read_choice,
    read_list,
    read_name,
    read_number,
    read_object,
    read_optional_list,
    read_span,
    read_text,
    read_time,
    read_whole,
    refuse,
)

DEFAULT_MEASURE_EVERY: Final = 10 * NANOSECONDS
UNLIMITED_PODS: Final = 1_000_000
"""The slots of a node whose capacity does not say how many it has: so many that they never decide."""

SCENARIO_FIELDS: Final = (
    "name", "seed", "horizon", "cluster", "tenants", "workload", "events", "policies", "measureEvery",
    "slots", "composite", "notes", "reservations", "guided", "fit", "knownRunTimes",
)  # fmt: skip
SHAPE_FIELDS: Final = ("shape", "count", "capacity", "labels", "taints")
TAINT_FIELDS: Final = ("key", "value", "effect")
TAINT_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
ENTRY_FIELDS: Final = ("tenant", "name", "tasks", "arrival", "duration", "pod", "namespace", "gang")
ARRIVAL_FIELDS: Final = ("at", "every", "poisson", "times")
DURATION_FIELDS: Final = ("exponential", "lognormal", "uniform", "each")
MOST_RATE: Final = 1e6
MOST_SLOTS: Final = 1_000_000
MOST_SEED: Final = 2**63 - 1
MOST_SIGMA: Final = 20.0


def parse_scenario(document: object) -> Scenario:
    """Return the scenario that the document describes. Raises InvalidProblemError at the first field that is wrong."""
    path = (DocumentName("scenario"),)
    members = read_object(document, path, SCENARIO_FIELDS, required=("cluster", "tenants", "workload"))
    horizon = read_span(members["horizon"], ("horizon",)) if "horizon" in members else None
    shapes = read_shapes(members["cluster"])
    tenants = _read_tenants(members["tenants"])
    events = read_events(members["events"]) if "events" in members else []
    changes = [event.action.spec for _, event in events if isinstance(event.action, SetTenant)]
    namespaces: dict[str, list[str]] = {}
    for spec in (*tenants, *changes):
        namespaces.setdefault(spec.name, []).extend(sorted(spec.namespaces))
    workload = read_workload(members["workload"], namespaces, horizon)
    numbered = [number_tenant(spec, place) for place, spec in enumerate(tenants)]
    stage = Stage(shapes, numbered, {*(entry.tenant for entry in workload), *list_parents(events)})
    ordered = sorted(events, key=lambda pair: pair[1].at)
    return Scenario(
        name=read_text(members["name"], ("name",)) if "name" in members else "scenario",
        seed=read_whole(members["seed"], ("seed",), 0, MOST_SEED) if "seed" in members else 0,
        horizon=horizon,
        shapes=shapes,
        tenants=tuple(numbered),
        workload=workload,
        events=tuple(Event(event.at, stage.enact(event.action, ("events", place))) for place, event in ordered),
        policies=read_policies(members["policies"]) if "policies" in members else (DEFAULT_POLICY,),
        measure_every=read_measure_every(members, horizon),
        slots=read_whole(members["slots"], ("slots",), 1, MOST_SLOTS) if "slots" in members else DEFAULT_SLOTS,
        composite=read_text(members["composite"], ("composite",)) if "composite" in members else None,
        reservations=read_reservations(members.get("reservations"), "reservations"),
        guided=read_guided(members.get("guided", True), "guided"),
        fit=read_fit(members.get("fit", Fit.DOMINANT_RESOURCE), "fit"),
        knows_run_times=read_guided(members.get("knownRunTimes", False), "knownRunTimes"),
        notes=tuple(
            read_text(note, ("notes", place)) for place, note in enumerate(read_optional_list(members, "notes", ()))
        ),
    )


def check_policies(policies: Iterable[str]) -> None:
    """Raise InvalidProblemError for a policy that does not exist, cannot be used or stands there twice."""
    known, seen = list_policies(), set[str]()
    for place, policy in enumerate(policies):
        check_known(policy, ("policies", place), known, f"{show_value(policy)} is no policy")
        load_outside(policy)
        if policy in seen:
            complain(("policies", place), f"must differ from all others, but {show_value(policy)} is there already")
        seen.add(policy)


def read_measure_every(members: Mapping[str, object], horizon: int | None) -> int:
    """Return the time between two measurements, in nanoseconds."""
    if "measureEvery" not in members:
        return DEFAULT_MEASURE_EVERY
    every = read_span(members["measureEvery"], ("measureEvery",))
    if horizon is not None and horizon // every > MOST_TASKS:
        complain(("measureEvery",), f"must leave at most {MOST_TASKS} measurements up to the horizon")
    return every


def read_policies(value: object) -> tuple[str, ...]:
    """Return ids of policies, each once."""
    policies = tuple(
        read_text(policy, ("policies", place)) for place, policy in enumerate(read_list(value, ("policies",), "ids"))
    )
    check_policies(policies)
    return policies


# --- the cluster ---


def read_shapes(value: object) -> dict[str, Shape]:
    """Return the shapes of a cluster by name, in their order."""
    shapes: dict[str, Shape] = {}
    names: dict[str, Path] = {}
    for place, entry in enumerate(read_list(value, ("cluster",), "shapes")):
        path: Path = ("cluster", place)
        members = read_object(entry, path, SHAPE_FIELDS, required=("shape", "capacity"))
        name = read_name(members["shape"], (*path, "shape"))
        add_name(name, (*path, "shape"), names)
        count = read_whole(members["count"], (*path, "count"), 0, MOST_NODES) if "count" in members else 1
        shapes[name] = Shape(name, count, _read_node(members, path))
    return shapes


def _read_node(members: Mapping[str, object], path: Path) -> NodeFacts:
    amounts = read_amounts(members["capacity"], (*path, "capacity"), least=1)
    if not amounts:
        complain((*path, "capacity"), "must have more than 0 of at least one resource, not {}")
    taints = [
        _read_taint(taint, (*path, "taints", place))
        for place, taint in enumerate(read_optional_list(members, "taints", path))
    ]
    node = {
        "metadata": {"labels": read_labels(members["labels"], (*path, "labels")) if "labels" in members else {}},
        "spec": {"taints": taints},
        "status": {
            "allocatable": {SLOTS: str(UNLIMITED_PODS), **amounts},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return NODES.decode_item(msgspec.json.encode(node))


def _read_taint(value: object, path: Path) -> dict[str, str]:
    members = read_object(value, path, TAINT_FIELDS, required=("key", "effect"))
    effect = read_text(members["effect"], (*path, "effect"))
    if effect not in TAINT_EFFECTS:
        refuse(effect, (*path, "effect"), f"one of {', '.join(TAINT_EFFECTS)}")
    taint = {"key": read_text(members["key"], (*path, "key")), "effect": effect}
    if "value" in members:
        taint["value"] = read_label_value(members["value"], (*path, "value"))
    return taint


# --- tenants ---


def _read_tenants(value: object) -> list[TenantSpec]:
    names: dict[str, Path] = {}
    namespaces: dict[str, Path] = {}
    specs = []
    for place, entry in enumerate(read_list(value, ("tenants",), "tenants")):
        path: Path = ("tenants", place)
        spec = read_tenant(entry, path)
        add_name(spec.name, (*path, "name"), names)
        for namespace in sorted(spec.namespaces):
            add_name(namespace, (*path, "namespaces"), namespaces)
        specs.append(spec)
    for place, spec in enumerate(specs):
        check_parent(spec, ("tenants", place), names)
    return specs


# --- the workload ---


def read_workload(
    value: object,
    tenants: Mapping[str, Sequence[str]],
    horizon: int | None,
    listed: ListedObjects | None = None,
) -> tuple[Entry, ...]:
    """Return the entries. tenants: the namespaces of each. horizon: nanoseconds. listed: see `read_pod`."""
    names: dict[str, Path] = {}
    entries = []
    for place, document in enumerate(read_list(value, ("workload",), "entries")):
        path: Path = ("workload", place)
        entry = _read_entry(document, path, tenants, horizon, listed)
        add_name(f"{entry.waiting.namespace}/{entry.name}", (*path, "name"), names)
        entries.append(entry)
    return tuple(entries)


def _read_entry(
    value: object,
    path: Path,
    tenants: Mapping[str, Sequence[str]],
    horizon: int | None,
    listed: ListedObjects | None,
) -> Entry:
    """Return an entry. tenants: the namespaces of each."""
    members = read_object(value, path, ENTRY_FIELDS, required=("tenant", "name", "duration", "pod"))
    tenant = read_text(members["tenant"], (*path, "tenant"))
    check_known(tenant, (*path, "tenant"), tenants, f"{show_value(tenant)} is no tenant here")
    name = read_name(members["name"], (*path, "name"))
    own = tenants[tenant]
    namespace = own[0] if own and tenant not in own else tenant
    if "namespace" in members or not own:
        namespace = read_text(members.get("namespace", tenant), (*path, "namespace"))
        check_known(
            namespace,
            (*path, "namespace"),
            dict.fromkeys(own),
            f"{show_value(namespace)} is no namespace of the tenant",
        )
    arrival = _read_arrival(members.get("arrival", {"at": 0}), (*path, "arrival"))
    waiting, placed = read_pod(members["pod"], (*path, "pod"), namespace, listed)
    gang = read_gang(members["gang"], (*path, "gang")) if "gang" in members else None
    tasks = _read_tasks(members, path, arrival, horizon, 1 if gang is None else gang.size or 1)
    if gang is not None:
        check_gang(gang, (*path, "gang"), arrival, tasks)
    return Entry(
        tenant=tenant,
        name=name,
        tasks=tasks,
        arrival=arrival,
        duration=_read_duration(members["duration"], (*path, "duration"), tasks),
        waiting=waiting,
        placed=placed,
        gang=gang,
    )


def _read_tasks(
    members: Mapping[str, object], path: Path, arrival: Arrival, horizon: int | None, size: int
) -> int | None:
    """Return how many tasks there are; None: as many as arrive. size: so many arrive together where time tells."""
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
                if size * a_second * horizon / NANOSECONDS > MOST_TASKS:
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


def _read_duration(value: object, path: Path, tasks: int | None) -> Duration:
    if value == "forever":
        return Fixed(None)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Fixed(read_span(value, path))
    if not isinstance(value, Mapping):
        refuse(value, path, "a number of seconds, forever, or an object with exponential, lognormal, uniform or each")
    kind, parameters = read_choice(value, path, DURATION_FIELDS)
    path = (*path, kind)
    if kind == "exponential":
        return Exponential(read_number(parameters, path, LEAST_SECONDS, MOST_SECONDS))
    if kind == "each":
        lengths = read_list(parameters, path, "seconds")
        if len(lengths) != tasks:
            complain(path, f"must have one entry for each of the tasks, whose number is {tasks or 'left out'}")
        return Each(
            tuple(
                None if length == "forever" else read_span(length, (*path, place))
                for place, length in enumerate(lengths)
            )
        )
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
