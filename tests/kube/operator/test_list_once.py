from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import pytest

from cluster.builders import Json, make_namespace, make_node, make_pod
from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.operator.list_once import MAX_PAUSE_SECONDS, MOST_REPEATS, list_cluster_once
from fairbind.model import FairbindError, PolicySettings
from fairbind.what_if.listed_objects import build_cache

if TYPE_CHECKING:
    from fairbind.cluster.cache.cache import ClusterCache
    from fairbind.kube.client.api import ApiClient

TENANTS = "/apis/fairbind.io/v1alpha1/tenants"
POLICIES = "/apis/fairbind.io/v1alpha1/schedulingpolicies"
ABOUT_VOLUMES = (
    "/api/v1/persistentvolumeclaims",
    "/api/v1/persistentvolumes",
    *(
        f"/apis/storage.k8s.io/v1/{name}"
        for name in ("storageclasses", "csinodes", "csidrivers", "volumeattachments", "csistoragecapacities")
    ),
)
ABOUT_DEVICES = tuple(
    f"/apis/resource.k8s.io/v1/{name}" for name in ("resourceclaims", "deviceclasses", "resourceslices")
)
ABOUT_GROUPS = (
    "/apis/scheduling.k8s.io/v1beta1/podgroups",
    "/apis/scheduling.volcano.sh/v1beta1/podgroups",
    "/apis/scheduling.x-k8s.io/v1alpha1/podgroups",
    "/apis/batch/v1/jobs",
)
ABOUT_ADMISSION = (
    "/api/v1/limitranges",
    "/apis/node.k8s.io/v1/runtimeclasses",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
)


class Lists:
    """An API server that answers lists, page by page, and nothing else: it has no watches."""

    def __init__(self, **pods: Json) -> None:
        self.items: dict[str, list[Json] | Exception | bytes] = {
            "/api/v1/pods": list(pods.values()),
            "/api/v1/nodes": [make_node("n")],
            "/api/v1/namespaces": [make_namespace("team")],
            **{path: [] for path in (*ABOUT_VOLUMES, *ABOUT_DEVICES, *ABOUT_GROUPS, *ABOUT_ADMISSION)},
            TENANTS: [make_object("Tenant", "a", weight=2, namespaces=["team"])],
            POLICIES: [make_object("SchedulingPolicy", "default", policy="tsf")],
        }
        self.asked: list[str] = []

    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, timeout_seconds: float = 1.0
    ) -> bytes:
        assert method == "GET"
        assert timeout_seconds > 0
        self.asked.append(path)
        found = self.items[path]
        if isinstance(found, Exception):
            raise found
        if isinstance(found, bytes):
            return found
        first = int((query or {}).get("continue", "0"))
        more = {"continue": str(first + 1)} if first + 1 < len(found) else {}
        return json.dumps({"metadata": {"resourceVersion": "7", **more}, "items": found[first : first + 1]}).encode()


