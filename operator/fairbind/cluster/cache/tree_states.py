"""States of Tenants in the tree, for their conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from fairbind.cluster.tenancy.guarantees import ScaledGuarantees
from fairbind.cluster.tenancy.tenants import TenantSpec, TenantState
from fairbind.cluster.tenancy.tree import NO_TREE, TenantTree

NOTHING_SCALED = ScaledGuarantees()


@dataclass(frozen=True, slots=True, eq=False)
class DeclaredTree:
    """The tree as Tenants declare it. scaled: the amounts of their guarantees that count."""

    specs: Mapping[str, TenantSpec]
    tree: TenantTree = NO_TREE
    scaled: ScaledGuarantees = NOTHING_SCALED

    def is_other_than(self, other: DeclaredTree) -> bool:
        """Tell whether it may differ from another."""
        return self.specs is not other.specs or self.tree is not other.tree or self.scaled is not other.scaled


def add_tree_to_states(states: Mapping[str, TenantState], declared: DeclaredTree) -> dict[str, TenantState]:
    """Return the states of Tenants with what they say of parents and guarantees, and what is wrong with that.

    A tenant with children needs no namespace.
    """
    told: dict[str, TenantState] = {}
    for name, state in states.items():
        spec = declared.specs[name]
        found = declared.scaled.overcommitted.get(name, ())
        told[name] = replace(
            state,
            claims_nothing=state.claims_nothing and name not in declared.tree.children_of,
            path=declared.tree.path_of(name),
            parent=spec.parent,
            parent_trouble=declared.tree.trouble_of.get(name),
            overcommitted=tuple(each.describe() for each in found) if spec.guarantee else None,
        )
    return told
