"""The workloads of the fairness table: three of ours, and those that are made of published traces, by seed."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fairbind.cli import main
from fairbind.simulator.traces.openb import GPU_MODEL

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
EVERY = 300
"""Seconds between measurements of our own workloads."""
OPENB = ("openb_pod_list_default.csv.gz", "openb_node_list_all_node.csv")
"""The publisher's files of pods and of nodes."""


def make_mixed(seed: int = 17, horizon: int = 3600) -> Json:
    """Return six tenants on three kinds of nodes, who together want more than there is for most of the time.

    horizon: seconds; a shorter one cuts the same workload off. Two nodes take no pods between 1200 and 2400.
    """
    return {
        **_begin("mixed", seed, horizon),
        "cluster": [
            _shape("cpu", 8, {"cpu": 32, "memory": "64Gi"}),
            _shape("memory", 4, {"cpu": 16, "memory": "256Gi"}, kind="memory"),
            _shape("gpu", 4, {"cpu": 32, "memory": "128Gi", GPU: 4}),
        ],
        "tenants": [
            {"name": "analytics"},
            {"name": "batch"},
            {"name": "cache"},
            {"name": "late"},
            {"name": "training"},
            {"name": "web", "weight": 2},
        ],
        "workload": [
            _entry("analytics", 0.03, 900, {"cpu": 2, "memory": "24Gi"}),
            _entry("batch", 0.15, 600, {"cpu": 2, "memory": "2Gi"}),
            _entry("cache", 0.015, 1500, {"cpu": 1, "memory": "20Gi"}, nodeSelector={"kind": "memory"}),
            _entry("late", 0.1, 500, {"cpu": 4, "memory": "4Gi"}, start=1200),
            _entry("training", 0.008, 1800, {"cpu": 6, "memory": "24Gi", GPU: 1}),
            _entry("training", 0.001, 1800, {"cpu": 12, "memory": "48Gi", GPU: 4}, name="large"),
            _entry("web", 0.06, 400, {"cpu": 4, "memory": "8Gi"}, priority=10),
        ],
        "events": [{"at": 1200, "cordon": ["gpu-2", "gpu-3"]}, {"at": 2400, "uncordon": ["gpu-2", "gpu-3"]}],
        "notes": ["made for this table; no trace", "three kinds of nodes, of which two nodes are closed for a while"],
    }


def make_pools(seed: int, horizon: int = 3600) -> Json:
    """Return tenants of which some may use every node and others one pool only."""
    return {
        **_begin("pools", seed, horizon),
        "cluster": [
            _shape("cpu", 6, {"cpu": 32, "memory": "128Gi"}, pool="cpu"),
            _shape("old", 4, {"cpu": 32, "memory": "128Gi", GPU: 4}, pool="old-gpus"),
            _shape("new", 4, {"cpu": 32, "memory": "128Gi", GPU: 4}, pool="new-gpus"),
        ],
        "tenants": [{"name": name} for name in ("batch", "inference", "licensed", "training", "web")],
        "workload": [
            _entry("batch", 0.2, 600, {"cpu": 2, "memory": "4Gi"}),
            _entry("web", 0.2, 500, {"cpu": 2, "memory": "8Gi"}),
            _entry("licensed", 0.08, 900, {"cpu": 2, "memory": "4Gi"}, nodeSelector={"pool": "cpu"}),
            _entry("inference", 0.04, 900, {"cpu": 4, "memory": "12Gi", GPU: 1}, nodeSelector={"pool": "old-gpus"}),
            _entry("training", 0.03, 1200, {"cpu": 6, "memory": "24Gi", GPU: 1}, nodeSelector={"pool": "new-gpus"}),
        ],
        "notes": ["made for this table; no trace", "three of five tenants may use one pool of nodes only"],
    }


