"""The cluster listed once, as the operator would see it, for commands that look and do not act.

Everything is listed once and nothing is watched, so the right to list is enough. A cluster without our CRDs is looked
at, too: it has no Tenants, and the default policy applies.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any

import msgspec

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.objects.decode import NAMESPACES, NODES, PODS
from fairbind.cluster.tenancy.administration import Administration
from fairbind.kube.client.api import Api
from fairbind.kube.client.custom_objects import GROUP, POLICIES, TENANTS, explain_failure, list_objects
from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.client.reflector import Reflector
from fairbind.kube.operator.administration_log import AdministrationLog
from fairbind.model.errors import FairbindError

MOST_REPEATS = 5
MAX_PAUSE_SECONDS = 5.0


def make_reflectors(
    api: Api,
    cache: ClusterCache,
    on_restart: Callable[[str, str], None],
    *,
    jitter: Callable[[], float] = random.random,
) -> dict[str, Reflector[Any]]:
    """Return who keeps the cache in step with the API, by the resource's name. jitter: random numbers from 0 to 1."""
    return {
        "pods": Reflector(api, PODS, cache.pods, on_restart=on_restart, jitter=jitter),
        "nodes": Reflector(api, NODES, cache.nodes, on_restart=on_restart, jitter=jitter),
        "namespaces": Reflector(api, NAMESPACES, cache.namespaces, on_restart=on_restart, jitter=jitter),
    }


async def list_cluster_once(
    api: Api,
    scheduler_name: str,
    operator_namespace: str,
    *,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> ClusterCache:
    """Return a cache of the cluster as it is now. FairbindError says what could not be listed, and why."""
    cache = ClusterCache(scheduler_name, lambda: None, operator_namespace=operator_namespace)
    administration = Administration(cache, lambda: None, AdministrationLog())
    for kind, table in ((TENANTS, administration.tenants), (POLICIES, administration.policies)):
        try:
            table.replace(*await _list_patiently(api, kind, pause))
        except (ApiError, TransientClusterError, msgspec.MsgspecError) as error:
            if isinstance(error, ApiError) and error.status == HTTPStatus.NOT_FOUND:
                continue  # the CRD is not installed, so there are none
            raise FairbindError(f"{kind}.{GROUP}: {explain_failure(kind, error)}") from error
    for name, reflector in make_reflectors(api, cache, lambda *_: None).items():
        try:
            await reflector.list_once()
        except (ApiError, TransientClusterError, msgspec.MsgspecError) as error:
            raise FairbindError(f"{name} cannot be listed: {error}") from error
    return cache


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
