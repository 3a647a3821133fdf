"""dlrm: instances of recommendation services (Alibaba, cluster-trace-gpu-v2025). Its services are the tenants.

Times are seconds. An instance without a creation time is there at the start; one without a deletion time outlives the
trace. `max_instance_per_node` is not kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from fairbind.simulator.traces.openb import GPU
from fairbind.simulator.traces.rows import LeftOut, Row, read_table
from fairbind.simulator.traces.tasks import Pod, TraceTask, make_task

COLUMNS: Final = (
    "app_name", "cpu_request", "gpu_request", "rdma_request", "memory_request", "disk_request", "creation_time",
    "scheduled_time", "deletion_time",
)  # fmt: skip
RDMA: Final = "rdma/bandwidth"
UNITS: Final = (
    ("cpu_request", "cpu", MILLI := 1000, "m"),
    ("memory_request", "memory", GIB_IN_MIB := 1024, "Mi"),
    ("disk_request", "ephemeral-storage", GIB_IN_MIB, "Mi"),
    ("gpu_request", GPU, 1, ""),
    ("rdma_request", RDMA, 1, ""),
)
"""Column, resource, how many units one of the column's is, and how Kubernetes writes that unit."""


def read_tasks(path: Path, left_out: LeftOut) -> Iterator[TraceTask]:
    """Yield the instances."""
    instances = list(read_table(path, COLUMNS, _read_instance, what="DLRM trace", left_out=left_out))
    last = max((max(arrival, end or 0) for _, _, arrival, _, end in instances), default=0)
    for tenant, pod, arrival, start, end in instances:
        yield make_task(tenant, pod, arrival, arrival if start is None else start, end, last=last)


def _read_instance(row: Row) -> tuple[str, Pod, int, int | None, int | None]:
    amounts = ((resource, row.amount(column) * factor, unit) for column, resource, factor, unit in UNITS)
    requests = tuple((resource, f"{amount:.0f}{unit}") for resource, amount, unit in amounts if amount)
    tenant = row.text("app_name").replace("_", "-")
    arrival = row.time("creation_time", 1.0) or 0
    return tenant, Pod(requests), arrival, row.time("scheduled_time", 1.0), row.time("deletion_time", 1.0)
