"""A cluster listed once, or read from a file, for commands that look at it and do not act."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click
from click.core import ParameterSource

from fairbind import __version__
from fairbind.cli.mechanisms.reading import read_document
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.objects.dry_run import DryRun
from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.credentials import load_credentials
from fairbind.kube.client.dry_run import create_on_trial
from fairbind.kube.operator.administration_log import AdministrationLog
from fairbind.kube.operator.list_once import list_cluster_once
from fairbind.model.errors import InvalidProblemError
from fairbind.what_if.listed_objects import DEFAULT_SCHEDULER_NAME, ListedObjects, build_cache
from fairbind.what_if.snapshot_file import parse_snapshot
from fairbind.what_if.submission import Manifests, make_trial_pod

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a command finds a cluster's objects.

    command: named in the requests' user agent. file: of `fairbind snapshot`; None: the cluster of the kubeconfig.
    namespace: the operator's. scheduler_name: pods wait when they name it; None: what the file says, or fairbind.
    """

    command: str
    file: str | None
    kubeconfig: Path | None
    context: str | None
    namespace: str
    scheduler_name: str | None


def read_objects(source: Source) -> ListedObjects:
    """Return the objects of a file, or of the cluster as it is now.

    Raises InvalidProblemError for a file, FairbindError when the cluster cannot be listed, PermanentClusterError for an
    invalid kubeconfig.
    """
    if source.file is None:
        return _list_objects(source)
    for option in ("context", "kubeconfig"):
        if _is_typed(option):
            raise InvalidProblemError(f"FILE: must be left out beside --{option}, but is {source.file!r}")
    listed = parse_snapshot(read_document(source.file))
    if source.scheduler_name is not None:
        listed.scheduler_name = source.scheduler_name
    return listed


def _is_typed(option: str) -> bool:
    """Tell whether an option stands on the command line, rather than in an environment variable for all commands."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(option) is ParameterSource.COMMANDLINE


def read_cluster(source: Source) -> ClusterCache:
    """Return a cache of the objects, see `read_objects`; what is left out of it is logged."""
    return build_cache(read_objects(source), observer=AdministrationLog())


def _list_objects(source: Source) -> ListedObjects:
    name = source.scheduler_name or DEFAULT_SCHEDULER_NAME

    async def look(api: ApiClient) -> ListedObjects:
        return await list_cluster_once(api, name, source.namespace, time.time())

    return _ask(source, look)


def create_on_cluster_trial(source: Source, manifests: Manifests) -> list[DryRun] | None:
    """Return what the cluster's API server says of a pod of each template; None where a file is the cluster."""
    if source.file is not None:
        return None

    async def create(api: ApiClient) -> list[DryRun]:
        return [
            await create_on_trial(api, template.namespace, template.name, make_trial_pod(template))
            for template in manifests.templates
        ]

    return _ask(source, create)


def _ask(source: Source, ask: Callable[[ApiClient], Awaitable[Answer]]) -> Answer:
    credentials = load_credentials(source.kubeconfig, context=source.context)

    async def run() -> Answer:
        api = ApiClient(credentials, user_agent=f"fairbind-{source.command}/{__version__}")
        try:
            return await ask(api)
        finally:
            await api.close()

    return asyncio.run(run())
