"""The cache: what the cluster looks like, as far as a scheduling decision depends on it.

Reflectors feed it pods, nodes and namespaces; the handlers of custom resources feed it tenants and settings; the loop
notes what it decided. Every change moves one pod or one node in the `state`, so a snapshot (`snapshot`) is cheap. What
others ask goes to `queries`.

A decision is assumed at once: the pod holds its capacity from then on, so that the next cycle does not give it away
while the binding is under way. A failed binding takes the assumption back. What the API says wins over what we assumed.

A system pod is a pod in a system namespace that no Tenant claims by name and that does not ask for our scheduler; it
makes its node smaller and belongs to no tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import msgspec

from fairbind.cluster.cache.feeds import Feed
from fairbind.cluster.cache.listeners import NO_LISTENERS, PodListeners
from fairbind.cluster.cache.object_feeds import make_device_feeds, make_group_feeds, make_volume_feeds
from fairbind.cluster.cache.queries import ListClosed, Queries
from fairbind.cluster.classes.cluster_state import ClusterState
from fairbind.cluster.classes.snapshot import Scale, SnapshotBuilder
from fairbind.cluster.objects.facts import NamespaceFacts, NodeFacts, PodFacts
from fairbind.cluster.state.consistency import check_same, describe
from fairbind.cluster.state.forecast import find_opened
from fairbind.cluster.state.kubelet_refusals import Rest, TenantRequests, find_kind
from fairbind.cluster.state.pods import PodEntry, PodRecord, describe_pod, find_detail, find_tenant
from fairbind.cluster.state.positions import Bound, Waiting
from fairbind.cluster.state.schedulers import Schedulers
from fairbind.cluster.tenancy.tenants import SYSTEM_NAMESPACES, Directory, TenantSpec
from fairbind.model import PolicySettings, ServerTable, Snapshot, Targets, Wait
from fairbind.scheduling import reads_targets


class ClusterCache:
    """See the module. Not thread-safe: everything happens in one event loop.

    on_change: called, cheaply and often, when something changed on which a decision may depend.
    operator_namespace: counts as a system namespace too.
    gated_scheduler: another scheduler, whose pods of tenants wait behind our gate; None: there is none.
    asking: schedulers that ask which pod is next before they place a pod of a tenant.
    narrows_to_nodes: whether these pods are narrowed to the best nodes also where the policy decides no class of nodes.
    kept_seconds: for how long places of lost members are kept for their groups; 0: they are not.
    other_names: pods with these schedulerNames are placed, too, as if they had `scheduler_name`.
    is_limited: whether a snapshot shows a tenant's very many different pods one part after the other, as the operator
    must. list_closed: see `Queries`. wall_clock: seconds since the epoch.
    volume_feeds, device_feeds, group_feeds: for each kind of object about volumes, devices and groups, where it goes.
    queries: what others ask. state: of the cluster, to be changed by the cache only.
    """

    def __init__(
        self,
        scheduler_name: str,
        on_change: Callable[[], None],
        *,
        operator_namespace: str | None = None,
        gated_scheduler: str | None = None,
        asking: frozenset[str] = frozenset(),
        narrows_to_nodes: bool = False,
        kept_seconds: float = 0.0,
        other_names: frozenset[str] = frozenset(),
        is_limited: bool = True,
        listeners: PodListeners = NO_LISTENERS,
        list_closed: ListClosed = lambda _tenant, _demand_r, _most_seconds: (),
        wall_clock: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._on_change = on_change
        self._other_names = other_names
        self._listeners = listeners
        self._wall_clock = wall_clock
        directory = Directory(SYSTEM_NAMESPACES | {operator_namespace or "kube-system"})
        self.state = ClusterState(
            Schedulers(scheduler_name, gated_scheduler, asking, narrows_to_nodes), directory, kept_seconds=kept_seconds
        )
        self._builder = SnapshotBuilder(self.state, is_limited=is_limited)
        self._snapshot: Snapshot | None = None
        self._decided: ServerTable | None = None
        self.queries = Queries(self.state, self.build_snapshot, list_closed)
        self.pods: Feed[PodFacts] = Feed(
            key=lambda pod: pod.uid, put=self._put_named, remove=self._remove_pod, known=self.state.list_pods
        )
        self.nodes: Feed[NodeFacts] = Feed(
            key=lambda node: node.name, put=self._put_node, remove=self._remove_node, known=self._find_node_names
        )
        self.namespaces: Feed[NamespaceFacts] = Feed(
            key=lambda namespace: namespace.name,
            put=lambda namespace: self._set_namespace(namespace.name, dict(namespace.labels)),
            remove=lambda name: self._set_namespace(name, None),
            known=self.state.directory.namespaces.keys,
        )
        self.volume_feeds = make_volume_feeds(self.state, self._touch)
        self.device_feeds = make_device_feeds(self.state, self._touch)
        self.group_feeds = make_group_feeds(self.state, self._touch)

    # --- what others tell ---

    @property
    def settings(self) -> PolicySettings:
        """What the administrator chose."""
        return self.state.policy.settings

    def set_policy(self, settings: PolicySettings | None) -> None:
        """Take new settings; None: the defaults."""
        settings = settings or PolicySettings()
        if settings != self.state.policy.settings:
            self.state.policy.settings = settings
            self.state.servers.counting.set_selector(settings.server_selector, self.state.servers.states)
            self.state.directory.set_unclaimed(settings.unclaimed)
            self._touch()

    def set_targets(self, targets: Targets | None) -> None:
        """Take what the policy's exact mechanism gives, for policies that follow it."""
        if targets != self.state.policy.targets:
            self.state.policy.targets = targets
            if reads_targets(self.state.policy.settings):
                self._touch()

    def set_tenant(self, spec: TenantSpec) -> None:
        """Take a declared tenant, new or changed."""
        self.replace_tenants([*(s for s in self.state.directory.specs.values() if s.name != spec.name), spec])

    def delete_tenant(self, name: str) -> None:
        """Take a declared tenant away."""
        self.replace_tenants(spec for spec in self.state.directory.specs.values() if spec.name != name)

    def replace_tenants(self, specs: Iterable[TenantSpec]) -> None:
        """Take the whole list of declared tenants."""
        specs = list(specs)
        if {spec.name: spec for spec in specs} != self.state.directory.specs:
            self.state.directory.set_tenants(specs)
            self._touch()

    def assume(self, uid: str, node: str, *, joins: bool = False) -> bool:
        """Let a waiting pod hold its capacity on a node; False when it does not wait any more.

        Also when it cannot have its volumes there. joins: whether others of its plan hold their capacity already.
        """
        entry = self.state.pods.entries.get(uid)
        if entry is None or not isinstance(entry.position, Waiting):
            return False
        is_ours = not entry.facts.gated and entry.facts.scheduler not in self.state.schedulers.asking
        if entry.facts.claims and is_ours and not self._plan_volumes(entry, node, joins=joins):
            return False  # of any other pod, who places it sees to its volumes
        entry.assumed = node
        self.state.move(entry)
        self._snapshot = None
        return True

    def redirect(self, uid: str, node: str) -> None:
        """Let a pod that holds capacity by a decision hold it on this node instead: who places it has chosen so."""
        entry = self.state.pods.entries[uid]
        assert entry.assumed is not None
        if entry.facts.node is None and entry.assumed != node:
            entry.assumed = node
            self.state.move(entry)
            self._touch()

    def scale_up(self, uid: str) -> bool:
        """Let a pod that waits behind our gate count without capacity, because one more node could help it.

        It has the first capacity that comes free. False when it does not wait any more.
        """
        entry = self.state.pods.entries.get(uid)
        if entry is None or not isinstance(entry.position, Waiting):
            return False
        entry.scales_up = True
        self.state.move(entry)
        self.state.forecast.unplaced[uid] = entry
        self._snapshot = None
        return True

    def recover(self, most: int, *, but: Collection[str] = ()) -> list[tuple[str, str, bool]]:
        """Let pods on their way without capacity hold some where they fit, as at the beginning of a leader's time.

        most: the oldest so many. but: the UIDs of those that have had their time. Returns the UID and the tenant of
        each of them, and whether it holds capacity.
        """
        self.build_snapshot()
        opened = [entry for entry in find_opened(self.state.pods.entries) if entry.facts.uid not in but][:most]
        self._reserve(self.state.forecast.find_free_nodes(self.state, opened))
        self._snapshot = None
        leaf_of = self.state.directory.leaf_of
        return [(e.facts.uid, leaf_of(e.facts.namespace, e.facts.labels), e.assumed is not None) for e in opened]

    def _reserve(self, moves: Iterable[tuple[PodEntry, str | None]]) -> None:
        """Let pods on their way hold their capacity on other nodes, or nowhere."""
        for entry, node in moves:
            entry.assumed = node
            self.state.move(entry)
            self._listeners.reserved(entry.facts.uid, node is not None)

    def give_back(self, uid: str) -> bool:
        """Take the capacity of a pod whose gate is open and that no node has; it counts in its tenant's share on.

        Returns whether it is such a pod.
        """
        entry = self.state.pods.entries.get(uid)
        if entry is None or entry.facts.node is not None:
            return False
        entry.assumed = None
        if self.state.move(entry):
            self._touch()
        self.state.forecast.forget(uid)
        return not entry.facts.gated and not entry.facts.terminating

    def _plan_volumes(self, entry: PodEntry, node: str, *, joins: bool) -> bool:
        """Let a pod have volumes on its node; False when another pod of the same cycle has taken what it needs."""
        state = self.state.servers.states.get(node)
        is_outdated = self._builder.closings.is_due
        known = None if state is None else state.node
        if known is not None and self.state.volumes.plan(entry.facts, node, dict(known.labels), joins=joins):
            return True
        if is_outdated:
            self._touch()  # what the last cycle saw is out of date; otherwise looking again would not help
        return False

    def forget(self, uid: str, *, postponed: bool = False) -> None:
        """Take an assumption back: the binding failed. postponed: the pod waits for `resume` before it returns."""
        entry = self.state.pods.entries.get(uid)
        if entry is not None and (entry.assumed is not None or entry.scales_up):
            self.state.volumes.end_plan(uid)
            entry.assumed, entry.scales_up = None, False
            entry.postponed = postponed
            if self.state.move(entry):
                self._touch()

    def back_off(self, uid: str) -> None:
        """Take a waiting pod out of the scheduling order until `resume`; nothing is woken, as nothing becomes free."""
        entry = self.state.pods.entries.get(uid)
        if entry is not None and isinstance(entry.position, Waiting):
            entry.postponed = True
            self.state.move(entry)
            self._snapshot = None

    def resume(self, uid: str) -> None:
        """Let a postponed pod be decided again."""
        entry = self.state.pods.entries.get(uid)
        if entry is not None and entry.postponed:
            entry.postponed = False
            if self.state.move(entry):
                self._touch()

    def rest_claim(self, claim: str, *, rests: bool) -> None:
        """Let a claim rest because it could not be bound, or not any more. claim: `namespace/name`."""
        if self.state.volumes.rest(claim, rests=rests):
            self._touch()

    def note_waits(self, waits: Sequence[Wait], *, rotates: bool = True) -> bool:
        """Take why classes wait, as the last cycle saw it; those it does not mention have not been looked at yet.

        Cycles come many times a second, and no reader needs the reasons before the next overview. Where a tenant has
        more placements or classes than a snapshot holds, the next cycle looks at others of them. Returns whether it
        does. rotates: False leaves it with the same. It also does after a snapshot that was not current.
        """
        self.state.policy.waits = waits
        goes_on = self.go_on()
        if goes_on or not rotates:  # what was not taken over has not been looked at
            return goes_on
        self._builder.window.note_cycle()
        rotated = self.state.filters.rotation.rotate()
        self.state.move_all(rotated)
        is_next_different = self._builder.window.has_more or bool(rotated)
        if is_next_different:
            self._snapshot = None
        return is_next_different

    def go_on(self) -> bool:
        """Have the next snapshot say more, if the last one was not current, and return whether it does."""
        if self._builder.is_current:
            return False
        self._snapshot = None
        return True

    # --- what others ask ---

    def find_pod(self, uid: str) -> PodRecord | None:
        """Return a pod that is there and not finished."""
        entry = self.state.pods.entries.get(uid)
        if entry is None:
            return None
        tenant = find_tenant(entry.facts, self.state.directory, self.state.schedulers.own)
        return describe_pod(entry, tenant, find_detail(entry, self.state.volumes, self.state.devices))

    def build_snapshot(self, *, whole: bool = False) -> Snapshot:
        """Return the world as it is now; the same object as before when nothing changed.

        An event may change where thousands of different tasks may go. Then a part of their classes is made again at
        a time, and until then the snapshot is not current. whole: it is.
        """
        if self._snapshot is None or self.state.queues.to_image or (whole and not self._builder.is_current):
            if self.state.forecast.reserved or self.state.forecast.unplaced:
                self.state.resolve()
                self.state.servers.flush()
                self._reserve(self.state.forecast.find_moves(self.state, self._decided))
            self._snapshot = None  # also when an error ends the next
            self._snapshot = self._builder.build(whole=whole)
            self._decided = self._snapshot.servers
        return self._snapshot

    def skip_snapshot(self) -> Scale:
        """Do what a cycle does when nothing waits, without a snapshot. Returns what shares are measured by."""
        self._builder.window.forget()
        self.note_waits(())
        return self._builder.compute_scale()

    def build_detailed_snapshot(self, *, whole: bool = False) -> Snapshot:
        """Return the world as it is now, with what each tenant holds task by task and server by server."""
        return self._builder.add_detail(self.build_snapshot(whole=whole))

    def check_consistent(self) -> None:
        """Compare the state with one that is rebuilt from what the API said. Slow; for tests.

        Raises InvariantError naming the first difference.
        """
        rebuilt = self._rebuild()
        while self.state.queues.to_image:
            self.build_snapshot()
        check_same(
            describe(self.build_snapshot(whole=True), self.state.usage, self.state.servers),
            describe(rebuilt.build_snapshot(), rebuilt.state.usage, rebuilt.state.servers),
        )
        check_same({"volumes": self.state.volumes.describe()}, {"volumes": rebuilt.state.volumes.describe()})
        check_same({"devices": self.state.devices.describe()}, {"devices": rebuilt.state.devices.describe()})
        check_same({"wanted": self.state.queues.wanted.describe()}, {"wanted": rebuilt.state.queues.wanted.describe()})
        check_same({"groups": self.state.groups.describe()}, {"groups": rebuilt.state.groups.describe()})
        check_same({"limits": self.state.usage.limits.get_held()}, {"limits": rebuilt.state.usage.limits.get_held()})

    def _rebuild(self) -> ClusterCache:
        rebuilt = ClusterCache(
            self.state.schedulers.own,
            lambda: None,
            gated_scheduler=self.state.schedulers.gated,
            narrows_to_nodes=self.state.schedulers.narrows_to_nodes,
            asking=self.state.schedulers.asking,
        )
        rebuilt.state.directory = self.state.directory.copy()
        rebuilt.state.filters.rotation = self.state.filters.rotation.copy()
        rebuilt.state.filters.anti_affinity.copy_choice(self.state.filters.anti_affinity)
        rebuilt.state.servers.refusals = self.state.servers.refusals
        rebuilt.set_policy(self.state.policy.settings)
        for state in self.state.servers.states.values():
            if state.node is not None:
                rebuilt._put_node(state.node)
        rebuilt.state.volumes.copy_objects(self.state.volumes)
        rebuilt.state.devices.copy_objects(self.state.devices)
        rebuilt.state.groups.copy_objects(self.state.groups)
        for entry in self.state.pods.entries.values():
            copy = rebuilt.state.add_entry(entry.facts)
            copy.assumed, copy.postponed, copy.scales_up = entry.assumed, entry.postponed, entry.scales_up
            rebuilt.state.move(copy)
        rebuilt.state.groups.copy_lost(self.state.groups)
        return rebuilt

    # --- pods ---

    def _put_named(self, facts: PodFacts) -> None:
        is_other = facts.scheduler in self._other_names
        self._put_pod(msgspec.structs.replace(facts, scheduler=self.state.schedulers.own) if is_other else facts)

    def _put_pod(self, facts: PodFacts) -> None:
        if facts.finished:
            self._note_rejection(facts)
            self.state.groups.finish(facts)
            self._remove_pod(facts.uid)
            return
        entry = self.state.pods.entries.get(facts.uid)
        if entry is not None and entry.facts.claims != facts.claims:  # the API server lets no client change them
            self._remove_pod(facts.uid)
            entry = None
        if entry is None:
            entry = self.state.add_entry(facts)
        elif facts.runs and not entry.facts.runs and isinstance(entry.position, Bound):
            self._follow_kubelet(entry, entry.position, is_refused=False)
        self._note_arrival(entry.facts, facts)
        entry.note_gates(facts, self._wall_clock)
        self.state.update_entry(entry, facts)
        self.state.pods.note_nominated(facts, self.state.schedulers.own)
        self.state.pods.note_gate(entry)
        if facts.node is not None or facts.terminating:
            if entry.assumed == facts.node:
                self.state.volumes.resolve_plan(facts.uid)
            elif entry.assumed is not None:
                self.state.volumes.end_plan(facts.uid)
            entry.assumed = None
            entry.postponed = entry.scales_up = False
        has_moved = self.state.move(entry)
        tells_more = not has_moved and isinstance(entry.position, Bound) and self._follow_running(entry.position, facts)
        if has_moved or self.state.has_stale:
            self._touch()
        elif tells_more:
            self._snapshot = None  # no decision depends on when a pod began to run, so no cycle is woken

    def _note_rejection(self, facts: PodFacts) -> None:
        """Note that a kubelet refused a pod, if it did."""
        entry = self.state.pods.entries.get(facts.uid)
        if facts.rejection is None or entry is None:
            return
        if facts.scheduler == self.state.schedulers.own:
            self._listeners.rejection(facts.rejection)
        if isinstance(entry.position, Bound):
            self._follow_kubelet(entry, entry.position, is_refused=True)

    def _follow_kubelet(self, entry: PodEntry, position: Bound, *, is_refused: bool) -> None:
        """Note that a kubelet refused a pod, or runs it."""
        if position.tenant is not None:
            kind, refusals = find_kind(position.tenant, entry.facts.demand.real), self.state.servers.refusals
            note = refusals.refuse if is_refused else refusals.accept
            if note(kind, position.node):
                self._reopen(kind)

    def _reopen(self, kind: TenantRequests) -> None:
        """Have the classes of a tenant with these requests made again: other nodes rest for them than before."""
        tenant, requests = kind
        queues = self.state.queues.waiting.iterate_keys(tenant)
        self.state.queues.to_build.add(key for key in queues if key.demand.real == requests)
        self._touch()

    def advance_rests(self, now: float) -> list[Rest]:
        """End the rests of nodes, and what is kept for groups, that are over; return rests that have begun since.

        now: of a clock that never goes back.
        """
        self.state.groups.advance(now)
        if self.state.groups.has_changed:
            self._touch()
        news = list(self.state.servers.refusals.advance(now))
        for kind in news:
            if not isinstance(kind, Rest):
                self._reopen(kind)
        return [rest for rest in news if isinstance(rest, Rest)]

    def _follow_running(self, position: Bound, facts: PodFacts) -> bool:
        return position.tenant is not None and self.state.running.follow(position.node, facts)

    def _note_arrival(self, before: PodFacts, now: PodFacts | None) -> None:
        """Say when the gate of a pod is open, and when it is not on its way any more. now: None when it is gone."""
        if before.scheduler != self.state.schedulers.gated and before.scheduler not in self.state.schedulers.asking:
            return
        if before.gated and now is not None and not now.gated:
            self._snapshot = None  # from now on other capacity may be reserved for it
            self._listeners.opened(before.uid)
        is_bound = now is not None and now.node is not None
        if is_bound or now is None or now.terminating:
            self._listeners.arrival(before.uid, is_bound)

    def _remove_pod(self, uid: str) -> None:
        entry = self.state.pods.entries.get(uid)
        if entry is not None:
            self._note_arrival(entry.facts, None)
        if self.state.remove_entry(uid) or self.state.groups.has_changed:
            self._touch()

    # --- nodes, namespaces, tenants ---

    def _put_node(self, node: NodeFacts) -> None:
        node = msgspec.structs.replace(node, version="")  # of use to the feed only, and another for each node
        if self.state.servers.put_node(node):
            self.state.filters.anti_affinity.set_node(node.name, node)
            self.state.volumes.set_node(node.name, is_there=True)
            self._touch()
        elif self.state.filters.eligibility.images.to_score:
            self._snapshot = None  # no pod can go where it could not go before, so no cycle is woken

    def _remove_node(self, name: str) -> None:
        if self.state.servers.remove_node(name):
            self.state.filters.anti_affinity.set_node(name, None)
            self.state.volumes.set_node(name, is_there=False)
            self._touch()

    def _find_node_names(self) -> list[str]:
        return [name for name, state in self.state.servers.states.items() if state.node is not None]

    def _set_namespace(self, name: str, labels: dict[str, str] | None) -> None:
        if self.state.directory.namespaces.get(name) != labels:
            self.state.directory.set_labels(name, labels)
            self.state.filters.topology.note_labels(name)
            if name not in self.state.pods.by_namespace:
                self.state.directory.forget(name)
            self._touch()

    def _touch(self) -> None:
        self._snapshot = None
        self.state.filters.rotation.changes.note_change()
        self._on_change()
