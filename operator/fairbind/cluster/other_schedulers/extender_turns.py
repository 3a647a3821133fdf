"""The books of extender mode: which pods of another scheduler have their turn, and where.

The other scheduler places the pods, and asks before it does. A turn says that a pod may be placed now, and on which
nodes. A cycle decides it, as it decides a binding in bind mode, so room is kept for the pod. The rules:

* **Who asks first.** A turn belongs to a pod. When another pod asks that is like it (`likeness`: the same tenant,
  priority, demand and constraints), the turn passes to that one: the other scheduler has an order of its own, and to
  fairness equal pods are the same. Nothing more is booked by it. A pod that was told yes keeps its turn for
  `DELAY_SECONDS`, so that of two pods that ask one after the other only one is told yes. Each new holder has the whole
  time of a turn. So a turn is passed on for `PASS_SECONDS` only, or pods that the other scheduler cannot place would
  keep it among themselves for ever.
* **Binding.** While a pod is being bound its turn stays, and nothing takes it away. The same holds while the other
  scheduler is being told of the turn.
* **End.** A turn ends when its pod is bound or gone, when its time is over (`gate_limiter`), and when the leader's is.

Times are in seconds, of one clock, and do not go back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

DELAY_SECONDS = 2.0
"""Between the yes and the binding the other scheduler goes through its plugins: milliseconds, as a rule."""
PASS_SECONDS = 10.0
"""From the first time that a turn was passed on: about as long as a turn lasts."""


@dataclass(frozen=True, slots=True, eq=False)
class ClassNodes:
    """The nodes of one server class, as of the decision. index: of nodes by name. class_k: shape (K,)."""

    index: Mapping[str, int]
    class_k: NDArray[np.int32]
    number: int

    def __contains__(self, name: object) -> bool:
        """Whether a node is of the class."""
        k = self.index.get(name) if isinstance(name, str) else None
        return k is not None and int(self.class_k[k]) == self.number


@dataclass(slots=True)
class Turn:
    """One pod's turn.

    node: where room is kept for it. nodes: to which it may go; None: to any. likeness: equal for pods among which it
    does not matter who is placed; None: there is no such pod. told_at: when the pod was last told that it may.
    passed_since: when the turn was first passed on. is_given: the other scheduler has been told. is_binding: its pod is
    being bound, or is. is_over: it ends as soon as it is known what became of that.
    """

    tenant: str
    node: str
    nodes: ClassNodes | None = None
    likeness: Hashable | None = None
    told_at: float = -inf
    passed_since: float = inf
    is_given: bool = False
    is_binding: bool = False
    is_over: bool = False

    @property
    def is_fixed(self) -> bool:
        """Whether something about it is under way, so that it must stay."""
        return self.is_binding or not self.is_given

    def may_go(self, node: str) -> bool:
        """Whether the policy lets the pod go to a node."""
        return node == self.node or self.nodes is None or node in self.nodes


class ExtenderTurns:
    """The rules of the module.

    >>> turns = ExtenderTurns()
    >>> turns.give("uid-1", Turn("a", "node", likeness="small", is_given=True))
    >>> turns.pass_on("uid-2", "small", 10.0), turns.find("uid-1") is None, turns.find("uid-2").node
    ('uid-1', True, 'node')
    >>> turns.note_told("uid-2", 10.0)
    >>> turns.pass_on("uid-3", "small", 11.0) is None
    True
    """

    def __init__(self) -> None:
        self._turns: dict[str, Turn] = {}
        self._alike: dict[Hashable, dict[str, None]] = {}
        self._by_tenant: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return how many pods have their turn."""
        return len(self._turns)

    def find(self, uid: str) -> Turn | None:
        """Return the turn of a pod, or None."""
        return self._turns.get(uid)

    def give(self, uid: str, turn: Turn) -> None:
        """Let a pod have its turn; it takes the place of an earlier one of the pod."""
        self.end(uid)
        self._turns[uid] = turn
        self._by_tenant[turn.tenant] += 1
        if turn.likeness is not None:
            self._alike.setdefault(turn.likeness, {})[uid] = None

    def end(self, uid: str) -> Turn | None:
        """Take a pod's turn out of the books, and return it; None when it had none."""
        turn = self._turns.pop(uid, None)
        if turn is None:
            return None
        self._by_tenant[turn.tenant] -= 1
        if not self._by_tenant[turn.tenant]:
            del self._by_tenant[turn.tenant]
        if turn.likeness is not None:
            alike = self._alike[turn.likeness]
            del alike[uid]
            if not alike:
                del self._alike[turn.likeness]
        return turn

    def end_all(self) -> list[str]:
        """Take all turns out of the books about which nothing is under way; return whose they were."""
        ended = [uid for uid, turn in self._turns.items() if not turn.is_fixed]
        for uid in ended:
            self.end(uid)
        return ended

    def pass_on(self, uid: str, likeness: Hashable | None, now: float) -> str | None:
        """Let a pod have the turn of one that is like it and was not told of it just now; return the other one's UID.

        None: there is no such turn, and nothing has changed.
        """
        if likeness is None:
            return None
        for other in self._alike.get(likeness, ()):
            turn = self._turns[other]
            is_delayed = turn.is_fixed or now < turn.told_at + DELAY_SECONDS
            if not is_delayed and now < turn.passed_since + PASS_SECONDS:
                self.end(other)
                since = min(turn.passed_since, now)
                self.give(uid, Turn(turn.tenant, turn.node, turn.nodes, likeness, passed_since=since, is_given=True))
                return other
        return None

    def note_told(self, uid: str, now: float) -> None:
        """Note that a pod with a turn was told that it may be placed."""
        self._turns[uid].told_at = now

    def find_who_comes_before(self, tenant: str) -> str | None:
        """Return another tenant that has a turn now, the first by name; None: there is none."""
        return min((other for other in self._by_tenant if other != tenant), default=None)

    def has_turns(self, tenant: str) -> bool:
        """Whether some pod of a tenant has its turn."""
        return tenant in self._by_tenant
