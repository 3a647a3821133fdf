"""What the registry holds: a mechanism, where it comes from, what it takes and what it guarantees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from fairbind.fairness.allocation import Solution
from fairbind.fairness.instance import Instance
from fairbind.fairness.warm import WarmStart


class Option(StrEnum):
    """What a problem may ask for beyond capacities and demands; the value is the field's name in a problem."""

    WEIGHT = "weight"
    RESOURCE_WEIGHTS = "resourceWeights"
    TASKS = "tasks"
    SERVERS = "servers"  # several server entries, without pooling
    ELIGIBLE = "eligible"
    DIVISIBLE = "divisible"  # servers with "divisible": false
    ALPHA = "alpha"
    EXPECTED_TENANTS = "expectedTenants"


class Standing(StrEnum):
    """What is known of a property of a mechanism."""

    PROVED = "proved"
    FAILS = "fails"
    NOT_REFUTED = "not refuted"


@dataclass(frozen=True, slots=True)
class Claim:
    """One property of one mechanism.

    assumptions: under which it is proved (empty: always). counterexample: a problem document (and what to do with it)
    that a test replays, for those that fail. source: who proved or refuted it.
    """

    standing: Standing
    assumptions: str = ""
    source: str = ""
    counterexample: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Mechanism:
    """One way to divide. `solve` finds an answer for an instance; `certify` proves it or raises SolverError.

    story: the idea in a few sentences. merges_tenants: False where the order of arrival counts, so that equal tenants
    stay apart. resolve: the same as solve, but may begin with what it remembers of a similar instance, and remembers
    this one; None where that would not be faster. properties: by the ids of `fairbind.fairness.properties`, filled in
    by the registry.
    """

    id: str
    name: str
    paper: str
    section: str
    story: str
    options: frozenset[Option]
    solve: Callable[[Instance], Solution]
    certify: Callable[[Instance, Solution], Mapping[str, Any]]
    merges_tenants: bool = True
    resolve: Callable[[Instance, WarmStart], Solution] | None = None
    properties: Mapping[str, Claim] = field(default_factory=dict)
