"""What we read of objects by which the API server completes a pod that is created; see `wire`.

The operator reads none of them: by the time that it sees a pod, all of this is in it. `what-if --submit` does, because
a manifest says less than the pod that comes of it.
"""

from __future__ import annotations

from msgspec import field

from fairbind.cluster.objects.wire import Amounts, Labels, ObjectMeta, Toleration, Wire


class LimitRangeItem(Wire):
    """Bounds and defaults of requests and limits, for containers, pods or claims."""

    type: str = ""
    min: Amounts | None = None
    max: Amounts | None = None
    default: Amounts | None = None
    default_request: Amounts | None = None


class LimitRangeSpec(Wire):
    """All bounds of one object."""

    limits: list[LimitRangeItem] | None = None


class LimitRange(Wire):
    """Bounds and defaults for the pods of a namespace."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: LimitRangeSpec = field(default_factory=LimitRangeSpec)
    fault: str | None = None


class RuntimeOverhead(Wire):
    """What a runtime needs besides the containers."""

    pod_fixed: Amounts | None = None


class RuntimeScheduling(Wire):
    """Which nodes have the runtime."""

    node_selector: Labels | None = None
    tolerations: list[Toleration] | None = None


class RuntimeClass(Wire):
    """A runtime of containers."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    overhead: RuntimeOverhead | None = None
    scheduling: RuntimeScheduling | None = None
    fault: str | None = None


class PriorityClass(Wire):
    """A priority by its name."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    value: int = 0
    global_default: bool | None = None
    fault: str | None = None
