"""Rules from outside: policies for simulations that other packages bring, each as one function.

A package declares an entry point of the group `fairbind.policies`. Its name is the policy's id. Its object is a
function of a `TenantUsage` that returns the tenant's level: the tenant with the least level is next. The server is the
best fit, as for all rules here, so a rule cannot break what every policy promises. docs/add-a-policy.md shows one.

A rule is imported when a simulation asks for it by name, and never otherwise. What it returns is checked: a level is a
number from 0 to `MOST_LEVEL` that never falls when a task comes. The operator knows no such rule.
"""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from math import isfinite
from numbers import Integral, Real
from typing import ClassVar, Final, NoReturn

from fairbind.fairness.problems.fields import show_value
from fairbind.model import InvalidProblemError, Snapshot, TaskClass
from fairbind.scheduling import POLICIES, Policy
from fairbind.scheduling.policies.fit import BestFit
from fairbind.scheduling.policies.levels import Progress
from fairbind.simulator.baselines.fraction_measure import FractionMeasure

GROUP: Final = "fairbind.policies"
MOST_LEVEL: Final = 1e300
_ID = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


@dataclass(frozen=True, slots=True)
class TenantUsage:
    """One tenant as a rule sees it.

    held: what its tasks hold now, by resource. total: what the cluster has. Both have the resources that count for
    shares and exist, cpu in thousandths of a core, memory in bytes.
    """

    name: str
    weight: Fraction
    held: Mapping[str, int]
    total: Mapping[str, int]


Rule = Callable[[TenantUsage], object]


@lru_cache(1)
def find_rules() -> Mapping[str, list[EntryPoint]]:
    """Return what installed packages declare, by id. Nothing is imported. One look serves a process."""
    found: dict[str, list[EntryPoint]] = defaultdict(list)
    for entry in entry_points(group=GROUP):
        found[entry.name].append(entry)
    return dict(sorted(found.items()))


def load_rule(policy: str, own: Collection[str]) -> Policy | None:
    """Return the policy of this id that a package brings; None where none does. own: fairbind's own ids.

    Raises InvalidProblemError, which names the package, for an id that is taken or no id, and for an object that cannot
    be imported or is no function of one tenant.
    """
    declared = find_rules().get(policy)
    if declared is None:
        return None
    packages = " and ".join(sorted(map(_name_package, declared)))
    if policy in own:
        _complain(policy, packages, "the id is one of fairbind's own; the package must declare another")
    if len(declared) > 1:
        _complain(policy, packages, "the id is declared more than once; uninstall one of the packages")
    if not _ID.fullmatch(policy):
        _complain(policy, packages, "an id has small letters, digits and hyphens, at most 63 in all")
    (entry,) = declared
    try:
        rule = entry.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001 (code of others may raise anything)
        _complain(policy, packages, f"{entry.value} cannot be imported: {type(error).__name__}: {error}", error)
    if not _takes_a_tenant(rule):
        _complain(policy, packages, f"{entry.value} must be a function of one tenant, not {show_value(rule)}")
    return Policy(
        id=policy,
        name=f"{policy}, of {packages}",
        paper="none",
        order="the tenant with the least level by a rule from outside",
        server=POLICIES["best-fit-drfh"].server,
        build_measure=lambda snapshot: OutsideLevels(snapshot, policy, packages, rule),
        build_fit=BestFit,
        mechanism=None,
    )


def _name_package(entry: EntryPoint) -> str:
    return "a package without a name" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"


def _takes_a_tenant(rule: object) -> bool:
    if not callable(rule) or isinstance(rule, type):
        return False
    try:
        inspect.signature(rule).bind(None)
    except (TypeError, ValueError):
        return False
    return True


def _complain(policy: str, packages: str, complaint: str, cause: BaseException | None = None) -> NoReturn:
    raise InvalidProblemError(f"policy {policy} (of {packages}): {complaint}") from cause


def read_level(value: object) -> Fraction | None:
    """Return a level exactly; None for what is no number from 0 to MOST_LEVEL.

    >>> read_level(0.5), read_level(True), read_level(float("nan")), read_level(-1)
    (Fraction(1, 2), None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if isinstance(value, Fraction):
        level = value
    elif isinstance(value, Integral):
        level = Fraction(int(value))
    elif isfinite(value):
        level = Fraction(float(value))
    else:
        return None
    return level if 0 <= level <= MOST_LEVEL else None


class OutsideLevels(FractionMeasure):
    """What a rule from outside says of each tenant. It is asked once in a cycle of what a tenant holds."""

    label: ClassVar[str] = "level"

    def __init__(self, snapshot: Snapshot, policy: str, packages: str, rule: Rule) -> None:
        super().__init__(snapshot)
        self._policy = policy
        self._packages = packages
        self._rule = rule
        self._resources = snapshot.resources
        self._weights = {tenant.name: tenant.weight for tenant in snapshot.tenants}
        self._levels: dict[tuple[str, tuple[int, ...]], Fraction] = {}

    def add(self, progress: Progress, task_class: TaskClass, pool: int) -> None:
        """Count one more task. Raises InvalidProblemError if the level falls by it: tenants are compared in a heap."""
        before = self.compute_exactly(progress, pool)
        super().add(progress, task_class, pool)
        after = self.compute_exactly(progress, pool)
        if after < before:
            numbers = f"from {float(before):g} to {float(after):g}"
            self._refuse(f"the level of tenant {progress.name} falls {numbers} when a task comes; it must never fall")

    def compute_exactly(self, progress: Progress, pool: int) -> Fraction:
        """Return the level of a tenant."""
        key = progress.name, tuple(progress.held_r)
        level = self._levels.get(key)
        if level is None:
            level = self._levels[key] = self._ask(progress, pool)
        return level

    def _ask(self, progress: Progress, pool: int) -> Fraction:
        axes = [(r, self._resources[r]) for r, _, _ in progress.terms]
        held = {resource: progress.held_r[r] for r, resource in axes}
        total = {resource: self.pools.amount_pr[pool][r] for r, resource in axes}
        try:
            returned = self._rule(TenantUsage(progress.name, self._weights[progress.name], held, total))
        except Exception as error:  # noqa: BLE001 (code of others may raise anything)
            complaint = f"the rule fails for tenant {progress.name}: {type(error).__name__}: {error}"
            _complain(self._policy, self._packages, complaint, error)
        level = read_level(returned)
        if level is None:
            expected = f"must be a number from 0 to {MOST_LEVEL:g}, not {show_value(returned)}"
            self._refuse(f"the level of tenant {progress.name} {expected}")
        return level

    def _refuse(self, complaint: str) -> NoReturn:
        _complain(self._policy, self._packages, complaint)
