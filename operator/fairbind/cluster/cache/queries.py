"""What others ask about the cluster: whether a decided pod may still go to its node, who holds what, who waits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fairbind.cluster.cache.narrowing import find_narrowed
from fairbind.cluster.cache.overview import build_overview, compute_pending_reasons, find_counting, find_scattered
from fairbind.cluster.cache.tree_states import DeclaredTree, add_tree_to_states
from fairbind.cluster.classes.cluster_state import ClusterState
from fairbind.cluster.objects.facts import HOSTNAME, MOST_HOSTS, PODS, PodFacts
from fairbind.cluster.objects.volume_facts import ClaimFacts
from fairbind.cluster.state.claim_troubles import UNBOUND
from fairbind.cluster.state.kubelet_refusals import find_kind
from fairbind.cluster.state.node_state import compute_vector
from fairbind.cluster.state.nominations import NominationChange
from fairbind.cluster.state.pods import PodEntry, find_tenant
from fairbind.cluster.state.positions import Bound
from fairbind.cluster.state.queue_keys import QueueKey, round_up
from fairbind.cluster.state.volume_plans import VolumePlan
from fairbind.cluster.tenancy.tenants import TenantState
from fairbind.model import Snapshot, Wait
from fairbind.model.overview import ClusterOverview

ListClosed = Callable[[str, tuple[int, ...], float], Sequence[str]]


@dataclass(frozen=True, slots=True)
class GateOpening:
    """What is to be done for a pod that waits behind our gate and is decided to go to a node.

    resource_version: as the watch showed it. has_affinity: it has required node affinity of its own. nodes: to which it
    is narrowed, the best first; None: it is not. closed: nodes where it must not go because of what is reserved there
    for others; empty where it is narrowed.
    """

    resource_version: str
    has_affinity: bool
    nodes: list[str] | None
    closed: list[str] = field(default_factory=list)


class Queries:
    """Answers from one state; no answer changes what a later decision or answer says.

    build_snapshot: gives the snapshot of now. list_closed: returns the nodes on which something is reserved that is
    not for a pod of a tenant with some demand that runs for so many seconds at most.
    """

    def __init__(
        self,
        state: ClusterState,
        build_snapshot: Callable[[], Snapshot],
        list_closed: ListClosed = lambda _tenant, _demand_r, _most_seconds: (),
    ) -> None:
        self._state = state
        self._list_closed = list_closed
        self._build_snapshot = build_snapshot
        self._reasons: tuple[Snapshot, Sequence[Wait], Mapping[QueueKey, str]] | None = None
        self._states: tuple[Mapping[str, TenantState], DeclaredTree, dict[str, TenantState]] | None = None

    def may_use(self, uid: str, node: str) -> bool:
        """Whether a node is still there and one to which a decided pod may go: taints and labels may have changed."""
        entry = self._state.pods.entries.get(uid)
        if entry is None:
            return True  # the API server will say what became of it
        facts = entry.facts
        if self.asks(uid) and find_tenant(facts, self._state.directory, self._state.schedulers.own) is None:
            return True  # nothing is decided for it, so only its scheduler says where it goes
        if facts.pin not in {None, node} or self._is_resting(facts, node):
            return False
        is_seen_to = facts.gated or facts.scheduler in self._state.schedulers.asking  # by who places it
        if not facts.claims or is_seen_to:
            return self._state.servers.may_use(node, facts.constraints)
        volumes = self._state.volumes
        if volumes.find_claim_trouble(facts) is not None or volumes.find_wanted(facts):
            return False
        return self._state.servers.may_use(node, volumes.constrain(facts))

    def _is_resting(self, facts: PodFacts, node: str) -> bool:
        """Whether a node rests for such pods, if it is we who place them."""
        state = self._state
        tenant = find_tenant(facts, state.directory, state.schedulers.own)
        if tenant is None or facts.scheduler != state.schedulers.own:
            return False
        return state.servers.refusals.is_resting(find_kind(tenant, facts.demand.real), node)

    def may_await(self, uid: str, node: str) -> bool:
        """Whether a decided pod may go to its node still once its claims are bound: all else that `may_use` asks."""
        entry = self._state.pods.entries.get(uid)
        if entry is None:
            return True  # its plan is gone, too
        facts, volumes = entry.facts, self._state.volumes
        trouble = volumes.find_claim_trouble(facts)
        if facts.pin not in {None, node} or (trouble is not None and trouble[0] is not UNBOUND):
            return False
        return self._state.servers.may_use(node, volumes.constrain(facts)) and self.has_capacity(uid, node)

    def has_capacity(self, uid: str, node: str) -> bool:
        """Whether a pod that is decided to go to a node fits there still, given what others bound there since."""
        entry = self._state.pods.entries.get(uid)
        if entry is None or not isinstance(entry.position, Bound) or entry.position.node != node:
            return True  # the API server will say what became of it
        if entry.facts.claims and self._state.volumes.is_overcommitted(entry.facts):
            return False
        exclusive_keys = entry.facts.constraints.exclusive_keys.conflicting
        return not self._state.servers.is_overcommitted(node, uid, entry.facts.demand.real, exclusive_keys)

    def find_generation(self, uid: str) -> int:
        """Return the generation of a pod's spec; 0: the API server counts none, or the pod is gone."""
        entry = self._state.pods.entries.get(uid)
        return 0 if entry is None else entry.facts.generation

    def is_gated(self, uid: str) -> bool:
        """Whether a pod that waits for a decision waits behind our gate."""
        entry = self._state.pods.entries.get(uid)
        return (
            entry is not None
            and entry.facts.is_behind_our_gate
            and entry.facts.scheduler == self._state.schedulers.gated
        )

    def asks(self, uid: str) -> bool:
        """Whether the scheduler of a pod asks which pod is next before it places it."""
        entry = self._state.pods.entries.get(uid)
        return entry is not None and entry.facts.scheduler in self._state.schedulers.asking

    def scales_up(self, uid: str) -> bool:
        """Whether the gate of a pod is opened, or asked to open, without capacity."""
        entry = self._state.pods.entries.get(uid)
        return entry is not None and entry.scales_up

    def find_opening(self, uid: str, node: str) -> GateOpening | None:
        """Return what is to be done for a pod that waits behind our gate; None when it does not."""
        if not self.is_gated(uid):
            return None
        facts = self._state.pods.entries[uid].facts
        has_affinity = facts.constraints.required is not None or facts.pin is not None
        nodes = find_narrowed(self._state, self._build_snapshot, facts, node)
        closed = self._find_closed(facts, node)
        if nodes is None:
            return GateOpening(facts.version, has_affinity, None, closed)
        return GateOpening(facts.version, has_affinity, [each for each in nodes if each not in closed])

    def _find_closed(self, facts: PodFacts, node: str) -> list[str]:
        """Return the nodes where a pod must not go that is decided to go to another one, for what is reserved there."""
        tenant = find_tenant(facts, self._state.directory, self._state.schedulers.own)
        if tenant is None or facts.pin is not None:
            return []
        demand_r = tuple(compute_vector(facts.demand.real, self._state.servers.axes))
        return [
            closed for closed in self._list_closed(tenant, demand_r, round_up(facts.most_seconds)) if closed != node
        ]

    def find_hosts(self, nodes: Sequence[str]) -> list[str] | None:
        """Return the host names of the first `MOST_HOSTS` nodes, in order; None when they do not tell nodes apart.

        nodes: best fit first; all on which the filters pass, when there are no more.
        """
        return self._state.filters.eligibility.get_columns().find_unique(HOSTNAME, nodes[:MOST_HOSTS])

    def find_stray_gates(self) -> list[PodFacts]:
        """Return the pods behind our gate that are never decided, because they belong to no tenant.

        It costs what waits behind the gate, and not what the cluster runs.
        """
        state = self._state
        return [
            entry.facts
            for entry in state.pods.gated.values()
            if entry.facts.scheduler != state.schedulers.own
            and (
                entry.facts.scheduler != state.schedulers.gated
                or find_tenant(entry.facts, state.directory, state.schedulers.own) is None
            )
        ]

    def count_objects(self) -> tuple[int, int]:
        """Return how many nodes and how many pods are known."""
        return len(self._state.servers.names), len(self._state.pods.entries)

    def find_plan(self, uid: str) -> VolumePlan | None:
        """Return how the claims of a pod get volumes; None when they have them, or it is not to have any."""
        return self._state.volumes.plans.by_uid.get(uid)

    def find_claim(self, key: str) -> ClaimFacts | None:
        """Return a claim by `namespace/name`."""
        return self._state.volumes.claims.get(key)

    def has_volume(self, name: str) -> bool:
        """Whether a volume is there."""
        return name in self._state.volumes.volumes

    def find_claims_to_free(self) -> dict[str, str]:
        """Return the node that is gone by the claim for which a volume is to be made there, where all pods are ours.

        Some replica of ours has named the node. Of others' pods, who places them sees to it.
        """
        name = self._state.schedulers.own
        stray = self._state.volumes.list_claims_of_gone_nodes()
        return {key: node for key, node, pods in stray if pods and all(pod.scheduler == name for pod in pods)}

    def find_nomination_changes(self) -> list[NominationChange]:
        """Return which of our own pods should be nominated to another node than they say, or to none; sorted.

        A pod is nominated while it has a node and waits there for its volumes. What else we say is stale, whichever
        replica wrote it: the pod waits again, or it has another node. Of pods without claims we say nothing.
        """
        entries = self._state.pods.entries
        wanted: dict[str, str | None] = {}
        for uid in self._state.pods.own_nominated:
            entry = entries[uid]
            if entry.facts.claims and entry.assumed != entry.facts.nominated_node:
                wanted[uid] = None
        for uid, plan in self._state.volumes.plans.by_uid.items():
            facts = entries[uid].facts
            if facts.node is None and not facts.terminating and facts.nominated_node != plan.node:
                wanted[uid] = plan.node
        return [_make_change(entries[uid], wanted[uid]) for uid in sorted(wanted)]

    @property
    def has_waiting(self) -> bool:
        """Whether any pod waits to be decided."""
        return bool(self._state.queues.by_key)

    def __str__(self) -> str:
        return (
            f"{len(self._state.servers.names)} nodes, {len(self._state.directory.namespaces)} namespaces, "
            f"{len(self._state.directory.specs)} Tenants, {len(self._state.pods.entries)} pods, "
            f"{sum(len(queue.tasks) for queue in self._state.queues.by_key.values())} waiting"
        )

    @property
    def unknown_fairness_resources(self) -> tuple[str, ...]:
        """The fairness resources of the settings that no node has; they are ignored."""
        chosen = self._state.policy.settings.fairness_resources
        if not chosen:
            return ()
        self._build_snapshot()
        return tuple(r for r in chosen if r not in self._state.servers.axes)

    def tenant_states(self) -> dict[str, TenantState]:
        """Return what only the whole picture shows about each declared tenant, by name.

        A weight of slots has an effect whenever they are scarce, so no condition says that it has none.
        """
        snapshot = self._build_snapshot()
        counting = find_counting(snapshot)
        if not self._state.policy.settings.fairness_resources:
            counting = (*counting, PODS)
        states, declared = self._state.directory.compute_states(frozenset(counting)), self._declare_tree()
        known = self._states
        if known is None or known[0] is not states or known[1].is_other_than(declared):
            known = self._states = states, declared, add_tree_to_states(states, declared)
        return known[2]

    def _declare_tree(self) -> DeclaredTree:
        usage = self._state.usage
        return DeclaredTree(self._state.directory.specs, usage.inner.tree, usage.limits.scaled)

    def build_overview(
        self, fair_shares: Mapping[str, float] | None = None, inner_shares: Mapping[str, float] | None = None
    ) -> ClusterOverview:
        """Return who holds what and who waits; changes nothing.

        fair_shares: by tenant, as of the last exact solve. inner_shares: of all that is below each inner tenant.
        """
        snapshot = self._build_snapshot()
        queues, waits = self._state.queues.by_key.values(), self._state.policy.waits
        if self._reasons is None or self._reasons[0] is not snapshot or self._reasons[1] is not waits:
            reasons = compute_pending_reasons(queues, waits, self._state.find_queue, snapshot)
            self._reasons = snapshot, waits, reasons
        servers = self._state.servers
        overview = build_overview(
            snapshot,
            self._state.usage,
            self._state.directory.specs,
            queues,
            self._reasons[2],
            (fair_shares or {}, inner_shares or {}),
            servers.compute_unclaimed(),
            servers.compute_counted(),
        )
        return replace(
            overview,
            namespaces=self._state.directory.find_tenants(),
            node_faults=dict(self._state.servers.faults),
            left_out=self._state.servers.offered.left_out,
            scattered=find_scattered(waits, snapshot.resources),
            refusing_nodes=self._state.servers.refusals.list_refusing(),
        )


def _make_change(entry: PodEntry, node: str | None) -> NominationChange:
    facts = entry.facts
    return NominationChange(facts.uid, facts.namespace, facts.name, facts.version, node, facts.nominated_node)
