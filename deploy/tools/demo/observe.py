"""What the demo sees: the operator's metrics and what the API server says about waiting pods, as one `Sample`.

Shares, weights and counts come from the operator's own /metrics, so that the table shows what an administrator's
Prometheus would. Why a pod waits comes from the API, as `kubectl describe pod` would show it: from its condition, or
from its event while it is behind a gate, for then its condition only says so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from demo.workload import KIND_LABEL, DemoTenant
from localplane.client import ApiClient

Json = dict[str, Any]
Series = Mapping[str, Sequence[tuple[Mapping[str, str], float]]]

SHOWN_RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
NO_REASON_YET = "its turn has not come yet"


@dataclass(frozen=True, slots=True)
class TenantSight:
    """One tenant now.

    share, weighted_share: from 0. fair_share: what is fair for all that it wants now, None when it is not known.
    allocated: base units. why: why its first waiting pod waits. parent: its name, empty for a child of the root.
    """

    name: str
    weight: float
    dominant_resource: str | None
    share: float
    weighted_share: float
    allocated: Mapping[str, float]
    running: int
    waiting: int
    why: str
    fair_share: float | None = None
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Use:
    """How much of a resource all tenants hold, in base units."""

    resource: str
    allocated: float
    capacity: float

    @property
    def fraction(self) -> float:
        """From 0 to 1; 0 when there is none of it."""
        return self.allocated / self.capacity if self.capacity > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen at one moment.

    seconds: since the start. bound: pods so far. waiting: by namespace and kind. envy: pairs of tenants of which one
    envies the other, by what that comes from. share_error: None when no fair shares are known.
    """

    seconds: float
    tenants: tuple[TenantSight, ...]
    uses: tuple[Use, ...]
    bound: int
    jain_index: float
    waiting: Mapping[tuple[str, str], int] = field(default_factory=dict)
    envy: Mapping[str, int] = field(default_factory=dict)
    share_error: float | None = None


class Observer:
    """Looks at a cluster and at an operator.

    api: reads pods. read_metrics: returns the operator's page. clock: seconds since the start.
    """

    def __init__(self, api: ApiClient, read_metrics: Callable[[], str], clock: Callable[[], float]) -> None:
        self._api = api
        self._read_metrics = read_metrics
        self._clock = clock

    def take_sample(self, tenants: Sequence[DemoTenant]) -> Sample:
        """Look once at everything; raise what the clients raise when something cannot be reached."""
        began = self._clock()  # what is seen may be as old as that
        series = parse_metrics(self._read_metrics())
        pods = self._api.items(
            "/api/v1/pods", labelSelector=KIND_LABEL, fieldSelector="spec.nodeName=,status.phase=Pending"
        )
        reasons = find_first_reasons(pods)
        for tenant in tenants:
            if tenant.is_gated and tenant.namespace in reasons:
                reasons[tenant.namespace] = self._read_event(tenant.namespace, pods)
        return compute_sample(began, series, pods, tenants, reasons)

    def _read_event(self, namespace: str, pods: Sequence[Json]) -> str:
        """Return why the oldest pod behind a gate waits."""
        gated = [
            pod for pod in pods if pod["metadata"]["namespace"] == namespace and pod["spec"].get("schedulingGates")
        ]
        if not gated:
            return NO_REASON_YET
        name = min(gated, key=_find_age)["metadata"]["name"]
        selector = f"reason=FailedScheduling,involvedObject.name={name}"
        events = self._api.items(f"/api/v1/namespaces/{namespace}/events", fieldSelector=selector)
        return str(events[-1]["message"]) if events else NO_REASON_YET


def parse_metrics(text: str) -> Series:
    """Return the samples of a Prometheus text page by name, each with its labels.

    >>> parse_metrics('a_b{x="1"} 2.5' + chr(10))
    {'a_b': [({'x': '1'}, 2.5)]}
    """
    series: dict[str, list[tuple[Mapping[str, str], float]]] = defaultdict(list)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series[sample.name].append((sample.labels, sample.value))
    return dict(series)


