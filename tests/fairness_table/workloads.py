"""The workloads of the fairness table: one of ours, and those that are made of published traces."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fairbind.cli import main

Json = dict[str, Any]
GPU = "nvidia.com/gpu"
OPENB = ("openb_pod_list_default.csv.gz", "openb_node_list_all_node.csv")
"""The publisher's files of pods and of nodes."""


def make_mixed(horizon: int = 7200) -> Json:
    """Return six tenants on three kinds of nodes, who together want more than there is for most of two hours.

    horizon: seconds; a shorter one cuts the same workload off. Two nodes take no pods between 1800 and 5400.
    """
    return {
        "name": "mixed",
        "seed": 17,
        "horizon": horizon,
        "measureEvery": 240,
        "cluster": [
            {"shape": "cpu", "count": 8, "capacity": {"cpu": 32, "memory": "64Gi", "pods": 110}},
            {
                "shape": "memory",
                "count": 4,
                "capacity": {"cpu": 16, "memory": "256Gi", "pods": 110},
                "labels": {"kind": "memory"},
            },
            {"shape": "gpu", "count": 4, "capacity": {"cpu": 32, "memory": "128Gi", "pods": 110, GPU: 4}},
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
            _entry("late", 0.1, 500, {"cpu": 4, "memory": "4Gi"}, start=2400),
            _entry("training", 0.008, 1800, {"cpu": 6, "memory": "24Gi", GPU: 1}),
            _entry("training", 0.001, 1800, {"cpu": 12, "memory": "48Gi", GPU: 4}, name="large"),
            _entry("web", 0.06, 400, {"cpu": 4, "memory": "8Gi"}, priority=10),
        ],
        "events": [{"at": 1800, "cordon": ["gpu-2", "gpu-3"]}, {"at": 5400, "uncordon": ["gpu-2", "gpu-3"]}],
        "notes": ["made for this table; no trace"],
    }


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
    """What is taken of a trace, so that a table takes minutes and tasks compete.

    nodes: which part of each shape's nodes, one at least. faster: how many times as fast tasks arrive; they run as long
    as before. every: of the tenants in the order of their names only each so many.
    """

    nodes: float = 1.0
    faster: float = 1.0
    every: int = 1

    def apply(self, document: Json) -> Json:
        """Return the scenario with less, and notes that say so."""
        kept = sorted(tenant["name"] for tenant in document["tenants"])[:: self.every]
        cluster = [{**shape, "count": max(1, round(self.nodes * shape["count"]))} for shape in document["cluster"]]
        workload = [
            {**entry, "arrival": {"times": [time / self.faster for time in entry["arrival"]["times"]]}}
            for entry in document["workload"]
            if entry["tenant"] in kept
        ]
        tasks = sum(len(entry["arrival"]["times"]) for entry in workload)
        left, all_nodes = (sum(shape["count"] for shape in each) for each in (cluster, document["cluster"]))
        notes = [f"{tasks:,} tasks of {len(kept)} tenants on {left:,} nodes of {len(cluster)} shapes"]
        if left < all_nodes:
            notes.append(f"{left:,} of {all_nodes:,} nodes, of each shape one at least, so that tasks compete")
        if self.faster != 1:
            notes.append(
                f"tasks arrive {self.faster:g} times as fast as recorded and run as long, so that they compete"
            )
        if self.every > 1:
            notes.append(f"of the tenants in the order of their names only one in {self.every}")
        horizon = {"horizon": document["horizon"] / self.faster} if "horizon" in document else {}
        return {
            **document,
            **horizon,
            "cluster": cluster,
            "tenants": [{"name": name} for name in kept],
            "workload": workload,
            "notes": [*document.get("notes", []), *notes],
        }


def read_traces(folder: Path, only: Collection[str] = ()) -> dict[str, Json]:
    """Return the workloads of the traces in a folder, by name, cut down, with a coarse grid of measurements.

    folder: has the publishers' files as docs/fairness-table.md names them. Missing ones are left out. only: names;
    empty: all.
    """
    openb, openb_nodes = (folder / name for name in OPENB)
    dlrm = folder / "disaggregated_DLRM_trace.csv.gz"
    google, machines = folder / "job_events.csv.gz", ["--nodes", f"openb:{openb_nodes}"]
    ignored = ["--ignore", "rdma/bandwidth", "--ignore", "ephemeral-storage"]
    wanted = {
        "openb": (
            ["openb", str(openb), *machines, "--from", "12750000"],
            (openb, openb_nodes),
            Cut(nodes=0, faster=12),
            1800,
        ),
        "dlrm": (
            ["dlrm", str(dlrm), *machines, *ignored, "--until", "604800"],
            (dlrm, openb_nodes),
            Cut(nodes=0.25, every=16),
            43200,
        ),
        "google-composite": (
            ["google2011", str(google), "--pods", f"dlrm:{dlrm}", *machines, *ignored, "--until", "86400"],
            (google, dlrm, openb_nodes),
            Cut(nodes=0.03, every=3),
            3600,
        ),
    }
    found = {}
    for name, (words, files, cut, every) in wanted.items():
        if all(file.exists() for file in files) and (not only or name in only):
            found[name] = {**cut.apply(_trace(words)), "name": name, "measureEvery": every}
    return found


def _trace(words: list[str]) -> Json:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.json"
        status = main(["trace", *words, "-o", str(path)])
        if status != 0:
            raise SystemExit(status)
        scenario: Json = json.loads(path.read_text(encoding="utf-8"))
    return scenario
