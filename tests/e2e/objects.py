"""Pods and tenants as tests write them down: short, with unique names."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from localplane.client import Json

SCHEDULER_NAME = "fairbind"
IMAGE = "registry.invalid/none"
TENANTS = "/apis/fairbind.io/v1alpha1/tenants"
POLICIES = "/apis/fairbind.io/v1alpha1/schedulingpolicies"

_numbers = itertools.count()


def make_name(prefix: str) -> str:
    """Return a name that no other test, and no earlier run on the same cluster, uses."""
    return f"{prefix}-{os.getpid():x}-{next(_numbers):x}-{os.urandom(2).hex()}"


def make_pod(
    requests: Mapping[str, str] | None = None,
    *,
    name: str | None = None,
    run_seconds: int | None = None,
    scheduler_name: str = SCHEDULER_NAME,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Json:
    """Return a pod with one container; ``run_seconds``: kwok ends it so long after its start. ``spec`` adds fields.

    Requests are limits too where Kubernetes wants them equal (extended resources, huge pages).
    """
    requests = dict(requests or {})
    limits = {key: text for key, text in requests.items() if "/" in key or key.startswith("hugepages-")}
    annotations = {} if run_seconds is None else {"fairbind.io/run-seconds": str(run_seconds)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name or make_name("pod"), "labels": dict(labels or {}), "annotations": annotations},
        "spec": {
            "schedulerName": scheduler_name,
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [{"name": "main", "image": IMAGE, "resources": {"requests": requests, "limits": limits}}],
            **spec,
        },
    }


def make_tenant(name: str, **spec: Any) -> Json:
    """Return a Tenant; ``spec`` as in the CRD."""
    return {"apiVersion": "fairbind.io/v1alpha1", "kind": "Tenant", "metadata": {"name": name}, "spec": spec}