def compute_sample(
    seconds: float,
    series: Series,
    pods: Sequence[Json],
    tenants: Sequence[DemoTenant],
    reasons: Mapping[str, str],
) -> Sample:
    """Put a page of metrics and the list of waiting pods together.

    pods: as the API gives them. reasons: why the first pod of each namespace waits.
    """
    kinds = Counter((pod["metadata"]["namespace"], pod["metadata"]["labels"][KIND_LABEL]) for pod in pods)
    capacity = _by_label(series, "fairbind_cluster_capacity", "resource")
    allocated = _by_label(series, "fairbind_cluster_allocated", "resource")
    jain = series.get("fairbind_fairness_jain_index", [({}, 1.0)])
    sights = [_see_tenant(series, tenant, reasons.get(tenant.namespace, "")) for tenant in tenants]
    return Sample(
        seconds=seconds,
        tenants=tuple(_count_children(sight, sights) for sight in sights),
        uses=tuple(Use(name, allocated.get(name, 0.0), capacity.get(name, 0.0)) for name in SHOWN_RESOURCES),
        bound=int(
            sum(value for labels, value in series.get("fairbind_bindings_total", []) if labels["result"] == "bound")
        ),
        jain_index=jain[0][1],
        waiting=dict(kinds),
        envy={cause: int(count) for cause, count in _by_label(series, "fairbind_fairness_envy_pairs", "cause").items()},
        share_error=next((value for _, value in series.get("fairbind_fairness_share_error", [])), None),
    )


def find_first_reasons(pods: Sequence[Json]) -> dict[str, str]:
    """Return why the first pod of each namespace waits, in the scheduler's words.

    First is the oldest about which something has been said: of the newest, nothing has been said yet.
    """
    reasons = dict.fromkeys((pod["metadata"]["namespace"] for pod in pods), NO_REASON_YET)
    for pod in sorted(pods, key=_find_age, reverse=True):
        message = _find_message(pod)
        if message:
            reasons[pod["metadata"]["namespace"]] = message
    return reasons


def _find_age(pod: Json) -> tuple[str, str]:
    return pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]


def _find_message(pod: Json) -> str | None:
    for condition in pod.get("status", {}).get("conditions") or []:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            message: str | None = condition.get("message")
            return message
    return None


def _see_tenant(series: Series, tenant: DemoTenant, why: str) -> TenantSight:
    def find(name: str) -> float:
        return _by_label(series, f"fairbind_tenant_{name}", "tenant").get(tenant.name, 0.0)

    def find_all(name: str, label: str) -> dict[str, float]:
        own = [
            (labels, value)
            for labels, value in series.get(f"fairbind_tenant_{name}", [])
            if labels["tenant"] == tenant.name
        ]
        return {labels[label]: value for labels, value in own}

    dominant = sorted(resource for resource, value in find_all("dominant_resource", "resource").items() if value == 1.0)
    waiting = int(sum(find_all("pending_pods", "reason").values()))
    return TenantSight(
        name=tenant.name,
        weight=find("weight") or float(tenant.weight),
        dominant_resource=dominant[0] if dominant else None,
        share=find("dominant_share"),
        weighted_share=find("weighted_dominant_share"),
        allocated=find_all("allocated", "resource"),
        running=int(find("running_pods")),
        waiting=waiting,
        why=why if waiting else "",
        fair_share=_by_label(series, "fairbind_tenant_fair_share", "tenant").get(tenant.name),
        parent=tenant.parent,
    )


def _count_children(sight: TenantSight, sights: Sequence[TenantSight]) -> TenantSight:
    """Return a tenant with the pods of its children: the operator's page counts each pod once, below its own tenant."""
    children = [child for child in sights if child.parent == sight.name]
    return replace(
        sight,
        running=sight.running + sum(child.running for child in children),
        waiting=sight.waiting + sum(child.waiting for child in children),
    )


def _by_label(series: Series, name: str, label: str) -> dict[str, float]:
    return {labels[label]: value for labels, value in series.get(name, [])}


def compute_rate(samples: Sequence[Sample], window_seconds: float = 5.0) -> float:
    """Return pods bound a second over the last seconds; 0.0 before there are two samples."""
    if len(samples) < 2:  # noqa: PLR2004
        return 0.0
    last = samples[-1]
    first = next(sample for sample in samples if sample.seconds >= last.seconds - window_seconds)
    if first is last:
        first = samples[-2]
    return (last.bound - first.bound) / (last.seconds - first.seconds)
