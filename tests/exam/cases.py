"""The cases of Kubernetes' scheduler_perf, read from the pinned module: what is done, in which order, how often.

A file has test cases, a test case has operations and workloads, and a workload has the numbers that its operations
name. Nothing of them is copied here: `CHOSEN` names those that are played.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from exam.templates import render

Json = dict[str, Any]

FOLDER = Path("test") / "integration" / "scheduler_perf"
FILE = "performance-config.yaml"
PLAIN = "SchedulingBasic"
BASE_POD = "../templates/pod-default.yaml"
"""What pods are where a case has no template for them: scheduler_perf's own pod asks for the same."""


@dataclass(frozen=True, slots=True)
class Size:
    """A workload of a case. numbers: those that stand in the place of the workload's own."""

    workload: str
    numbers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Choice:
    """A case that is played. large: on a large cluster; None where it is not played there."""

    name: str
    size: Size = Size("500Nodes")
    large: Size | None = Size("5000Nodes")


FEWER = Size("5000Nodes", {"initPods": 1_000})
"""With fewer pods before those that are measured: on two cores kube-scheduler took seven minutes for 5,000 of them."""

FEWER_OF_BOTH = {"initPods": 1_000, "measurePods": 1_000}

CHOSEN: Mapping[str, tuple[Choice, ...]] = {
    "misc": (Choice(PLAIN), Choice("SchedulingWithMixedChurn", Size("1000Nodes"))),
    "affinity": (
        Choice("SchedulingPodAffinity", large=FEWER),
        Choice("SchedulingPodAntiAffinity"),
        Choice("SchedulingPodMatchingAntiAffinity", large=Size("5000Nodes_5000Pods", {"measurePods": 1_000})),
        Choice("SchedulingNodeAffinity", large=FEWER),
        Choice("SchedulingPreferredPodAffinity", large=FEWER),
        Choice("SchedulingPreferredPodAntiAffinity", large=FEWER),
        Choice("SchedulingRequiredPodAffinityWithNSSelector"),
        Choice("SchedulingRequiredPodAntiAffinityWithNSSelector"),
        Choice("MixedSchedulingBasePod", large=Size("5000Nodes", {"initPods": 200})),
    ),
    "topology_spreading": (
        Choice("TopologySpreading", large=Size("5000Nodes", FEWER_OF_BOTH)),
        Choice("PreferredTopologySpreading", large=Size("5000Nodes", FEWER_OF_BOTH)),
        Choice("DefaultTopologySpreading", large=Size("5000Nodes_10000Pods", FEWER_OF_BOTH)),
    ),
    "volumes": (Choice("SchedulingSecrets", large=FEWER), Choice("SchedulingCSIPVs", large=FEWER)),
    "default_preemption": (Choice("Unschedulable", Size("500Nodes/10Init/1kPods"), Size("5kNodes/100Init/1kPods")),),
    "starvation": (Choice("StarvationIndependent", Size("10000Nodes_10000Cloggers", {"initNodes": 500}), None),),
    "event_handling": (
        Choice("EventHandlingPodDelete", Size("50Nodes_500Pods"), None),
        Choice("EventHandlingPodAdd", Size("1000Pods"), None),
        Choice("EventHandlingNodeAdd", Size("100Nodes_1000Pods"), None),
        Choice("EventHandlingNodeUpdate", Size("100Nodes_1000Pods"), None),
    ),
}
"""By folder: what is played. Numbers replace those of workloads that are for a larger machine.

SchedulingInTreePVs is not among them: fairbind refuses volumes that no CSI driver serves. Nor is
EventHandlingPodUpdate: it resizes pods, which the API server refuses where kwok plays the kubelets.
"""

OPERATIONS = frozenset(
    {
        "createNodes",
        "createNamespaces",
        "createPods",
        "createPodSets",
        "createAny",
        "churn",
        "barrier",
        "deletePods",
        "updateAny",
        "startCollectingMetrics",
        "stopCollectingMetrics",
    }
)
TEMPLATES = (
    "nodeTemplatePath",
    "podTemplatePath",
    "namespaceTemplatePath",
    "persistentVolumeTemplatePath",
    "persistentVolumeClaimTemplatePath",
    "templatePath",
)
NOT_PLAYED = ("uniqueNodeLabelStrategy", "steadyState")
"""Fields of operations that change what is measured, and are not understood."""


class CaseError(ValueError):
    """A case asks for what cannot be played, or is not there."""


@dataclass(frozen=True, slots=True)
class Template:
    """An object to be, with actions in it."""

    text: str

    def make(self, index: int, count: int) -> Json:
        """Return one of so many objects."""
        made: Json = json.loads(_read_as_json(render(self.text, {"Index": index, "Count": count})))
        return made


@functools.lru_cache
def _read_as_json(text: str) -> str:
    """Return a YAML document as JSON: where all objects of a template are the same, it is read once.

    A pod's YAML takes a millisecond or two, and some cases create thousands of pods amid what is measured.
    """
    return json.dumps(yaml.safe_load(text))


