"""The cluster listed once, as the operator would see it, for commands that look and do not act.

Everything is listed once and nothing is watched, so the right to list is enough. A cluster without our CRDs is looked
at, too: it has no Tenants, and the default policy applies.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import msgspec

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.cache.feeds import Feed
from fairbind.cluster.objects import wire
from fairbind.cluster.objects.captured import (
    CAPTURED_ADMISSION,
    CAPTURED_NAMESPACES,
    CAPTURED_NODES,
    CAPTURED_PODS,
    CAPTURED_STORAGE,
    POLICY_FIELDS,
    TENANT_FIELDS,
    RunTime,
    capture_custom_object,
)
from fairbind.cluster.objects.decode import (
    COSCHEDULING_POD_GROUPS,
    JOBS,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PODS,
    VOLCANO_POD_GROUPS,
    ResourceType,
)
from fairbind.kube.client.api import Api
from fairbind.kube.client.custom_objects import GROUP, POLICIES, TENANTS, explain_failure, list_objects
from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.client.reflector import Reflector
from fairbind.model.errors import FairbindError
from fairbind.what_if.listed_objects import ListedObjects

MOST_REPEATS = 5
MAX_PAUSE_SECONDS = 5.0
ABOUT_GROUPS = frozenset(kind.name for kind in (POD_GROUPS, VOLCANO_POD_GROUPS, COSCHEDULING_POD_GROUPS, JOBS))

Item = TypeVar("Item")


def make_reflectors(
    api: Api,
    cache: ClusterCache,
    on_restart: Callable[[str, str], None],
    *,
    jitter: Callable[[], float] = random.random,
) -> dict[str, Reflector[Any]]:
    """Return who keeps the cache in step with the API, by the resource's name. jitter: random numbers from 0 to 1."""
    followed: tuple[tuple[ResourceType[Any], Feed[Any]], ...] = (
        (PODS, cache.pods),
        (NODES, cache.nodes),
        (NAMESPACES, cache.namespaces),
        *cache.volume_feeds,
        *cache.device_feeds,
        *cache.group_feeds,
    )
    return {
        resource_type.name: Reflector(api, resource_type, feed, on_restart=on_restart, jitter=jitter)
        for resource_type, feed in followed
    }


async def list_cluster_once(
    api: Api,
    scheduler_names: Sequence[str],
    operator_namespace: str,
    now: float,
    *,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> ListedObjects:
    """Return all objects of the cluster as it is now. FairbindError says what could not be listed, and why.

    scheduler_names: of the pods that wait for fairbind. now: seconds since the epoch. What completes pods at their
    creation is left out where the right to list it is missing: the operator, as which this may run, has no use for it.
    What describes groups of pods is left out, too, and `unseen` says so: a reader's role may be older than groups.
    """
    listed = ListedObjects(time=now, operator_namespace=operator_namespace)
    listed.set_names(scheduler_names)
    kinds = ((TENANTS, TENANT_FIELDS, listed.tenants), (POLICIES, POLICY_FIELDS, listed.policies))
    for kind, fields, objects in kinds:
        try:
            items, _ = await _list_patiently(api, kind, pause)
        except (ApiError, TransientClusterError, msgspec.MsgspecError) as error:
            if isinstance(error, ApiError) and error.status == HTTPStatus.NOT_FOUND:
                continue  # the CRD is not installed, so there are none
            raise FairbindError(f"{kind}.{GROUP}: {explain_failure(kind, error)}") from error
        objects.extend(capture_custom_object(item, fields) for item in items)
    pods = await list_captured(api, CAPTURED_PODS)
    listed.pods = [pod for pod in pods if isinstance(pod, wire.Pod)]
    listed.run_times = [pod for pod in pods if isinstance(pod, RunTime)]
    listed.nodes = await list_captured(api, CAPTURED_NODES)
    listed.namespaces = await list_captured(api, CAPTURED_NAMESPACES)
    await _list_storage(api, listed)
    for resource_type in CAPTURED_ADMISSION:
        try:
            listed.admission[resource_type.name] = await list_captured(api, resource_type)
        except FairbindError as error:
            if not _is_forbidden(error):
                raise
    return listed


async def _list_storage(api: Api, listed: ListedObjects) -> None:
    """List what there is about volumes, devices and groups."""
    unseen = list[str]()
    for resource_type in CAPTURED_STORAGE:
        try:
            found = await list_captured(api, resource_type)
        except FairbindError as error:
            if resource_type.name not in ABOUT_GROUPS or not _is_forbidden(error):
                raise
            unseen.append(str(error))
        else:
            listed.storage[resource_type.name] = [item for item in found if item is not None]  # a Job that is no group
    listed.unseen = "; ".join(unseen)


def _is_forbidden(error: FairbindError) -> bool:
    return isinstance(error.__cause__, ApiError) and error.__cause__.status == HTTPStatus.FORBIDDEN


async def list_captured(api: Api, resource_type: ResourceType[Item]) -> list[Item]:
    """Return all objects of one kind as they are now. FairbindError says why they could not be listed."""
    found = _Found[Item]()
    try:
        await Reflector(api, resource_type, found, on_restart=lambda *_: None).list_once()
    except (ApiError, TransientClusterError, msgspec.MsgspecError) as error:
        raise FairbindError(f"{resource_type.name} cannot be listed: {error}") from error
    return found.items


class _Found(Generic[Item]):
    """A sink that keeps the last list."""

    def __init__(self) -> None:
        self.items: list[Item] = []

    def replace_in_parts(self, items: Iterable[Item], version: str = "") -> Iterator[None]:
        """Take a whole list; nothing is watched, so its version does not matter."""
        del version
        self.items = list(items)
        return iter(())

    def apply(self, item: Item) -> None:
        """Nothing is watched, so this is never called."""

    def delete(self, item: Item) -> None:
        """Nothing is watched, so this is never called."""


async def _list_patiently(
    api: Api, kind: str, pause: Callable[[float], Awaitable[None]]
) -> tuple[list[dict[str, Any]], str]:
    """List a kind of ours; while the API server says that it is too early, ask again a few times.

    It says so for some seconds after a CRD was made, and when it has too much to do.
    """
    for _ in range(MOST_REPEATS):
        try:
            return await list_objects(api, kind)
        except ApiError as error:
            if error.status != HTTPStatus.TOO_MANY_REQUESTS:
                raise
            await pause(min(error.retry_after or 1.0, MAX_PAUSE_SECONDS))
    return await list_objects(api, kind)
