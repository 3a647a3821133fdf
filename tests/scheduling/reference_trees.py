"""The slow judge of cycles in trees: from the definitions, all of it recomputed before each decision.

At each level the least child comes next: first those whose candidate stays within their guarantee, by the largest part
of it that is used, then by priority, then by level, then by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

from fairbind.model import (
    TOLERANCE,
    Bind,
    CycleReport,
    FairnessReason,
    Precedence,
    Rejection,
    RejectionKind,
    Snapshot,
    TaskClass,
    Tenant,
)
from fairbind.model.hierarchy import Guarantee, Place
from scheduling.reference import BY_CLASS, FOLLOWING, Level, World, check_world, find_holding, is_at_limit
from scheduling.tree_changes import is_below, list_path

Key = tuple[int, Fraction, int, tuple[bool, Fraction], str]
Node = tuple[str, bool]
"""A tenant of the tree, and whether it is an inner one."""

Candidate = tuple[int, int | None, int]
"""The class, the pool and the server."""


@dataclass
class KeepingWorld(World):
    """A walk that keeps free what tenants do not lend."""

    def find_closing(self, task_class: TaskClass, k: int) -> Rejection | None:
        closing = super().find_closing(task_class, k)
        if closing is not None:
            return closing
        for members, resource in self.list_kept():
            r = self.snapshot.resources.index(resource)
            if not task_class.demand_r[r] or k not in members:
                continue
            accepting_k = self.snapshot.servers.accepting_k
            free = sum(max(self.free[server][r], 0) for server in members if accepting_k[server])
            kept, names = self.find_kept(task_class.tenant, members, resource)
            if free - task_class.demand_r[r] < kept:
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                return Rejection(RejectionKind.KEPT_BACK, f"{resource} that is kept for {', '.join(names[:3])}{more}")
        return None

    def place_of(self, node: Node) -> Place:
        hierarchy = self.snapshot.hierarchy
        return hierarchy.inner[node[0]].place if node[1] else hierarchy.get_place(node[0])

    def list_nodes(self) -> list[Node]:
        leaves: list[Node] = [(t.name, False) for t in self.snapshot.tenants]
        return sorted([*leaves, *((name, True) for name in self.snapshot.hierarchy.inner)])

    def list_kept(self) -> list[tuple[frozenset[int], str]]:
        """The servers and resources of which something is kept."""
        found = dict.fromkeys(
            (members_of(each), each.resource)
            for node in self.list_nodes()
            for each in self.place_of(node).guarantees
            if not self.place_of(node).lends and each.resource in self.snapshot.resources
        )
        return list(found)

    def keeps(self, node: Node, members: frozenset[int], resource: str) -> int:
        """What is kept for a tenant."""
        below = sum(self.keeps(child, members, resource) for child in self.list_children(node[0])) if node[1] else 0
        place = self.place_of(node)
        own = [
            each.amount - self.find_used(each, self.list_leaves(node))
            for each in place.guarantees
            if each.resource == resource and members_of(each) == members
        ]
        return below if place.lends else max([below, *own])

    def find_kept(self, leaf: str, members: frozenset[int], resource: str) -> tuple[int, list[str]]:
        """What is kept for siblings of a tenant and of all above it, and whose guarantees that are."""
        above = [place.parent for place in list_path(self.snapshot.hierarchy, leaf)]
        path: list[Node] = [(leaf, False), *((name, True) for name in above if name is not None)]
        amount = 0
        for node in path:
            for sibling in self.list_children(self.place_of(node).parent):
                amount += 0 if sibling == node else self.keeps(sibling, members, resource)
        names = [
            node[0]
            for node in self.list_nodes()
            if node not in path
            and not self.place_of(node).lends
            and any(
                each.resource == resource and members_of(each) == members for each in self.place_of(node).guarantees
            )
        ]
        return amount, names

    def list_children(self, parent: str | None) -> list[Node]:
        hierarchy = self.snapshot.hierarchy
        leaves: list[Node] = [
            (t.name, False) for t in self.snapshot.tenants if hierarchy.get_place(t.name).parent == parent
        ]
        return [*leaves, *((name, True) for name, each in hierarchy.inner.items() if each.place.parent == parent)]

    def list_leaves(self, node: Node) -> list[str]:
        name, is_inner = node
        if not is_inner:
            return [name]
        return [t.name for t in self.snapshot.tenants if is_below(self.snapshot.hierarchy, t.name, name)]

    def find_used(self, guarantee: Guarantee, leaves: list[str]) -> int:
        used = self.snapshot.held[guarantee.subject]
        for other, server in self.placed:
            if other.tenant in leaves and guarantee.servers.domain_k[server] == 0:
                used += other.demand_r[self.snapshot.resources.index(guarantee.resource)]
        return used


def members_of(guarantee: Guarantee) -> frozenset[int]:
    return frozenset(k for k, domain in enumerate(guarantee.servers.domain_k.tolist()) if domain == 0)


@dataclass
class TreeWorld(KeepingWorld):
    """A walk in a tree."""

    def find_next(self) -> tuple[int, int | None] | None:
        for n, pool, _ in self.find_possible():
            return n, pool
        return None

    def check_step(self, bind: Bind) -> None:
        possible = list(self.find_possible())
        assert possible, "nothing fits any more"
        chosen = self.snapshot.servers.names.index(bind.server)
        matching = [
            n
            for n, pool, k in possible
            if self.snapshot.task_classes[n].tenant == bind.tenant and self.waiting[n][0] == bind.task and k == chosen
        ]
        if not matching:
            self.check_task(possible[0][0], bind)
            self.check_server(self.snapshot.task_classes[possible[0][0]], possible[0][1], chosen)
        self.put(matching[0], chosen)

    def find_possible(self) -> Iterator[Candidate]:
        """Yield what may come next: several where a tenant's candidate may go to one of several servers."""
        candidates: dict[str, list[Candidate]] = {}
        for tenant in self.snapshot.tenants:
            found = self.find_among([pair for pair in self.open_classes() if pair[1].tenant == tenant.name])
            if found is not None:
                candidates[tenant.name] = self.list_servers(*found)
        for chosen in product(*candidates.values()) if candidates else ():
            yield self.descend(None, dict(zip(candidates, chosen, strict=True)))

    def list_servers(self, n: int, pool: int | None) -> list[Candidate]:
        """The servers that may be the best for a class: of several that count in the same guarantees, all at once."""
        found = []
        for k in range(len(self.free)):
            try:
                self.check_server(self.snapshot.task_classes[n], pool, k)
            except AssertionError:
                continue
            found.append((n, pool, k))
        return found

    def descend(self, node: str | None, candidates: dict[str, Candidate]) -> Candidate:
        """Return the candidate of the least child of an inner tenant, or of the root."""
        children: list[tuple[Key, Candidate]] = []
        for leaf, candidate in candidates.items():
            place = self.snapshot.hierarchy.get_place(leaf)
            if place.parent == node:
                level = self.level(leaf, candidate[1])[:2]
                children.append((self.key(place, [leaf], candidate, level, leaf), candidate))
        for name, inner in self.snapshot.hierarchy.inner.items():
            below = {leaf: each for leaf, each in candidates.items() if is_below(self.snapshot.hierarchy, leaf, name)}
            if inner.place.parent == node and below:
                candidate = self.descend(name, below)
                leaves = [t.name for t in self.snapshot.tenants if is_below(self.snapshot.hierarchy, t.name, name)]
                level = self.inner_level(inner.tenant, leaves, candidate[1])[:2]
                children.append((self.key(inner.place, leaves, candidate, level, name), candidate))
        return min(children)[1]

    def key(
        self, place: Place, leaves: list[str], candidate: Candidate, level: tuple[bool, Fraction], name: str
    ) -> Key:
        n, _, k = candidate
        task_class, resources = self.snapshot.task_classes[n], self.snapshot.resources
        parts, fits = [], True
        for each in place.guarantees:
            demand = task_class.demand_r[resources.index(each.resource)] if each.resource in resources else 0
            if not demand or each.servers.domain_k[k] != 0:
                continue
            held = self.find_used(each, leaves)
            fits = fits and held + demand <= each.amount
            parts.append(Fraction(held, each.amount))
        if parts and fits:
            return 0, max(parts), -place.priority, level, name
        return 1, Fraction(0), -place.priority, level, name

    def inner_level(self, tenant: Tenant, leaves: list[str], pool: int | None, asked: set[int] | None = None) -> Level:
        """How far all below an inner tenant have come, without what is used up. asked: what counts all the same."""
        pool = pool if self.policy in BY_CLASS else None
        without = self.find_used_up(pool) - (asked or set())
        held = [sum(self.held[leaf][r] for leaf in leaves) for r in range(len(self.snapshot.resources))]
        if self.policy in FOLLOWING:
            return self.inner_lag(tenant, leaves, held, without)
        if self.policy == "tsf":
            tasks = [demand for leaf in leaves for demand in self.tasks[leaf]]
            total = sum((self.task_share(demand, without) for demand in tasks), Fraction(0))
            return False, total / tenant.weight, 0.0
        if self.policy == "asset-fairness":
            shares = [held[r] / whole for r, whole in self.denominators_of(tenant) if r not in without]
            return False, sum(shares, Fraction(0)), 0.0
        return self.dominant_share_of(tenant, held, pool, without)

    def inner_lag(self, tenant: Tenant, leaves: list[str], held: list[int], without: set[int]) -> Level:
        snapshot = self.snapshot
        weighted = max(
            (held[r] / whole for r, whole in self.denominators_of(tenant) if r not in without), default=Fraction(0)
        )
        targets = {leaf: self.target(leaf) for leaf in leaves}
        if not any(target is not None for target in targets.values()):
            return False, weighted / self.target_of_weight_one(), 0.0
        goal = [Fraction(0)] * len(snapshot.resources)
        for leaf, target in targets.items():
            for r, _ in self.denominators(leaf):
                new = self.find_tenant(leaf).weight * self.target_of_weight_one()
                goal[r] += new if target is None else target[r]
        if not any(goal):
            return True, weighted, 0.0
        ratios = [
            Fraction(held[r], snapshot.total_r[r]) / goal[r] for r in range(len(goal)) if goal[r] and r not in without
        ]
        return False, max(ratios, default=Fraction(0)), 0.0

    def check_fairness(self, task_class: TaskClass, reason: FairnessReason | None) -> None:
        eligible, leaf = self.eligible(task_class), task_class.tenant
        pools: list[int | None] = [None] if self.pool_k is None else [*sorted({self.pool_k[k] for k in eligible})]
        if not eligible:
            assert reason is None
            return
        level, pool = min(((self.level(leaf, pool), pool) for pool in pools), key=lambda pair: pair[0])
        expected = None if level[0] else self.find_rival(task_class, pool)
        if expected is None:
            assert reason is None
            return
        assert reason is not None, "another one comes before it"
        own, other, name, by = expected
        asked = list_asked(task_class)
        assert (reason.next_tenant, reason.by) == (name, by)
        compared = (own[0], other[0]) if own[1] or other[1] else None
        assert reason.compared == compared
        for share, node in ((reason.share, own), (reason.next_share, other)):
            is_infinite, right, _ = self.node_level(node, pool, asked)
            assert is_infinite or abs(share - float(right)) <= TOLERANCE * max(float(right), 1.0)

    def find_rival(self, task_class: TaskClass, pool: int | None) -> tuple[Node, Node, str, Precedence] | None:
        """The two that are compared, the tenant that is next, and by what it is."""
        common, asked = {k for k in find_holding(self, task_class) if self.is_in(k, pool)}, list_asked(task_class)
        for own, siblings in self.list_levels(task_class.tenant):
            own_key = self.key_at_end(own, pool, asked)
            before = sorted(
                (key, node[0], node)
                for node in siblings
                if node != own
                and self.waits_for(node, common)
                and (key := self.key_at_end(node, pool, asked)) < own_key
            )
            if before:
                other_key, _, other = before[0]
                by = Precedence.LEVEL if own_key[2] == other_key[2] else Precedence.PRIORITY
                by = by if own_key[:2] == other_key[:2] else Precedence.GUARANTEE
                leaf = other
                while leaf[1]:
                    below = [node for node in self.list_children(leaf[0]) if self.waits_for(node, common)]
                    leaf = min((self.key_at_end(node, pool, asked), node[0], node) for node in below)[2]
                return own, other, leaf[0], by
        return None

    def list_levels(self, leaf: str) -> Iterator[tuple[Node, list[Node]]]:
        """Yield each tenant of a leaf's path, the one below the root first, with all siblings."""
        parents = [place.parent for place in list_path(self.snapshot.hierarchy, leaf)]
        path: list[Node] = [*((name, True) for name in reversed(parents) if name is not None), (leaf, False)]
        for parent, node in zip(reversed(parents), path, strict=True):
            yield node, self.list_children(parent)

    def list_waiting(self, node: Node) -> list[TaskClass]:
        """What waits below, and is not at a limit."""
        leaves = self.list_leaves(node)
        return [c for _, c in self.open_classes() if c.tenant in leaves and not is_at_limit(self, c)]

    def waits_for(self, node: Node, servers: set[int]) -> bool:
        return any(not servers.isdisjoint(find_holding(self, c)) for c in self.list_waiting(node))

    def node_level(self, node: Node, pool: int | None, asked: set[int]) -> Level:
        if not node[1]:
            return self.level(node[0], pool)
        return self.inner_level(self.snapshot.hierarchy.inner[node[0]].tenant, self.list_leaves(node), pool, asked)

    def key_at_end(
        self, node: Node, pool: int | None, asked: set[int]
    ) -> tuple[int, Fraction, int, tuple[bool, Fraction]]:
        """Where a tenant is when nothing fits: within its guarantee if a task may be, wherever it could go."""
        hierarchy, resources = self.snapshot.hierarchy, self.snapshot.resources
        place = hierarchy.inner[node[0]].place if node[1] else hierarchy.get_place(node[0])
        parts = []
        for task_class in self.list_waiting(node):
            servers = [k for k in find_holding(self, task_class) if self.is_in(k, pool)]
            about = [
                (self.find_used(each, self.list_leaves(node)), demand, each.amount)
                for each in place.guarantees
                if each.resource in resources
                and (demand := task_class.demand_r[resources.index(each.resource)])
                and any(each.servers.domain_k[k] == 0 for k in servers)
            ]
            if about and all(used + demand <= amount for used, demand, amount in about):
                parts.append(max(Fraction(used, amount) for used, _, amount in about))
        level = self.node_level(node, pool, asked)[:2]
        return (0, min(parts), -place.priority, level) if parts else (1, Fraction(0), -place.priority, level)

    def find_used_up(self, pool: int | None) -> set[int]:
        """The resources of which no server has as much free as the least that a waiting task asks for, or any."""
        servers, found = self.snapshot.servers, set()
        for r in range(len(self.snapshot.resources)):
            asked = [c.demand_r[r] for _, c in self.open_classes() if c.demand_r[r]]
            members = [k for k in range(len(self.free)) if servers.accepting_k[k] and self.is_in(k, pool)]
            if not any(max(self.free[k][r], 0) >= min(asked, default=1) for k in members):
                found.add(r)
        return found


def check_tree_report(snapshot: Snapshot, report: CycleReport, *, seed: int = 0) -> None:
    """Fail at the first decision that the order does not allow, and at anything untrue in the rest of the report."""
    world = KeepingWorld if report.policy == "fifo" else TreeWorld
    check_world(world(snapshot, report.policy, seed), report)


def list_asked(task_class: TaskClass) -> set[int]:
    """The resources of which a task needs some."""
    return {r for r, demand in enumerate(task_class.demand_r) if demand > 0}
