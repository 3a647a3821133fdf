"""The command `fairbind problem`: the cluster as it is now, as a problem file for the exact library."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from fairbind import __version__
from fairbind.cli.documents import format_document
from fairbind.cli.mechanisms.writing import describe_problem
from fairbind.fairness.problems.problem import Problem
from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.credentials import Credentials, load_credentials
from fairbind.kube.operator.list_once import list_cluster_once
from fairbind.model import PolicySettings, Snapshot
from fairbind.model.errors import FairbindError
from fairbind.scheduling.fair_shares.problem import make_exact_problem

# Its mechanism takes all that a cluster has: several servers, weights, resource weights, tasks and eligibility.
MOST_GENERAL_POLICY = "best-fit-drfh"
MILLI = 1000


def print_problem(
    *, kubeconfig: Path | None, context: str | None, namespace: str, scheduler_name: str, output: str
) -> None:
    """Look at a cluster and print it as a problem.

    Raises FairbindError when it cannot be listed or no tenant has demand, PermanentClusterError for a kubeconfig that
    is invalid.
    """
    credentials = load_credentials(kubeconfig, context=context)
    snapshot, settings = asyncio.run(_look(credentials, namespace, scheduler_name))
    click.echo(format_document(describe_problem(make_problem_of_cluster(snapshot, settings)), output))


async def _look(credentials: Credentials, namespace: str, scheduler_name: str) -> tuple[Snapshot, PolicySettings]:
    api = ApiClient(credentials, user_agent=f"fairbind-problem/{__version__}")
    try:
        cache = await list_cluster_once(api, scheduler_name, namespace)
    finally:
        await api.close()
    return cache.build_detailed_snapshot(), cache.settings


def make_problem_of_cluster(snapshot: Snapshot, settings: PolicySettings) -> Problem:
    """Return the problem of a snapshot, CPU in cores. Raises FairbindError if no tenant wants anything that fits."""
    exact = make_exact_problem(snapshot, replace(settings, policy=MOST_GENERAL_POLICY))
    if exact is None:
        raise FairbindError("no tenant has running or schedulable pending pods: there is nothing to divide")
    problem = exact.problem
    unit_r = np.array([MILLI if name == "cpu" else 1 for name in problem.resources], dtype=np.float64)
    return replace(problem, capacity_kr=problem.capacity_kr / unit_r, demand_ir=problem.demand_ir / unit_r)
