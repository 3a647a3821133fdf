"""The state of a cluster: every pod, where it stands, and what follows from that for nodes, tenants and queues.

`ClusterCache` brings changes, `SnapshotBuilder` makes snapshots, and `Queries` answers questions; all three share one
`ClusterState`. Every change moves one pod from one position to another, so that no sequence of events can count a pod
twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from fairbind.cluster.classes.due import find_part
from fairbind.cluster.classes.queues import Queues
from fairbind.cluster.classes.task_queue import TaskQueue
from fairbind.cluster.filters.nominated_rules import Nomination
from fairbind.cluster.objects.facts import PodFacts, PodTerm
from fairbind.cluster.state.claimed import set_capacities
from fairbind.cluster.state.devices import Devices
from fairbind.cluster.state.forecast import Forecast
from fairbind.cluster.state.groups import Groups
from fairbind.cluster.state.nodes import Servers
from fairbind.cluster.state.nominations import Nominations
from fairbind.cluster.state.pod_filters import PodFilters
from fairbind.cluster.state.pod_index import PodIndex
from fairbind.cluster.state.pods import PodEntry, get_asked, get_pod_terms, locate
from fairbind.cluster.state.policy import PolicyState
from fairbind.cluster.state.positions import Bound, Idle, Opened, Position, Reserved, Waiting
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.cluster.state.running import RunningTasks
from fairbind.cluster.state.schedulers import Schedulers
from fairbind.cluster.state.tenant_limits import TenantLimits
from fairbind.cluster.state.usage import Usage
from fairbind.cluster.state.volumes import Volumes
from fairbind.cluster.tenancy.tenants import Directory
from fairbind.model import Rejection, Task
from fairbind.scheduling.cycle.order.task_queues import compute_sort_key

MAX_SELECTED = 256
"""Waiting pods that other terms select than before go over to so many queues at a time, for 10 microseconds each."""
SELECTED_LOOKS = 2
"""So many times as many pods are looked at, of which some go over together."""


class ClusterState:
    """See the module.

    schedulers: whose pods are whose. directory: whose namespace is whose. pods: all of them. queues: who waits. usage:
    by tenant. nominations: capacity that is reserved for pods that wait. forecast: where pods on their way will be.
    running: pod by pod. above: see `growths`. filters: which nodes pods may use. volumes, devices, groups: those of
    pods. servers: the nodes. policy: what holds for all.
    """

    def __init__(self, schedulers: Schedulers, directory: Directory, *, kept_seconds: float = 0.0) -> None:
        self.schedulers = schedulers
        self.directory = directory
        self.pods = PodIndex()
        self.queues = Queues()
        self.forecast = Forecast()
        self.running = RunningTasks()
        self.above: frozenset[str] = frozenset()
        self.filters = PodFilters(self._find_namespace_labels)
        eligibility = self.filters.eligibility
        self.servers = Servers(eligibility)
        self.usage = Usage(self.queues.wanted, TenantLimits(eligibility, self.servers))
        self.nominations = Nominations(eligibility)
        self.volumes = Volumes(directory.tenant_of, eligibility)
        self.devices = Devices(self._is_placed, self.servers.offered.changes, self.servers.offered.is_allocatable)
        find_domains = self.filters.topology.find_domains
        self.groups = Groups(schedulers.asking, find_domains, self.servers.reserve, kept_seconds)
        self.policy = PolicyState()

    def _find_namespace_labels(self, namespace: str) -> Mapping[str, str]:
        return self.directory.namespaces.get(namespace, {})

    def _is_placed(self, namespace: str, uid: str) -> bool:
        entry = self.pods.entries.get(uid)
        return entry is not None and isinstance(entry.position, Bound) and entry.facts.namespace == namespace

    @property
    def has_stale(self) -> bool:
        """Tell whether pods that wait must be looked at because of claims, devices or other members of their groups."""
        return self.volumes.has_stale or self.devices.has_stale or self.groups.has_changed

    def list_pods(self) -> Collection[str]:
        """Return the UIDs of all pods that are known, also of those that ended and count in their groups."""
        finished = self.groups.finished
        return {*self.pods.entries, *finished} if finished else self.pods.entries.keys()

    def add_entry(self, facts: PodFacts) -> PodEntry:
        """Take a pod that is not in the state yet; `move` counts it."""
        entry = self.pods.add(facts)
        if facts.claims:
            self.volumes.add_pod(facts)
        self.filters.images.add_pod(facts)
        self.devices.waits.follow(facts)
        return entry

    def update_entry(self, entry: PodEntry, facts: PodFacts) -> None:
        """Take a newer version of a pod with the same claims; `move` counts it."""
        if facts.images != entry.facts.images:
            self.filters.images.remove_pod(entry.facts)
            self.filters.images.add_pod(facts)
        self.devices.waits.follow(facts)
        entry.facts = facts

    def remove_entry(self, uid: str) -> bool:
        """Take a pod out of the state; False when it was not there, or counted nowhere."""
        self.forecast.forget(uid)
        self.usage.forget_unplaced(uid)
        entry = self.pods.remove(uid)
        if entry is None:
            self.groups.forget_finished(uid)
            return False
        self.groups.drop(uid)
        namespace = entry.facts.namespace
        if entry.position is not None:
            self._leave(entry.facts, entry.position)
            self._note_terms(entry.position, None)
        if isinstance(entry.position, Bound):
            self.groups.free_place(uid, entry.position.tenant, entry.position.node, entry.position.demand)
        if isinstance(entry.position, Waiting):
            self.filters.anti_affinity.stop_waiting(uid, namespace, entry.position.labels)
            self._note_pod_terms(uid, entry.position, None)
            if entry.position.key.pod_terms is not None:
                self.filters.topology.unwatch(entry.position.key.pod_terms)
        self.filters.images.remove_pod(entry.facts)
        self.devices.waits.forget(uid)
        if entry.facts.claims:
            self.volumes.end_plan(uid)
            self.volumes.remove_pod(entry.facts)
        if namespace not in self.pods.by_namespace:
            self.directory.forget(namespace)
        return entry.position is not None

    def move(self, entry: PodEntry) -> bool:
        """Bring a pod's state up to date; False when it stays where it is."""
        now = self._locate(entry)
        self._note_pod_terms(entry.facts.uid, entry.position, now)
        asked, asked_before = get_asked(now), get_asked(entry.position)
        if asked is not asked_before and asked is not None and self.filters.topology.watch(asked):
            now = self._locate(entry)  # its own terms are in use from now on, and may select the pod itself
        if isinstance(now, Waiting) and (queue := self.queues.by_key.get(now.key)) is not None:
            now = Waiting(queue.key, now.task, now.labels, now.nomination, now.pod_terms)  # thousands share one key
        before, entry.position = entry.position, now
        self.groups.follow(entry.facts, before, now)
        self.usage.note_unplaced(entry.facts, now, self.schedulers.own)
        if entry.facts.scheduler == self.schedulers.gated:
            self.forecast.note(entry)
        if now == before:
            return False
        # A pod that waits elsewhere with the same labels is the same to anti-affinity, whose answer for them is kept.
        both = isinstance(before, Waiting) and isinstance(now, Waiting) and before.labels == now.labels
        if before is not None:
            self._leave(entry.facts, before)
        self._note_terms(before, now)
        if isinstance(before, Waiting) and not both:
            self.filters.anti_affinity.stop_waiting(entry.facts.uid, entry.facts.namespace, before.labels)
        if now is not None:
            self._enter(entry.facts, now)
        if isinstance(now, Waiting) and not both:
            self.filters.anti_affinity.wait(entry.facts.uid, entry.facts.namespace, now.labels)
        if asked_before is not asked and asked_before is not None:
            self.filters.topology.unwatch(asked_before)
        return True

    def _locate(self, entry: PodEntry) -> Position | None:
        return locate(
            entry,
            self.directory,
            self.filters.anti_affinity,
            self.nominations,
            self.filters.rotation,
            self.volumes,
            self.filters.images,
            self.devices,
            groups=self.groups,
            above=self.above,
            scheduler_name=self.schedulers.own,
            gated_scheduler=self.schedulers.gated,
            asking=self.schedulers.asking,
        )

    def _note_pod_terms(self, uid: str, before: Position | None, now: Position | None) -> None:
        """Note whose pod terms wait for the rotation."""
        known, wanted = get_pod_terms(before), get_pod_terms(now)
        if known != wanted:
            if known is not None:
                self.filters.rotation.remove(*known, uid)
            if wanted is not None:
                self.filters.rotation.add(*wanted, uid)

    def _note_terms(self, before: Position | None, now: Position | None) -> None:
        """Note what a placed pod says of others; that costs nothing where it goes on saying the same."""
        was, is_ = before if isinstance(before, Bound) else None, now if isinstance(now, Bound) else None
        if was is not None and (is_ is None or not was.says_the_same_of_others(is_)):
            self.filters.topology.release(was.repels, was.carries, was.node, was.owner)
        if is_ is not None and (was is None or not was.says_the_same_of_others(is_)):
            self.filters.topology.hold(is_.repels, is_.carries, is_.node, is_.owner)

    def _enter(self, facts: PodFacts, position: Position) -> None:
        match position:
            case Bound(tenant, node, demand, constraints, _, labels, is_leaving):
                self.filters.topology.placed.hold(facts.namespace, labels, node, is_leaving=is_leaving)
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
                self.queues.to_build.add([key])
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
                self.filters.topology.placed.hold(facts.namespace, labels, node, -1, is_leaving=is_leaving)
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
                queue = self.queues.by_key[key]
                queue.remove(task)
                self.queues.to_build.add([key])
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
        self.filters.topology.reserved.add(nomination)
        self.servers.reserve(nomination.node, nomination.demand.real)

    def _withdraw(self, nomination: Nomination) -> None:
        self.nominations.remove(nomination)
        self.filters.topology.reserved.remove(nomination)
        self.servers.reserve(nomination.node, nomination.demand.real, -1)

    def _get_queue(self, key: QueueKey) -> TaskQueue:
        queue = self.queues.by_key.get(key)
        if queue is None:
            queue = self.queues.add(key)
            self.groups.add_queue(key)
        return queue

    def _drop_queue(self, key: QueueKey) -> None:
        self.queues.remove(key)
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
        self.move_all(self.filters.rotation.take_rotated())
        self._resolve_anti_affinity(whole=whole)
        self._resolve_nominations()

    def resolve_limits(self) -> None:
        """Bring limits and guarantees to Tenants and nodes as of now, which must be in the servers' rows already."""
        usage = self.usage
        changes = usage.limits.follow(self.directory.specs, usage.inner.tree, usage.find_held)
        if changes.has_moved:
            usage.note_places()
        for leaf in changes.list_leaves(self.queues.waiting.by_leaf):
            self.queues.to_build.add(self.queues.waiting.by_leaf[leaf])

    def move_all(self, uids: Iterable[str]) -> None:
        """Bring the state of these pods up to date."""
        for uid in uids:
            self.move(self.pods.entries[uid])

    def _resolve_tenants(self) -> None:
        for namespace in self.directory.resolve():
            self.move_all(sorted(self.pods.by_namespace.get(namespace, ())))
        self.usage.declare(self.directory.specs)

    def _resolve_counting(self) -> None:
        for node, counts in self.servers.counting.take_changes():
            held = [
                p for uid in self.running.list_uids(node) if isinstance(p := self.pods.entries[uid].position, Bound)
            ]
            pods = [(p.tenant, (p.demand, p.constraints)) for p in held if p.tenant]
            self.usage.set_counting(node, pods, counts=counts)

    def _resolve_anti_affinity(self, *, whole: bool) -> None:
        """Bring waiting pods to the queues of the terms that select them now: one placed pod may select thousands."""
        fresh = self.list_waiting(self.filters.anti_affinity.take_stale())
        if not (fresh or self.queues.to_select):
            return
        self.queues.to_select.add(position.task.uid for position in fresh)
        is_part = self.servers.names and not whole
        most = find_part(MAX_SELECTED, len(fresh)) if is_part else len(self.queues.to_select)
        self.move_waiting(self._find_selected_otherwise(most))

    def list_waiting(self, uids: Iterable[str]) -> list[Waiting]:
        """Return where those of some pods stand that wait, in their order."""
        waiting = [position for uid in uids if isinstance(position := self.pods.entries[uid].position, Waiting)]
        return sorted(waiting, key=lambda position: compute_sort_key(position.task))

    def list_selected_otherwise(self) -> Iterable[QueueKey]:
        """Return the queues of which pods may be selected by other terms than the queues say."""
        return dict.fromkeys(key for uid in self.queues.to_select if (key := self.find_queue(uid)) is not None)

    def _find_selected_otherwise(self, most: int) -> Iterator[tuple[PodEntry, QueueKey]]:
        """Return pods that wait in queues of other terms than select them now, of so many new queues at most."""
        keys: dict[tuple[QueueKey, frozenset[PodTerm]], QueueKey] = {}
        for uid in self.queues.to_select.take(SELECTED_LOOKS * most):
            entry = self.pods.entries.get(uid)
            if entry is None or not isinstance(entry.position, Waiting):
                continue  # it went meanwhile
            position, before = entry.position, entry.position.key
            if before.unsupported is not None:
                continue  # none of them is placed, whatever selects them
            terms = self.filters.anti_affinity.find_terms(entry.facts.namespace, position.labels)
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
            self.queues.to_build.add((before, key))
            if before in self.queues.to_image:
                self.queues.to_image.add([key])
            queue = self.queues.by_key[before]
            if len(tasks) == len(queue.tasks) and key not in self.queues.by_key:
                self._rename_queue(queue, key)
                continue
            self._get_queue(key).add_all(tasks)
            queue.remove_all({task.uid for task in tasks})
            if not queue.tasks:
                self._drop_queue(before)

    def _rename_queue(self, queue: TaskQueue, key: QueueKey) -> None:
        """Let the tasks of a queue wait under another key."""
        before = queue.key
        self.queues.rename(queue, key)
        self.groups.add_queue(key)
        self.groups.remove_queue(before)

    def _resolve_volumes(self) -> None:
        while self.volumes.has_stale:  # a pod that moves may concern others with the same claim
            self.move_all(self.volumes.take_stale())

    def _resolve_devices(self) -> None:
        while self.devices.has_stale:
            self.move_all([uid for uid in self.devices.resolve() if uid in self.pods.entries])
        set_capacities(self.servers, self.devices, self.volumes.limits)
        if changed := self.devices.classes.follow_offers():
            asking = [q for q in self.queues.by_key.values() if any(r in changed for r, _ in q.key.demand.real)]
            self.move_all([task.uid for queue in asking for task in queue.tasks])

    def _resolve_nominations(self) -> None:
        least = min(self.nominations.priorities_to_follow.take_all(), default=None)
        if least is None:
            return
        for queue in [queue for queue in self.queues.by_key.values() if queue.tasks[0].priority > least]:
            self.move_all([task.uid for task in queue.tasks])

    def find_queue(self, uid: str) -> QueueKey | None:
        """Return where a pod waits to be decided."""
        return None if (entry := self.pods.entries.get(uid)) is None else entry.queue

    def find_block(self, key: QueueKey) -> Rejection | None:
        """Return why the pods of a queue may not be placed at all, by themselves or with their group, or None."""
        return key.unsupported or self.groups.find_standing(key.group, self.servers).blocked
