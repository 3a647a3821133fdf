"""What many objects of one tenant cost another tenant's events, in each mode: each object is within its budget.

A recipe makes so many pods of one tenant, each with terms, claims or constraints of its own; they run, or wait. Then a
few pods of another tenant come, are placed and end. What that takes is counted in lines of Python that run, so it is
the same on any machine. It must hardly grow from `FEW` objects to `MANY`: `FEW` are more than any budget of a tenant
lets count. Pods that wait are more (`FEW_WAITING`): all that a window shows and that go round meanwhile. A pod that
waits beyond it still costs a line or two a cycle, where the tasks that are left out are listed (`LINES_AN_OBJECT`).
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any, NamedTuple

from cluster.builders import SCHEDULER, Json, make_namespace, make_node, make_pod
from cluster.volumes import BOUND, DRIVER, VolumeCluster
from fairbind.cluster.objects.facts import FAIRBIND_GATE
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.scheduling import CycleState, UnschedulableCache, run_cycle
from fuzz.lines import count_lines

NODES_IN_WORLD = 60
FEW, MANY = 240, 480
FEW_WAITING, MANY_WAITING = 480, 960
LINES_AN_OBJECT, SPARE_LINES = 12, 2_000
MOST_LINES = 150_000
"""About ten milliseconds, for six events with three cycles."""
EVENTS = 4
TERMS = 32
OTHER = "default-scheduler"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

MODES: dict[str, dict[str, Any]] = {
    "bind": {},
    "gate": {"gated_scheduler": OTHER},
    "extender": {"asking": frozenset({OTHER})},
}


class Multiple(NamedTuple):
    """kind: what each object is. operator: of the terms' expressions. is_placed: whether the pods run."""

    mode: str
    kind: str
    operator: str
    is_placed: bool

    def describe(self) -> str:
        """Return the recipe in one line."""
        return f"{self.mode}: {self.kind}({self.operator}), {'placed' if self.is_placed else 'waiting'}"


def make_expression(operator: str, number: int, part: int) -> Json:
    """Return an expression that no other object has; with `Pair` one beside a label that many pods have."""
    if operator in {"In", "NotIn"}:
        return {"key": "job", "operator": operator, "values": [f"j{number}-{part}"]}
    return {"key": f"z{number}-{part}", "operator": "Exists" if operator == "Pair" else operator}


def make_term(operator: str, number: int, part: int) -> Json:
    """Return a term about the pods of all namespaces."""
    selector: Json = {"matchExpressions": [make_expression(operator, number, part)]}
    if operator == "Pair":
        selector["matchLabels"] = {"app": "web"}
    return {"topologyKey": "host", "namespaceSelector": {}, "labelSelector": selector}