@dataclass(frozen=True, slots=True)
class Operation:
    """One step. position: its number, from 0. fields: as in the file, with numbers and templates in place of names."""

    position: int
    opcode: str
    fields: Json

    @property
    def count(self) -> int:
        """How many."""
        return int(self.fields.get("count", 1))

    @property
    def namespace(self) -> str:
        """Where; steps that name no namespace have one of their own."""
        return str(self.fields.get("namespace") or f"namespace-{self.position}")


@dataclass(frozen=True, slots=True)
class Case:
    """A test case with the numbers of one workload. numbers: those that stand in the place of the workload's own."""

    name: str
    workload: str
    operations: tuple[Operation, ...]
    numbers: Mapping[str, int] = field(default_factory=dict)


def read_case(module: Path, folder: str, name: str, size: Size) -> Case:
    """Return a case of a module of Kubernetes; raise CaseError if it is not there or cannot be played as it is.

    size: with the name of a workload, empty for the first one, which is the smallest.
    """
    file = module / FOLDER / folder / FILE
    found = _find_cases(file, name)
    sizes = [entry for case in found for entry in case["workloads"] if size.workload in {entry["name"], ""}]
    if not sizes:
        raise CaseError(f"{file} has no {name}/{size.workload}")
    own = sizes[0].get("params", {})
    if unknown := sorted(size.numbers.keys() - own.keys()):
        raise CaseError(f"{name}/{sizes[0]['name']} has no {unknown[0]}, but {', '.join(sorted(own))}")
    reader = _Reader(file.parent, {**own, **size.numbers}, found[0].get("defaultPodTemplatePath", BASE_POD))
    steps = enumerate(found[0]["workloadTemplate"])
    return Case(name, sizes[0]["name"], tuple(reader.read(number, step) for number, step in steps), size.numbers)


def read_chosen(module: Path, wanted: str = "", *, small: bool = False, large: bool = False) -> Iterator[Case]:
    """Yield the chosen cases whose name holds a text. small: with their smallest workloads."""
    for folder, choices in CHOSEN.items():
        for choice in choices:
            size = Size("") if small else choice.large if large else choice.size
            if size is not None and wanted.lower() in choice.name.lower():
                yield read_case(module, folder, choice.name, size)


def _find_cases(file: Path, name: str) -> list[Json]:
    """Return what a file has of this name."""
    return [case for case in yaml.safe_load(file.read_text(encoding="utf-8")) if case["name"] == name]


@dataclass(frozen=True, slots=True)
class _Reader:
    folder: Path
    params: Mapping[str, Any]
    default_pod: str

    def read(self, position: int, step: Json) -> Operation:
        opcode = step["opcode"]
        if opcode not in OPERATIONS:
            raise CaseError(f"{opcode} is not played")
        if left := [field for field in NOT_PLAYED if field in step]:
            raise CaseError(f"{opcode} with {left[0]} is not played")
        fields = {name: value for name, value in step.items() if name != "opcode"}
        if "countParam" in fields:
            fields["count"] = self._find(fields.pop("countParam"))
        if opcode == "createPods" and "podTemplatePath" not in fields:
            fields["podTemplatePath"] = self.default_pod
        for name in TEMPLATES:
            if fields.get(name):
                fields[name] = self._load(fields[name])
        if "templatePaths" in fields:
            fields["templatePaths"] = [self._load(path) for path in fields["templatePaths"]]
        if "createPodsOp" in fields:
            fields["createPodsOp"] = self.read(position, fields["createPodsOp"])
        return Operation(position, opcode, fields)

    def _find(self, name: str) -> Any:
        if name.removeprefix("$") not in self.params:
            raise CaseError(f"the workload has no {name}")
        return self.params[name.removeprefix("$")]

    def _load(self, path: str) -> Template:
        return Template((self.folder / path).read_text(encoding="utf-8"))


def keeps_nodes(case: Case) -> bool:
    """Whether nodes of a case come only before it measures, and nothing changes them: another run may have the same."""
    first = min((first for first, _ in find_measured(case.operations)), default=0)
    return all(
        operation.position < first if operation.opcode == "createNodes" else not _may_change_nodes(operation)
        for operation in case.operations
    )


def _may_change_nodes(operation: Operation) -> bool:
    fields = operation.fields
    templates = [fields.get("templatePath"), *fields.get("templatePaths", ())]
    return any(isinstance(one, Template) and one.make(0, 1)["kind"] == "Node" for one in templates)


def find_measured(operations: Iterable[Operation]) -> list[tuple[int, int]]:
    """Return the parts of a case that are measured: the first step and the one after the last, by position."""
    parts, began = [], None
    for operation in operations:
        if operation.fields.get("collectMetrics"):
            parts.append((operation.position, operation.position + 1))
        elif operation.opcode == "startCollectingMetrics":
            began = operation.position
        elif operation.opcode == "stopCollectingMetrics" and began is not None:
            parts.append((began, operation.position))
            began = None
    return parts
