"""From the books to the snapshot that a cycle reads: what changed is made again, the rest is shared."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from fairbind.cluster.cache.books import Books
from fairbind.cluster.cache.nodes import Axes
from fairbind.cluster.cache.pending import QueueKey, TaskQueue
from fairbind.cluster.cache.pinning import make_pin
from fairbind.cluster.cache.server_classes import ServerGrouping
from fairbind.cluster.objects.facts import EPHEMERAL_STORAGE, PODS, AntiAffinityTerm, Constraints
from fairbind.model import Placement, ServerTable, Snapshot, Targets, TaskClass
from fairbind.scheduling import POLICIES

NOT_FITTED = frozenset({PODS, EPHEMERAL_STORAGE})
"""By default these do not say how well a pod suits a node. Most pods ask for one slot and for no storage, so a node of
which much is used would look as if it had too much of both, and best fit would spread pods instead of packing them."""

MAX_HELD_PLACEMENTS = 64
"""Of so many different constraints of held pods it is found out where such pods could run, the most frequent first:
each pair of them may set two nodes apart."""


class _Restricted:
    """Placements without the nodes that placed pods close: those of pods pinned to thousands of nodes are few."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._known: dict[tuple[int, frozenset[AntiAffinityTerm]], Placement] = {}

    def get(self, base: Placement, repelled: frozenset[AntiAffinityTerm]) -> Placement:
        """Return the placement of pods that these terms keep away. base: one of `Eligibility`, which keeps it."""
        if not repelled:
            return base
        known = self._known.get((id(base), repelled))
        if known is None:
            known = self._books.anti_affinity.restrict(base, repelled, self._books.eligibility)
            self._known[id(base), repelled] = known
        return known


class SnapshotBuilder:
    """Makes snapshots of one set of books, and keeps what it may use again."""

    def __init__(self, books: Books) -> None:
        self._books = books
        self._grouping = ServerGrouping()
        self._task_classes: dict[QueueKey, TaskClass] = {}
        self._classes_valid_for: tuple[Axes, int, int] | None = None
        self._nominations_version = 0

    def build(self) -> Snapshot:
        """Return the world as the books say it is now."""
        self._books.resolve()
        self._books.servers.flush()
        axes = self._books.servers.axes
        task_classes = self._make_task_classes()
        class_k, class_names = self._grouping.compute(
            self._books.servers.names,
            self._books.servers.capacity_kr,
            self._books.servers.capacity_version,
            {id(c.placement): c.placement for c in task_classes if c.blocked is None}.values(),
            self._books.settings.server_class_tolerance,
        )
        servers = ServerTable(
            names=self._books.servers.names,
            capacity_kr=self._books.servers.capacity_kr,
            free_kr=self._books.servers.free_kr,
            usable_k=self._books.servers.usable_k,
            class_k=class_k,
            class_names=class_names,
            taken_keys=self._books.servers.taken_keys,
            fixed_keys=self._books.servers.fixed_keys,
        )
        return Snapshot(
            resources=axes,
            counts_r=self._compute_counts(axes),
            fits_r=None if self._find_chosen(axes) else tuple(r not in NOT_FITTED for r in axes),
            total_r=self._books.servers.total_r,
            servers=servers,
            tenants=self._books.usage.build_tenants(axes, detailed=POLICIES[self._books.settings.policy].needs_detail),
            task_classes=task_classes,
            targets=self._find_targets(),
            running=self._books.running.build(axes),
        )

    def _find_targets(self) -> Targets | None:
        """Return what the policy's own mechanism gives; the answer of the one before says nothing any more."""
        targets = self._books.targets
        mechanism = POLICIES[self._books.settings.policy].mechanism
        return targets if targets is not None and targets.mechanism == mechanism else None

    def _make_task_classes(self) -> tuple[TaskClass, ...]:
        if len(self._books.eligibility) > 2 * (MAX_HELD_PLACEMENTS + len(self._books.queues)):
            self._books.eligibility.keep_only(key.constraints for key in self._books.queues)
        valid_for = self._books.servers.axes, self._books.eligibility.version, self._books.anti_affinity.version
        if valid_for != self._classes_valid_for:
            self._classes_valid_for = valid_for
            self._task_classes.clear()
            self._books.changed_queues = dict.fromkeys(self._books.queues)
        if self._books.nominations.version != self._nominations_version:
            self._nominations_version = self._books.nominations.version
            self._books.changed_queues |= dict.fromkeys(key for key in self._books.queues if key.has_reserved)
        restricted = _Restricted(self._books)
        for key in self._books.changed_queues:
            queue = self._books.queues.get(key)
            if queue is None:
                self._task_classes.pop(key, None)
            else:
                self._task_classes[key] = self._build_task_class(queue, restricted)
                self._books.wanted.set_waiting(key, len(queue.tasks) if queue.is_placeable else 0)
        self._books.changed_queues.clear()
        return tuple(self._task_classes.values())

    def _build_task_class(self, queue: TaskQueue, restricted: _Restricted) -> TaskClass:
        servers, key = self._books.servers, queue.key
        placement, pin = self._books.eligibility.get_placement(key.constraints), None
        if key.pin is not None:
            pin = make_pin(key.pin, placement, restricted.get(placement, key.repelled), servers.index)
        elif key.repelled:
            placement = queue.restrict(placement, self._books.anti_affinity, self._books.eligibility)
        reserved = self._books.nominations.reserve(placement, key, servers.axes, servers.index)
        return queue.build_task_class(servers.axes, reserved, pin)

    def _compute_counts(self, axes: tuple[str, ...]) -> tuple[bool, ...]:
        chosen = self._find_chosen(axes)
        if chosen:
            return tuple(r in chosen for r in axes)
        others_r = tuple(r != PODS for r in axes)
        specs = self._books.directory.specs
        if not self._books.wanted.are_slots_scarce(axes, self._books.servers.total_r, others_r, specs):
            return others_r
        return (True,) * len(axes)

    def _find_chosen(self, axes: Axes) -> frozenset[str]:
        """Return the fairness resources that the administrator chose and some node has."""
        return frozenset(self._books.settings.fairness_resources or ()).intersection(axes)

    def add_detail(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot of now with what each tenant holds task by task and server by server."""
        frequent: Counter[Constraints] = Counter()
        for tenant_usage in self._books.usage.by_name.values():
            for (_, constraints), count in tenant_usage.kinds.items():
                frequent[constraints] += count
        placements = {
            constraints: self._books.eligibility.get_placement(constraints)
            for constraints, _ in frequent.most_common(MAX_HELD_PLACEMENTS)
        }
        tenants = self._books.usage.build_detailed_tenants(snapshot.resources, placements.get)
        return replace(snapshot, tenants=tenants)
