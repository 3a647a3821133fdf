"""Scope of a command of the plugin: the whole cluster where the user may list it, or one namespace."""

from __future__ import annotations

import re
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from fairbind.cli.cluster_listing import Source, ask_cluster, read_objects
from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.credentials import read_context_namespace
from fairbind.kube.client.errors import ApiError
from fairbind.kube.client.own_namespace import ShareReport, fetch_share_report, fetch_share_reports
from fairbind.model.errors import FairbindError
from fairbind.what_if.listed_objects import ListedObjects

_FORBIDDEN: Final = re.compile(r'User "([^"]*)" cannot (?:list|get) resource "([^"]*)"')


@dataclass(frozen=True, slots=True)
class Scope:
    """source: of the cluster's objects. chosen: the namespace that the user names. everywhere: all namespaces."""

    source: Source
    chosen: str | None
    everywhere: bool

    def find_namespace(self) -> str:
        """Return the chosen namespace, or that of the kubeconfig's context."""
        if self.chosen is not None:
            return self.chosen
        return read_context_namespace(self.source.kubeconfig, context=self.source.context)


def make_scope(
    command: str,
    *,
    kubeconfig: Path | None,
    context: str | None,
    namespace: str | None,
    all_namespaces: bool,
    operator_namespace: str,
    scheduler_names: tuple[str, ...],
    filename: str | None,
) -> Scope:
    """Return the scope that options ask for."""
    source = Source(f"kubectl-{command}", filename, kubeconfig, context, operator_namespace, scheduler_names)
    return Scope(source, namespace, all_namespaces)


def list_whole_cluster(scope: Scope) -> ListedObjects | str:
    """Return the cluster's objects, or in words what may not be listed. Raises FairbindError when nothing answers."""
    try:
        return read_objects(scope.source, tells_unseen=False)
    except FairbindError as error:
        refusal = error.__cause__
        if not isinstance(refusal, ApiError) or refusal.status != HTTPStatus.FORBIDDEN:
            raise
        return word_forbidden(refusal)


def word_forbidden(refusal: ApiError) -> str:
    """Return what is forbidden to which user.

    >>> word_forbidden(ApiError(403, "Forbidden", 'nodes is forbidden: User "ada" cannot list resource "nodes" in ...'))
    'nodes: forbidden for user ada'
    """
    found = _FORBIDDEN.search(refusal.message)
    return refusal.message if found is None else f"{found[2]}: forbidden for user {found[1]}"


def read_share_reports(scope: Scope, namespace: str | None) -> list[ShareReport] | str:
    """Return the ShareReports of a namespace, or of all; in words why there is none to read."""

    async def look(api: ApiClient) -> list[ShareReport]:
        if namespace is None:
            return await fetch_share_reports(api)
        found = await fetch_share_report(api, namespace)
        return [] if found is None else [found]

    where = "no namespace" if namespace is None else f"namespace {namespace}"
    try:
        found = [report for report in ask_cluster(scope.source, look) if report.status is not None]
    except ApiError as error:
        if error.status != HTTPStatus.FORBIDDEN:
            raise
        return word_forbidden(error)
    return found or f"{where} has {'a' if namespace is None else 'no'} ShareReport (chart value tenantView.enabled)"
