"""The mirror: what the cluster looks like, as far as a scheduling decision depends on it.

Reflectors feed it pods, nodes and namespaces; the handlers of custom resources feed it tenants and settings; the loop
tells it what it decided. Every change moves one pod or one node in the books (`pods`, `servers`, `queues`); a snapshot
is then cheap: it remakes what changed and shares the rest.

A decision is assumed at once: the pod holds its room from then on, so that the next cycle does not give it away while
the binding is under way. A failed binding takes the assumption back. What the API says wins over what we assumed.

A system pod is a pod in a system namespace that no Tenant claims by name and that does not ask for our scheduler; it
makes its node smaller and belongs to nobody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from fairbind.cluster.cache.consistency import Picture, check_same, describe
from fairbind.cluster.cache.feeds import Feed
from fairbind.cluster.cache.nodes import Axes, Servers
from fairbind.cluster.cache.overview import build_overview, compute_pending_reasons
from fairbind.cluster.cache.pending import QueueKey, TaskQueue
from fairbind.cluster.cache.pods import Held, Idle, PodEntry, PodRecord, Position, Waiting, find_tenant, locate
from fairbind.cluster.cache.running import RunningTasks
from fairbind.cluster.cache.server_classes import ServerGrouping
from fairbind.cluster.cache.usage import Usage
from fairbind.cluster.filters.anti_affinity import AntiAffinity
from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.objects.facts import Constraints, NamespaceFacts, NodeFacts, PodFacts
from fairbind.cluster.tenancy.tenants import SYSTEM_NAMESPACES, Directory, TenantSpec, TenantState
from fairbind.model import Placement, PolicySettings, ServerTable, Snapshot, Targets, TaskClass, Wait
from fairbind.model.overview import ClusterOverview
from fairbind.scheduling import POLICIES

__all__ = ["ClusterCache", "TenantState"]

NOT_COUNTED = frozenset({"pods", "ephemeral-storage"})
"""By default these do not count for shares."""

MAX_HELD_PLACEMENTS = 64
"""Of so many different constraints of held pods it is found out where such pods could run, the most frequent first: a
DaemonSet's pods have as many as there are nodes, and each pair of them would set two nodes apart."""