def make_sizes(seed: int, horizon: int = 2700) -> Json:
    """Return tenants whose pods take from a 32nd of a node to half of one."""
    return {
        **_begin("sizes", seed, horizon),
        "cluster": [
            _shape("cpu", 6, {"cpu": 16, "memory": "64Gi"}),
            _shape("gpu", 3, {"cpu": 64, "memory": "256Gi", GPU: 8}),
        ],
        "tenants": [{"name": name} for name in ("large", "medium", "single", "small", "wide")],
        "workload": [
            _entry("small", 0.5, 300, {"cpu": "500m", "memory": "1Gi"}),
            _entry("medium", 0.15, 400, {"cpu": 2, "memory": "8Gi"}),
            _entry("large", 0.03, 600, {"cpu": 8, "memory": "16Gi"}, start=300),
            _entry("single", 0.05, 600, {"cpu": 2, "memory": "16Gi", GPU: 1}),
            _entry("wide", 0.012, 600, {"cpu": 8, "memory": "64Gi", GPU: 4}, start=300),
        ],
        "notes": [
            "made for this table; no trace",
            "pods of 1/2, 2 and 8 CPUs, and of 1 and 4 GPUs; the large ones come later",
        ],
    }


MADE: dict[str, Callable[[int], Json]] = {"mixed": make_mixed, "pools": make_pools, "sizes": make_sizes}


def _begin(name: str, seed: int, horizon: int) -> Json:
    """Return what the scenarios of ours have in common but for their nodes, tenants and tasks."""
    return {"name": name, "seed": seed, "horizon": horizon, "measureEvery": EVERY}


def _shape(name: str, count: int, capacity: Json, **labels: str) -> Json:
    return {"shape": name, "count": count, "capacity": {**capacity, "pods": 110}} | (
        {"labels": labels} if labels else {}
    )


def _entry(
    tenant: str, rate: float, mean: float, requests: Json, *, start: int = 0, name: str = "main", **pod: Any
) -> Json:
    return {
        "tenant": tenant,
        "name": name,
        "arrival": {"poisson": rate, "at": start},
        "duration": {"exponential": mean},
        "pod": {"requests": requests, **pod},
    }


@dataclass(frozen=True, slots=True)
class Cut:
    """What is taken of a trace, so that a table takes an hour and tasks compete.

    nodes: which part of each shape's nodes, one at least. faster: how many times as fast tasks arrive; they run as long
    as before. tenants, tasks: so many at most, drawn by the seed. models: the part of tasks with GPUs that accept one
    model of GPU only, drawn by the seed as nodes have them.
    """

    nodes: float = 1.0
    faster: float = 1.0
    tenants: int | None = None
    tasks: int | None = None
    models: float = 0.0

    def apply(self, document: Json, seed: int) -> Json:
        """Return the scenario with less, and notes that say so."""
        draw = random.Random(seed)
        names = sorted(tenant["name"] for tenant in document["tenants"])
        kept = names if self.tenants is None else sorted(draw.sample(names, min(self.tenants, len(names))))
        cluster = [{**shape, "count": max(1, round(self.nodes * shape["count"]))} for shape in document["cluster"]]
        workload = self._draw_tasks([entry for entry in document["workload"] if entry["tenant"] in kept], draw)
        if self.models:
            workload = list(_restrict(workload, cluster, self.models, draw))
        left, all_nodes = (sum(shape["count"] for shape in each) for each in (cluster, document["cluster"]))
        horizon = {"horizon": document["horizon"] / self.faster} if "horizon" in document else {}
        return {
            **document,
            **horizon,
            "seed": seed,
            "cluster": cluster,
            "tenants": [{"name": name} for name in kept],
            "workload": workload,
            "notes": [*document.get("notes", []), *self._describe(left, all_nodes)],
        }

    def _draw_tasks(self, entries: Sequence[Json], draw: random.Random) -> list[Json]:
        tasks = [(place, number) for place, entry in enumerate(entries) for number in range(count_tasks(entry))]
        if self.tasks is not None and len(tasks) > self.tasks:
            tasks = sorted(draw.sample(tasks, self.tasks))
        numbers: dict[int, list[int]] = {}
        for place, number in tasks:
            numbers.setdefault(place, []).append(number)
        return [_take(entries[place], some, self.faster) for place, some in numbers.items()]

    def _describe(self, left: int, all_nodes: int) -> Iterator[str]:
        if left < all_nodes:
            yield f"{left:,} of {all_nodes:,} nodes, of each shape one at least, so that tasks compete"
        if self.faster != 1:
            yield f"tasks arrive {self.faster:g} times as fast as recorded and run as long, so that they compete"
        if self.tenants is not None:
            yield f"each seed draws {self.tenants} tenants"
        if self.tasks is not None:
            yield f"each seed draws {self.tasks:,} tasks of these"
        if self.models:
            yield (
                f"the trace names no models of GPUs: {self.models:.0%} of the tasks with GPUs accept one model only, "
                "drawn as nodes have them"
            )


