"""KAI's Queue: quota, limit and weight of GPUs, CPUs and memory, in units of its own, parent, priority, run times.

CPU is in thousandths of a core, memory in megabytes. -1 means that there is none; a limit that is absent, or 0, which
KAI writes for absent, is the quota. Its pods name their queue, so which namespaces belong to it stands nowhere.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from typing import Final

from fairbind.cluster.objects.quantity import CPU, format_quantity
from fairbind.cluster.tenancy.tenants import RUN_TIMES
from fairbind.importing.documents import ApiObject, Document, Kinds, find_objects
from fairbind.importing.fields import Section, fit_priority, fit_weight, read_number
from fairbind.importing.notes import Note, Reason
from fairbind.importing.queues import ParseText, Queue, Reading
from fairbind.model.servers import MAX_AMOUNT

KINDS: Final = Kinds("scheduling.run.ai", {"Queue": ("v2",)})
GPU: Final = "nvidia.com/gpu"
RESOURCES: Final = {"gpu": (GPU, 1), "cpu": (CPU, 1), "memory": ("memory", 10**6)}
"""Names and base units of each of KAI's; the first one's weight counts where they differ."""
UNLIMITED: Final = -1
DEFAULT_PRIORITY: Final = 100
REASONS: Final = {"displayName": Reason("a Tenant has one name")}
_DURATION = re.compile(r"(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:ns|us|µs|ms|s|m|h))+|0", re.ASCII)
_PART = re.compile(r"([0-9.]+)(ns|us|µs|ms|s|m|h)", re.ASCII)
_SECONDS = {
    "ns": Fraction(1, 10**9), "us": Fraction(1, 10**6), "µs": Fraction(1, 10**6), "ms": Fraction(1, 1000),
    "s": Fraction(1), "m": Fraction(60), "h": Fraction(3600),
}  # fmt: skip


def read_kai(documents: list[Document], _parse_text: ParseText) -> Reading:
    """Return the Queues of the documents. Raises InvalidProblemError."""
    reading = Reading()
    for found in find_objects(documents, KINDS, reading.notes):
        reading.queues[found.name] = _read_queue(found, reading.notes)
    _fill_priorities(reading)
    return reading


def _fill_priorities(reading: Reading) -> None:
    """Give siblings of a queue with a priority the one that KAI takes for theirs."""
    parents = {queue.parent for queue in reading.queues.values() if queue.priority is not None}
    for queue in reading.queues.values():
        if queue.priority is None and queue.parent in parents:
            queue.priority = DEFAULT_PRIORITY


def _read_queue(found: ApiObject, notes: list[Note]) -> Queue:
    spec = found.spec
    queue = Queue(found.name, found.place)
    queue.parent = spec.take_name("parentQueue") or None
    queue.parent_place = spec.place.to("parentQueue")
    priority = spec.take_whole("priority")
    if priority is not None:
        queue.priority = fit_priority(priority, spec.place.to("priority"), notes)
    _read_resources(queue, spec.take_section("resources"), notes)
    queue.min_runtime_seconds = _read_run_times(spec, notes)
    notes += spec.note_rest(REASONS)
    return queue


def _read_resources(queue: Queue, resources: Section, notes: list[Note]) -> None:
    weights: dict[str, Fraction] = {}
    queue.guarantee_place = resources.place
    for name, (resource, unit) in RESOURCES.items():
        if not resources.has(name):
            resources.take(name)
            notes.append(resources.place.to(name).note("absent, so KAI lets the queue hold none; no limit is written"))
            continue
        section = resources.take_section(name)
        quota = _take_amount(section, "quota")
        limit = _take_amount(section, "limit") or quota
        weight = section.take_number("overQuotaWeight")
        notes += section.note_rest({})
        for amount, field, amounts in ((quota, "quota", queue.guarantee), (limit, "limit", queue.limit)):
            if amount != UNLIMITED:
                amounts[(), resource] = written = min(math.ceil(amount * unit), MAX_AMOUNT)
                if written != amount * unit:
                    text = format_quantity(resource, written)
                    notes.append(
                        section.place.to(field).note(f"{text} of {resource} is the nearest that can be written")
                    )
        if weight is not None:
            weights[name] = weight
    notes += resources.note_rest({})
    for name, weight in weights.items():
        first = next(iter(weights))
        place = resources.place.to(name).to("overQuotaWeight")
        if name == first:
            queue.weight = fit_weight(weight, place, notes)
        elif weight != weights[first]:
            notes.append(place.note(f"the weight of {first} is written; spec.resourceWeights can have others"))


def _take_amount(section: Section, name: str) -> Fraction:
    """Return an amount in KAI's unit; 0 where it is absent."""
    value = section.take(name)
    number = Fraction(0) if value is None else read_number(value)
    if number is None or (number < 0 and number != UNLIMITED):
        section.place.to(name).refuse(value, f"a number of 0 or more, or {UNLIMITED} for none")
    return number


def _read_run_times(spec: Section, notes: list[Note]) -> int | None:
    """Return the longer one of the two run times, whole seconds; a shorter one is noted."""
    found = {name: _read_duration(spec, name) for name in ("reclaimMinRuntime", "preemptMinRuntime") if spec.has(name)}
    if not found:
        return None
    longest = max(found.values())
    notes += [
        spec.place.to(name).note(f"{float(seconds):g} s is the shorter of two; a Tenant has one, {float(longest):g} s")
        for name, seconds in found.items()
        if seconds != longest
    ]
    return math.ceil(longest)


def _read_duration(spec: Section, name: str) -> Fraction:
    text = spec.take_text(name)
    parts = _PART.findall(text) if _DURATION.fullmatch(text) else None
    seconds = None if parts is None else sum((Fraction(number) * _SECONDS[unit] for number, unit in parts), Fraction(0))
    if seconds is None or seconds > RUN_TIMES[1]:
        spec.place.to(name).refuse(text, f"a duration of 0 to {RUN_TIMES[1]} seconds, such as 30s or 1h30m")
    return seconds
