"""Groups among the churn's pods, and which of them are torn, judged from the API's objects alone.

All pods of a group are its minimum, and all ask for the same: for how many of them there is room is a sum over nodes.
A group is torn when some of its pods are bound, the rest waits, and there is room for the rest. One that never stood
whole is torn also without room: all or nothing is bound, and who took the rest's place should not have got it.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from e2e.checks import is_eligible, is_finished
from e2e.objects import make_name, make_pod

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection

    from e2e.api import Json
    from e2e.checks import View

LABEL, TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
SIZES = ({"cpu": "500m", "memory": "512Mi"}, {"cpu": "1", "memory": "256Mi"})
MOST_MEMBERS = 4
KEPT_SECONDS = 20
"""For so long the operators keep the places of lost members, and of those whose binding failed: longer than most faults
last. To the judge no pod may wait beside free capacity for longer than `main.STEADY_SECONDS`."""
TORN_SECONDS = 60.0
"""A group that is torn for longer is an error."""

Name = tuple[str, str]
"""A group's namespace and name."""


def draw_members(draw: random.Random) -> list[Json]:
    """Return all pods of a new group."""
    group, count, size = make_name("group"), draw.randint(2, MOST_MEMBERS), draw.choice(SIZES)
    return [make_member(group, count, size) for _ in range(count)]


def make_member(group: str, count: int, size: dict[str, str]) -> Json:
    """Return a pod of a group of so many."""
    made = make_pod(size, name=make_name("member"), labels={LABEL: group})
    made["metadata"]["annotations"][TOTAL] = str(count)
    return made


def make_successor(lost: Json) -> Json:
    """Return a pod in the place of one that is lost."""
    size = lost["spec"]["containers"][0]["resources"]["requests"]
    return make_member(get_group(lost), int(lost["metadata"]["annotations"][TOTAL]), size)


def get_group(pod: Json) -> str:
    """Return the group of a pod, or ""."""
    group: str = (pod["metadata"].get("labels") or {}).get(LABEL, "")
    return group


def find_groups(view: View) -> dict[Name, list[Json]]:
    """Return the pods of each group that are there."""
    groups: dict[Name, list[Json]] = defaultdict(list)
    for pod in view.pods:
        if get_group(pod) and not is_finished(pod) and not pod["metadata"].get("deletionTimestamp"):
            groups[pod["metadata"]["namespace"], get_group(pod)].append(pod)
    return groups


def find_incomplete(
    view: View, waits: Callable[[Json], bool], stood: Collection[Name] = ()
) -> dict[Name, tuple[int, int]]:
    """Return the groups that could stand whole and do not: how many of their pods are bound, of how many.

    waits: which pods wait. stood: the groups that were whole before. Others that have begun count without room, too.
    """
    found = {}
    for name, pods in find_groups(view).items():
        waiting = [pod for pod in pods if waits(pod)]
        bound, total = len(pods) - len(waiting), int(pods[0]["metadata"]["annotations"][TOTAL])
        lacking = total - bound
        has_begun = 0 < bound < total and name not in stood
        if waiting and lacking <= len(waiting) and (has_begun or count_room(view, waiting[0]) >= max(lacking, 1)):
            found[name] = bound, total
    return found


def find_whole(view: View, waits: Callable[[Json], bool]) -> set[Name]:
    """Return the groups that stand."""
    return {
        name
        for name, pods in find_groups(view).items()
        if sum(not waits(pod) for pod in pods) >= int(pods[0]["metadata"]["annotations"][TOTAL])
    }


def count_room(view: View, pod: Json) -> int:
    """Return for how many pods like this one there is room."""
    demand = view.compute_demand(pod)
    return sum(
        min(int(max(amount_left.get(resource, 0), 0) // amount) for resource, amount in demand.items())
        for name, node in view.nodes.items()
        if is_eligible(pod, node)
        for amount_left in [view.compute_left(name)]
    )


@dataclass(slots=True)
class TornGroups:
    """Those that were torn at the last look after a fault, and since when.

    whole: those that stood at the last look. stood: those that did at any look.
    """

    clock: Callable[[], float] = time.monotonic
    since: dict[Name, float] = field(default_factory=dict)
    lasting: set[Name] = field(default_factory=set)
    whole: set[Name] = field(default_factory=set)
    stood: set[Name] = field(default_factory=set)

    def begin(self) -> None:
        """Count anew: what was torn during a fault could not be helped."""
        self.since.clear()
        self.lasting.clear()

    def look(self, view: View, waits: Callable[[Json], bool]) -> dict[Name, tuple[int, int]]:
        """Take what there is now; return what `find_incomplete` finds."""
        self.whole = find_whole(view, waits)
        self.stood |= self.whole
        incomplete = find_incomplete(view, waits, self.stood)
        self.note(incomplete)
        return incomplete

    def note(self, incomplete: dict[Name, tuple[int, int]]) -> None:
        """Take what `find_incomplete` found now."""
        now = self.clock()
        torn = {name for name, (bound, total) in incomplete.items() if 0 < bound < total}
        self.since = {name: self.since.get(name, now) for name in sorted(torn)}
        self.lasting.update(name for name, at in self.since.items() if now - at > TORN_SECONDS)

    def find(self) -> list[str]:
        """Return what is torn now, or was for too long."""
        return [describe(*name) for name in sorted({*self.since, *self.lasting})]


def describe(namespace: str, name: str) -> str:
    """Return what is said of a torn group."""
    return f"group {namespace}/{name} is torn"


def describe_incomplete(incomplete: dict[Name, tuple[int, int]]) -> list[str]:
    """Return what is said of groups that could stand."""
    return [f"group {'/'.join(name)}: {bound} of {total} are bound" for name, (bound, total) in incomplete.items()]
