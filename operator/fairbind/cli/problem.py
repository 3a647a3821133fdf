"""The command `fairbind problem`: the cluster as it is now, as a problem file for the exact library."""

from __future__ import annotations

from dataclasses import replace

import click
import numpy as np

from fairbind.cli.cluster_listing import Source, read_cluster
from fairbind.cli.documents import format_document
from fairbind.cli.mechanisms.csv_problem import format_csv
from fairbind.cli.mechanisms.writing import describe_problem
from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.fairness.problems.tree import Bounds
from fairbind.model import PolicySettings, Snapshot
from fairbind.model.errors import FairbindError
from fairbind.scheduling.fair_shares.problem import make_exact_problem

# Its mechanism takes all that a cluster has: several servers, weights, resource weights, tasks and eligibility.
MOST_GENERAL_POLICY = "best-fit-drfh"
MILLI = 1000


def print_problem(source: Source, output: str) -> None:
    """Look at a cluster and print it as a problem.

    Raises FairbindError when it cannot be listed or no tenant has demand, and as `read_objects` does.
    """
    cache = read_cluster(source)
    problem = make_problem_of_cluster(cache.build_detailed_snapshot(), cache.settings)
    document = describe_problem(problem)
    click.echo(format_csv(document) if output == "csv" else format_document(document, output))


def make_problem_of_cluster(snapshot: Snapshot, settings: PolicySettings) -> Problem:
    """Return the problem of a snapshot, CPU in cores. Raises FairbindError if no tenant wants anything that fits."""
    exact = make_exact_problem(snapshot, replace(settings, policy=MOST_GENERAL_POLICY))
    if exact is None:
        raise FairbindError("no tenant has running or schedulable pending pods: there is nothing to divide")
    problem = exact.problem
    unit_r = np.array([MILLI if name == "cpu" else 1 for name in problem.resources], dtype=np.float64)
    tree = problem.tree
    if tree is not None:
        guarantees, limits = (_scale(bounds, unit_r) for bounds in (tree.guarantees, tree.limits))
        tree = replace(tree, guarantees=guarantees, limits=limits)
    return replace(problem, capacity_kr=problem.capacity_kr / unit_r, demand_ir=problem.demand_ir / unit_r, tree=tree)


def _scale(bounds: Bounds, unit_r: FloatArray) -> Bounds:
    return replace(bounds, amount_b=bounds.amount_b / unit_r[bounds.resource_b])
