"""The cases of Kubernetes' scheduler_perf, read from the pinned module: what is done, in which order, how often.

A file has test cases, a test case has operations and workloads, and a workload has the numbers that its operations
name. Nothing of them is copied here: `CHOSEN` names those that are played.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
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

CHOSEN: Mapping[str, tuple[tuple[str, str], ...]] = {
    "misc": ((PLAIN, "500Nodes"),),
    "affinity": (
        ("SchedulingPodAffinity", "500Nodes"),
        ("SchedulingPodAntiAffinity", "500Nodes"),
        ("SchedulingPodMatchingAntiAffinity", "500Nodes"),
        ("SchedulingNodeAffinity", "500Nodes"),
        ("SchedulingPreferredPodAffinity", "500Nodes"),
        ("SchedulingPreferredPodAntiAffinity", "500Nodes"),
        ("SchedulingRequiredPodAffinityWithNSSelector", "500Nodes"),
        ("SchedulingRequiredPodAntiAffinityWithNSSelector", "500Nodes"),
        ("MixedSchedulingBasePod", "500Nodes"),
    ),
    "topology_spreading": (
        ("TopologySpreading", "500Nodes"),
        ("PreferredTopologySpreading", "500Nodes"),
        ("DefaultTopologySpreading", "500Nodes"),
    ),
    "volumes": (("SchedulingSecrets", "500Nodes"),),
    "default_preemption": (("Unschedulable", "500Nodes/10Init/1kPods"),),
    "event_handling": (("EventHandlingNodeAdd", "100Nodes_1000Pods"),),
}
"""By folder: test cases and their workloads."""

LARGE = "5000Nodes"
"""The workload for a large cluster, where a case has one."""

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
    "templatePath",
)
NOT_PLAYED = ("persistentVolumeTemplatePath", "nodeAllocatableStrategy", "uniqueNodeLabelStrategy", "steadyState")
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
    """A test case with the numbers of one workload."""

    name: str
    workload: str
    operations: tuple[Operation, ...]


def read_case(module: Path, folder: str, name: str, workload: str) -> Case:
    """Return a case of a module of Kubernetes; raise CaseError if it is not there or cannot be played as it is.

    workload: its name; empty for the first one, which is the smallest.
    """
    file = module / FOLDER / folder / FILE
    found = _find_cases(file, name)
    numbers = [entry for case in found for entry in case["workloads"] if workload in {entry["name"], ""}]
    if not numbers:
        raise CaseError(f"{file} has no {name}/{workload}")
    steps = found[0]["workloadTemplate"]
    reader = _Reader(file.parent, numbers[0].get("params", {}), found[0].get("defaultPodTemplatePath", BASE_POD))
    return Case(name, numbers[0]["name"], tuple(reader.read(number, step) for number, step in enumerate(steps)))


def read_chosen(module: Path, wanted: str = "", *, small: bool = False, large: bool = False) -> Iterator[Case]:
    """Yield the chosen cases whose name holds a text. small: with their smallest workloads. large: with `LARGE`."""
    for folder, pairs in CHOSEN.items():
        for name, workload in pairs:
            if wanted.lower() in name.lower() and (not large or has_workload(module, folder, name, LARGE)):
                yield read_case(module, folder, name, "" if small else LARGE if large else workload)


def has_workload(module: Path, folder: str, name: str, workload: str) -> bool:
    """Whether a case of a module of Kubernetes has a workload of this name."""
    found = _find_cases(module / FOLDER / folder / FILE, name)
    return any(entry["name"] == workload for case in found for entry in case["workloads"])


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
        for field in TEMPLATES:
            if fields.get(field):
                fields[field] = self._load(fields[field])
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
