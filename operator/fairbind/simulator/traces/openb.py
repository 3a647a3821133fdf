"""openb: the nodes and pods of a Kubernetes cluster with GPUs (Alibaba, cluster-trace-gpu-v2023).

Pods have times in seconds and no tenant: the class of service, `qos`, stands for it. A pod may ask for a part of one
GPU (`gpu_milli` below 1,000).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from fairbind.simulator.traces.rows import LeftOut, Row, read_table
from fairbind.simulator.traces.tasks import Pod, Shape, TraceTask, make_task

POD_COLUMNS: Final = (
    "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "creation_time", "deletion_time",
    "scheduled_time",
)  # fmt: skip
NODE_COLUMNS: Final = ("cpu_milli", "memory_mib", "gpu", "model")
GPU: Final = "nvidia.com/gpu"
GPU_MILLI: Final = "alibabacloud.com/gpu-milli"
GPU_MODEL: Final = "alibabacloud.com/gpu-card-model"
MILLI: Final = 1000


def read_tasks(path: Path, left_out: LeftOut, *, has_parts: bool) -> Iterator[TraceTask]:
    """Yield the pods. has_parts: GPUs are counted in thousandths; else a part of one counts as a whole one."""
    make = partial(_read_pod, has_parts=has_parts)
    pods = list(read_table(path, POD_COLUMNS, make, what="openb list of pods", left_out=left_out))
    last = max((end for *_, end in pods if end is not None), default=0)
    for tenant, pod, arrival, start, end in pods:
        known_end = None if end == last else end
        yield make_task(tenant, pod, arrival, start, known_end, last=last)


def _read_pod(row: Row, *, has_parts: bool) -> tuple[str, Pod, int, int | None, int | None]:
    requests = [("cpu", f"{row.amount('cpu_milli'):.0f}m"), ("memory", f"{row.amount('memory_mib'):.0f}Mi")]
    count, milli = row.amount("num_gpu"), row.amount("gpu_milli")
    if count and has_parts:
        requests.append((GPU_MILLI, f"{count * milli:.0f}"))
    elif count:
        requests.append((GPU, f"{count:.0f}"))
    models = tuple(model for model in row.values["gpu_spec"].strip().split("|") if model)
    labels = ((GPU_MODEL, models),) if models else ()
    arrival = row.time("creation_time", 1.0) or 0
    pod = Pod(tuple(requests), labels)
    return row.text("qos").lower(), pod, arrival, row.time("scheduled_time", 1.0), row.time("deletion_time", 1.0)


def read_shapes(path: Path, left_out: LeftOut, *, has_parts: bool) -> dict[Shape, int]:
    """Return how many nodes of each shape there are; the largest group first."""
    make = partial(_read_node, has_parts=has_parts)
    shapes = Counter(read_table(path, NODE_COLUMNS, make, what="openb list of nodes", left_out=left_out))
    return dict(shapes.most_common())


def _read_node(row: Row, *, has_parts: bool) -> Shape:
    capacity = [("cpu", f"{row.amount('cpu_milli'):.0f}m"), ("memory", f"{row.amount('memory_mib'):.0f}Mi")]
    gpus, model = row.amount("gpu"), row.values["model"].strip()
    if gpus:
        capacity.append((GPU_MILLI, f"{gpus * MILLI:.0f}") if has_parts else (GPU, f"{gpus:.0f}"))
    return Shape(tuple(capacity), ((GPU_MODEL, model),) if model else ())
