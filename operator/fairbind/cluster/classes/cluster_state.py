"""The state of a cluster: every pod, where it stands, and what follows from that for nodes, tenants and queues.

`ClusterCache` brings changes, `SnapshotBuilder` makes snapshots, and `Queries` answers questions; all three share one
`ClusterState`. Every change moves one pod from one position to another, so that no sequence of events can count a pod
twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from fairbind.cluster.classes.due import find_part
from fairbind.cluster.classes.task_queue import TaskQueue
from fairbind.cluster.classes.waiting_queues import WaitingQueues
from fairbind.cluster.filters.anti_affinity import AntiAffinity
from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.filters.nominated_rules import Nomination
from fairbind.cluster.filters.topology import Topology
from fairbind.cluster.objects.facts import PodFacts, PodTerm
from fairbind.cluster.state.claimed import set_capacities
from fairbind.cluster.state.devices import Devices
from fairbind.cluster.state.forecast import Forecast
from fairbind.cluster.state.groups import Groups
from fairbind.cluster.state.nodes import Servers
from fairbind.cluster.state.nominations import Nominations
from fairbind.cluster.state.pod_images import PodImages
from fairbind.cluster.state.pods import PodEntry, get_asked, get_pod_terms, locate
from fairbind.cluster.state.positions import Bound, Idle, Opened, Position, Reserved, Waiting
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.cluster.state.running import RunningTasks
from fairbind.cluster.state.slots import WantedPods
from fairbind.cluster.state.tenant_limits import TenantLimits
from fairbind.cluster.state.term_rotation import TermRotation
from fairbind.cluster.state.usage import Usage
from fairbind.cluster.state.volumes import Volumes
from fairbind.cluster.tenancy.tenants import Directory
from fairbind.derived import Rotation
from fairbind.model import PolicySettings, Rejection, Targets, Task, Wait
from fairbind.scheduling.cycle.order.task_queues import compute_sort_key

MAX_SELECTED = 256
"""Waiting pods that other terms select than before go over to so many queues at a time, for 10 microseconds each."""
SELECTED_LOOKS = 2
"""So many times as many pods are looked at, of which some go over together."""


class ClusterState:
    """See the module.

    gated_scheduler: the other scheduler whose pods are rationed; None: there is none. asking: schedulers that ask whose
    turn it is before they place a pod. narrows_to_nodes: see `narrowing`. directory: whose namespace is whose. entries:
    pods by UID. by_namespace: their UIDs. queues: who waits, by class. waiting: the same,
    by tenant. queues_about_volumes: how many bring volumes that are counted, or want some.
    queues_to_build: those that changed since the last snapshot. usage: by tenant. wanted: pods that hold or may be
    placed, the latter as of the last snapshot. nominations: capacity that is reserved for pods that wait.
    forecast: where pods on their way will be. running: pod by pod. above: see `growths`. eligibility, anti_affinity,
    topology: the filters. rotation: whose pod terms are looked at.
    volumes, devices, groups: those of pods. to_select: pods that wait and that other terms may select than their queue
    says, in the order in which they are looked at. images: those of pods and nodes. to_image: queues of which other
    images may count, in such an order. servers: the nodes.
    settings, targets: the policy's. own_nominated: our own unbound pods that say that they are nominated. gated: pods
    whose only gate is ours. noted_waits: why classes wait, as the last cycle saw it.
    """

    def __init__(
        self,
        scheduler_name: str,
        directory: Directory,
        gated_scheduler: str | None = None,
        *,
        asking: frozenset[str] = frozenset(),
        narrows_to_nodes: bool = False,
        kept_seconds: float = 0.0,
    ) -> None:
        self.scheduler_name = scheduler_name
        self.gated_scheduler = gated_scheduler
        self.asking = asking
        self.narrows_to_nodes = narrows_to_nodes
        self.directory = directory
        self.entries: dict[str, PodEntry] = {}
        self.by_namespace: dict[str, set[str]] = {}
        self.queues: dict[QueueKey, TaskQueue] = {}
        self.waiting = WaitingQueues()
        self.queues_about_volumes = 0
        self.queues_to_build = Rotation[QueueKey]()
        self.wanted = WantedPods()
        self.forecast = Forecast()
        self.own_nominated: set[str] = set()
        self.gated: dict[str, PodEntry] = {}
        self.running = RunningTasks()
        self.above: frozenset[str] = frozenset()
        self.eligibility = Eligibility()
        self.servers = Servers(self.eligibility)
        self.usage = Usage(self.wanted, TenantLimits(self.eligibility, self.servers))
        self.nominations = Nominations(self.eligibility)
        self.to_select = Rotation[str]()
        self.images = PodImages(self.eligibility.images)
        self.to_image = Rotation[QueueKey]()
        self.anti_affinity = AntiAffinity(self._find_namespace_labels)
        self.rotation = TermRotation()
        self.topology = Topology(self.eligibility, self.anti_affinity, self._find_namespace_labels)
        self.volumes = Volumes(directory.tenant_of, self.eligibility)
        self.devices = Devices(self._is_placed, self.servers.offered.changes, self.servers.offered.is_allocatable)
        self.groups = Groups(asking, self.topology.find_domains, self.servers.reserve, kept_seconds)
        self.settings = PolicySettings()
        self.targets: Targets | None = None
        self.noted_waits: Sequence[Wait] = ()

    def _find_namespace_labels(self, namespace: str) -> Mapping[str, str]:
        return self.directory.namespaces.get(namespace, {})

    def _is_placed(self, namespace: str, uid: str) -> bool:
        entry = self.entries.get(uid)
        return entry is not None and isinstance(entry.position, Bound) and entry.facts.namespace == namespace

    @property
    def has_stale(self) -> bool:
        """Tell whether pods that wait must be looked at because of claims, devices or other members of their groups."""
        return self.volumes.has_stale or self.devices.has_stale or self.groups.has_changed

    def list_pods(self) -> Collection[str]:
        """Return the UIDs of all pods that are known, also of those that ended and count in their groups."""
        finished = self.groups.finished
        return {*self.entries, *finished} if finished else self.entries.keys()

    def add_entry(self, facts: PodFacts) -> PodEntry:
        """Take a pod that is not in the state yet; `move` counts it."""
        entry = self.entries[facts.uid] = PodEntry(facts)
        self.by_namespace.setdefault(facts.namespace, set()).add(facts.uid)
        if facts.claims:
            self.volumes.add_pod(facts)
        self.images.add_pod(facts)
        self.devices.waits.follow(facts)
        return entry

    def update_entry(self, entry: PodEntry, facts: PodFacts) -> None:
        """Take a newer version of a pod with the same claims; `move` counts it."""
        if facts.images != entry.facts.images:
            self.images.remove_pod(entry.facts)
            self.images.add_pod(facts)
        self.devices.waits.follow(facts)
        entry.facts = facts

    def note_gate(self, entry: PodEntry) -> None:
        """Note whether a pod waits behind our gate alone."""
        facts = entry.facts
        if facts.is_behind_our_gate and facts.node is None and not facts.terminating:
            self.gated[facts.uid] = entry
        else:
            self.gated.pop(facts.uid, None)

    def note_nominated(self, facts: PodFacts) -> None:
        """Note whether a pod is one of ours that says that it is nominated to a node and can still be bound."""
        is_own = facts.scheduler == self.scheduler_name and not (facts.node or facts.terminating or facts.gated)
        if is_own and facts.nominated_node is not None:
            self.own_nominated.add(facts.uid)
        else:
            self.own_nominated.discard(facts.uid)

    def remove_entry(self, uid: str) -> bool:
        """Take a pod out of the state; False when it was not there, or counted nowhere."""
        self.own_nominated.discard(uid)
        self.gated.pop(uid, None)
        self.forecast.forget(uid)
        self.usage.forget_unplaced(uid)
        entry = self.entries.pop(uid, None)
        if entry is None:
            self.groups.forget_finished(uid)
            return False
        self.groups.drop(uid)
        namespace = entry.facts.namespace
        self.by_namespace[namespace].discard(uid)
        if not self.by_namespace[namespace]:
            del self.by_namespace[namespace]
        if entry.position is not None:
            self._leave(entry.facts, entry.position)
            self._note_terms(entry.position, None)
        if isinstance(entry.position, Bound):
            self.groups.free_place(uid, entry.position.tenant, entry.position.node, entry.position.demand)
        if isinstance(entry.position, Waiting):
            self.anti_affinity.stop_waiting(uid, namespace, entry.position.labels)
            self._note_pod_terms(uid, entry.position, None)
            if entry.position.key.pod_terms is not None:
                self.topology.unwatch(entry.position.key.pod_terms)
        self.images.remove_pod(entry.facts)
        self.devices.waits.forget(uid)
        if entry.facts.claims:
            self.volumes.end_plan(uid)
            self.volumes.remove_pod(entry.facts)
        if namespace not in self.by_namespace:
            self.directory.forget(namespace)
        return entry.position is not None

    def move(self, entry: PodEntry) -> bool:
        """Bring a pod's state up to date; False when it stays where it is."""
        now = self._locate(entry)
        self._note_pod_terms(entry.facts.uid, entry.position, now)
        asked, asked_before = get_asked(now), get_asked(entry.position)
        if asked is not asked_before and asked is not None and self.topology.watch(asked):
            now = self._locate(entry)  # its own terms are in use from now on, and may select the pod itself
        if isinstance(now, Waiting) and (queue := self.queues.get(now.key)) is not None:
            now = Waiting(queue.key, now.task, now.labels, now.nomination, now.pod_terms)  # thousands share one key
        before, entry.position = entry.position, now
        self.groups.follow(entry.facts, before, now)
        self.usage.note_unplaced(entry.facts, now, self.scheduler_name)
        if entry.facts.scheduler == self.gated_scheduler:
            self.forecast.note(entry)
        if now == before:
            return False
        # A pod that waits elsewhere with the same labels is the same to anti-affinity, whose answer for them is kept.
        both = isinstance(before, Waiting) and isinstance(now, Waiting) and before.labels == now.labels
        if before is not None:
            self._leave(entry.facts, before)
        self._note_terms(before, now)
        if isinstance(before, Waiting) and not both:
            self.anti_affinity.stop_waiting(entry.facts.uid, entry.facts.namespace, before.labels)
        if now is not None:
            self._enter(entry.facts, now)
        if isinstance(now, Waiting) and not both:
            self.anti_affinity.wait(entry.facts.uid, entry.facts.namespace, now.labels)
        if asked_before is not asked and asked_before is not None:
            self.topology.unwatch(asked_before)
        return True

    def _locate(self, entry: PodEntry) -> Position | None:
        return locate(
            entry,
            self.directory,
            self.anti_affinity,
            self.nominations,
            self.rotation,
            self.volumes,
            self.images,
            self.devices,
            groups=self.groups,
            above=self.above,
            scheduler_name=self.scheduler_name,
            gated_scheduler=self.gated_scheduler,
            asking=self.asking,
        )

    def _note_pod_terms(self, uid: str, before: Position | None, now: Position | None) -> None:
        """Note whose pod terms wait for the rotation."""
        known, wanted = get_pod_terms(before), get_pod_terms(now)
        if known != wanted:
            if known is not None:
                self.rotation.remove(*known, uid)
            if wanted is not None:
                self.rotation.add(*wanted, uid)

    def _note_terms(self, before: Position | None, now: Position | None) -> None:
        """Note what a placed pod says of others; that costs nothing where it goes on saying the same."""
        was, is_ = before if isinstance(before, Bound) else None, now if isinstance(now, Bound) else None
        if was is not None and (is_ is None or not was.says_the_same_of_others(is_)):
            self.topology.release(was.repels, was.carries, was.node, was.owner)
        if is_ is not None and (was is None or not was.says_the_same_of_others(is_)):
            self.topology.hold(is_.repels, is_.carries, is_.node, is_.owner)

    def _enter(self, facts: PodFacts, position: Position) -> None:
        match position:
            case Bound(tenant, node, demand, constraints, _, labels, is_leaving):
                self.topology.placed.hold(facts.namespace, labels, node, is_leaving=is_leaving)
                if facts.claims:
                    self.volumes.hold(facts, node)
                self.servers.hold(node, facts.uid, demand, constraints.exclusive_keys.taken, system=tenant is None)
                self.devices.note_placed(facts.uid)
                if tenant is not None:
                    self.usage.hold(tenant, node, (demand, constraints))
                    self.running.hold(tenant, node, demand, facts)
                    self.usage.note_pod(tenant, facts.created)
            case Waiting(key, task, _, nomination):
                if nomination is not None:
                    self._reserve(nomination)
                self._get_queue(key).add(task)
                self.queues_to_build.add([key])
                self.usage.wait(key.tenant)
                self.usage.note_pod(key.tenant, facts.created)
            case Idle(tenant, gated):
                self.usage.idle(tenant, gated=gated)
                self.usage.note_pod(tenant, facts.created)
            case Opened(tenant, demand, constraints):
                self.usage.hold(tenant, None, (demand, constraints))
                self.usage.note_pod(tenant, facts.created)
            case Reserved(nomination):
                self._reserve(nomination)

    def _leave(self, facts: PodFacts, position: Position) -> None:
        match position:
            case Bound(tenant, node, demand, constraints, _, labels, is_leaving):
                self.topology.placed.hold(facts.namespace, labels, node, -1, is_leaving=is_leaving)
                if facts.claims:
                    self.volumes.release(facts)
                self.servers.release(node, facts.uid, demand, system=tenant is None)
                self.devices.note_placed(facts.uid)
                if tenant is not None:
                    self.usage.hold(tenant, node, (demand, constraints), -1)
                    self.running.release(node, facts.uid)
            case Waiting(key, task, _, nomination):
                if nomination is not None:
                    self._withdraw(nomination)
                queue = self.queues[key]
                queue.remove(task)
                self.queues_to_build.add([key])
                if not queue.tasks:
                    self._drop_queue(key)
                self.usage.wait(key.tenant, -1)
            case Idle(tenant, gated):
                self.usage.idle(tenant, -1, gated=gated)
            case Opened(tenant, demand, constraints):
                self.usage.hold(tenant, None, (demand, constraints), -1)
            case Reserved(nomination):
                self._withdraw(nomination)

    def _reserve(self, nomination: Nomination) -> None:
        self.nominations.add(nomination)
        self.topology.reserved.add(nomination)
        self.servers.reserve(nomination.node, nomination.demand.real)

    def _withdraw(self, nomination: Nomination) -> None:
        self.nominations.remove(nomination)
        self.topology.reserved.remove(nomination)
        self.servers.reserve(nomination.node, nomination.demand.real, -1)

    def _get_queue(self, key: QueueKey) -> TaskQueue:
        queue = self.queues.get(key)
        if queue is None:
            queue = self.queues[key] = TaskQueue(key)
            self.waiting.add(queue)
            self.groups.add_queue(key)
            self.queues_about_volumes += key.is_about_volumes
        return queue

    def _drop_queue(self, key: QueueKey) -> None:
        del self.queues[key]
        self.wanted.set_waiting(key, 0)
        self.queues_about_volumes -= key.is_about_volumes
        self.waiting.remove(key)
        self.groups.remove_queue(key)

    def resolve(self, *, whole: bool = False) -> None:
        """Bring every pod to where namespaces, Tenants and labels as of now put it.

        Of many pods that other terms of placed pods select than before, only a part goes over, unless `whole`: see
        `to_select`.
        """
        self._resolve_tenants()
        self._resolve_counting()
        self._resolve_volumes()
        self._resolve_devices()
        self.move_all(self.rotation.take_rotated())
        self._resolve_anti_affinity(whole=whole)
        self._resolve_nominations()

    def resolve_limits(self) -> None:
        """Bring limits and guarantees to Tenants and nodes as of now, which must be in the servers' rows already."""
        usage = self.usage
        changes = usage.limits.follow(self.directory.specs, usage.inner.tree, usage.find_held)
        if changes.has_moved:
            usage.note_places()
        for leaf in changes.list_leaves(self.waiting.by_leaf):
            self.queues_to_build.add(self.waiting.by_leaf[leaf])

    def move_all(self, uids: Iterable[str]) -> None:
        """Bring the state of these pods up to date."""
        for uid in uids:
            self.move(self.entries[uid])

    def _resolve_tenants(self) -> None:
        for namespace in self.directory.resolve():
            self.move_all(sorted(self.by_namespace.get(namespace, ())))
        self.usage.declare(self.directory.specs)

    def _resolve_counting(self) -> None:
        for node, counts in self.servers.counting.take_changes():
            held = [p for uid in self.running.list_uids(node) if isinstance(p := self.entries[uid].position, Bound)]
            pods = [(p.tenant, (p.demand, p.constraints)) for p in held if p.tenant]
            self.usage.set_counting(node, pods, counts=counts)

    def _resolve_anti_affinity(self, *, whole: bool) -> None:
        """Bring waiting pods to the queues of the terms that select them now: one placed pod may select thousands."""
        fresh = self.list_waiting(self.anti_affinity.take_stale())
        if not (fresh or self.to_select):
            return
        self.to_select.add(position.task.uid for position in fresh)
        is_part = self.servers.names and not whole
        most = find_part(MAX_SELECTED, len(fresh)) if is_part else len(self.to_select)
        self.move_waiting(self._find_selected_otherwise(most))

    def list_waiting(self, uids: Iterable[str]) -> list[Waiting]:
        """Return where those of some pods stand that wait, in their order."""
        waiting = [position for uid in uids if isinstance(position := self.entries[uid].position, Waiting)]
        return sorted(waiting, key=lambda position: compute_sort_key(position.task))

    def list_selected_otherwise(self) -> Iterable[QueueKey]:
        """Return the queues of which pods may be selected by other terms than the queues say."""
        return dict.fromkeys(key for uid in self.to_select if (key := self.find_queue(uid)) is not None)

    def _find_selected_otherwise(self, most: int) -> Iterator[tuple[PodEntry, QueueKey]]:
        """Return pods that wait in queues of other terms than select them now, of so many new queues at most."""
        keys: dict[tuple[QueueKey, frozenset[PodTerm]], QueueKey] = {}
        for uid in self.to_select.take(SELECTED_LOOKS * most):
            entry = self.entries.get(uid)
            if entry is None or not isinstance(entry.position, Waiting):
                continue  # it went meanwhile
            position, before = entry.position, entry.position.key
            if before.unsupported is not None:
                continue  # none of them is placed, whatever selects them
            terms = self.anti_affinity.find_terms(entry.facts.namespace, position.labels)
            if terms != before.selected_by:
                key = keys.get((before, terms))
                if key is None:
                    key = keys[before, terms] = before._replace(selected_by=terms)
                yield entry, key
                if len(keys) == most:
                    return

    def move_waiting(self, wanted: Iterable[tuple[PodEntry, QueueKey]]) -> None:
        """Bring waiting pods to other queues of their tenants. Nothing else of them changes."""
        moves: dict[tuple[QueueKey, QueueKey], list[Task]] = {}
        for entry, key in wanted:
            position = entry.position
            assert isinstance(position, Waiting)
            moves.setdefault((position.key, key), []).append(position.task)
            entry.position = Waiting(key, position.task, position.labels, position.nomination, position.pod_terms)
        for (before, key), tasks in moves.items():
            self.queues_to_build.add((before, key))
            if before in self.to_image:
                self.to_image.add([key])
            queue = self.queues[before]
            if len(tasks) == len(queue.tasks) and key not in self.queues:
                self._rename_queue(queue, key)
                continue
            self._get_queue(key).add_all(tasks)
            queue.remove_all({task.uid for task in tasks})
            if not queue.tasks:
                self._drop_queue(before)

    def _rename_queue(self, queue: TaskQueue, key: QueueKey) -> None:
        """Let the tasks of a queue wait under another key: see `TaskQueue.rename`."""
        before = queue.key
        del self.queues[before]
        self.queues[key] = queue
        self.wanted.rename(before, key)
        queue.rename(key)
        self.waiting.add(queue)
        self.waiting.remove(before)
        self.groups.add_queue(key)
        self.groups.remove_queue(before)

    def _resolve_volumes(self) -> None:
        while self.volumes.has_stale:  # a pod that moves may concern others with the same claim
            self.move_all(self.volumes.take_stale())

    def _resolve_devices(self) -> None:
        while self.devices.has_stale:
            self.move_all([uid for uid in self.devices.resolve() if uid in self.entries])
        set_capacities(self.servers, self.devices, self.volumes.limits)
        if changed := self.devices.classes.follow_offers():
            asking = [q for q in self.queues.values() if any(r in changed for r, _ in q.key.demand.real)]
            self.move_all([task.uid for queue in asking for task in queue.tasks])

    def _resolve_nominations(self) -> None:
        least = min(self.nominations.priorities_to_follow.take_all(), default=None)
        if least is None:
            return
        for queue in [queue for queue in self.queues.values() if queue.tasks[0].priority > least]:
            self.move_all([task.uid for task in queue.tasks])

    def find_queue(self, uid: str) -> QueueKey | None:
        """Return where a pod waits to be decided."""
        return None if (entry := self.entries.get(uid)) is None else entry.queue

    def find_block(self, key: QueueKey) -> Rejection | None:
        """Return why the pods of a queue may not be placed at all, by themselves or with their group, or None."""
        return key.unsupported or self.groups.find_standing(key.group, self.servers).blocked
