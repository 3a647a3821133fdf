"""Snapshots with a tree of tenants, from documents of the exact library."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from fairbind.model import DomainCounter, DomainRules, LimitRule, Rejection, RejectionKind, Snapshot, Tenant
from fairbind.model.hierarchy import Guarantee, Hierarchy, InnerTenant, Place
from fairbind.model.topology import Domains, LimitOf
from scheduling.rules import build_domains
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot

Document = Mapping[str, Any]
MANY = 999


def build_tree_snapshot(document: Document, *, held: Mapping[LimitOf, int] | None = None) -> Snapshot:
    """Return the snapshot of a problem document with whole numbers; who has no end of tasks has many.

    A tenant may have several demands: "demands", each with its number of tasks. held: what counts towards limits.
    """
    resources = list(document["resources"])
    servers = build_servers({each["name"]: _list_amounts(each["capacity"], resources) for each in document["servers"]})
    tenants = {each["name"]: each for each in document["tenants"]}
    inner = {each["parent"] for each in tenants.values() if "parent" in each}
    counters: dict[LimitOf, DomainCounter] = {}
    classes = []
    for name, each in tenants.items():
        placement = build_placement(servers, only=each.get("eligible"))
        for demand, tasks in _list_demands(each) if name not in inner else ():
            task_class = build_class(name, _list_amounts(demand, resources), placement, tasks)
            rules = []
            for subject, most, domains in _list_limits(name, tenants, servers.names):
                amount = task_class.demand_r[resources.index(subject.resource)]
                counter = counters.setdefault(subject, DomainCounter(subject, domains, np.zeros(1, np.int64)))
                if amount:
                    rejection = Rejection(RejectionKind.AT_LIMIT, f"{subject.resource} of tenant {subject.tenant}")
                    rules.append(LimitRule(counter, amount, np.array([most]), rejection))
            brings = tuple((rule.counter.subject, rule.amount) for rule in rules)
            classes.append(replace(task_class, rules=DomainRules(tuple(rules)) if rules else None, brings=brings))
    made = {name: _build_tenant(each) for name, each in tenants.items()}
    places = {name: _build_place(each, servers.names) for name, each in tenants.items()}
    snapshot = build_snapshot(
        servers, classes, tenants=[made[name] for name in made if name not in inner], resources=resources
    )
    hierarchy = Hierarchy(
        leaves={name: place for name, place in places.items() if name not in inner},
        inner={name: InnerTenant(made[name], places[name]) for name in sorted(inner)},
    )
    counted: dict[Hashable, int] = {subject: (held or {}).get(subject, 0) for subject in counters}
    return replace(snapshot, hierarchy=hierarchy, held=counted)


def round_document(document: Document, unit: int = 1000) -> dict[str, Any]:
    """Return the document in whole numbers, a thousand times as large; who has no end of tasks has many.

    Who may use a server on which no whole task fits may not, as in a cluster.
    """

    def scale(amounts: Mapping[str, float]) -> dict[str, int]:
        return {name: round(amount * unit) for name, amount in amounts.items()}

    servers = [{**each, "capacity": scale(each["capacity"])} for each in document["servers"]]
    inner = {each["parent"] for each in document["tenants"] if "parent" in each}
    tenants = []
    for each in document["tenants"]:
        made = dict(each)
        for field in ("guarantee", "limit"):
            if field in made:
                made[field] = [{**entry, "resources": scale(entry["resources"])} for entry in made[field]]
        if each["name"] not in inner:
            made["demand"] = scale(each["demand"])
            made["tasks"] = int(each.get("tasks", MANY))
            made["eligible"] = [
                server["name"]
                for server in servers
                if server["name"] in each.get("eligible", [server["name"]])
                and all(amount <= server["capacity"][name] for name, amount in made["demand"].items())
            ]
        tenants.append(made)
    return {**document, "servers": servers, "tenants": tenants}


def _list_amounts(amounts: Mapping[str, int], resources: Sequence[str]) -> list[int]:
    return [amounts.get(name, 0) for name in resources]


def _list_demands(tenant: Document) -> list[tuple[Mapping[str, int], int]]:
    demands = tenant.get("demands", [(tenant.get("demand"), tenant.get("tasks", MANY))])
    return [(demand, tasks) for demand, tasks in demands if demand and tasks]


def _list_limits(
    leaf: str, tenants: Mapping[str, Document], servers: Sequence[str]
) -> Iterator[tuple[LimitOf, int, Domains]]:
    name: str | None = leaf
    while name is not None:
        for number, entry in enumerate(tenants[name].get("limit", ())):
            for resource, most in entry["resources"].items():
                yield LimitOf(name, number, resource), most, _find_domains(entry, servers)
        name = tenants[name].get("parent")


def _build_tenant(tenant: Document) -> Tenant:
    weights = {name: Fraction(weight) for name, weight in tenant.get("resourceWeights", {}).items()}
    return Tenant(tenant["name"], Fraction(tenant.get("weight", 1)), weights)


def _build_place(tenant: Document, servers: Sequence[str]) -> Place:
    guarantees = tuple(
        Guarantee(("guarantee", tenant["name"], number, resource), resource, amount, _find_domains(entry, servers))
        for number, entry in enumerate(tenant.get("guarantee", ()))
        for resource, amount in entry["resources"].items()
    )
    return Place(tenant.get("parent"), tenant.get("priority", 0), guarantees)


def _find_domains(entry: Document, servers: Sequence[str]) -> Domains:
    return build_domains([0 if name in entry.get("servers", servers) else -1 for name in servers], 1)
