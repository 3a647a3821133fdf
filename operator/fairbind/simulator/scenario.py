"""A scenario: the nodes, the tenants, the workload and the events of a simulation, as values.

`parse_scenario` (in `parsing`) makes it of a document. Nodes and pods are the facts that the operator's own reader
makes of Kubernetes objects, so a scenario means what the same objects mean in a cluster. Times are nanoseconds from the
start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fairbind.cluster.objects.facts import NodeFacts, PodFacts
from fairbind.cluster.objects.group_marks import TopologyKey
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.model.policy import Fit
from fairbind.model.reservations import DEFAULT_RESERVATIONS, ReservationSettings
from fairbind.what_if.listed_objects import ListedObjects


@dataclass(frozen=True, slots=True)
class Shape:
    """Equal nodes. node: one of them, without its name. count: how many are there at the start.

    present: those that are there at the start under names of their own, as in a snapshot.
    """

    name: str
    count: int
    node: NodeFacts
    present: tuple[NodeFacts, ...] = ()


class NodeNames:
    """Names new nodes SHAPE-0, SHAPE-1 and so on; no name is used again, nor one of a node that was there before.

    shapes: the names of all shapes.
    """

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        self.shapes = tuple(shapes)
        self._next = dict.fromkeys(shapes, 0)
        self._present = frozenset(node.name for shape in shapes.values() for node in shape.present)

    def take(self, shape: str, count: int) -> list[str]:
        """Return the names of so many new nodes of a shape."""
        names: list[str] = []
        while len(names) < count:
            name = f"{shape}-{self._next[shape]}"
            self._next[shape] += 1
            if name not in self._present:
                names.append(name)
        return names


@dataclass(frozen=True, slots=True)
class AllAt:
    """All tasks arrive at once."""

    at: int


@dataclass(frozen=True, slots=True)
class Every:
    """One task arrives after the other, the first at `at`."""

    at: int
    every: int


@dataclass(frozen=True, slots=True)
class Poisson:
    """Tasks arrive at random, so many a second; the first an exponential time after `at`."""

    at: int
    rate: float


@dataclass(frozen=True, slots=True)
class Times:
    """Each task arrives at a time of its own."""

    times: tuple[int, ...]


Arrival = AllAt | Every | Poisson | Times


@dataclass(frozen=True, slots=True)
class Fixed:
    """Every task runs equally long; None: for ever."""

    length: int | None


@dataclass(frozen=True, slots=True)
class Exponential:
    """Lengths are exponential. mean: seconds."""

    mean: float


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Logarithms of lengths are normal. median: seconds. sigma: of the logarithms."""

    median: float
    sigma: float


@dataclass(frozen=True, slots=True)
class Uniform:
    """Lengths are uniform between two, in seconds."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Each:
    """Each task runs a length of its own; None: for ever."""

    lengths: tuple[int | None, ...]


Duration = Fixed | Exponential | Lognormal | Uniform | Each


@dataclass(frozen=True, slots=True)
class ListedPod:
    """A pod of a snapshot. waiting, placed: before and after it is bound. server: where it runs at the start, if so."""

    waiting: PodFacts
    placed: PodFacts
    server: str | None


@dataclass(frozen=True, slots=True)
class Gang:
    """Groups of which a minimum starts together. least: that minimum.

    size: how many tasks a group has; None: it is all that arrive at one time. topology: None: they may be anywhere.
    """

    least: int
    size: int | None = None
    topology: TopologyKey | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """Equal tasks of one tenant. tasks: how many; None: as many as arrive up to the horizon.

    waiting, placed: one of its pods, without name, uid and creation time, before and after it is bound. pods: the tasks
    themselves, each as it was listed in a snapshot; empty: all are equal. gang: None: each task starts by itself.
    """

    tenant: str
    name: str
    tasks: int | None
    arrival: Arrival
    duration: Duration
    waiting: PodFacts
    placed: PodFacts
    pods: tuple[ListedPod, ...] = ()
    gang: Gang | None = None


@dataclass(frozen=True, slots=True)
class AddNodes:
    """Nodes of a shape come."""

    shape: str
    count: int


@dataclass(frozen=True, slots=True)
class RemoveNodes:
    """Nodes go; their pods are pending again."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cordon:
    """Nodes take no new pods, or take them again."""

    names: tuple[str, ...]
    is_cordoned: bool


@dataclass(frozen=True, slots=True)
class SetTenant:
    """A tenant comes or changes. fields: those of its spec that change; the others stay as they are."""

    spec: TenantSpec
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemoveTenant:
    """A tenant's object goes. Its pods stay, in a namespace that no Tenant claims."""

    name: str


@dataclass(frozen=True, slots=True)
class StartAutoscaler:
    """From now on nodes of a shape are bought for pods marked Unschedulable, and empty ones of them are removed.

    most: how many it has bought or ordered at most. delay: from the order to the node.
    """

    shape: str
    most: int
    delay: int


Action = AddNodes | RemoveNodes | Cordon | SetTenant | RemoveTenant | StartAutoscaler


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happens at a time."""

    at: int
    action: Action


@dataclass(frozen=True, slots=True)
class Scenario:
    """What is simulated.

    events: in their order. horizon: None: until nothing waits or runs or can change any more. slots: of the largest
    server, for the policy of that name. composite: from which sources it was put together; None when from one. notes:
    what was assumed.
    start: of a snapshot, what is there beside nodes and tasks; None: nothing but the tenants.
    guided: whether policies of our own are. fit: of those of best fit, and of rules of others that choose so.
    reservations: of policies of our own; rules of others have none. knows_run_times: whether these know when each task
    ends; if not, they learn it.
    """

    name: str
    seed: int
    horizon: int | None
    shapes: Mapping[str, Shape]
    tenants: tuple[TenantSpec, ...]
    workload: tuple[Entry, ...]
    events: tuple[Event, ...]
    policies: tuple[str, ...]
    measure_every: int
    slots: int
    composite: str | None = None
    notes: tuple[str, ...] = ()
    start: ListedObjects | None = None
    guided: bool = True
    fit: Fit = Fit.DOMINANT_RESOURCE
    reservations: ReservationSettings = DEFAULT_RESERVATIONS
    knows_run_times: bool = False