def count_tasks(entry: Json) -> int:
    """Return how many tasks an entry of a trace has."""
    return len(entry["arrival"]["times"])


def _take(entry: Json, numbers: Sequence[int], faster: float = 1.0) -> Json:
    """Return an entry with these of its tasks."""
    times, lengths = entry["arrival"]["times"], entry["duration"]["each"]
    return {
        **entry,
        "arrival": {"times": [times[number] / faster for number in numbers]},
        "duration": {"each": [lengths[number] for number in numbers]},
    }


def _restrict(entries: Iterable[Json], cluster: Sequence[Json], part: float, draw: random.Random) -> Iterator[Json]:
    """Yield the entries, of which a part of the tasks with GPUs accepts one model only."""
    gpus = Counter[str]()
    for shape in cluster:
        if GPU_MODEL in shape.get("labels", {}):
            gpus[shape["labels"][GPU_MODEL]] += shape["count"] * int(shape["capacity"].get(GPU, 0))
    for entry in entries:
        by_model: dict[str | None, list[int]] = {}
        for number in range(count_tasks(entry)):
            is_restricted = GPU in entry["pod"]["requests"] and draw.random() < part
            model = draw.choices(list(gpus), list(gpus.values()))[0] if is_restricted else None
            by_model.setdefault(model, []).append(number)
        for model, numbers in by_model.items():
            chosen = _take(entry, numbers)
            if model is not None:
                chosen |= {"name": f"{entry['name']}-{model.lower()}"}
                chosen["pod"] = {**entry["pod"], "nodeSelector": {GPU_MODEL: model}}
            yield chosen


def read_traces(folder: Path, only: Collection[str] = ()) -> dict[str, Callable[[int], Json]]:
    """Return what makes the workloads of the traces in a folder, by name, with a coarse grid of measurements.

    folder: has the publishers' files as docs/fairness-table.md names them. Missing ones are left out. only: names;
    empty: all.
    """
    openb, openb_nodes = (folder / name for name in OPENB)
    dlrm = folder / "disaggregated_DLRM_trace.csv.gz"
    google, machines = folder / "job_events.csv.gz", ["--nodes", f"openb:{openb_nodes}"]
    ignored = ["--ignore", "rdma/bandwidth", "--ignore", "ephemeral-storage"]
    of_openb = ["openb", str(openb), *machines, "--from", "12750000"], (openb, openb_nodes)
    wanted = {
        "openb": (*of_openb, Cut(nodes=0, faster=36, tasks=350), 1800),
        "openb-models": (*of_openb, Cut(nodes=0, faster=36, tasks=350, models=1 / 3), 1800),
        "dlrm": (
            ["dlrm", str(dlrm), *machines, *ignored, "--until", "604800"],
            (dlrm, openb_nodes),
            Cut(nodes=0.1, tenants=10),
            43200,
        ),
        "google-composite": (
            ["google2011", str(google), "--pods", f"dlrm:{dlrm}", *machines, *ignored, "--until", "86400"],
            (google, dlrm, openb_nodes),
            Cut(nodes=0.03, tenants=9),
            3600,
        ),
    }
    return {
        name: partial(_cut, {**_trace(words), "name": name, "measureEvery": every}, cut)
        for name, (words, files, cut, every) in wanted.items()
        if all(file.exists() for file in files) and (not only or name in only)
    }


def _cut(document: Json, cut: Cut, seed: int) -> Json:
    return cut.apply(document, seed)


def _trace(words: list[str]) -> Json:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.json"
        status = main(["trace", *words, "--out", str(path)])
        if status != 0:
            raise SystemExit(status)
        scenario: Json = json.loads(path.read_text(encoding="utf-8"))
    return scenario
