"""Trees of tenants for random worlds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from fairbind.model import Snapshot, Tenant
from fairbind.model.hierarchy import MAX_DEPTH, Guarantee, Hierarchy, InnerTenant, Place
from scheduling.rules import build_domains
from scheduling.strategies import WEIGHTS
from scheduling.tree_changes import sum_up

INNER = ("a", "u", "v", "w", "x")
"""Names of inner tenants; one of them may be the name of a leaf below it, too."""


@st.composite
def add_tree(draw: st.DrawFn, snapshot: Snapshot) -> Snapshot:
    """Put the tenants of a snapshot into a tree of one to five levels, in half of the cases with levels alone."""
    promises = draw(st.booleans())
    inner: dict[str, Place] = {}
    depth_of: dict[str | None, int] = {None: 0}
    count = draw(st.sampled_from([2, 1, 3, 5, 0]))
    for name in draw(st.permutations(INNER))[:count]:
        parent = draw(st.sampled_from([each for each, depth in depth_of.items() if depth < MAX_DEPTH - 1]))
        inner[name] = draw(places(snapshot, name, parent, promises=promises))
        depth_of[name] = depth_of[parent] + 1
    leaves = {}
    for tenant in snapshot.tenants:
        parent = tenant.name if tenant.name in inner else draw(st.sampled_from([*inner, *inner, *depth_of]))
        leaves[tenant.name] = draw(places(snapshot, f"leaf {tenant.name}", parent, promises=promises))
    weights = {
        name: Tenant(
            name,
            draw(st.sampled_from(WEIGHTS)),
            draw(st.dictionaries(st.sampled_from(snapshot.resources), st.sampled_from(WEIGHTS), max_size=1)),
        )
        for name in inner
    }
    hierarchy = Hierarchy(leaves, {name: InnerTenant(weights[name], place) for name, place in inner.items()})
    held = {
        each.subject: draw(st.sampled_from([0, 0, 1, 2, 7])) * find_unit(snapshot, each.resource)
        for place in (*leaves.values(), *inner.values())
        for each in place.guarantees
    }
    return sum_up(replace(snapshot, hierarchy=hierarchy, held={**snapshot.held, **held}))


@st.composite
def places(draw: st.DrawFn, snapshot: Snapshot, name: str, parent: str | None, *, promises: bool) -> Place:
    guarantees = []
    count = len(snapshot.servers.names)
    for n in range(draw(st.sampled_from([0, 0, 1, 1, 2, 3])) if promises else 0):
        resource = draw(st.sampled_from([*snapshot.resources, "absent"]))
        amount = draw(st.sampled_from([1, 2, 3, 5, 8])) * find_unit(snapshot, resource)
        some = st.lists(st.sampled_from([0, 0, -1]), min_size=count, max_size=count)
        domains = build_domains(draw(st.just([0] * count) | some), 1)
        guarantees.append(Guarantee(("guarantee", name, n), resource, amount, domains))
    priority = draw(st.sampled_from([0, 0, 0, 1, -1])) if promises else 0
    return Place(parent, priority, tuple(guarantees), lends=not promises or draw(st.sampled_from([True, True, False])))


def find_unit(snapshot: Snapshot, resource: str) -> int:
    """The least amount that a task asks for."""
    axis = snapshot.resources.index(resource) if resource in snapshot.resources else None
    asked = [] if axis is None else [each.demand_r[axis] for each in snapshot.task_classes if each.demand_r[axis]]
    return min(asked, default=1)
