"""Findings of `kubectl fairbind why`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

from fairbind.cli.cluster_listing import ask_cluster
from fairbind.cli.kubectl.conditions import ConditionGroup, group_by_condition
from fairbind.cli.kubectl.scope import Scope, list_whole_cluster, read_share_reports, word_forbidden
from fairbind.cli.kubectl.targets import Target, choose_pods, describe_state, is_waiting
from fairbind.cluster.objects import wire
from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.errors import ApiError
from fairbind.kube.client.own_namespace import ReportStatus, make_pods_type
from fairbind.kube.operator.list_once import list_captured
from fairbind.model.errors import FairbindError, InvalidProblemError
from fairbind.what_if.explanation import Explained, explain_pods
from fairbind.what_if.listed_objects import ListedObjects

MOST_CHANGES: Final = 3
"""For so many groups of pods it is tried what would help: on a large cluster each takes seconds."""
MOST_RUNNING: Final = 1000
"""Of so many running pods at most it is played how they end, for an estimate."""


@dataclass(frozen=True, slots=True)
class Why:
    """The answer. pods: all that are asked about. explained: those that wait, where the cluster could be listed.

    by_conditions: those that wait for another scheduler, or all that wait where it could not. reports: by namespace.
    unseen: in words, what could not be seen. not_estimated: why no waits are estimated; empty: they are. now: when it
    was so.
    """

    target: Target
    namespace: str | None
    pods: tuple[wire.Pod, ...]
    explained: tuple[Explained, ...]
    by_conditions: tuple[ConditionGroup, ...]
    reports: Mapping[str, ReportStatus]
    unseen: str
    not_estimated: str
    now: float

    def count_states(self) -> dict[str, int]:
        """Return how many of the pods do what."""
        counts = Counter(map(describe_state, self.pods))
        return {state: counts[state] for state in ("run", "wait", "end", "ended") if counts[state]}

    def describe(self) -> dict[str, Any]:
        """Return it as plain values."""
        reports = {
            name: {"tenant": status.tenant, "tenantsBefore": status.tenants_before, "updated": status.updated}
            for name, status in self.reports.items()
        }
        return {
            "target": self.target.word or None,
            "namespace": self.namespace,
            "pods": self.count_states(),
            "notSeen": self.unseen or None,
            "waiting": [each.describe() for each in self.explained],
            "byConditions": [each.describe() for each in self.by_conditions],
            "shareReports": reports,
        }


def find_why(scope: Scope, target: Target, run_times: Mapping[str, Sequence[float]] | None) -> Why:
    """Return why the pods wait that are asked about. Raises FairbindError when they are not there or not to be seen."""
    if target.name is not None and scope.everywhere:
        raise InvalidProblemError(f"{target.word!r} is in one namespace: leave --all-namespaces out")
    namespace = None if scope.everywhere else scope.find_namespace()
    listed = list_whole_cluster(scope)
    if isinstance(listed, ListedObjects) and scope.source.file is not None:
        pods = [pod for pod in listed.pods if namespace in {None, pod.metadata.namespace}]
    else:
        pods = _list_pods(scope, namespace)
    chosen = tuple(choose_pods(pods, target))
    if target.name is not None and not chosen:
        raise FairbindError(f"namespace {namespace}: there is no pod, and no controller of pods, named {target.word!r}")
    waiting = [pod for pod in chosen if is_waiting(pod)]
    if isinstance(listed, str):
        reports, unseen = _read_reports(scope, namespace, listed)
        by_conditions = tuple(group_by_condition(waiting, reports))
        return Why(target, namespace, chosen, (), by_conditions, reports, unseen, "", time.time())
    not_estimated = "" if run_times is not None else "not estimated (--estimate)"
    running = sum(pod.spec.node_name is not None for pod in listed.pods)
    if run_times is not None and running > MOST_RUNNING:
        not_estimated, run_times = f"not estimated: {running} pods run, more than {MOST_RUNNING}", None
    uids = [pod.metadata.uid for pod in waiting]
    most_changes = 0 if target.name is None else MOST_CHANGES
    explained = tuple(explain_pods(listed, uids, most_changes=most_changes, given_run_times=run_times))
    known = {(group.namespace, name) for group in explained for name in group.pods}
    by_conditions = tuple(
        group_by_condition([pod for pod in waiting if (pod.metadata.namespace, pod.metadata.name) not in known], {})
    )
    return Why(target, namespace, chosen, explained, by_conditions, {}, listed.unseen, not_estimated, listed.time)


def _list_pods(scope: Scope, namespace: str | None) -> list[wire.Pod]:
    async def look(api: ApiClient) -> list[wire.Pod]:
        return await list_captured(api, make_pods_type(namespace))

    try:
        return ask_cluster(scope.source, look)
    except FairbindError as error:
        refusal = error.__cause__
        if isinstance(refusal, ApiError) and refusal.status == HTTPStatus.FORBIDDEN:
            where = "all namespaces" if namespace is None else f"namespace {namespace}"
            raise FairbindError(f"{where}: {word_forbidden(refusal)}") from error
        raise


def _read_reports(scope: Scope, namespace: str | None, forbidden: str) -> tuple[dict[str, ReportStatus], str]:
    """Return the ShareReports by namespace, and what could not be seen."""
    reports = read_share_reports(scope, namespace)
    if isinstance(reports, str):
        return {}, f"{forbidden}; {reports}; shown is what the pods' conditions say"
    whose = "the ShareReports" if namespace is None else f"namespace {namespace}'s ShareReport"
    found = {report.metadata.namespace: report.status for report in reports if report.status is not None}
    return found, f"{forbidden}; shown is what the pods' conditions and {whose} say"
