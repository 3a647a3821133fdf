"""Snapshots that are built from plain objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cluster.builders import Json, make_namespace, make_node, make_pod
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.snapshot_file import parse_snapshot
from fairbind.what_if.submission import Submitted, read_manifests, submit


def kind(name: str, *objects: Json) -> list[Json]:
    """The objects as a list of kubectl has them."""
    return [{**one, "kind": name} for one in objects]


def make_tenant(name: str, **spec: Any) -> Json:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"namespaces": [name], **spec}}


def make_list(
    *,
    nodes: Iterable[Json] = (),
    pods: Iterable[Json] = (),
    tenants: Iterable[Json] = (),
    policy: Json | None = None,
    namespaces: Iterable[Json] | None = None,
    others: Iterable[Json] = (),
) -> Json:
    """A list as kubectl prints it; the namespaces are those of the pods where none are given.

    others: objects of any kind, which they name.
    """
    pods = list(pods)
    if namespaces is None:
        namespaces = [make_namespace(name) for name in sorted({pod["metadata"]["namespace"] for pod in pods})]
    items = [
        *kind("Node", *nodes),
        *kind("Pod", *pods),
        *kind("Namespace", *namespaces),
        *kind("Tenant", *tenants),
        *others,
    ]
    if policy is not None:
        items += kind("SchedulingPolicy", {"metadata": {"name": "default"}, "spec": policy})
    return {"kind": "List", "items": items}


def make_snapshot(**objects: Any) -> ListedObjects:
    return parse_snapshot(make_list(**objects))


def submit_to(listed: ListedObjects, *documents: Json) -> Submitted:
    """The pods of manifests in a cluster that is only known by its snapshot."""
    return submit(read_manifests(documents), listed)


def make_two_tenants(*, policy: str = "best-fit-drfh", count: int = 6, cpu: str = "4") -> ListedObjects:
    """Two nodes; a and b each want so many pods of one core, and half of them fit with four cores and six pods."""
    return make_snapshot(
        nodes=[make_node(name, allocatable={"cpu": cpu, "memory": "16Gi", "pods": "110"}) for name in ("n-1", "n-2")],
        pods=[
            make_pod(f"{tenant}-{number}", namespace=tenant, requests={"cpu": "1", "memory": "1Gi"})
            for tenant in "ab"
            for number in range(count)
        ],
        tenants=[make_tenant("a"), make_tenant("b")],
        policy={"policy": policy},
    )
