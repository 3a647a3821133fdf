"""Kueue's ClusterQueues and Cohorts, with the quotas of their ResourceFlavors and the namespaces of their LocalQueues.

Quotas of flavours whose nodes have the same labels are added up. A Cohort is guaranteed what its queues have together
with its own quota. One without a parent borrows from no other, so that is its limit too, as it is of a ClusterQueue
without a Cohort. A Cohort that is only named has no quota of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from fairbind.importing.documents import ApiObject, Document, Kinds, find_objects
from fairbind.importing.fields import Place, Section, fit_weight
from fairbind.importing.notes import Note, Reason
from fairbind.importing.queues import Amounts, NodeLabels, ParseText, Queue, Reading

VERSIONS: Final = ("v1beta1", "v1beta2")
QUEUE, COHORT, LOCAL, FLAVOR = "ClusterQueue", "Cohort", "LocalQueue", "ResourceFlavor"
KINDS: Final = Kinds("kueue.x-k8s.io", dict.fromkeys((QUEUE, COHORT, LOCAL, FLAVOR), VERSIONS))
USER_LABEL: Final = "kueue.x-k8s.io/queue-name"
_CHECKS = Reason("fairbind has no checks before admission")
_ANY_NODE = Reason(
    "fairbind takes any node that fits",
    silent=(
        {"whenCanBorrow": "Borrow", "whenCanPreempt": "TryNextFlavor"},
        {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
    ),
)
_STOP = Reason("a Tenant is not stopped; a limit of 0 does that", silent=("None",))
QUEUE_REASONS: Final = {
    "queueingStrategy": Reason("pods that fit nowhere block no others of their tenant", silent=("BestEffortFIFO",)),
    "namespaceSelector": Reason("the namespaces of LocalQueues are written"),
    "flavorFungibility": _ANY_NODE,
    "concurrentAdmissionPolicy": _ANY_NODE,
    "preemption": Reason(
        "fairbind evicts no pod for another queue",
        silent=(
            {"reclaimWithinCohort": "Never", "withinClusterQueue": "Never"},
            {
                "reclaimWithinCohort": "Never",
                "borrowWithinCohort": {"policy": "Never"},
                "withinClusterQueue": "Never",
            },
        ),
    ),
    "admissionChecks": _CHECKS,
    "admissionChecksStrategy": _CHECKS,
    "stopPolicy": _STOP,
    "admissionScope": Reason("past usage does not count"),
}
LOCAL_REASONS: Final = {
    "stopPolicy": _STOP,
    "fairSharing": Reason("the users of a Tenant have equal weights", silent=({"weight": 1}, {"weight": "1"})),
}
FLAVOR_REASONS: Final = {
    "nodeTaints": Reason("pods tolerate the taints of nodes themselves"),
    "tolerations": Reason("pods have their tolerations themselves"),
    "topologyName": Reason("a pod's own topology spread constraints count"),
}
_Key = tuple[str, str]
"""A flavour and a resource."""


@dataclass(frozen=True, slots=True)
class _Quota:
    """Of a flavour's resource. lent: how much of it may be lent. Both: None: no limit."""

    nominal: int
    borrowed: int | None
    lent: int | None
    place: Place


@dataclass(slots=True)
class _Node:
    """A ClusterQueue or a Cohort. total: the nominal quotas of its subtree."""

    queue: Queue
    quotas: dict[_Key, _Quota] = field(default_factory=dict)
    total: dict[_Key, int] = field(default_factory=dict)


def read_kueue(documents: list[Document], _parse_text: ParseText) -> Reading:
    """Return the queues of the documents. Raises InvalidProblemError."""
    reading = Reading()
    notes = reading.notes
    by_kind: dict[str, list[ApiObject]] = {kind: [] for kind in KINDS.versions}
    for found in find_objects(documents, KINDS, notes):
        by_kind[found.kind].append(found)
    flavors = _Flavors(by_kind[FLAVOR], notes)
    nodes = {_key(found.kind, found.name): _read_node(found, notes) for found in (*by_kind[QUEUE], *by_kind[COHORT])}
    _add_named_cohorts(nodes)
    _add_up_quotas(nodes)
    for node in nodes.values():
        node.queue.guarantee = flavors.add_up(node.total)
        node.queue.limit = _compute_limit(node, flavors)
        _read_lending(node, notes)
    reading.queues = {key: node.queue for key, node in nodes.items()}
    _claim_namespaces(by_kind[LOCAL], reading)
    return reading


def _key(kind: str, name: str) -> str:
    return f"{kind} {name}"


class _Flavors:
    """The labels of the nodes of flavours; a flavour that is in no file is noted once."""

    def __init__(self, found: list[ApiObject], notes: list[Note]) -> None:
        self._notes = notes
        self._labels: dict[str, NodeLabels] = {}
        for flavor in found:
            spec = flavor.spec
            self._labels[flavor.name] = spec.take_labels("nodeLabels")
            notes += spec.note_rest(FLAVOR_REASONS)

    def find_nodes(self, flavor: str) -> NodeLabels:
        """Return the labels of a flavour's nodes; none for all nodes."""
        if flavor not in self._labels:
            self._labels[flavor] = ()
            reason = "it is in none of the files; its quotas are written for all nodes"
            self._notes.append(Note(_key(FLAVOR, flavor), "spec.nodeLabels", reason))
        return self._labels[flavor]

    def add_up(self, amounts: dict[_Key, int]) -> Amounts:
        """Return sums by nodes and resource."""
        total: Amounts = {}
        for (flavor, resource), amount in amounts.items():
            key = self.find_nodes(flavor), resource
            total[key] = total.get(key, 0) + amount
        return total


