"""Groups of tasks that are placed together or not at all (gangs)."""

from __future__ import annotations

from dataclasses import dataclass

from fairbind.model.topology import Domains


@dataclass(frozen=True, slots=True)
class GroupTopology:
    """Where the tasks of a group should be together: in one of these domains.

    is_required: whether they wait if no domain holds the minimum; if not, they go anywhere then.
    home: the domain that is tried first, where most of its tasks are that are placed already; None: none is.
    """

    domains: Domains
    is_required: bool
    home: int | None = None


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """Tasks of one tenant of which a minimum is placed together. Once it stands, the others are tasks like any.

    name: tells groups apart, and is what people call it ("namespace/name").
    lacking: so many of its waiting tasks must be placed together, at least 1.
    lacking_of_role: of these, at least so many of each role; sorted by role, each at least 1.
    least_free_r: so much must be free on the servers that its tasks may use before any is placed, length R, base units;
    with what the tasks ask for themselves. Empty: there is no such condition.
    is_begun: whether some of its tasks are placed already, or were: then it comes before the order of shares.
    topology: None: its tasks may be anywhere. Where one is required, a group with a task that is placed already has
    none: its classes may only use the domain of that one.
    note: what people are told of it while it waits, beside the reason; empty: nothing.
    """

    name: str
    lacking: int
    lacking_of_role: tuple[tuple[str, int], ...] = ()
    least_free_r: tuple[int, ...] = ()
    is_begun: bool = False
    topology: GroupTopology | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class GroupWait:
    """What keeps the minimum of a group from being placed.

    name, lacking: of the group. fitting: so many of its tasks could be placed together, fewer than lacking.
    short: what the others ask for: (demand, length R; how many tasks). lacking_r: so much more must be free on servers
    that its tasks may use, length R, base units; empty: enough is.
    scattered_r: what is free there and would be enough for the tasks of its class, if it were not in pieces that are
    too small, or on too many domains; length R, base units, 0 for what they do not ask for. Empty: it is not enough.
    resources: what the R are. note: of the group. is_tried: whether it was tried; else its turn comes later, and
    nothing else is known.
    """

    name: str
    lacking: int
    fitting: int
    short: tuple[tuple[tuple[int, ...], int], ...] = ()
    lacking_r: tuple[int, ...] = ()
    scattered_r: tuple[int, ...] = ()
    resources: tuple[str, ...] = ()
    note: str = ""
    is_tried: bool = True
