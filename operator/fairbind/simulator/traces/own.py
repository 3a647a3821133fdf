"""The project's own tables, as CSV or Parquet, for a trace that no other reader knows.

Tasks: the columns `tenant`, `arrival` and `duration` (seconds; a duration may be `forever`, or empty where it is not
known), and one column for each resource, under its name in Kubernetes, with quantities. In a column `group`, tasks that
start together have the same name. Nodes: `count`, and one column for each resource. A column `label:KEY` holds the
label of a node, or the one that a task's node must have.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fairbind.cluster.objects.quantity import QuantityError, to_base_units
from fairbind.fairness.problems.fields import show_value
from fairbind.simulator.traces.rows import BrokenRowError, LeftOut, Row, read_table
from fairbind.simulator.traces.tasks import FOREVER, Ending, Pod, Shape, TraceTask

TASK_COLUMNS: Final = ("tenant", "arrival", "duration")
GROUP: Final = "group"
NODE_COLUMNS: Final = ("count",)
LABEL: Final = "label:"


def read_tasks(path: Path, left_out: LeftOut) -> Iterator[TraceTask]:
    """Return the tasks."""
    return read_table(path, TASK_COLUMNS, _read_task, what="table of tasks", left_out=left_out)


def _read_task(row: Row) -> TraceTask:
    arrival = row.time("arrival", 1.0)
    if arrival is None:
        raise BrokenRowError("arrival is empty")
    pod = Pod(_read_amounts(row, (*TASK_COLUMNS, GROUP)), tuple((key, (value,)) for key, value in _read_labels(row)))
    tenant, group = row.text("tenant"), row.values.get(GROUP, "").strip()
    if row.values["duration"].strip() == FOREVER:
        return TraceTask(tenant, arrival, 0, Ending.OUTLIVES, pod, group)
    length = row.time("duration", 1.0)
    if length is None:
        return TraceTask(tenant, arrival, 0, Ending.UNKNOWN, pod, group)
    return TraceTask(tenant, arrival, length, Ending.KNOWN, pod, group)


def read_shapes(path: Path, left_out: LeftOut) -> dict[Shape, int]:
    """Return how many nodes of each shape there are."""
    shapes: dict[Shape, int] = {}
    for shape, count in read_table(path, NODE_COLUMNS, _read_nodes, what="table of nodes", left_out=left_out):
        shapes[shape] = shapes.get(shape, 0) + count
    return shapes


def _read_nodes(row: Row) -> tuple[Shape, int]:
    count = row.text("count")
    if not count.isdecimal():
        raise BrokenRowError(f"count must be a whole number, not {show_value(count)}")
    return Shape(_read_amounts(row, NODE_COLUMNS), tuple(_read_labels(row))), int(count)


def _read_amounts(row: Row, others: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    amounts = []
    for column, value in row.values.items():
        if column in others or column.startswith(LABEL) or not value.strip():
            continue
        try:
            to_base_units(column, value.strip())
        except QuantityError as error:
            raise BrokenRowError(f"{column} must be a quantity, not {show_value(value)}") from error
        amounts.append((column, value.strip()))
    return tuple(amounts)


def _read_labels(row: Row) -> Iterator[tuple[str, str]]:
    for column, value in row.values.items():
        if column.startswith(LABEL) and value.strip():
            yield column.removeprefix(LABEL), value.strip()
