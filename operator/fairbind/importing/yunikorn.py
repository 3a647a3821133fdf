"""YuniKorn's queues.yaml, alone or in a ConfigMap: the tree of queues with what they are guaranteed and may have.

A Tenant is named by the queue's path without root. Where pods are placed by their namespace (the rule `tag`), the leaf
queues there have the namespaces of their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from fairbind.cluster.objects.quantity import CPU
from fairbind.fairness.problems.fields import show_value
from fairbind.importing.documents import OTHER_KIND, Document, open_lists, refuse_kinds
from fairbind.importing.fields import MOST_LETTERS, Place, Section, fit_priority, is_namespace, read_amount
from fairbind.importing.notes import Note, Reason
from fairbind.importing.queues import Amounts, ParseText, Queue, Reading
from fairbind.model.errors import InvalidProblemError

FILE: Final = "queues.yaml"
ROOT: Final = "root"
VCORE: Final = "vcore"
USER_LABEL: Final = "yunikorn.apache.org/username"
OFFSET: Final = "priority.offset"
_PODS_OF_NAMESPACES = Reason("a pod belongs to the Tenant of its namespace")
_NO_APPLICATIONS = Reason("it counts applications; limit.pods counts pods", silent=(0,))
_ACCESS = Reason("access is Kubernetes' own, by roles in the namespaces", silent=("*",))
_NO_EVICTION = "fairbind evicts no pod for another queue"
PARTITION_REASONS: Final = {
    "preemption": Reason(_NO_EVICTION, silent=({"enabled": False},)),
    "nodesortpolicy": Reason("the SchedulingPolicy chooses nodes"),
    "usergroupresolver": Reason("fairbind knows no groups"),
    "statedumpfilepath": Reason("fairbind writes no such file"),
}
QUEUE_REASONS: Final = {
    "maxapplications": _NO_APPLICATIONS,
    "adminacl": _ACCESS,
    "submitacl": _ACCESS,
    "childtemplate": Reason("a namespace without a Tenant has weight 1 and no limit"),
}
PROPERTIES: Final = {
    "application.sort.policy": Reason("within a tenant pods go by priority, then by waiting time"),
    "application.sort.priority": Reason("pods always go by priority within a tenant", silent=("enabled",)),
    "priority.policy": Reason("priorities of pods are compared within their tenant only"),
    "preemption.policy": Reason(_NO_EVICTION, silent=("disabled",)),
    "preemption.delay": Reason(_NO_EVICTION),
    "quota.preemption.delay": Reason(_NO_EVICTION),
}
_NO_TENANT = Reason("the root has no Tenant")
_BLANKS = re.compile(r"(?<=[0-9])\s+(?=[A-Za-z])")
_PLAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class _Partition:
    """Where queues are read. namespace_parent: below it, a leaf queue has the namespace of its name; None: nowhere."""

    name: str
    namespace_parent: tuple[str, ...] | None
    reading: Reading


def read_yunikorn(documents: list[Document], parse_text: ParseText) -> Reading:
    """Return the queues of all partitions in the documents. Raises InvalidProblemError."""
    reading = Reading()
    partitions: dict[str, str] = {}
    for config in _find_configurations(documents, parse_text, reading.notes):
        top = Section(config.value, Place(config.source, "configuration"))
        for section in top.take_sections("partitions"):
            name = section.take_text("name") or "default"
            if name in partitions:
                raise InvalidProblemError(
                    f"{config.source}: partition {name} must be there once, but is in {partitions[name]} already"
                )
            partitions[name] = config.source
            _read_partition(name, section, reading)
        top.take("checksum")  # of the text itself
        reading.notes += top.note_rest({})
    return reading


def _find_configurations(documents: list[Document], parse_text: ParseText, notes: list[Note]) -> Iterator[Document]:
    others = []
    count = 0
    for document in open_lists(documents):
        found = _open_config_map(document, parse_text)
        if isinstance(found.value, Mapping) and "partitions" in found.value:
            count += 1
            yield found
            continue
        others.append(_name_kind(document.value))
        notes.append(Note(document.source, "kind", OTHER_KIND))
    if not count:
        refuse_kinds(f"{FILE} (partitions with queues), alone or in a ConfigMap", others)


def _open_config_map(document: Document, parse_text: ParseText) -> Document:
    """Return the configuration that stands in a ConfigMap, or in its data alone, as text; else the document."""
    source, value = document
    inner = value.get("data") if isinstance(value, Mapping) and value.get("kind") == "ConfigMap" else value
    text = inner.get(FILE) if isinstance(inner, Mapping) else None
    if not isinstance(text, str):
        return document
    name = f"{source}, {FILE}"
    return Document(name, parse_text(text, name))


def _name_kind(value: object) -> str:
    if not isinstance(value, Mapping):
        return show_value(value)
    kind = value.get("kind")
    if kind is None:
        return "an object without kind and partitions"
    compressed = value.get("binaryData")
    is_compressed = isinstance(compressed, Mapping) and f"{FILE}.gz" in compressed
    return f"{kind} with {FILE}.gz, which must be unpacked" if is_compressed else str(kind)


def _read_partition(name: str, section: Section, reading: Reading) -> None:
    own = section.owned_by(f"partition {name}")
    own.take("name")
    rules = own.take_sections("placementrules")
    partition = _Partition(name, _find_namespace_parent(rules), reading)
    for rule in rules:
        if _find_namespace_parent([rule]) is None:
            reading.notes.append(rule.place.note(_PODS_OF_NAMESPACES.text))
    queues = own.take_sections("queues")
    _note_root_limits(own, reading.notes)
    reading.notes += own.note_rest(PARTITION_REASONS)
    if len(queues) == 1 and _take_queue_name(queues[0]) == ROOT:
        queues = _read_root(queues[0], partition)
    waiting: list[tuple[Section, tuple[str, ...]]] = [(queue, ()) for queue in reversed(queues)]
    while waiting:
        queue, above = waiting.pop()
        path, below = _read_queue(queue, above, partition)
        waiting += [(each, path) for each in reversed(below)]


def _find_namespace_parent(rules: list[Section]) -> tuple[str, ...] | None:
    """Return the path below which a rule looks for the queue of a pod's namespace."""
    for rule in rules:
        if rule.take_text("name").lower() == "tag" and rule.take_text("value").lower() == "namespace":
            if not rule.has("parent"):
                return ()
            above = rule.take_section("parent")
            if above.take_text("name").lower() == "fixed" and not above.has("parent"):
                names = above.take_text("value").lower().split(".")
                return tuple(names[1:] if names[0] == ROOT else names)
    return None