class ClusterCache:
    """See the module. Not thread-safe: everything happens in one event loop.

    on_change: called, cheaply and often, when something changed on which a decision may depend.
    operator_namespace: counts as a system namespace too.
    on_rejection: called with what for, when a kubelet refused one of our pods.
    """

    def __init__(
        self,
        scheduler_name: str,
        on_change: Callable[[], None],
        *,
        operator_namespace: str | None = None,
        on_rejection: Callable[[str], None] = lambda _rejection: None,
    ) -> None:
        self._scheduler_name = scheduler_name
        self._on_change = on_change
        self._on_rejection = on_rejection
        self._directory = Directory(SYSTEM_NAMESPACES | {operator_namespace or "kube-system"})
        self._entries: dict[str, PodEntry] = {}
        self._by_namespace: dict[str, set[str]] = {}
        self._queues: dict[QueueKey, TaskQueue] = {}
        self._task_classes: dict[QueueKey, TaskClass] = {}
        self._changed_queues: dict[QueueKey, None] = {}
        self._classes_valid_for: tuple[Axes, int, int] | None = None
        self._noted_waits: Sequence[Wait] = ()
        self._reasons: tuple[Snapshot, Sequence[Wait], Mapping[QueueKey, str]] | None = None
        self._usage = Usage()
        self._running = RunningTasks()
        self._eligibility = Eligibility()
        self._anti_affinity = AntiAffinity(lambda namespace: self._directory.namespaces.get(namespace, {}))
        self._servers = Servers(self._eligibility)
        self._grouping = ServerGrouping()
        self._settings = PolicySettings()
        self._targets: Targets | None = None
        self._snapshot: Snapshot | None = None
        self.pods: Feed[PodFacts] = Feed(
            key=lambda pod: pod.uid, put=self._put_pod, remove=self._remove_pod, known=self._entries.keys
        )
        self.nodes: Feed[NodeFacts] = Feed(
            key=lambda node: node.name, put=self._put_node, remove=self._remove_node, known=self._find_node_names
        )
        self.namespaces: Feed[NamespaceFacts] = Feed(
            key=lambda namespace: namespace.name,
            put=lambda namespace: self._set_namespace(namespace.name, dict(namespace.labels)),
            remove=lambda name: self._set_namespace(name, None),
            known=self._directory.namespaces.keys,
        )

    # --- what others tell ---

    @property
    def settings(self) -> PolicySettings:
        """What the administrator chose."""
        return self._settings

    def set_policy(self, settings: PolicySettings | None) -> None:
        """Take new settings; None: the defaults."""
        settings = settings or PolicySettings()
        if settings != self._settings:
            self._settings = settings
            self._servers.set_selector(settings.server_selector)
            self._touch()

    def set_targets(self, targets: Targets | None) -> None:
        """Take what the policy's exact mechanism gives, for policies that follow it."""
        if targets != self._targets:
            self._targets = targets
            if POLICIES[self._settings.policy].follows_targets:
                self._touch()

    def set_tenant(self, spec: TenantSpec) -> None:
        """Take a declared tenant, new or changed."""
        self.replace_tenants([*(s for s in self._directory.specs.values() if s.name != spec.name), spec])

    def delete_tenant(self, name: str) -> None:
        """Take a declared tenant away."""
        self.replace_tenants(spec for spec in self._directory.specs.values() if spec.name != name)

    def replace_tenants(self, specs: Iterable[TenantSpec]) -> None:
        """Take the whole list of declared tenants."""
        specs = list(specs)
        if {spec.name: spec for spec in specs} != self._directory.specs:
            self._directory.set_tenants(specs)
            self._touch()

    def assume(self, uid: str, node: str) -> bool:
        """Let a waiting pod hold its room on a node; False when it does not wait any more."""
        entry = self._entries.get(uid)
        if entry is None or not isinstance(entry.position, Waiting):
            return False
        entry.assumed = node
        self._move(entry)
        self._snapshot = None
        return True

    def forget(self, uid: str, *, postponed: bool = False) -> None:
        """Take an assumption back: the binding failed. postponed: the pod waits for `resume` before its next turn."""
        entry = self._entries.get(uid)
        if entry is not None and entry.assumed is not None:
            entry.assumed = None
            entry.postponed = postponed
            if self._move(entry):
                self._touch()

    def resume(self, uid: str) -> None:
        """Give a postponed pod its turn again."""
        entry = self._entries.get(uid)
        if entry is not None and entry.postponed:
            entry.postponed = False
            if self._move(entry):
                self._touch()

    def note_waits(self, waits: Sequence[Wait]) -> None:
        """Take why classes wait, as the last cycle saw it; those it does not mention have not had their turn yet.

        Cycles come many times a second, and nobody reads the reasons before the next overview.
        """
        self._noted_waits = waits

    # --- what others ask ---

    def find_pod(self, uid: str) -> PodRecord | None:
        """Return a pod that is there and not finished."""
        entry = self._entries.get(uid)
        if entry is None:
            return None
        facts = entry.facts
        tenant = find_tenant(facts, self._directory, self._scheduler_name)
        return PodRecord(
            uid=uid,
            namespace=facts.namespace,
            name=facts.name,
            created=facts.created,
            priority=facts.priority,
            tenant=tenant or "",
            node=facts.node,
            assumed=None if facts.node else entry.assumed,
            resource_version=facts.version,
            is_waiting=isinstance(entry.position, Waiting),
            unsupported=facts.unsupported_detail,
            scheduled_message=facts.scheduled_message,
        )

    def may_use(self, uid: str, node: str) -> bool:
        """Whether a node is still there and one to which a decided pod may go: taints and labels may have changed."""
        entry = self._entries.get(uid)
        if entry is None:
            return True  # the API server will say what became of it
        return self._servers.may_use(node, entry.facts.constraints)

    def has_room(self, uid: str, node: str) -> bool:
        """Whether a pod that is decided to go to a node fits there still, given what others bound there since."""
        entry = self._entries.get(uid)
        if entry is None or not isinstance(entry.position, Held) or entry.position.node != node:
            return True  # the API server will say what became of it
        exclusive_keys = entry.facts.constraints.exclusive_keys.conflicting
        return not self._servers.is_crowded(node, uid, entry.facts.demand.real, exclusive_keys)

    @property
    def has_waiting(self) -> bool:
        """Whether any pod waits for its turn."""
        return bool(self._queues)

    def __str__(self) -> str:
        return (
            f"{len(self._servers.names)} nodes, {len(self._directory.namespaces)} namespaces, "
            f"{len(self._directory.specs)} Tenants, {len(self._entries)} pods, "
            f"{sum(len(queue.tasks) for queue in self._queues.values())} waiting"
        )

    @property
    def unknown_fairness_resources(self) -> tuple[str, ...]:
        """The fairness resources of the settings that no node has; they are ignored."""
        self.build_snapshot()
        return tuple(r for r in self._settings.fairness_resources or () if r not in self._servers.axes)

    def tenant_states(self) -> dict[str, TenantState]:
        """Return what only the whole picture shows about each declared tenant, by name."""
        snapshot = self.build_snapshot()
        pairs = zip(snapshot.resources, snapshot.counts_r, strict=True)
        return self._directory.compute_states(frozenset(resource for resource, counts in pairs if counts))

    def build_snapshot(self) -> Snapshot:
        """Return the world as it is now; the same object as before when nothing changed."""
        if self._snapshot is None:
            self._resolve_tenants()
            self._resolve_anti_affinity()
            self._servers.flush()
            self._snapshot = self._make_snapshot()
        return self._snapshot

    def build_detailed_snapshot(self) -> Snapshot:
        """Return the world as it is now, with what each tenant holds task by task and server by server."""
        snapshot = self.build_snapshot()
        frequent: Counter[Constraints] = Counter()
        for tenant_usage in self._usage.by_name.values():
            for (_, constraints), count in tenant_usage.kinds.items():
                frequent[constraints] += count
        placements = {
            constraints: self._eligibility.get_placement(constraints)
            for constraints, _ in frequent.most_common(MAX_HELD_PLACEMENTS)
        }
        tenants = self._usage.build_detailed_tenants(snapshot.resources, placements.get)
        return replace(snapshot, tenants=tenants)

    def build_overview(self, fair_shares: Mapping[str, float] | None = None) -> ClusterOverview:
        """Return who holds what and who waits; changes nothing. fair_shares: by tenant, as of the last exact solve."""
        snapshot = self.build_snapshot()
        queues, waits = self._queues.values(), self._noted_waits
        if self._reasons is None or self._reasons[0] is not snapshot or self._reasons[1] is not waits:
            self._reasons = snapshot, waits, compute_pending_reasons(queues, waits, self._find_queue)
        return build_overview(snapshot, self._usage.by_name, queues, self._reasons[2], fair_shares)

    def check_consistent(self) -> None:
        """Compare the books with books that are made anew from what the API said. Slow; for tests.

        Raises InvariantError naming the first difference.
        """
        check_same(describe(self.build_snapshot(), self._usage, self._servers), self._describe_anew())

    def _describe_anew(self) -> Picture:
        anew = ClusterCache(self._scheduler_name, lambda: None)
        anew._directory = self._directory.copy()
        anew.set_policy(self._settings)
        for book in self._servers.books.values():
            if book.node is not None:
                anew._put_node(book.node)
        for entry in self._entries.values():
            copy = anew._add_entry(entry.facts)
            copy.assumed, copy.postponed = entry.assumed, entry.postponed
            anew._move(copy)
        return describe(anew.build_snapshot(), anew._usage, anew._servers)

    # --- pods ---

    def _put_pod(self, facts: PodFacts) -> None:
        if facts.finished:
            if facts.rejection is not None and facts.scheduler == self._scheduler_name and facts.uid in self._entries:
                self._on_rejection(facts.rejection)
            self._remove_pod(facts.uid)
            return
        entry = self._entries.get(facts.uid)
        if entry is None:
            entry = self._add_entry(facts)
        entry.facts = facts
        if facts.node is not None or facts.terminating:
            entry.assumed = None
            entry.postponed = False
        if self._move(entry):
            self._touch()
        elif isinstance(entry.position, Held) and self._follow_running(entry.position, facts):
            self._snapshot = None  # no decision depends on when a pod began to run, so nobody is woken

    def _follow_running(self, position: Held, facts: PodFacts) -> bool:
        return position.tenant is not None and self._running.follow(position.node, facts)

    def _add_entry(self, facts: PodFacts) -> PodEntry:
        entry = self._entries[facts.uid] = PodEntry(facts)
        self._by_namespace.setdefault(facts.namespace, set()).add(facts.uid)
        return entry

    def _remove_pod(self, uid: str) -> None:
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        namespace = entry.facts.namespace
        self._by_namespace[namespace].discard(uid)
        if not self._by_namespace[namespace]:
            del self._by_namespace[namespace]
        if entry.position is not None:
            self._leave(entry.facts, entry.position)
            self._touch()
        if namespace not in self._by_namespace:
            self._directory.forget(namespace)

    def _move(self, entry: PodEntry) -> bool:
        """Bring a pod's books up to date; False when it stays where it is."""
        now = locate(entry, self._directory, self._anti_affinity, self._scheduler_name)
        if now == entry.position:
            return False
        if entry.position is not None:
            self._leave(entry.facts, entry.position)
        entry.position = now
        if now is not None:
            self._enter(entry.facts, now)
        return True

    def _enter(self, facts: PodFacts, position: Position) -> None:
        match position:
            case Held(tenant, node, demand, constraints, repels):
                self._anti_affinity.hold(repels, node)
                exclusive_keys = constraints.exclusive_keys.taken
                self._servers.hold(node, facts.uid, demand.real, exclusive_keys, system=tenant is None)
                if tenant is not None:
                    self._usage.hold(tenant, node, (demand, constraints))
                    self._running.hold(tenant, node, facts)
                    self._usage.note_pod(tenant, facts.created)
            case Waiting(key, task):
                queue = self._queues.get(key)
                if queue is None:
                    queue = self._queues[key] = TaskQueue(key)
                queue.add(task)
                self._changed_queues[key] = None
                self._usage.wait(key.tenant)
                self._usage.note_pod(key.tenant, facts.created)
            case Idle(tenant, gated):
                self._usage.idle(tenant, gated=gated)
                self._usage.note_pod(tenant, facts.created)

    def _leave(self, facts: PodFacts, position: Position) -> None:
        match position:
            case Held(tenant, node, demand, constraints, repels):
                self._anti_affinity.release(repels, node)
                self._servers.release(node, facts.uid, demand.real, system=tenant is None)
                if tenant is not None:
                    self._usage.hold(tenant, node, (demand, constraints), -1)
                    self._running.release(node, facts.uid)
            case Waiting(key, task):
                queue = self._queues[key]
                queue.remove(task)
                self._changed_queues[key] = None
                if not queue.tasks:
                    del self._queues[key]
                self._usage.wait(key.tenant, -1)
            case Idle(tenant, gated):
                self._usage.idle(tenant, -1, gated=gated)

    # --- nodes, namespaces, tenants ---

    def _put_node(self, node: NodeFacts) -> None:
        if self._servers.put_node(node):
            self._touch()

    def _remove_node(self, name: str) -> None:
        if self._servers.remove_node(name):
            self._touch()

    def _find_node_names(self) -> list[str]:
        return [name for name, book in self._servers.books.items() if book.node is not None]

    def _set_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        if self._directory.namespaces.get(name) != labels:
            self._directory.set_labels(name, labels)
            self._anti_affinity.note_labels(name)
            if name not in self._by_namespace:
                self._directory.forget(name)
            self._touch()

    def _resolve_tenants(self) -> None:
        for namespace in self._directory.resolve():
            for uid in sorted(self._by_namespace.get(namespace, ())):
                self._move(self._entries[uid])
        self._usage.declare(self._directory.specs)

    def _resolve_anti_affinity(self) -> None:
        for namespace in self._anti_affinity.take_stale(self._by_namespace):
            for uid in sorted(self._by_namespace[namespace]):
                self._move(self._entries[uid])

    def _find_queue(self, uid: str) -> QueueKey | None:
        """Return where a pod waits for its turn."""
        entry = self._entries.get(uid)
        return entry.position.key if entry is not None and isinstance(entry.position, Waiting) else None

    def _touch(self) -> None:
        self._snapshot = None
        self._on_change()

    # --- the snapshot ---

    def _make_snapshot(self) -> Snapshot:
        axes = self._servers.axes
        task_classes = self._make_task_classes()
        class_k, class_names = self._grouping.compute(
            self._servers.names,
            self._servers.capacity_kr,
            self._servers.capacity_version,
            {id(c.placement): c.placement for c in task_classes if c.blocked is None}.values(),
            self._settings.server_class_tolerance,
        )
        servers = ServerTable(
            names=self._servers.names,
            capacity_kr=self._servers.capacity_kr,
            free_kr=self._servers.free_kr,
            usable_k=self._servers.usable_k,
            class_k=class_k,
            class_names=class_names,
            taken_keys=self._servers.taken_keys,
            fixed_keys=self._servers.fixed_keys,
        )
        return Snapshot(
            resources=axes,
            counts_r=self._compute_counts(axes),
            total_r=self._servers.total_r,
            servers=servers,
            tenants=self._usage.build_tenants(axes, detailed=POLICIES[self._settings.policy].needs_detail),
            task_classes=task_classes,
            targets=self._find_targets(),
            running=self._running.build(axes),
        )

    def _find_targets(self) -> Targets | None:
        """Return what the policy's own mechanism gives; the answer of the one before says nothing any more."""
        mechanism = POLICIES[self._settings.policy].mechanism
        return self._targets if self._targets is not None and self._targets.mechanism == mechanism else None

    def _make_task_classes(self) -> tuple[TaskClass, ...]:
        if len(self._eligibility) > 2 * (MAX_HELD_PLACEMENTS + len(self._queues)):
            self._eligibility.keep_only(key.constraints for key in self._queues)
        valid_for = self._servers.axes, self._eligibility.version, self._anti_affinity.version
        if valid_for != self._classes_valid_for:
            self._classes_valid_for = valid_for
            self._task_classes.clear()
            self._changed_queues = dict.fromkeys(self._queues)
        for key in self._changed_queues:
            queue = self._queues.get(key)
            if queue is None:
                self._task_classes.pop(key, None)
            else:
                self._task_classes[key] = queue.build_task_class(self._servers.axes, self._get_placement(queue))
        self._changed_queues.clear()
        return tuple(self._task_classes.values())

    def _get_placement(self, queue: TaskQueue) -> Placement:
        base = self._eligibility.get_placement(queue.key.constraints)
        if not queue.key.repelled:
            return base
        return queue.restrict(base, self._anti_affinity, self._eligibility)

    def _compute_counts(self, axes: tuple[str, ...]) -> tuple[bool, ...]:
        chosen = [r for r in self._settings.fairness_resources or () if r in axes]
        return tuple(r in chosen if chosen else r not in NOT_COUNTED for r in axes)
