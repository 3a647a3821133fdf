"""Reads which tasks of a scenario start together."""

from __future__ import annotations

from collections import Counter
from typing import Final

from fairbind.cluster.objects.group_marks import TopologyKey
from fairbind.fairness.problems.fields import Path
from fairbind.simulator.scenario import AllAt, Arrival, Gang, Times
from fairbind.what_if.reading import NANOSECONDS, complain, read_choice, read_object, read_text, read_whole, refuse

MOST_TASKS: Final = 10_000_000
TOPOLOGY_FIELDS: Final = ("required", "preferred")


def read_gang(value: object, path: Path) -> Gang:
    """Return what is said of the groups of an entry."""
    members = read_object(value, path, ("min", "size", "topology"), required=("min",))
    topology = None
    if "topology" in members:
        kind, key = read_choice(members["topology"], (*path, "topology"), TOPOLOGY_FIELDS)
        topology = TopologyKey(read_text(key, (*path, "topology", kind)), is_required=kind == "required")
    return Gang(
        read_whole(members["min"], (*path, "min"), 1, MOST_TASKS),
        read_whole(members["size"], (*path, "size"), 1, MOST_TASKS) if "size" in members else None,
        topology,
    )


def check_gang(gang: Gang, path: Path, arrival: Arrival, tasks: int | None) -> None:
    """Refuse groups that would never be whole. tasks: of the entry; None: as many as arrive up to the horizon."""
    batches = _find_batches(arrival, tasks)
    size = gang.size
    if size is not None:
        for count, at in batches:
            if count % size:
                refuse(size, (*path, "size"), f"a number that divides the {count} tasks that arrive{at}")
        if gang.least > size:
            refuse(gang.least, (*path, "min"), f"at most gang.size, {size}")
        return
    if not isinstance(arrival, AllAt | Times) and gang.least > 1:
        complain((*path, "size"), "is missing; without it each task arrives alone, and so is no group")
    for count, at in batches:
        if gang.least > count:
            refuse(gang.least, (*path, "min"), f"at most the number of tasks that arrive together{at}, {count}")


def _find_batches(arrival: Arrival, tasks: int | None) -> list[tuple[int, str]]:
    """Return how many tasks arrive at a time that is known, and when, in words; of `every` and `poisson` all."""
    if isinstance(arrival, Times):
        return [(count, f" at {time / NANOSECONDS:g} s") for time, count in Counter(arrival.times).items()]
    return [] if tasks is None else [(tasks, "")]
