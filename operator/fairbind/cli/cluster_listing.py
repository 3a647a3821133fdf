"""A cluster listed once, for commands that look at it and do not act."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from fairbind import __version__
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.listed_objects import ListedObjects, build_cache
from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.credentials import load_credentials
from fairbind.kube.operator.administration_log import AdministrationLog
from fairbind.kube.operator.list_once import list_cluster_once


def list_cluster(
    command: str, *, kubeconfig: Path | None, context: str | None, namespace: str, scheduler_name: str
) -> ClusterCache:
    """Return a cache of the cluster as it is now, see `list_objects`; what is left out of it is logged."""
    listed = list_objects(
        command, kubeconfig=kubeconfig, context=context, namespace=namespace, scheduler_name=scheduler_name
    )
    return build_cache(listed, observer=AdministrationLog())


def list_objects(
    command: str, *, kubeconfig: Path | None, context: str | None, namespace: str, scheduler_name: str
) -> ListedObjects:
    """Return the objects of the cluster as it is now.

    command: named in the requests' user agent. namespace: the operator's. Raises FairbindError when it cannot be
    listed, PermanentClusterError for an invalid kubeconfig.
    """
    credentials = load_credentials(kubeconfig, context=context)

    async def look() -> ListedObjects:
        api = ApiClient(credentials, user_agent=f"fairbind-{command}/{__version__}")
        try:
            return await list_cluster_once(api, scheduler_name, namespace, time.time())
        finally:
            await api.close()

    return asyncio.run(look())
