"""A snapshot with what happens after it: nodes, tenants, tasks and events of a scenario that begins with the snapshot.

The document has the fields of a scenario, none of which is required. Its nodes stand beside those of the snapshot. A
tenant of the snapshot's name changes, another one comes. Tasks arrive after the pods that are there. Events name nodes
by their names; a shape is one of the document's own, or any node of the snapshot, whose likes then come.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import msgspec

from fairbind.cluster.objects.facts import PodFacts
from fairbind.cluster.tenancy.tenants import IMPLICIT_PREFIX, TenantSpec
from fairbind.fairness.problems.fields import DocumentName, Path
from fairbind.simulator.parse_events import (
    MOST_NODES,
    TENANT_PARTS,
    Placed,
    Stage,
    check_parent,
    list_parents,
    number_tenant,
    read_events,
    read_tenant,
)
from fairbind.simulator.parsing import (
    MOST_SEED,
    MOST_SLOTS,
    SCENARIO_FIELDS,
    read_measure_every,
    read_policies,
    read_shapes,
    read_workload,
)
from fairbind.simulator.scenario import AddNodes, Entry, Event, Scenario, SetTenant, Shape, StartAutoscaler
from fairbind.what_if.reading import add_name, complain, read_list, read_object, read_span, read_text, read_whole

_DOCUMENT: Final = (DocumentName("scenario"),)


def read_seed(document: object) -> int:
    """Return the seed that the document names; 0 when it names none. Raises InvalidProblemError."""
    members = read_object(document, _DOCUMENT, SCENARIO_FIELDS)
    return read_whole(members["seed"], ("seed",), 0, MOST_SEED) if "seed" in members else 0


def add_to_snapshot(base: Scenario, document: object) -> Scenario:
    """Return the scenario of a snapshot with what the document adds. Raises InvalidProblemError.

    base: of the snapshot, as `make_scenario` makes it.
    """
    members = read_object(document, _DOCUMENT, SCENARIO_FIELDS)
    horizon = read_span(members["horizon"], ("horizon",)) if "horizon" in members else None
    shapes = _add_shapes(base, members)
    changed = _read_tenants(members, [spec.name for spec in base.tenants])
    base = _hand_over(base, [spec for spec, _ in changed])
    tenants = {spec.name: spec for spec in base.tenants}
    changes = [SetTenant(_merge(tenants.get(spec.name), spec, fields), fields) for spec, fields in changed]
    tenants.update((change.spec.name, change.spec) for change in changes)
    placed = _name_kinds(base, read_events(members["events"])) if "events" in members else []
    namespaces = _find_namespaces(base, [*tenants.values(), *(_find_spec(event) for _, event in placed)])
    added = read_workload(members["workload"], namespaces, horizon, base.start) if "workload" in members else ()
    workload = *base.workload, *(_give_scheduler(entry, base) for entry in added)
    if not workload:
        complain(("workload",), "must have an entry, as no pod of the snapshot runs or waits for fairbind")
    stage = Stage(shapes, tenants.values(), {*(entry.tenant for entry in workload), *list_parents(placed)})
    events = [
        Event(event.at, stage.enact(event.action, ("events", place)))
        for place, event in sorted(placed, key=lambda pair: pair[1].at)
    ]
    return replace(
        base,
        name=read_text(members["name"], ("name",)) if "name" in members else base.name,
        horizon=horizon,
        shapes=shapes,
        workload=workload,
        events=(*(Event(0, change) for change in changes), *events),
        policies=read_policies(members["policies"]) if "policies" in members else base.policies,
        measure_every=read_measure_every(members, horizon) if "measureEvery" in members else base.measure_every,
        slots=read_whole(members["slots"], ("slots",), 1, MOST_SLOTS) if "slots" in members else base.slots,
        composite=read_text(members["composite"], ("composite",)) if "composite" in members else base.composite,
        notes=(*base.notes, *_read_notes(members)),
    )


def _read_notes(members: Mapping[str, object]) -> Sequence[str]:
    notes = read_list(members["notes"], ("notes",), "texts") if "notes" in members else ()
    return [read_text(note, ("notes", place)) for place, note in enumerate(notes)]


def _add_shapes(base: Scenario, members: Mapping[str, object]) -> dict[str, Shape]:
    added = read_shapes(members["cluster"]) if "cluster" in members else {}
    known = {node.name for shape in base.shapes.values() for node in shape.present}
    for place, name in enumerate(added):
        if name in known:
            complain(("cluster", place, "shape"), "must not be the name of a node of the snapshot")
    return {**base.shapes, **added}


def _read_tenants(members: Mapping[str, object], known: Iterable[str]) -> list[tuple[TenantSpec, tuple[str, ...]]]:
    """Return the document's tenants, each with those fields of its spec that it names. known: the snapshot's."""
    names: dict[str, Path] = {}
    found, specs = [], list[TenantSpec]()
    for place, value in enumerate(
        read_list(members["tenants"], ("tenants",), "tenants") if "tenants" in members else ()
    ):
        spec = read_tenant(value, ("tenants", place))
        add_name(spec.name, ("tenants", place, "name"), names)
        specs.append(spec)
        assert isinstance(value, Mapping)
        fields = tuple(field for name, field in TENANT_PARTS.items() if name in value)
        found.append((number_tenant(spec, MOST_NODES + place), fields))
    for place, spec in enumerate(specs):
        check_parent(spec, ("tenants", place), {*known, *names})
    return found


def _merge(before: TenantSpec | None, spec: TenantSpec, fields: Sequence[str]) -> TenantSpec:
    return spec if before is None else replace(before, **{field: getattr(spec, field) for field in fields})


def _hand_over(base: Scenario, added: Sequence[TenantSpec]) -> Scenario:
    """Give the pods of a namespace without a tenant to the tenant that now comes for it."""
    declared = {spec.name for spec in base.tenants}
    successors = {
        f"{IMPLICIT_PREFIX}{namespace}": spec.name
        for spec in added
        if spec.name not in declared
        for namespace in spec.namespaces
    }
    return replace(
        base,
        tenants=tuple(spec for spec in base.tenants if spec.name not in successors),
        workload=tuple(replace(entry, tenant=successors.get(entry.tenant, entry.tenant)) for entry in base.workload),
    )


def _name_kinds(base: Scenario, placed: Sequence[Placed]) -> list[Placed]:
    """Let events that name a node as a shape name its kind."""
    kind_of = {node.name: name for name, shape in base.shapes.items() for node in shape.present}
    named = []
    for place, event in placed:
        action = event.action
        if isinstance(action, AddNodes | StartAutoscaler):
            action = replace(action, shape=kind_of.get(action.shape, action.shape))
        named.append((place, replace(event, action=action)))
    return named


def _find_spec(event: Event) -> TenantSpec | None:
    return event.action.spec if isinstance(event.action, SetTenant) else None


def _find_namespaces(base: Scenario, specs: Sequence[TenantSpec | None]) -> dict[str, list[str]]:
    """Return the namespaces of each tenant: those that it names, and those in which it has pods."""
    found: dict[str, dict[str, None]] = {}
    for spec in specs:
        if spec is not None:
            found.setdefault(spec.name, {}).update(dict.fromkeys(sorted(spec.namespaces)))
    for entry in base.workload:
        found.setdefault(entry.tenant, {})[entry.waiting.namespace] = None
    return {name: list(namespaces) for name, namespaces in found.items()}


def _give_scheduler(entry: Entry, base: Scenario) -> Entry:
    """Let pods wait for the scheduler of the snapshot."""
    assert base.start is not None
    name = base.start.scheduler_name

    def give(pod: PodFacts) -> PodFacts:
        given: PodFacts = msgspec.structs.replace(pod, scheduler=name)
        return given

    return replace(entry, waiting=give(entry.waiting), placed=give(entry.placed))
