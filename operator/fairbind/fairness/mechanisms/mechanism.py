"""Defines an entry of the registry: a mechanism with its source, its options and its guarantees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fairbind.fairness.problems.allocation import Solution
from fairbind.fairness.problems.instance import Instance
from fairbind.fairness.solvers.warm import WarmStart


class Option(StrEnum):
    """An option of a problem beyond capacities and demands; the value is the field's name in a problem."""

    WEIGHT = "weight"
    RESOURCE_WEIGHTS = "resourceWeights"
    TASKS = "tasks"
    SERVERS = "servers"  # several server entries, without pooling
    ELIGIBLE = "eligible"
    DIVISIBLE = "divisible"  # servers with "divisible": false
    ALPHA = "alpha"
    UTILITY = "utilityA"  # and "utilityB"
    EXPECTED_TENANTS = "expectedTenants"
    TREE = "parent"  # and "priority", "guarantee", "limit"


class Standing(StrEnum):
    """Whether a mechanism has a property, as far as is known."""

    PROVED = "proved"
    FAILS = "fails"
    NOT_REFUTED = "not refuted"


class LevelScope(StrEnum):
    """The scope in which a mechanism compares tenants: which tasks of a tenant count, and relative to what."""

    CLUSTER = "cluster"  # all tasks, against all servers together
    SERVER_CLASS = "server class"  # on each server class by itself: all tasks, wherever they run, against the class
    SERVER = "server"  # on each server class by itself: the tasks that run there, against the class


class ShareSum(StrEnum):
    """How the shares of a tenant's tasks add up where the tasks differ."""

    DOMINANT = "dominant share"  # the largest share, over the resources, of all that the tasks hold together
    SUM_OF_SHARES = "sum of shares"  # each task counts the sum of its shares of all resources
    TASK_SHARE = "task share"  # each task counts 1 / (how many of its kind would fit)


@dataclass(frozen=True, slots=True)
class Guarantee:
    """The standing of one property of one mechanism.

    assumptions: under which it is proved (empty: always). counterexample: for a property that fails, a problem document
    and its options, which a test replays. source: the paper or the argument that proves or refutes it.
    """

    standing: Standing
    assumptions: str = ""
    source: str = ""
    counterexample: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Mechanism:
    """A mechanism. `solve` finds an answer for an instance; `certify` proves it or raises SolverError.

    story: the idea in a few sentences. level_scope, share_sum: how a tenant's level is defined, for a caller that
    splits a tenant into parts of equal tasks. is_one_bidder: True where a tenant bids, queues or arrives as one, so
    that it is not split and one average task stands for all its tasks. merges_tenants: False where the order of arrival
    counts, so that equal tenants stay apart. resolve: like solve, but it starts from the state of a similar instance
    and stores the state of this one; None where that would not be faster. properties: by the ids of
    `fairbind.fairness.properties`, filled in by the registry. solvers: published iterations that approach the
    answer, by their ids; each reports its work as `evidence["report"]`. notes: how to read values of the proof, by
    their names, where the name does not say it.
    """

    id: str
    name: str
    paper: str
    section: str
    story: str
    options: frozenset[Option]
    level_scope: LevelScope
    share_sum: ShareSum
    solve: Callable[[Instance], Solution]
    certify: Callable[[Instance, Solution], Mapping[str, Any]]
    is_one_bidder: bool = False
    merges_tenants: bool = True
    resolve: Callable[[Instance, WarmStart], Solution] | None = None
    properties: Mapping[str, Guarantee] = field(default_factory=dict)
    solvers: Mapping[str, Callable[[Instance], Solution]] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