def _read_node(found: ApiObject, notes: list[Note]) -> _Node:
    spec = found.spec
    queue = Queue(found.name, found.place)
    parent = "parentName" if found.kind == COHORT else "cohort" if found.version == "v1beta1" else "cohortName"
    name = spec.take_name(parent)
    queue.parent = _key(COHORT, name) if name else None
    queue.parent_place = spec.place.to(parent)
    sharing = spec.take_section("fairSharing")
    weight = sharing.take_number("weight")
    if weight is not None:
        queue.weight = fit_weight(weight, sharing.place.to("weight"), notes)
    notes += sharing.note_rest({})
    node = _Node(queue, dict(_read_quotas(spec, notes)))
    notes += spec.note_rest(QUEUE_REASONS if found.kind == QUEUE else {})
    return node


def _read_quotas(spec: Section, notes: list[Note]) -> Iterator[tuple[_Key, _Quota]]:
    for group in spec.take_sections("resourceGroups"):
        group.take_names("coveredResources")
        for flavor in group.take_sections("flavors"):
            name = _take_required(flavor)
            for quota in flavor.take_sections("resources"):
                resource = _take_required(quota)
                borrowed, lent = (
                    quota.take_amount(limit, resource) if quota.has(limit) else None
                    for limit in ("borrowingLimit", "lendingLimit")
                )
                yield (name, resource), _Quota(quota.take_amount("nominalQuota", resource), borrowed, lent, quota.place)
                notes += quota.note_rest({})
            notes += flavor.note_rest({})
        notes += group.note_rest({})


def _take_required(section: Section) -> str:
    name = section.take_text("name")
    if not name:
        section.place.to("name").refuse(section.take("name"), "a name")
    return name


def _add_named_cohorts(nodes: dict[str, _Node]) -> None:
    """Add the Cohorts that are only named: Kueue takes them for such without a quota."""
    for node in list(nodes.values()):
        parent = node.queue.parent
        if parent is not None and parent not in nodes:
            name = parent.removeprefix(_key(COHORT, ""))
            nodes[parent] = _Node(Queue(name, Place(node.queue.place.source, parent)))


def _add_up_quotas(nodes: dict[str, _Node]) -> None:
    """Add each quota to all that stand above it; a circle is refused later."""
    for key, node in nodes.items():
        above: str | None = key
        seen: set[str] = set()
        while above is not None and above not in seen:
            seen.add(above)
            total = nodes[above].total
            for place, quota in node.quotas.items():
                total[place] = total.get(place, 0) + quota.nominal
            above = nodes[above].queue.parent


def _compute_limit(node: _Node, flavors: _Flavors) -> Amounts:
    """Return the limits; on the nodes of several flavours there is one only where each of them has one."""
    most: dict[_Key, int] = {}
    unlimited: set[tuple[NodeLabels, str]] = set()
    for key, total in node.total.items():
        quota = node.quotas.get(key)
        if node.queue.parent is None:
            most[key] = total
        elif quota is not None and quota.borrowed is not None:
            most[key] = total + quota.borrowed
        else:
            unlimited.add((flavors.find_nodes(key[0]), key[1]))
    return {key: amount for key, amount in flavors.add_up(most).items() if key not in unlimited}


def _read_lending(node: _Node, notes: list[Note]) -> None:
    """Find out whether the queue lends all of its quotas or nothing; what is between is noted."""
    guaranteed = {key: total for key, total in node.total.items() if total}
    kept = {
        key: quota
        for key, total in guaranteed.items()
        if (quota := node.quotas.get(key)) is not None and quota.lent is not None and quota.lent < total
    }
    node.queue.keeps = bool(kept) and kept.keys() == guaranteed.keys() and not any(q.lent for q in kept.values())
    if not node.queue.keeps:
        notes += [
            quota.place.to("lendingLimit").note("it is a part of the queue's quotas; a Tenant lends all or nothing")
            for quota in kept.values()
        ]


def _claim_namespaces(found: list[ApiObject], reading: Reading) -> None:
    """Give each namespace to the queue of its LocalQueue, of several to that of the first one by name."""
    owners: dict[str, tuple[str, ApiObject]] = {}
    users: dict[str, set[str]] = {}
    for local in sorted(found, key=lambda each: (each.namespace, each.name)):
        spec = local.spec
        name = spec.take_name("clusterQueue")
        reading.notes += spec.note_rest(LOCAL_REASONS)
        key = _key(QUEUE, name)
        if key not in reading.queues:
            reason = f"ClusterQueue {name or 'without a name'} is in none of the files; the namespace has no Tenant"
            reading.notes.append(spec.place.to("clusterQueue").note(reason))
        elif not local.namespace:
            reading.notes.append(local.place.to("metadata").to("namespace").note("absent; add it to the Tenant"))
        elif local.namespace not in owners:
            owners[local.namespace] = key, local
            reading.queues[key].namespaces.append(local.namespace)
        elif owners[local.namespace][0] != key:
            owner, first = owners[local.namespace]
            reason = f"namespace {local.namespace} is of one Tenant, that of {owner}, by {first.place.owner}"
            reading.notes.append(spec.place.to("clusterQueue").note(reason))
            continue
        users.setdefault(key, set()).add(local.name)
    for key, names in users.items():
        if len(names) > 1 and key in reading.queues:
            reading.queues[key].user_label = USER_LABEL
