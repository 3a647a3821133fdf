"""The claims of pods: which nodes reach their volumes, and why a pod must wait for a claim.

A pod's claims are resolved when it is put in its place in the state, and again when anything about them changed: a
claim, its volume, its storage class, or another pod with the same claim. Only the pods of that claim are looked at
(`take_stale`). What comes of it is one of these:

* **Trouble** (`claim_troubles`). A claim is missing, lost, being deleted, not bound yet or for a node that does not
  exist, or another pod uses it and may be the only one. The pod waits, and no node could help.
* **Constraints.** Of claims that are bound, the nodes that reach all volumes, as part of the pod's constraints. Pods
  whose volumes are reached from everywhere have the constraints of pods without claims.
* **Wanted volumes.** What claims ask for that are bound once their pod has a node (`volume_offers`).
* **A load.** How many volumes the pod brings, where a driver limits them (`attach_limits`).

When a pod gets a node, a **plan** says which volume each unbound claim gets, and which must be made. No other pod gets
these volumes meanwhile. The plan ends when all its claims are bound, or when the pod gives its place up or is gone. A
claim that could not be bound **rests** for a while, and so do the pods that use it.

Pods without claims are not in this state at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from fairbind.cluster.filters.attach_limits import AttachLimits, VolumeLoad
from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.filters.volume_offers import VolumeOffers, Wanted
from fairbind.cluster.objects.constraints import add_volumes
from fairbind.cluster.objects.facts import Constraints, PodFacts
from fairbind.cluster.objects.volume_facts import (
    AttachmentFacts,
    ClaimFacts,
    ClaimUse,
    CsiDriverFacts,
    CsiNodeFacts,
    StorageCapacityFacts,
    StorageClassFacts,
    VolumeFacts,
    VolumeId,
    join_topologies,
    name_claim,
)
from fairbind.cluster.state import claim_troubles as troubles
from fairbind.cluster.state.claim_troubles import LOST, Trouble
from fairbind.cluster.state.volume_plans import VolumePlan, VolumePlans
from fairbind.derived import Rotation
from fairbind.model import Rejection, RejectionKind

Facts = TypeVar("Facts")


class Volumes:
    """See the module. Facts that are given to `put_` methods are never written to.

    limits: what nodes take. offers: the volumes that claims may have. plans: of pods with a place.
    """

    def __init__(self, find_tenant: Callable[[str], str], eligibility: Eligibility) -> None:
        """find_tenant: by namespace."""
        self._find_tenant = find_tenant
        self.limits = AttachLimits(eligibility)
        self.offers = VolumeOffers(eligibility)
        self.plans = VolumePlans()
        self.capacities: dict[str, StorageCapacityFacts] = {}
        self._resting: set[str] = set()
        self._selecting: dict[str, set[str]] = {}
        self.claims: dict[str, ClaimFacts] = {}
        self.volumes: dict[str, VolumeFacts] = {}
        self.classes: dict[str, StorageClassFacts] = {}
        self.csi_nodes: dict[str, CsiNodeFacts] = {}
        self.drivers: dict[str, CsiDriverFacts] = {}
        self.attachments: dict[str, AttachmentFacts] = {}
        self._claims_of: dict[str, set[str]] = {}
        self._attachments_of: dict[str, set[str]] = {}
        self._counted: dict[str, tuple[str, VolumeId]] = {}
        self._users: dict[str, dict[str, PodFacts]] = {}
        self._held: dict[str, dict[str, str]] = {}
        self._nodes: dict[str, str] = {}
        self._pods_on: dict[str, dict[str, PodFacts]] = {}
        self._known_nodes: set[str] = set()
        self._to_move = Rotation[str]()

    # --- objects ---

    def put_claim(self, key: str, claim: ClaimFacts | None) -> None:
        """Take a claim, new or changed; None: it is gone."""
        before = self.claims.pop(key, None)
        if before is not None:
            _discard(self._claims_of, before.volume, key)
            _discard(self._selecting, _find_selected(before), key)
        if claim is not None:
            self.claims[key] = claim
            self._claims_of.setdefault(claim.volume, set()).add(key)
            if node := _find_selected(claim):
                self._selecting.setdefault(node, set()).add(key)
        else:
            self._resting.discard(key)
        self._note_claim(key, is_other_volume=_find_volume(before) != _find_volume(claim))
        if (planner := self.plans.planners.get(key)) is not None:
            self._follow_plan(planner)

    def put_volume(self, name: str, volume: VolumeFacts | None) -> None:
        """Take a volume, new or changed; None: it is gone."""
        before = self.volumes.get(name)
        _put(self.volumes, name, volume)
        is_other = before is None or volume is None or before.id != volume.id
        for key in sorted(self._claims_of.get(name, ())):
            self._note_claim(key, is_other_volume=is_other)
        for key in sorted(self.offers.set_volume(name, volume)):
            self._note_claim(key, is_other_volume=False)
        for attachment in sorted(self._attachments_of.get(name, ())):
            self._count_attachment(attachment)

    def put_class(self, name: str, storage_class: StorageClassFacts | None) -> None:
        """Take a storage class, new or changed; None: it is gone."""
        _put(self.classes, name, storage_class)
        self.offers.set_class(name, storage_class)
        for key in [key for key in self._users if (claim := self.claims.get(key)) and claim.storage_class == name]:
            self._note_claim(key, is_other_volume=True)

    def put_csi_node(self, name: str, node: CsiNodeFacts | None) -> None:
        """Take what drivers say of a node; None: nothing any more."""
        _put(self.csi_nodes, name, node)
        self._follow_drivers(is_other=self.limits.set_csi_node(name, node))
        if name in self.limits.nodes_to_follow:
            self._to_move.add(self._pods_on.get(name, ()))

    def put_driver(self, name: str, driver: CsiDriverFacts | None) -> None:
        """Take a driver, new or changed; None: it is gone."""
        _put(self.drivers, name, driver)
        self.offers.set_driver(name, driver)
        self._follow_drivers(is_other=self.limits.set_driver(name, driver))

    def put_capacity(self, key: str, capacity: StorageCapacityFacts | None) -> None:
        """Take what a driver says of its capacity; None: nothing any more."""
        self.offers.set_capacity(key, self.capacities.get(key), capacity)
        _put(self.capacities, key, capacity)

    def put_attachment(self, name: str, attachment: AttachmentFacts | None) -> None:
        """Take an attachment, new or changed; None: it is gone."""
        before = self.attachments.get(name)
        if before is not None:
            _discard(self._attachments_of, before.volume, name)
        _put(self.attachments, name, attachment)
        if attachment is not None:
            self._attachments_of.setdefault(attachment.volume, set()).add(name)
        self._count_attachment(name)

    def _count_attachment(self, name: str) -> None:
        counted = self._counted.pop(name, None)
        if counted is not None:
            self.limits.attach(*counted, sign=-1)
        attachment = self.attachments.get(name)
        volume = None if attachment is None else self.volumes.get(attachment.volume)
        if attachment is not None and attachment.driver and volume is not None and volume.id is not None:
            self._counted[name] = attachment.node, VolumeId(attachment.driver, volume.id.handle)
            self.limits.attach(*self._counted[name])

    def _follow_drivers(self, *, is_other: bool) -> None:
        if is_other:
            self._to_move.add(uid for pods in self._users.values() for uid in pods)

    def _note_claim(self, key: str, *, is_other_volume: bool) -> None:
        """The answer for the pods of a claim may be another one, or also what counts on their nodes."""
        for uid, facts in self._users.get(key, {}).items():
            self._to_move.add([uid])
            node = self._nodes.get(uid) if is_other_volume else None
            if node is not None:
                self._to_move.add(self.limits.release(node, uid))
                self._to_move.add(self.limits.hold(node, uid, self._find_ids(facts, facts.claims)))

    # --- nodes and pods ---

    def set_node(self, name: str, *, is_there: bool) -> None:
        """Note that a node came or went: without it, its pods keep no claim for themselves, and no volume is made."""
        if is_there == (name in self._known_nodes):
            return
        if is_there:
            self._known_nodes.add(name)
        else:
            self._known_nodes.discard(name)
        for facts in self._pods_on.get(name, {}).values():
            for use in facts.claims:
                self._note_others(name_claim(facts.namespace, use.name))
        for key in self._selecting.get(name, ()):
            self._note_others(key)

    def add_pod(self, facts: PodFacts) -> None:
        """Take a pod; its claims never change."""
        for use in facts.claims:
            key = name_claim(facts.namespace, use.name)
            users = self._users.setdefault(key, {})
            if len(users) == 1:  # it is not alone with this claim any more
                self._note_others(key)
            users[facts.uid] = facts

    def remove_pod(self, facts: PodFacts) -> None:
        """Let a pod go."""
        self._to_move.discard(facts.uid)
        for use in facts.claims:
            key = name_claim(facts.namespace, use.name)
            users = self._users.get(key, {})
            users.pop(facts.uid, None)
            if not users:
                self._users.pop(key, None)
            elif len(users) == 1:
                self._note_others(key)

    def hold(self, facts: PodFacts, node: str) -> None:
        """Note that a pod is on a node."""
        self._nodes[facts.uid] = node
        self._pods_on.setdefault(node, {})[facts.uid] = facts
        self._to_move.add(self.limits.hold(node, facts.uid, self._find_ids(facts, facts.claims)))
        for use in facts.claims:
            key = name_claim(facts.namespace, use.name)
            if not use.is_ephemeral:
                self._held.setdefault(key, {})[facts.uid] = node
            self._note_others(key)

    def release(self, facts: PodFacts) -> None:
        """Take back what `hold` noted."""
        node = self._nodes.pop(facts.uid)
        del self._pods_on[node][facts.uid]
        if not self._pods_on[node]:
            del self._pods_on[node]
        self._to_move.add(self.limits.release(node, facts.uid))
        for use in facts.claims:
            key = name_claim(facts.namespace, use.name)
            holders = self._held.get(key, {})
            holders.pop(facts.uid, None)
            if not holders:
                self._held.pop(key, None)
            self._note_others(key)

    def _note_others(self, key: str) -> None:
        """Another pod of a claim has come to a node or left it."""
        self._to_move.add(uid for uid in self._users.get(key, ()) if uid not in self._nodes)

    @property
    def versions(self) -> tuple[int, int]:
        """Numbers of which one grows when the answer for any volumes may have changed, of those of pods or wanted."""
        return self.limits.changes.revision, self.offers.changes.revision

    @property
    def has_stale(self) -> bool:
        """Whether there is any pod for `take_stale`."""
        return bool(self._to_move)

    def take_stale(self) -> list[str]:
        """Return the pods for which the answers may be others than before, sorted; asked again, there are none."""
        return sorted(self._to_move.take_all())

    # --- answers ---

    def find_trouble(self, facts: PodFacts, *, joins: bool = False) -> Trouble | None:
        """Return why a waiting pod must wait for its claims, in kube-scheduler's order; or None. joins: see `plan`."""
        trouble = self.find_claim_trouble(facts)
        if trouble is not None:
            return trouble
        unbound = [key for key, _ in self._list_wanted(facts)]
        for key in unbound:
            if (trouble := self._find_unbound_trouble(key, facts.uid)) is not None:
                return trouble
        if unbound and not joins and self.plans.is_full(self._find_tenant(facts.namespace)):
            return troubles.MANY, troubles.MANY.subject
        for key in self._list_exclusive(facts):
            if any(uid != facts.uid for uid in self._list_holders(key)):  # it may be about to give its place up
                return troubles.IN_USE, ""
        return None

    def _find_unbound_trouble(self, key: str, uid: str) -> Trouble | None:
        """Return why no plan can be made for a claim that waits for the pod with this UID."""
        claim = self.claims[key]
        if self.plans.planners.get(key, uid) != uid:
            return troubles.describe_shared(claim)
        node = _find_selected(claim)
        if node and node not in self._known_nodes:
            return troubles.describe_node_gone(claim, node)
        return troubles.describe_rest(claim) if key in self._resting else None

    def list_claims_of_gone_nodes(self) -> Iterator[tuple[str, str, Iterable[PodFacts]]]:
        """Yield claims for which a volume is to be made on a node that is gone, that node, and the claim's pods."""
        for node, keys in self._selecting.items():
            if node not in self._known_nodes:
                for key in keys:
                    if key not in self.plans.planners:
                        yield key, node, self._users.get(key, {}).values()

    def find_claim_trouble(self, facts: PodFacts) -> Trouble | None:
        """Return why a pod must wait for its claims, even if no other pod uses them; or None."""
        found = list(self._list_claims(facts))
        for use, claim in found:
            if claim is None and not use.is_ephemeral:
                return troubles.MISSING, f'persistentvolumeclaim "{use.name}" not found'
        for use, claim in found:
            trouble = troubles.find_claim_trouble(facts, use, claim)
            if trouble is not None:
                return trouble
        unbound = [claim for _, claim in found if claim is not None and not claim.is_bound]
        if any(not self._waits_for_consumer(claim) for claim in unbound):
            return troubles.UNBOUND, troubles.UNBOUND.subject
        return self._find_volume_trouble([(use, claim) for use, claim in found if claim is not None and claim.is_bound])

    def constrain(self, facts: PodFacts) -> Constraints:
        """Return the constraints of a pod with those of its volumes, as far as they are known."""
        topologies = []
        for use, claim in self._list_claims(facts):
            volume = self.volumes.get(claim.volume) if claim is not None and claim.is_bound else None
            if volume is not None:
                topologies.append(volume.topology.without_zones() if use.is_ephemeral else volume.topology)
        return add_volumes(facts.constraints, join_topologies(topologies))

    def find_wanted(self, facts: PodFacts) -> tuple[Wanted, ...]:
        """Return what the claims of a pod ask for that are not bound yet, if it has no trouble with claims."""
        return tuple(wanted for _, wanted in self._list_wanted(facts))

    def _list_wanted(self, facts: PodFacts) -> list[tuple[str, Wanted]]:
        found = {}
        for use, claim in self._list_claims(facts):
            if claim is not None and not claim.is_bound and claim.request is not None:
                found[name_claim(facts.namespace, use.name)] = self.offers.want(claim, claim.request)
        return list(found.items())

    # --- plans ---

    def plan(self, facts: PodFacts, node: str, labels: Mapping[str, str], *, joins: bool = False) -> bool:
        """Decide which volumes a pod's claims get on a node; False when another pod has them. joins: see `assume`."""
        wanted = self._list_wanted(facts)
        if not wanted:
            return True
        volumes = self.offers.choose([each for _, each in wanted], node, labels)
        if volumes is None or self.find_trouble(facts, joins=joins) is not None:
            return False
        keys = [key for key, _ in wanted]
        self._begin_plan(VolumePlan(facts.uid, node, tuple(zip(keys, volumes, strict=True))), facts.namespace)
        return True

    def _begin_plan(self, plan: VolumePlan, namespace: str) -> None:
        tenant = self._find_tenant(namespace)
        is_full = self.plans.begin(plan, tenant)
        for key, volume in plan.volumes:
            self._note_others(key)
            if volume:
                self.offers.take(volume)
        if is_full:
            self._note_tenant(tenant)

    def end_plan(self, uid: str) -> None:
        """Let a pod's plan go, if it has one."""
        plan = self.plans.end(uid)
        if plan is None:
            return
        for key, volume in plan.volumes:
            self._note_others(key)
            if volume:
                self.offers.give_back(volume)
        self.resolve_plan(uid)

    def resolve_plan(self, uid: str) -> None:
        """Note that a pod does not wait for its claims any more.

        It keeps the volumes until they are bound, which in a simulation never happens.
        """
        if (tenant := self.plans.resolve(uid)) is not None:
            self._note_tenant(tenant)

    def _follow_plan(self, uid: str) -> None:
        """End a plan when all its claims are bound."""
        claims = (self.claims.get(key) for key, _ in self.plans.by_uid[uid].volumes)
        if all(claim is not None and claim.is_bound for claim in claims):
            self.end_plan(uid)

    def _note_tenant(self, tenant: str) -> None:
        """Ask all pods of a tenant with unbound claims again: it may have no more plans, or may have some again."""
        for key in list(self._users):
            claim = self.claims.get(key)
            if claim is not None and claim.request is not None and self._find_tenant(claim.namespace) == tenant:
                self._note_others(key)

    def rest(self, key: str, *, rests: bool) -> bool:
        """Let a claim rest, so that no plan is made for it, or not any more; False when nothing changes."""
        if rests == (key in self._resting):
            return False
        self._resting.symmetric_difference_update({key})
        self._note_others(key)
        return True

    def find_load(self, facts: PodFacts) -> VolumeLoad | None:
        """Return the volumes that a pod brings to a node, of drivers that are looked at; None when there is none."""
        if not self.limits.drivers:
            return None
        common = [use for use in facts.claims if len(self._users.get(name_claim(facts.namespace, use.name), ())) > 1]
        return self.limits.find_load(self._find_ids(facts, facts.claims), {*self._find_ids(facts, common)})

    def count_slots(self, facts: PodFacts, node: str) -> Mapping[str, int]:
        """Return how many attach slots a pod holds on a node, by driver."""
        return self.limits.count_held(node, facts.uid, self._find_ids(facts, facts.claims))

    def is_overcommitted(self, facts: PodFacts) -> bool:
        """Whether a pod that holds its place has come too late, for its node or for a claim that one pod may use."""
        node = self._nodes.get(facts.uid)
        if node is not None and self.limits.is_over(node, facts.uid):
            return True
        return any(next(self._list_holders(key), facts.uid) != facts.uid for key in self._list_exclusive(facts))

    def _list_claims(self, facts: PodFacts) -> Iterator[tuple[ClaimUse, ClaimFacts | None]]:
        return ((use, self.claims.get(name_claim(facts.namespace, use.name))) for use in facts.claims)

    def _list_exclusive(self, facts: PodFacts) -> Iterator[str]:
        """Return the claims of a pod that one pod alone may use; an ephemeral one has no other pod anyway."""
        for use, claim in self._list_claims(facts):
            if claim is not None and claim.is_exclusive and not use.is_ephemeral:
                yield name_claim(facts.namespace, use.name)

    def _list_holders(self, key: str) -> Iterator[str]:
        """Return the pods with a claim that are on a node, in the order in which they came."""
        return (uid for uid, node in self._held.get(key, {}).items() if node in self._known_nodes)

    def _waits_for_consumer(self, claim: ClaimFacts) -> bool:
        storage_class = self.classes.get(claim.storage_class)
        return storage_class is not None and storage_class.waits_for_consumer and not claim.volume

    def _find_volume_trouble(self, found: Sequence[tuple[ClaimUse, ClaimFacts]]) -> Trouble | None:
        for use, claim in found:
            if claim.volume not in self.volumes and not use.is_ephemeral:
                return LOST, f'persistentvolume "{claim.volume}" not found'
        for _, claim in found:
            volume = self.volumes.get(claim.volume)
            if volume is None:
                return LOST, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
            if volume.migrated:
                kind = f"PersistentVolumes of kind {volume.migrated}"
                return Rejection(RejectionKind.NOT_SUPPORTED, kind), f"{kind} ({volume.name!r})"
        return None

    def _find_ids(self, facts: PodFacts, uses: Iterable[ClaimUse]) -> list[VolumeId]:
        """Return the volumes of a pod's claims that may count; one that is not there yet counts by its claim."""
        ids: list[VolumeId] = []
        for use in uses:
            claim = self.claims.get(name_claim(facts.namespace, use.name))
            volume = self.volumes.get(claim.volume) if claim is not None else None
            if volume is not None:
                ids.extend([volume.id] if volume.id is not None else ())
            elif claim is not None and (storage_class := self.classes.get(claim.storage_class)) is not None:
                ids.append(VolumeId(storage_class.provisioner, f"/{name_claim(claim.namespace, claim.name)}"))
        return ids

    def describe(self) -> object:
        """Return what is known of pods and nodes, as comparable values."""
        held = {key: dict(sorted(pods.items())) for key, pods in self._held.items()}
        users = {key: sorted(pods) for key, pods in self._users.items()}
        described = self.limits.describe(), self.offers.describe(), self.plans.describe()
        return held, users, self._nodes, self._known_nodes, self._counted, self._selecting, self._resting, described

    def copy_objects(self, other: Volumes) -> None:
        """Take all objects and plans of another one, which has pods and nodes besides; for tests."""
        for name, node in other.csi_nodes.items():
            self.put_csi_node(name, node)
        for name, driver in other.drivers.items():
            self.put_driver(name, driver)
        for name, storage_class in other.classes.items():
            self.put_class(name, storage_class)
        for name, volume in other.volumes.items():
            self.put_volume(name, volume)
        for key, claim in other.claims.items():
            self.put_claim(key, claim)
        for name, attachment in other.attachments.items():
            self.put_attachment(name, attachment)
        for key, capacity in other.capacities.items():
            self.put_capacity(key, capacity)
        self._resting = set(other._resting)
        for taken in self.plans.copy(other.plans):
            self.offers.take(taken)


def _find_selected(claim: ClaimFacts) -> str:
    """Return for which node a volume is being made; empty: for none."""
    return "" if claim.request is None else claim.request.selected_node


def _find_volume(claim: ClaimFacts | None) -> tuple[str, str] | None:
    """Return what decides by which name the volume of a claim counts."""
    return None if claim is None else (claim.volume, claim.storage_class)


def _put(objects: dict[str, Facts], name: str, facts: Facts | None) -> None:
    if facts is None:
        objects.pop(name, None)
    else:
        objects[name] = facts


def _discard(index: dict[str, set[str]], key: str, member: str) -> None:
    members = index.get(key, set())
    members.discard(member)
    if not members:
        index.pop(key, None)
