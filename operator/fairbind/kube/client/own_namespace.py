"""What members of a namespace may read of it: its pods with their conditions, and the ShareReport.

The ShareReport is one object named `fairbind` in each namespace; fairbind writes it where the chart's `tenantView` is
enabled. Each field may be missing: the operator may be older or newer than who reads.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec

from fairbind.cluster.objects import wire
from fairbind.cluster.objects.decode import PODS, ResourceType
from fairbind.kube.client.api import Requests
from fairbind.kube.client.custom_objects import GROUP, VERSION
from fairbind.kube.client.errors import ApiError

SHARE_REPORTS = "sharereports"
REPORT_NAME = "fairbind"


class ExpectedStart(wire.Wire):
    """When pods are expected to start, in seconds after the report was updated."""

    earliest_seconds: float = 0.0
    latest_seconds: float = 0.0


class ReportedPods(wire.Wire):
    """Equal pods that wait. position: in the tenant's own order, from 1."""

    pods: int = 0
    example: str = ""
    requests: dict[str, str] | None = None
    reason: str = ""
    message: str = ""
    position: int | None = None
    expected_start: ExpectedStart | None = None
    expected_start_unknown: str | None = None


class ReportStatus(wire.Wire):
    """The tenant's share. Shares are texts of decimal numbers from 0 to 1."""

    tenant: str = ""
    claimed: bool = True
    weight: str | None = None
    policy: str | None = None
    held: dict[str, str] | None = None
    dominant_share: str | None = None
    weighted_share: str | None = None
    fair_share: str | None = None
    dominant_resource: str | None = None
    running: int | None = None
    pending: int | None = None
    tenants_before: int | None = None
    starts_next: ReportedPods | None = None
    waiting: list[ReportedPods] | None = None
    waiting_left_out: int = 0
    updated: str | None = None


class ShareReport(wire.Wire):
    """The object itself."""

    metadata: wire.ObjectMeta = msgspec.field(default_factory=wire.ObjectMeta)
    status: ReportStatus | None = None
    fault: str | None = None


def _keep(decoded: Any) -> Any:
    return decoded


_REPORTS: ResourceType[ShareReport] = ResourceType(
    SHARE_REPORTS, f"/apis/{GROUP}/{VERSION}/{SHARE_REPORTS}", ShareReport, _keep
)


async def fetch_share_report(api: Requests, namespace: str) -> ShareReport | None:
    """Return the report of a namespace; None where there is none. Raises ApiError or TransientClusterError."""
    try:
        path = f"/apis/{GROUP}/{VERSION}/namespaces/{quote(namespace, safe='')}/{SHARE_REPORTS}/{REPORT_NAME}"
        return _REPORTS.decode_item(await api.request("GET", path))
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return None


async def fetch_share_reports(api: Requests) -> list[ShareReport]:
    """Return the reports of all namespaces. Raises ApiError, TransientClusterError or msgspec.DecodeError."""
    try:
        return list(_REPORTS.decode_page(await api.request("GET", _REPORTS.path)).items)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return []


def make_pods_type(namespace: str | None) -> ResourceType[wire.Pod]:
    """Return how the pods of a namespace, or of all, are listed with their owners and conditions."""
    path = PODS.path if namespace is None else f"/api/v1/namespaces/{quote(namespace, safe='')}/pods"
    return ResourceType(PODS.name, path, wire.Pod, _keep)
