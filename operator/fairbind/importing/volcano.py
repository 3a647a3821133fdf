"""Volcano's Queue: weight, deserved, guarantee, capability, parent and priority.

Its pods name their queue, so which namespaces belong to it stands nowhere.
"""

from __future__ import annotations

from typing import Final

from fairbind.importing.documents import ApiObject, Document, Kinds, find_objects
from fairbind.importing.fields import Section, fit_priority, fit_weight
from fairbind.importing.notes import Note, Reason
from fairbind.importing.queues import ParseText, Queue, Reading, on_all_nodes

KINDS: Final = Kinds("scheduling.volcano.sh", {"Queue": ("v1beta1",)})
ROOT: Final = "root"
REASONS: Final = {
    "reclaimable": Reason("fairbind evicts no pod for another queue", silent=(True,)),
    "extendClusters": Reason("a Tenant is of one cluster"),
    "affinity": Reason("a Tenant may use all nodes; use taints, or node labels in limit and guarantee"),
    "type": Reason("a Tenant has no types"),
    "dequeueStrategy": Reason("pods that fit nowhere block no others of their tenant", silent=("traverse",)),
}
ROOT_REASONS: Final = {
    **dict.fromkeys(("capability", "deserved", "guarantee", "priority"), Reason("the root has no Tenant")),
    **REASONS,
    "weight": Reason("the root has no Tenant", silent=(1,)),
}
_HIERARCHY: Final = ("volcano.sh/hierarchy", "volcano.sh/hierarchy-weights")


def read_volcano(documents: list[Document], _parse_text: ParseText) -> Reading:
    """Return the Queues of the documents. Raises InvalidProblemError."""
    reading = Reading()
    for found in find_objects(documents, KINDS, reading.notes):
        if found.name == ROOT:
            reading.notes += found.spec.note_rest(ROOT_REASONS)
        else:
            reading.queues[found.name] = _read_queue(found, reading.notes)
    return reading


def _read_queue(found: ApiObject, notes: list[Note]) -> Queue:
    spec = found.spec
    queue = Queue(found.name, found.place)
    parent = spec.take_name("parent")
    queue.parent = None if parent in ("", ROOT) else parent
    queue.parent_place = spec.place.to("parent")
    weight = spec.take_number("weight")
    if weight is not None:
        queue.weight = fit_weight(weight, spec.place.to("weight"), notes)
    priority = spec.take_whole("priority")
    if priority is not None:
        queue.priority = fit_priority(priority, spec.place.to("priority"), notes)
    queue.limit = on_all_nodes(spec.take_amounts("capability"))
    _read_guarantee(queue, spec, notes)
    notes += spec.note_rest(REASONS)
    annotations = found.body.take_section("metadata").take_section("annotations")
    notes += [
        annotations.place.to(name).note("the plugin's own tree; give the Tenants a parent")
        for name in _HIERARCHY
        if annotations.has(name)
    ]
    return queue


def _read_guarantee(queue: Queue, spec: Section, notes: list[Note]) -> None:
    """Read what the queue deserves, and what of it is kept for it alone; where only that is there, it is both."""
    deserved = spec.take_amounts("deserved")
    section = spec.take_section("guarantee")
    kept = section.take_amounts("resource")
    notes += section.note_rest({})
    queue.guarantee = on_all_nodes(deserved or kept)
    queue.guarantee_place = spec.place.to("deserved" if deserved else "guarantee")
    queue.keeps = bool(kept) and kept == (deserved or kept)
    if kept and not queue.keeps:
        notes.append(
            section.place.to("resource").note(
                "it is a part of deserved; a Tenant lends all of its guarantee or nothing"
            )
        )
