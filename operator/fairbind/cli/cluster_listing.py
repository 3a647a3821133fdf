"""A cluster listed once, or read from a file, for commands that look at it and do not act."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import click

from fairbind import __version__
from fairbind.cli.impersonation import find_impersonation_headers
from fairbind.cli.mechanisms.reading import read_document
from fairbind.cli.options import is_typed
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.objects.dry_run import DryRun
from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.credentials import load_credentials
from fairbind.kube.client.dry_run import create_on_trial
from fairbind.kube.operator.administration_log import AdministrationLog
from fairbind.kube.operator.list_once import list_cluster_once
from fairbind.model.errors import InvalidProblemError
from fairbind.what_if.declared_tenants import declare_tenants, parse_declarations
from fairbind.what_if.listed_objects import DEFAULT_SCHEDULER_NAME, ListedObjects, build_cache
from fairbind.what_if.snapshot_file import parse_snapshot
from fairbind.what_if.submission import Manifests, make_trial_pod

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Source:
    """Where a command finds a cluster's objects.

    command: named in the requests' user agent. file: of `fairbind snapshot`; None: the cluster of the kubeconfig.
    namespace: the operator's. scheduler_names: pods wait when they name one; none: what the file says, or fairbind.
    tenants: those of --tenant: name, namespaces and weight.
    """

    command: str
    file: str | None
    kubeconfig: Path | None
    context: str | None
    namespace: str
    scheduler_names: tuple[str, ...] = ()
    tenants: tuple[tuple[str, str, str | None], ...] = ()


def read_objects(source: Source, *, tells_unseen: bool = True) -> ListedObjects:
    """Return the objects of a file, or of the cluster as it is now. tells_unseen: on standard error.

    Raises InvalidProblemError for a file or a tenant, FairbindError when the cluster cannot be listed,
    PermanentClusterError for an invalid kubeconfig.
    """
    listed = _list_objects(source) if source.file is None else _read_file(source, source.file)
    listed = declare_tenants(listed, parse_declarations(source.tenants))
    if tells_unseen and listed.unseen:
        click.echo(f"fairbind: not seen: {listed.unseen}", err=True)
    if not source.scheduler_names:
        _hint_at_scheduler(listed)
    return listed


def _read_file(source: Source, file: str) -> ListedObjects:
    for option in ("context", "kubeconfig"):
        if is_typed(option):
            raise InvalidProblemError(f"FILE: must be left out beside --{option}, but is {file!r}")
    listed = parse_snapshot(read_document(file))
    if source.scheduler_names:
        listed.set_names(source.scheduler_names)
    return listed


def _hint_at_scheduler(listed: ListedObjects) -> None:
    """Say on standard error when pods wait, but all of them for other schedulers: the answer is then about none."""
    waiting = Counter(
        pod.spec.scheduler_name
        for pod in listed.pods
        if pod.spec.scheduler_name and not pod.spec.node_name and pod.metadata.deletion_timestamp is None
    )
    if waiting and waiting.keys().isdisjoint((listed.scheduler_name, *listed.other_names)):
        name, count = min(waiting.items(), key=lambda item: (-item[1], item[0]))
        click.echo(
            f"fairbind: no pod waits for {listed.scheduler_name}; {count} wait for {name}: add --scheduler-name {name} "
            "to ask about them",
            err=True,
        )


def read_cluster(source: Source) -> ClusterCache:
    """Return a cache of the objects, see `read_objects`; what is left out of it is logged."""
    return build_cache(read_objects(source), observer=AdministrationLog())


def _list_objects(source: Source) -> ListedObjects:
    names = source.scheduler_names or (DEFAULT_SCHEDULER_NAME,)

    async def look(api: ApiClient) -> ListedObjects:
        return await list_cluster_once(api, names, source.namespace, time.time())

    return ask_cluster(source, look)


def create_on_cluster_trial(source: Source, manifests: Manifests) -> list[DryRun] | None:
    """Return what the cluster's API server says of a pod of each template; None where a file is the cluster."""
    if source.file is not None:
        return None

    async def create(api: ApiClient) -> list[DryRun]:
        return [
            await create_on_trial(api, template.namespace, template.name, make_trial_pod(template))
            for template in manifests.templates
        ]

    return ask_cluster(source, create)


def ask_cluster(source: Source, ask: Callable[[ApiClient], Awaitable[Answer]]) -> Answer:
    """Return what a question to the API server of a source's cluster has for an answer."""
    credentials = load_credentials(source.kubeconfig, context=source.context)

    async def run() -> Answer:
        agent = f"fairbind-{source.command}/{__version__}"
        api = ApiClient(credentials, user_agent=agent, headers=find_impersonation_headers())
        try:
            return await ask(api)
        finally:
            await api.close()

    return asyncio.run(run())
