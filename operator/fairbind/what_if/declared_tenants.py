"""Tenants that a user asks about without creating objects: where there are no Tenants, or in place of those there are.

A declared tenant takes its namespaces from whatever Tenant claims them, by name or by a selector: it counts as older
than any object can be, and the oldest keeps a namespace.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NoReturn

import msgspec

from fairbind.cluster.tenancy.spec_fields import read_quantity
from fairbind.cluster.tenancy.tenants import WEIGHTS
from fairbind.fairness.problems.fields import show_value, suggest_name
from fairbind.model import InvalidProblemError
from fairbind.what_if.listed_objects import ListedObjects

OPTION: Final = "--tenant"
OLDEST: Final = "0001-01-01T00:00:00Z"
MOST_LETTERS: Final = 253
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class DeclaredTenant:
    """One that is asked about. weight: a number or a quantity, as it was written; None: 1."""

    name: str
    namespaces: tuple[str, ...]
    weight: str | None = None


def parse_declarations(given: Iterable[tuple[str, str, str | None]]) -> list[DeclaredTenant]:
    """Return the tenants of options: each a name, namespaces with commas between them, and a weight or None."""
    return [DeclaredTenant(name, tuple(namespaces.split(",")), weight) for name, namespaces, weight in given]


def declare_tenants(listed: ListedObjects, declared: Iterable[DeclaredTenant]) -> ListedObjects:
    """Return the objects with these Tenants more. Raises InvalidProblemError, which names the tenant and the value."""
    existing = {str(one["metadata"]["name"]) for one in listed.tenants}
    known = {one.metadata.name for one in listed.namespaces} | {pod.metadata.namespace for pod in listed.pods}
    owners: dict[str, str] = {}
    made = {}
    for tenant in declared:
        if len(tenant.name) > MOST_LETTERS or not _NAME.fullmatch(tenant.name):
            _refuse(f"{show_value(tenant.name)} is not a name that a Tenant may have")
        if tenant.name in existing:
            _refuse(f"{show_value(tenant.name)} is a Tenant here already; choose another name")
        if tenant.name in made:
            _refuse(f"{show_value(tenant.name)} must be given once, with all of its namespaces")
        for namespace in tenant.namespaces:
            if namespace in owners:
                owner = owners[namespace]
                _refuse(f"{tenant.name}: namespace {show_value(namespace)} must be named once, but {owner} has it")
            if namespace not in known:
                hint = suggest_name(namespace, sorted(known))
                _refuse(f"{tenant.name}: {show_value(namespace)} is no namespace here{hint}")
            owners[namespace] = tenant.name
        weight = tenant.weight or "1"
        read_quantity(weight, f"{OPTION}: {tenant.name}: weight", WEIGHTS)
        made[tenant.name] = {
            "metadata": {"name": tenant.name, "creationTimestamp": OLDEST},
            "spec": {"namespaces": list(tenant.namespaces), "weight": weight},
        }
    return msgspec.structs.replace(listed, tenants=[*listed.tenants, *made.values()])


def _refuse(message: str) -> NoReturn:
    raise InvalidProblemError(f"{OPTION}: {message}")
