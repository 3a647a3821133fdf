"""Writes what a sweep found: every measure of every cell, and their means over seeds with intervals."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from fairbind.simulator.sweep.confidence import RESAMPLES, Interval, compute_interval
from fairbind.simulator.sweep.grid import Cell, Sweep
from fairbind.simulator.tables import write_table

TENANTS: Final = "tenants"
CUT: Final = frozenset({"makespan_seconds"})
"""Measures that a seed lacks because its run was cut; the others' mean would be of the runs that were quickest."""


class ValueRow(NamedTuple):
    """One measure of one cell. tenant: None for the whole cluster. value: None where there is nothing to average."""

    policy: str
    weights: str
    sizes: str
    seed: int
    tenant: str | None
    measure: str
    value: float | None


class IntervalRow(NamedTuple):
    """A measure's mean over the seeds that have a value, and its interval. seeds: how many have one."""

    policy: str
    weights: str
    sizes: str
    tenant: str | None
    measure: str
    mean: float | None
    low: float | None
    high: float | None
    seeds: int


def list_values(cells: Sequence[tuple[Cell, Mapping[str, Any]]]) -> list[ValueRow]:
    """Return every measure of each cell, from the summaries."""
    return [
        ValueRow(cell.policy, cell.variant.weights, cell.variant.sizes, cell.seed, tenant, measure, value)
        for cell, summary in cells
        for tenant, measure, value in _list_measures(summary)
    ]


def _list_measures(summary: Mapping[str, Any]) -> Iterator[tuple[str | None, str, float | None]]:
    whole = {name: part for name, part in summary.items() if name != TENANTS}
    for scope, part in [(None, whole), *summary[TENANTS].items()]:
        for name, value in part.items():
            if isinstance(value, Mapping):
                for inner, number in value.items():
                    yield scope, f"{name}.{inner}", number
            else:
                yield scope, name, value


def compute_intervals(values: Sequence[ValueRow], confidence: float) -> list[IntervalRow]:
    """Return means and intervals over seeds. values: cell by cell, as the grid lists them."""
    rows = []
    for (policy, weights, sizes), group in groupby(values, key=lambda row: row[:3]):
        found: dict[tuple[str | None, str], list[float | None]] = {}
        for row in group:
            found.setdefault((row.tenant, row.measure), []).append(row.value)
        for (tenant, measure), each in found.items():
            known = [value for value in each if value is not None]
            interval = compute_interval(known, confidence)
            if measure in CUT and len(known) < len(each):
                interval = Interval(None, None, None, len(known))
            rows.append(IntervalRow(policy, weights, sizes, tenant, measure, *interval))
    return rows


def write_sweep(
    folder: Path, sweep: Sweep, cells: Sequence[tuple[Cell, Mapping[str, Any]]], table_format: str
) -> list[IntervalRow]:
    """Write the tables `values` and `intervals` and summary.json into a folder; return the intervals."""
    values = list_values(cells)
    intervals = compute_intervals(values, sweep.confidence)
    write_table(folder, "values", ValueRow, values, table_format)
    write_table(folder, "intervals", IntervalRow, intervals, table_format)
    scenario = sweep.scenario
    summary = {
        "name": sweep.name,
        "cells": len(cells),
        "policies": list(sweep.policies),
        "seeds": list(sweep.seeds),
        "weights": list(dict.fromkeys(variant.weights for variant in sweep.variants)),
        "sizes": list(dict.fromkeys(variant.sizes for variant in sweep.variants)),
        "interval": {"method": "BCa bootstrap over seeds", "confidence": sweep.confidence, "resamples": RESAMPLES},
        **({} if scenario.composite is None else {"composite": scenario.composite}),
        **({"notes": list(scenario.notes)} if scenario.notes else {}),
    }
    text = json.dumps(summary, indent=2, allow_nan=False)
    (folder / "summary.json").write_text(f"{text}\n", encoding="utf-8")
    return intervals