def make_object(kind: str, name: str, **spec: object) -> Json:
    meta = {"name": name, "uid": name, "resourceVersion": "5", "generation": 1, "creationTimestamp": None}
    return {"kind": kind, "metadata": {**meta, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec}


async def survey(lists: Lists) -> ClusterCache:
    return build_cache(await list_cluster_once(cast("ApiClient", lists), ["fairbind"], "fairbind-system", 0.0))


async def test_everything_is_seen_by_lists_alone() -> None:
    lists = Lists(bound=make_pod("bound", node="n"), waiting=make_pod("waiting"))
    cache = await survey(lists)

    (tenant,) = cache.queries.build_overview().tenants
    assert (tenant.name, tenant.weight, tenant.running) == ("a", 2.0, 1)
    assert sum(tenant.pending.values()) == 1
    assert cache.settings.policy == "tsf"
    assert cache.build_snapshot().servers.names == ("n",)
    assert lists.asked.count("/api/v1/pods") == 2  # pages


async def test_without_the_crds_there_are_no_tenants_and_the_default_policy_applies() -> None:
    lists = Lists(bound=make_pod("bound", node="n"))
    for path in (TENANTS, POLICIES):
        lists.items[path] = ApiError(404, "NotFound", "the server could not find the requested resource")
    cache = await survey(lists)

    (tenant,) = cache.queries.build_overview().tenants
    assert (tenant.name, tenant.running) == ("ns/team", 1)
    assert cache.settings == PolicySettings()


async def test_a_cluster_without_devices_is_listed_all_the_same() -> None:
    lists = Lists(bound=make_pod("bound", node="n"))
    for path in ABOUT_DEVICES:
        lists.items[path] = ApiError(404, "NotFound", "the server could not find the requested resource")

    assert [tenant.running for tenant in (await survey(lists)).queries.build_overview().tenants] == [1]


@pytest.mark.parametrize(
    "path", ["/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces", *ABOUT_VOLUMES, *ABOUT_DEVICES, TENANTS, POLICIES]
)
@pytest.mark.parametrize(
    "trouble",
    [
        ApiError(403, "Forbidden", 'User "bob" cannot list it'),
        TransientClusterError("Cannot connect to host"),
        b"<html>who are you?</html>",
    ],
    ids=["forbidden", "away", "nonsense"],
)
async def test_what_cannot_be_listed_is_named_with_the_reason(path: str, trouble: Exception | bytes) -> None:
    lists = Lists()
    lists.items[path] = trouble
    with pytest.raises(FairbindError, match=f"^{path.rpartition('/')[2]}") as caught:
        await survey(lists)
    assert "\n" not in str(caught.value)
    if isinstance(trouble, ApiError):
        assert trouble.message in str(caught.value)


async def test_what_completes_pods_is_listed_as_far_as_the_right_goes() -> None:
    """The operator's own account has no use for these objects, and so no right to list them."""
    lists = Lists()
    lists.items["/apis/node.k8s.io/v1/runtimeclasses"] = ApiError(403, "Forbidden", 'User "bob" cannot list it')
    lists.items["/api/v1/limitranges"] = [make_object("LimitRange", "bounds", limits=[{"type": "Container"}])]
    listed = await list_cluster_once(cast("ApiClient", lists), ["fairbind"], "fairbind-system", 0.0)

    assert {name: len(found) for name, found in listed.admission.items()} == {"limitranges": 1, "priorityclasses": 0}
    lists.items["/api/v1/limitranges"] = ApiError(500, "InternalError", "no")
    with pytest.raises(FairbindError, match=r"^limitranges cannot be listed: 500"):
        await list_cluster_once(cast("ApiClient", lists), ["fairbind"], "fairbind-system", 0.0)


@pytest.mark.parametrize("path", ABOUT_GROUPS)
async def test_what_describes_groups_is_left_out_where_the_right_is_missing_and_that_is_said(path: str) -> None:
    lists = Lists(bound=make_pod("bound", node="n"))
    assert (await list_cluster_once(cast("ApiClient", lists), ["fairbind"], "fairbind-system", 0.0)).unseen == ""
    lists.items[path] = ApiError(403, "Forbidden", 'User "bob" cannot list it')
    listed = await list_cluster_once(cast("ApiClient", lists), ["fairbind"], "fairbind-system", 0.0)
    assert listed.unseen.startswith(path.rpartition("/")[2])
    assert listed.unseen.endswith('cannot be listed: 403 Forbidden: User "bob" cannot list it')
    assert len(listed.storage) == len((*ABOUT_VOLUMES, *ABOUT_DEVICES, *ABOUT_GROUPS)) - 1
    lists.items[path] = ApiError(500, "InternalError", "no")
    with pytest.raises(FairbindError, match=f"^{path.rpartition('/')[2]}"):
        await list_cluster_once(cast("ApiClient", lists), ["fairbind"], "fairbind-system", 0.0)


async def test_a_server_that_says_too_early_is_asked_again_after_the_time_that_it_names() -> None:
    lists = Lists()
    paused: list[float] = []
    tenants = lists.items[TENANTS]
    lists.items[TENANTS] = ApiError(429, "TooManyRequests", "storage is (re)initializing", 3.0)

    async def pause(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 2:
            lists.items[TENANTS] = tenants

    listed = await list_cluster_once(cast("ApiClient", lists), ["fairbind"], "fairbind-system", 0.0, pause=pause)

    assert paused == [3.0, 3.0]
    assert [tenant.name for tenant in build_cache(listed).queries.build_overview().tenants] == ["a"]


async def test_a_server_that_keeps_saying_too_early_is_named() -> None:
    lists = Lists()
    paused: list[float] = []
    lists.items[POLICIES] = ApiError(429, "TooManyRequests", "storage is (re)initializing", 3600.0)

    async def pause(seconds: float) -> None:
        paused.append(seconds)

    with pytest.raises(FairbindError, match=r"schedulingpolicies.*429 TooManyRequests"):
        await list_cluster_once(cast("ApiClient", lists), ["fairbind"], "fairbind-system", 0.0, pause=pause)
    assert paused == [MAX_PAUSE_SECONDS] * MOST_REPEATS
