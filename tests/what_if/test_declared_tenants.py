from __future__ import annotations

import pytest

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.model import InvalidProblemError
from fairbind.what_if.declared_tenants import declare_tenants, parse_declarations
from fairbind.what_if.listed_objects import ListedObjects, build_cache
from what_if.snapshots import make_tenant, make_two_tenants


def make_cluster(*tenants: str) -> ListedObjects:
    """Namespaces a and b, and Tenants that claim them."""
    listed = make_two_tenants()
    listed.tenants = [make_tenant(name) for name in tenants]
    return listed


def find_owners(cache: ClusterCache) -> dict[str, str]:
    cache.build_snapshot()
    return {name: cache.state.directory.tenant_of(name) for name in "ab"}


def test_namespaces_become_tenants_where_none_are() -> None:
    listed = declare_tenants(make_cluster(), parse_declarations([("both", "a,b", "2.5")]))

    cache = build_cache(listed)
    assert find_owners(cache) == {"a": "both", "b": "both"}
    assert [(tenant.name, float(tenant.weight)) for tenant in cache.build_snapshot().tenants] == [("both", 2.5)]


@pytest.mark.parametrize("created", [None, "1970-01-01T00:00:00Z"])
def test_a_namespace_is_taken_from_the_tenant_that_has_it(created: str | None) -> None:
    """By its name and by a selector, however old that Tenant is, and whichever name comes first."""
    named, selecting = make_tenant("a"), make_tenant("all", namespaces=[], namespaceSelector={})
    for tenant in (named, selecting):
        if created:
            tenant["metadata"]["creationTimestamp"] = created
    listed = make_cluster()
    listed.tenants = [named, selecting]

    taken = declare_tenants(listed, parse_declarations([("z", "a", None)]))
    assert find_owners(build_cache(taken)) == {"a": "z", "b": "all"}
    assert find_owners(build_cache(listed)) == {"a": "a", "b": "all"}  # what was given stays as it is


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([("a", "b", None)], '--tenant: "a" is a Tenant here already; choose another name'),
        ([("x", "c", None)], '--tenant: x: "c" is no namespace here; known are a, b'),
        ([("x", "a,a", None)], '--tenant: x: namespace "a" must be named once, but x has it'),
        ([("x", "a", None), ("y", "b,a", None)], '--tenant: y: namespace "a" must be named once, but x has it'),
        ([("x", "a", None), ("x", "b", None)], '--tenant: "x" must be given once, with all of its namespaces'),
        ([("x", "a", "0")], "--tenant: x: weight must be a number or a quantity from 0.001 to 1000, .*, not '0'"),
        ([("x", "a", "two")], "--tenant: x: weight must be a number .*, not 'two'"),
        ([("ns/a", "a", None)], '--tenant: "ns/a" is not a name that a Tenant may have'),
        ([("X", "a", None)], '--tenant: "X" is not a name'),
    ],
)
def test_what_cannot_be_is_named(given: list[tuple[str, str, str | None]], said: str) -> None:
    with pytest.raises(InvalidProblemError, match=f"^{said}"):
        declare_tenants(make_cluster("a"), parse_declarations(given))
