"""What kube-scheduler is answered in extender mode: filter, prioritize, whether it may bind, and preempt.

A pod passes when it has a permit (`permits`), on the nodes where the policy wants it and on which no other permit
keeps the capacity. So no tenant that comes before it in the policy's order has a pod that fits there and has no permit
yet: the cycle would have decided that one first. Pods that belong to no tenant pass everywhere. Filter and prioritize
book nothing; kube-scheduler also asks for pods that it only tries in its mind.

A refusal names the reason for the first `MOST_NAMED` nodes, and says that evicting other pods would not help. The
reason does not change from call to call while the order is the same: kube-scheduler writes it into the pod's status,
and each such change would make it look at the pod again.

A request costs what it brings: the nodes that it names, and no pods but its own.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import islice

import numpy as np

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.objects.extender_wire import (
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    HostPriority,
    Identity,
    MetaVictims,
)
from fairbind.cluster.objects.facts import PodFacts
from fairbind.cluster.other_schedulers.laps import Laps
from fairbind.cluster.other_schedulers.permits import ClassNodes, Permit, Permits
from fairbind.cluster.state.node_state import compute_vector
from fairbind.cluster.state.pods import PodEntry, find_detail, find_tenant
from fairbind.cluster.state.positions import Bound, Opened, Waiting
from fairbind.model import TOLERANCE, RejectionKind
from fairbind.model.servers import BoolArray, IntArray
from fairbind.scheduling import POLICIES, find_decided_classes

MOST_NAMED = 64
"""So many nodes are named with the reason of a refusal; the others are refused all the same."""
HIGHEST_SCORE = 10

NOT_PERMITTED = "not its turn"
UNKNOWN = "fairbind has not seen this pod yet"
OTHER_SCHEDULER = "fairbind gives no turns to pods of this scheduler"
BEING_BOUND = "the pod is being bound already"
OWN_TENANT = f"{NOT_PERMITTED}: other pods of its tenant come before it"
NOT_DECIDED = f"{NOT_PERMITTED}: fairbind has not decided that it fits"
OTHER_CLASS = "the policy decided another server class for the pod"
NOT_FREE = "its free capacity is kept for other pods that have their turn"
NOT_USED = "fairbind places no such pods on this node"
OWN_REASONS = (NOT_PERMITTED, UNKNOWN, OTHER_SCHEDULER, BEING_BOUND, OTHER_CLASS, NOT_FREE, NOT_USED)
"""Words of every refusal of ours. kube-scheduler repeats them, and says by them that it would have placed the pod."""

Shares = Mapping[str, tuple[float, float | None]]
"""For each tenant its dominant share and its fair share, None when that is not known."""


class Extender:
    """Answers about one cache. on_passed: called with two UIDs when the permit of the first went to the second."""

    def __init__(
        self, cache: ClusterCache, permits: Permits, laps: Laps, *, on_passed: Callable[[str, str, Permit], None]
    ) -> None:
        self._cache = cache
        self._permits = permits
        self._laps = laps
        self._on_passed = on_passed

    def make_permit(self, uid: str, tenant: str, node: str) -> Permit:
        """Return the permit of a pod for which a cycle decided a node; it holds its capacity there."""
        entry = self._cache.state.pods.entries[uid]
        return Permit(tenant, node, self._find_class(node), self._find_likeness(entry, tenant))

    def forget(self, uid: str) -> None:
        """Note that a pod has come to a node, or is gone."""
        self._permits.end(uid)
        self._laps.forget(uid)

    def filter(self, pod: Identity, names: Sequence[str], now: float) -> ExtenderFilterResult:
        """Return on which of the nodes a pod may be placed now. names: as kube-scheduler found them."""
        facts, is_free = self._find(pod)
        if is_free:
            return ExtenderFilterResult(list(names), {}, {})
        if facts is not None and facts.node is None:
            self._laps.note_asked(facts.uid, facts.priority, now)
        reason = UNKNOWN if facts is None else self._find_reason(facts, now)
        if reason is not None:
            return _refuse(names, reason)
        assert facts is not None
        permit = self._permits.find(facts.uid)
        assert permit is not None
        fits_n = self._find_fits(facts, permit, names)
        usable_n = self._find_usable(facts, names)
        refusals = [
            OTHER_CLASS if not permit.may_go(name) else NOT_USED if not is_usable else NOT_FREE if not fits else None
            for name, fits, is_usable in zip(names, fits_n.tolist(), usable_n, strict=True)
        ]
        passed = [name for name, refusal in zip(names, refusals, strict=True) if refusal is None]
        refused = ((name, refusal) for name, refusal in zip(names, refusals, strict=True) if refusal is not None)
        reasons = dict(islice(refused, MOST_NAMED))
        if passed:
            self._permits.note_told(facts.uid, now)
        return ExtenderFilterResult(passed, reasons, reasons)

    def prioritize(self, pod: Identity, names: Sequence[str]) -> list[HostPriority]:
        """Return how well nodes suit a pod: the decided one has 10, the others less, in the order of the policy's fit.

        All have 0 when the pod has no permit.
        """
        permit = self._permits.find(pod.uid)
        entry = self._cache.state.pods.entries.get(pod.uid)
        if permit is None or entry is None:
            return [HostPriority(name, 0) for name in names]
        score_n = self._score(entry.facts, names)
        levels, level_n = np.unique(score_n, return_inverse=True)
        steps = max(len(levels) - 1, 1)
        ranked_n = (HIGHEST_SCORE - 1) - (level_n * (HIGHEST_SCORE - 1)) // steps
        return [
            HostPriority(name, HIGHEST_SCORE if name == permit.node else int(rank))
            for name, rank in zip(names, ranked_n.tolist(), strict=True)
        ]

    def begin_binding(self, pod: Identity, node: str) -> str | None:
        """Let a pod with a permit be bound to a node, and hold its capacity there; else return why it may not."""
        facts, is_free = self._find(pod)
        if is_free:
            return None
        permit = self._permits.find(pod.uid)
        reason = UNKNOWN if facts is None else None
        if facts is not None and permit is None:
            reason = self._explain(self._cache.state.pods.entries[facts.uid])
        elif facts is not None and permit is not None:
            reason = self._find_obstacle(facts, permit, node)
        if reason is None and permit is not None:
            permit.is_binding = True
            permit.node = node
            self._cache.redirect(pod.uid, node)
        return reason

    def _find_obstacle(self, facts: PodFacts, permit: Permit, node: str) -> str | None:
        """Return why a pod with a permit may not be bound to a node."""
        if permit.is_binding:
            return BEING_BOUND
        if not permit.may_go(node):
            return OTHER_CLASS
        return None if self._find_fits(facts, permit, [node])[0] else NOT_FREE

    def preempt(
        self, pod: Identity, victims: Mapping[str, MetaVictims], shares: Shares | None
    ) -> ExtenderPreemptionResult:
        """Return the nodes where kube-scheduler may evict pods for this one.

        Pods of no tenant may evict any. A tenant's pods may be evicted for its own, and for those of a tenant that has
        less than its fair share until they leave no more than the fair share of theirs. Where one victim is protected
        the evictions would not free enough, so the node is taken away.
        shares: None when nothing is known; then every other tenant is protected.
        """
        facts, is_free = self._find(pod)
        tenant = None if facts is None else self._cache.state.directory.leaf_of(facts.namespace, facts.labels)
        allowed = {
            node: those
            for node, those in victims.items()
            if those.Pods and (is_free or self._may_evict([each.UID for each in those.Pods], tenant, shares or {}))
        }
        return ExtenderPreemptionResult(allowed)

    def _may_evict(self, uids: Sequence[str], tenant: str | None, shares: Shares) -> bool:
        state = self._cache.state
        own_share, own_fair_share = shares.get(tenant or "", (0.0, None))
        lacks_some = own_fair_share is not None and own_share < own_fair_share - TOLERANCE
        left: dict[str, float] = {}
        for uid in uids:
            entry = state.pods.entries.get(uid)
            if entry is None:
                return False  # the cache is behind, or kube-scheduler is
            owner = find_tenant(entry.facts, state.directory, state.schedulers.own)
            if owner is None or owner == tenant:
                continue
            share, fair_share = shares.get(owner, (0.0, None))
            left[owner] = left.get(owner, share) - self._compute_share(entry)
            if not lacks_some or fair_share is None or left[owner] < fair_share - TOLERANCE:
                return False
        return True

    def _compute_share(self, entry: PodEntry) -> float:
        """Return the largest part of the cluster's totals that a pod holds, of the resources that count."""
        snapshot = self._cache.build_snapshot()
        held = entry.position.demand if isinstance(entry.position, Bound | Opened) else entry.facts.demand
        demand_r = compute_vector(held.share, snapshot.resources)
        axes = zip(demand_r, snapshot.total_r, snapshot.counts_r, strict=True)
        return max((demand / total for demand, total, counts in axes if counts and total), default=0.0)

    def _find(self, pod: Identity) -> tuple[PodFacts | None, bool]:
        """Return what is known of a pod, and whether it belongs to no tenant, so that nothing is decided for it."""
        state = self._cache.state
        entry = state.pods.entries.get(pod.uid)
        if entry is None:
            return None, state.directory.is_system(pod.namespace)
        return entry.facts, find_tenant(entry.facts, state.directory, state.schedulers.own) is None

    def _find_reason(self, facts: PodFacts, now: float) -> str | None:
        """Return why a pod may not be placed now; None when it has a permit, from now on at the latest."""
        if facts.scheduler not in self._cache.state.schedulers.asking:
            return OTHER_SCHEDULER
        permit = self._permits.find(facts.uid)
        if permit is not None:
            return BEING_BOUND if permit.is_binding else None
        entry = self._cache.state.pods.entries[facts.uid]
        return None if self._take_over(entry, now) else self._explain(entry)

    def _take_over(self, entry: PodEntry, now: float) -> bool:
        """Let a waiting pod have the permit of one that is like it, if there is any."""
        position, uid = entry.position, entry.facts.uid
        if not isinstance(position, Waiting) or position.key.unsupported is not None:
            return False
        other = self._permits.pass_on(uid, self._find_likeness(entry, position.key.tenant), now)
        if other is None:
            return False
        permit = self._permits.find(uid)
        assert permit is not None
        self._cache.forget(other)
        self._cache.assume(uid, permit.node)
        self._on_passed(other, uid, permit)
        return True

    def _explain(self, entry: PodEntry) -> str:
        """Return why a known pod has no permit."""
        facts, state = entry.facts, self._cache.state
        if facts.scheduler not in state.schedulers.asking:
            return OTHER_SCHEDULER
        if facts.node is not None:
            return BEING_BOUND
        if isinstance(entry.position, Waiting) and (blocked := entry.position.key.unsupported) is not None:
            if blocked.kind is RejectionKind.CLAIM:
                return f"{NOT_PERMITTED}: {find_detail(entry, state.volumes, state.devices)}"
            return f"{NOT_PERMITTED}: {blocked.kind.value} {blocked.subject}".rstrip()
        tenant = state.directory.leaf_of(facts.namespace, facts.labels)
        if (before := self._permits.find_who_comes_before(tenant)) is not None:
            return f"{NOT_PERMITTED}: tenant {before} comes before"
        return OWN_TENANT if self._permits.has_permits(tenant) else NOT_DECIDED

    def _find_likeness(self, entry: PodEntry, tenant: str) -> Hashable | None:
        facts = entry.facts
        if facts.claims or facts.nominated_node is not None or facts.unsupported is not None:
            return None  # its volumes, its reserved capacity or its devices are its own
        selected_by = self._cache.state.filters.anti_affinity.find_terms(facts.namespace, facts.labels)
        return (
            *(tenant, facts.priority, facts.demand, facts.constraints, facts.pin, facts.pod_terms),
            *(facts.repels, selected_by),
        )

    def _find_class(self, node: str) -> ClassNodes | None:
        """Return the nodes of the decided class; None when the policy decides no class."""
        state = self._cache.state
        class_k = find_decided_classes(state.policy.settings, state.policy.targets, self._cache.build_snapshot)
        index = state.servers.index
        return None if class_k is None or node not in index else ClassNodes(index, class_k, int(class_k[index[node]]))

    def _find_fits(self, facts: PodFacts, permit: Permit, names: Sequence[str]) -> BoolArray:
        """Return on which nodes a pod fits beside all that is held and kept for others, shape (n,)."""
        free_nr, known_n = self._find_free(facts, permit.node, names)
        axes = self._cache.state.servers.axes
        demand_r = np.array(compute_vector(facts.demand.real, axes), dtype=np.int64)
        decided_n = np.array([name == permit.node for name in names], dtype=np.bool_)
        fits_n: BoolArray = ((free_nr >= demand_r) | (demand_r == 0)).all(axis=1) & known_n
        return fits_n | decided_n

    def _find_usable(self, facts: PodFacts, names: Sequence[str]) -> list[bool]:
        """Return which nodes take such pods of tenants, as the binder will ask: the policy may rule nodes out."""
        eligible_k = self._cache.state.filters.eligibility.get_placement(facts.constraints).eligible_k
        index = self._cache.state.servers.index
        return [name in index and bool(eligible_k[index[name]]) for name in names]

    def _find_free(self, facts: PodFacts, node: str, names: Sequence[str]) -> tuple[IntArray, BoolArray]:
        """Return what is free on nodes without a pod that holds capacity on one of them, and which nodes are known."""
        servers = self._cache.build_snapshot().servers
        index = self._cache.state.servers.index
        server_n = np.array([index.get(name, -1) for name in names], dtype=np.int64)
        known_n: BoolArray = server_n >= 0
        free_nr: IntArray = np.zeros((len(names), servers.free_kr.shape[1]), dtype=np.int64)
        free_nr[known_n] = servers.free_kr[server_n[known_n]]
        own_r = np.array(compute_vector(facts.demand.real, self._cache.state.servers.axes), dtype=np.int64)
        for n, name in enumerate(names):
            if name == node:
                free_nr[n] += own_r
        return free_nr, known_n

    def _score(self, facts: PodFacts, names: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Return how well nodes suit a pod by the policy's fit, shape (n,): the less, the better."""
        snapshot = self._cache.build_snapshot()
        permit = self._permits.find(facts.uid)
        free_nr, known_n = self._find_free(facts, "" if permit is None else permit.node, names)
        index = self._cache.state.servers.index
        demand_r = compute_vector(facts.demand.real, snapshot.resources)
        score = POLICIES[self._cache.state.policy.settings.policy].build_fit(snapshot).build_score(demand_r)
        servers = np.array([max(index.get(name, 0), 0) for name in names], dtype=np.intp)
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = score.score_many(servers, np.maximum(free_nr, 0).T.astype(np.float64))
        return np.where(known_n & np.isfinite(scores), scores, np.inf)


def _refuse(names: Sequence[str], reason: str) -> ExtenderFilterResult:
    reasons = dict.fromkeys(names[:MOST_NAMED], reason)
    return ExtenderFilterResult([], reasons, reasons)