def make_terms(kind: str, operator: str, number: int) -> Json:
    """Return the part of a pod's spec that is odd."""
    parts = range(TERMS)
    each = [make_term(operator, number, part) for part in parts]
    weighted = [{"weight": 1 + number % 100, "podAffinityTerm": term} for term in each]
    wish = {"topologyKey": "host", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
    volumes = [{"name": f"v{part}", "persistentVolumeClaim": {"claimName": f"c{number}-{part}"}} for part in parts]
    specs: dict[str, Json] = {
        "apart": {"affinity": {"podAntiAffinity": {REQUIRED: each}}},
        "together": {"affinity": {"podAffinity": {REQUIRED: each}}},
        "draws": {"affinity": {"podAffinity": {PREFERRED: weighted}}},
        "pushes": {"affinity": {"podAntiAffinity": {PREFERRED: weighted}}},
        "spread": {"topologySpreadConstraints": [{**wish, "labelSelector": term["labelSelector"]} for term in each]},
        "tolerates": {"tolerations": [{"key": f"t{number}-{part}", "operator": "Exists"} for part in parts]},
        "volumes": {"volumes": volumes},
    }
    return specs.get(kind, {})


def list_ports(kind: str, number: int) -> list[Json]:
    """Return the host ports of a pod, which no other one has."""
    first = 1 + number * TERMS
    return (
        [{"containerPort": port, "hostPort": port} for port in range(first, first + TERMS)] if kind == "ports" else []
    )


WITH_TERMS = ("apart", "together", "draws", "pushes", "spread")
KINDS = (*WITH_TERMS, "tolerates", "ports", "volumes")
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Pair")


class ManyWorld:
    """A cluster of two tenants, of which one has many odd objects."""

    def __init__(self, recipe: Multiple, count: int) -> None:
        self._recipe = recipe
        self.cluster = VolumeCluster(**MODES[recipe.mode])
        self._state, self._unschedulable = CycleState(), UnschedulableCache()
        self.cluster.add_namespaces(*(make_namespace(name) for name in ("evil", "good")))
        for name in ("evil", "good"):
            self.cluster.cache.set_tenant(TenantSpec(name, namespaces=frozenset({name})))
        for k in range(NODES_IN_WORLD):
            self.cluster.add_nodes(make_node(f"n{k}", labels={"host": f"n{k}"}))
            self.cluster.add_csi_node(f"n{k}", 24 * TERMS)
        for number in range(count):
            self._add_odd(number)
        for _ in range(3):
            self.decide()

    def _add_odd(self, number: int) -> None:
        recipe, cluster = self._recipe, self.cluster
        if recipe.kind == "volumes":
            for part in range(TERMS):
                self._add_volume(f"c{number}-{part}")
        spec = make_terms(recipe.kind, recipe.operator, number)
        requests = {"cpu": "1m" if recipe.is_placed else "900"}
        place: Json = {"node": f"n{number % (NODES_IN_WORLD // 2)}", "phase": "Running"} if recipe.is_placed else {}
        pod = self._make(f"e{number}", "evil", requests=requests, labels={"app": "odd"}, **place, **spec)
        pod["spec"]["containers"][0]["ports"] = list_ports(recipe.kind, number)
        cluster.add_pods(pod)

    def _add_volume(self, name: str) -> None:
        spec = {"csi": {"driver": DRIVER, "volumeHandle": f"h-{name}"}}
        self.cluster.add("persistentvolumes", f"pv-{name}", spec=spec, status={"phase": "Bound"})
        self.cluster.add(
            "persistentvolumeclaims",
            name,
            meta={"namespace": "evil", "annotations": BOUND},
            spec={"storageClassName": "now", "accessModes": ["ReadWriteOnce"], "volumeName": f"pv-{name}"},
            status={"phase": "Bound"},
        )

    def _make(self, name: str, namespace: str, **options: Any) -> Json:
        """Return a pod as the mode has it."""
        mode = self._recipe.mode
        gates: Json = {"schedulingGates": [{"name": FAIRBIND_GATE}]} if mode == "gate" and "node" not in options else {}
        scheduler = SCHEDULER if mode == "bind" else OTHER
        return make_pod(name, namespace=namespace, scheduler=scheduler, **gates, **options)

    def decide(self) -> None:
        """Make a snapshot and run a cycle."""
        cache = self.cluster.cache
        report = run_cycle(
            cache.build_snapshot(), cache.settings, 0.0, unschedulable=self._unschedulable, state=self._state, limit=100
        )
        cache.note_waits(report.waits)

    def _happen(self, number: int) -> None:
        """Let a pod of the other tenant come, be placed and end."""
        name, labels = f"g{number}", {"app": "web", "job": f"j{number}-0"}
        self.cluster.add_pods(self._make(name, "good", requests={"cpu": "10m"}, labels=labels))
        self.decide()
        placed = self._make(name, "good", requests={"cpu": "10m"}, labels=labels, node=f"n{NODES_IN_WORLD - 1}")
        self.cluster.add_pods(placed)
        self.decide()
        self.cluster.delete_pod(placed)
        self.decide()

    def count_lines(self) -> int:
        """Return the lines that the dearest of a few pods of the other tenant takes."""
        most = 0
        for number in range(EVENTS):
            count = count_lines(partial(self._happen, number))
            if number:  # the first one finds nothing remembered
                most = max(most, count)
        return most


def find_growth(recipe: Multiple, few: int | None = None, many: int | None = None) -> list[str]:
    """Return what is above the limit, in words. few, many: numbers of objects; None: as many as are usual."""
    few = few or (FEW if recipe.is_placed else FEW_WAITING)
    many = many or (MANY if recipe.is_placed else MANY_WAITING)
    base, lines = (ManyWorld(recipe, count).count_lines() for count in (few, many))
    limit = min(base + LINES_AN_OBJECT * (many - few) + SPARE_LINES, MOST_LINES)
    if lines <= limit:
        return []
    return [f"{lines} lines for a pod of another tenant beside {many} objects and {base} beside {few}"]


def draw_multiple(randomness: random.Random) -> Multiple:
    """Return a recipe."""
    kind = randomness.choice(KINDS)
    operator = randomness.choice(OPERATORS) if kind in WITH_TERMS else ""
    return Multiple(randomness.choice(list(MODES)), kind, operator, is_placed=randomness.random() < 0.5)
