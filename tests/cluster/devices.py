"""A cluster with devices, for tests of the cache."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from cluster.builders import Cluster, Json, make_node, make_pod, next_version

DRIVER = "gpu.example.com"
CLASS = "gpu"
IMPLICIT = f"deviceclass.resource.kubernetes.io/{CLASS}"
GPU = "example.com/gpu"


def make_claim(
    name: str,
    devices: Iterable[str] = ("gpu-0",),
    pods: Iterable[str] = (),
    *,
    namespace: str = "team",
    pool: str = "a",
    device_class: str = CLASS,
    driver: str = DRIVER,
    **result: Any,
) -> Json:
    """A claim that was given these devices of a pool, and the UIDs of pods that reserve it. result: of each device."""
    results = [{"request": "main", "driver": driver, "pool": pool, "device": device, **result} for device in devices]
    return {
        "metadata": {"name": name, "namespace": namespace, "resourceVersion": next_version()},
        "spec": {"devices": {"requests": [{"name": "main", "exactly": {"deviceClassName": device_class}}]}},
        "status": {
            **({"allocation": {"devices": {"results": results}}} if results else {}),
            "reservedFor": [{"resource": "pods", "name": uid, "uid": uid} for uid in pods],
        },
    }


def make_slice(
    name: str,
    devices: int | list[Json] = 4,
    *,
    node: str | None = "a",
    pool: str | None = None,
    generation: int = 1,
    **spec: Any,
) -> Json:
    """A slice of the pool of a node."""
    listed = [{"name": f"gpu-{n}"} for n in range(devices)] if isinstance(devices, int) else devices
    where = {"nodeName": node} if node is not None else {"allNodes": True}
    made = {"driver": DRIVER, "pool": {"name": pool or node or "all", "generation": generation}}
    return {
        "metadata": {"name": name, "resourceVersion": next_version()},
        "spec": {**made, **where, "devices": listed, **spec},
    }


def make_class(name: str = CLASS, resource: str | None = None, *, created: str = "2026-01-01T00:00:00Z") -> Json:
    spec = {} if resource is None else {"extendedResourceName": resource}
    meta = {"name": name, "resourceVersion": next_version(), "creationTimestamp": created}
    return {"metadata": meta, "spec": spec}


class DeviceCluster(Cluster):
    """Two nodes, and what is told of devices."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.add_nodes(make_node("a"), make_node("b"))

    def put(self, kind: str, item: Json, *, is_gone: bool = False) -> None:
        ((resource_type, feed),) = [each for each in self.cache.device_feeds if each[0].name == kind]
        facts = resource_type.decode_item(json.dumps(item).encode())
        feed.delete(facts) if is_gone else feed.apply(facts)

    def put_claim(self, *args: Any, is_gone: bool = False, **options: Any) -> None:
        self.put("resourceclaims", make_claim(*args, **options), is_gone=is_gone)

    def put_slice(self, *args: Any, is_gone: bool = False, **options: Any) -> None:
        self.put("resourceslices", make_slice(*args, **options), is_gone=is_gone)

    def put_class(self, *args: Any, is_gone: bool = False, **options: Any) -> None:
        self.put("deviceclasses", make_class(*args, **options), is_gone=is_gone)

    def place(self, name: str, node: str = "a", **options: Any) -> Json:
        pod = make_pod(name, node=node, **{"requests": {"cpu": "1m"}, **options})
        self.add_pods(pod)
        return pod

    def find_held(self, tenant: str = "ns/team") -> dict[str, int]:
        """Return what the tenant holds of resources that are no node's usual ones, in its share."""
        snapshot = self.cache.build_snapshot()
        allocated = next((t.allocated_r for t in snapshot.tenants if t.name == tenant), ())
        held = dict(zip(snapshot.resources, allocated, strict=False))
        return {resource: amount for resource, amount in held.items() if "/" in resource and amount}

    def find_total(self, resource: str) -> int | None:
        """Return the total of a resource, or None when it is no axis."""
        snapshot = self.cache.build_snapshot()
        return dict(zip(snapshot.resources, snapshot.total_r, strict=True)).get(resource)

    def find_free(self, node: str, resource: str) -> int:
        snapshot = self.cache.build_snapshot()
        return int(snapshot.servers.free_kr[snapshot.servers.names.index(node), snapshot.resources.index(resource)])