def _take_queue_name(queue: Section) -> str:
    name = queue.take_text("name").lower()
    if not name or "." in name:
        queue.place.to("name").refuse(queue.take("name"), "the name of a queue, without dots")
    return name


def _read_root(root: Section, partition: _Partition) -> list[Section]:
    """Return the queues below the root; what is said of the root itself is noted."""
    own = root.owned_by("queue root")
    for field in ("name", "parent"):
        own.take(field)
    queues = own.take_sections("queues")
    _note_root_limits(own, partition.reading.notes)
    partition.reading.notes += own.take_section("properties").note_rest({**PROPERTIES, OFFSET: _NO_TENANT})
    partition.reading.notes += own.note_rest({**QUEUE_REASONS, "resources": _NO_TENANT})
    return queues


def _note_root_limits(section: Section, notes: list[Note]) -> None:
    notes += [limit.place.note(_NO_TENANT.text) for limit in section.take_sections("limits")]


def _read_queue(
    section: Section, above: tuple[str, ...], partition: _Partition
) -> tuple[tuple[str, ...], list[Section]]:
    """Read a queue; return its path and the queues below it."""
    path = (*above, _take_queue_name(section))
    full = ".".join((ROOT, *path))
    notes = partition.reading.notes
    key = f"{partition.name}: {full}"
    if key in partition.reading.queues:
        section.place.refuse(section.take("name"), "a name that no other queue beside it has")
    own = section.owned_by(f"queue {full}")
    own.take("name")
    is_parent = own.take("parent") is True
    below = own.take_sections("queues")
    queue = Queue(_name_tenant(path, own.place, notes), own.place)
    queue.parent = f"{partition.name}: {'.'.join((ROOT, *above))}" if above else None
    resources = own.take_section("resources")
    queue.guarantee = _take_amounts(resources, "guaranteed")
    queue.guarantee_place = resources.place.to("guaranteed")
    queue.limit = _take_amounts(resources, "max")
    notes += resources.note_rest({})
    _read_properties(queue, own.take_section("properties"), notes)
    _read_limits(queue, own.take_sections("limits"), notes)
    notes += own.note_rest(QUEUE_REASONS)
    if not below and not is_parent and above == partition.namespace_parent and is_namespace(path[-1]):
        queue.namespaces.append(path[-1])
    partition.reading.queues[key] = queue
    return path, below


def _name_tenant(path: tuple[str, ...], place: Place, notes: list[Note]) -> str:
    joined = "-".join(path)
    name = re.sub("[^a-z0-9]+", "-", joined) if not _PLAIN.fullmatch(joined) else joined
    name = name.strip("-")[:MOST_LETTERS].rstrip("-") or "queue"
    if name != joined:
        notes.append(place.to("name").note(f"a Tenant cannot be called {joined}; it is {name}"))
    return name


def _take_amounts(resources: Section, name: str) -> Amounts:
    """Return quantities on all nodes; vcore is cpu, and a blank may stand before a suffix."""
    section = resources.take_section(name)
    amounts: Amounts = {}
    for field in section.names:
        resource = CPU if field == VCORE else field
        value = section.take(field)
        if isinstance(value, str):
            value = _BLANKS.sub("", value.strip())
        amounts[(), resource] = read_amount(value, resource, section.place.to(field))
    return amounts


def _read_properties(queue: Queue, properties: Section, notes: list[Note]) -> None:
    offset = properties.take_whole(OFFSET)
    if offset is not None:
        queue.priority = fit_priority(offset, properties.place.to(OFFSET), notes)
    notes += properties.note_rest(PROPERTIES)


def _read_limits(queue: Queue, limits: list[Section], notes: list[Note]) -> None:
    """Read the limits of users: those of a Tenant share equally, and have no amounts of their own."""
    for limit in limits:
        limit.take("limit")  # a text for people
        users, groups = limit.take_names("users"), limit.take_names("groups")
        if users:
            queue.user_label = USER_LABEL
        if groups:
            notes.append(limit.place.to("groups").note("fairbind knows no groups"))
        notes += limit.note_rest(
            {
                "maxresources": Reason("users of a Tenant share it equally, and none has a limit of its own"),
                "maxapplications": _NO_APPLICATIONS,
            }
        )
