"""The state of extender mode: which pods of another scheduler have a permit, and where.

The other scheduler places the pods, and asks before it does. A permit says that a pod may be placed now, and on which
nodes. A cycle decides it, as it decides a binding in bind mode, so capacity is kept for the pod. The rules:

* **Who asks first.** A permit belongs to a pod. When another pod asks that is like it (`likeness`: the same tenant,
  priority, demand and constraints), the permit passes to that one: the other scheduler has an order of its own, and to
  fairness equal pods are the same. Nothing more is booked by it. A pod that was told yes keeps its permit for
  `DELAY_SECONDS`, so that of two pods that ask one after the other only one is told yes. Each new holder has the whole
  time of a permit. So a permit is passed on for `PASS_SECONDS` only, or pods that the other scheduler cannot place
  would keep it among themselves for ever.
* **Binding.** While a pod is being bound its permit stays, and nothing takes it away. The same holds while the other
  scheduler is being told of the permit.
* **End.** A permit ends when its pod is bound or gone, when its time is over (`gate_limiter`), and when the leader's
  is.

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
"""From the first time that a permit was passed on: about as long as a permit lasts."""


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
class Permit:
    """One pod's permit.

    node: where capacity is kept for it. nodes: to which it may go; None: to any. likeness: equal for pods among which
    it does not matter who is placed; None: there is no such pod. told_at: when the pod was last told that it may.
    passed_since: when the permit was first passed on. is_given: the other scheduler has been told. is_binding: its pod
    is being bound, or is. is_over: it ends as soon as it is known what became of that.
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


class Permits:
    """The rules of the module.

    >>> permits = Permits()
    >>> permits.give("uid-1", Permit("a", "node", likeness="small", is_given=True))
    >>> permits.pass_on("uid-2", "small", 10.0), permits.find("uid-1") is None, permits.find("uid-2").node
    ('uid-1', True, 'node')
    >>> permits.note_told("uid-2", 10.0)
    >>> permits.pass_on("uid-3", "small", 11.0) is None
    True
    """

    def __init__(self) -> None:
        self._permits: dict[str, Permit] = {}
        self._alike: dict[Hashable, dict[str, None]] = {}
        self._by_tenant: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return how many pods have a permit."""
        return len(self._permits)

    def find(self, uid: str) -> Permit | None:
        """Return the permit of a pod, or None."""
        return self._permits.get(uid)

    def give(self, uid: str, permit: Permit) -> None:
        """Let a pod have a permit; it takes the place of an earlier one of the pod."""
        self.end(uid)
        self._permits[uid] = permit
        self._by_tenant[permit.tenant] += 1
        if permit.likeness is not None:
            self._alike.setdefault(permit.likeness, {})[uid] = None

    def end(self, uid: str) -> Permit | None:
        """Take a pod's permit out of the state, and return it; None when it had none."""
        permit = self._permits.pop(uid, None)
        if permit is None:
            return None
        self._by_tenant[permit.tenant] -= 1
        if not self._by_tenant[permit.tenant]:
            del self._by_tenant[permit.tenant]
        if permit.likeness is not None:
            alike = self._alike[permit.likeness]
            del alike[uid]
            if not alike:
                del self._alike[permit.likeness]
        return permit

    def end_all(self) -> list[str]:
        """Take all permits out of the state about which nothing is under way; return whose they were."""
        ended = [uid for uid, permit in self._permits.items() if not permit.is_fixed]
        for uid in ended:
            self.end(uid)
        return ended

    def pass_on(self, uid: str, likeness: Hashable | None, now: float) -> str | None:
        """Let a pod have the permit of one that is like it and was not told of it just now; return the other one's UID.

        None: there is no such permit, and nothing has changed.
        """
        if likeness is None:
            return None
        for other in self._alike.get(likeness, ()):
            permit = self._permits[other]
            is_delayed = permit.is_fixed or now < permit.told_at + DELAY_SECONDS
            if not is_delayed and now < permit.passed_since + PASS_SECONDS:
                self.end(other)
                since = min(permit.passed_since, now)
                self.give(
                    uid, Permit(permit.tenant, permit.node, permit.nodes, likeness, passed_since=since, is_given=True)
                )
                return other
        return None

    def note_told(self, uid: str, now: float) -> None:
        """Note that a pod with a permit was told that it may be placed."""
        self._permits[uid].told_at = now

    def find_who_comes_before(self, tenant: str) -> str | None:
        """Return another tenant that has a permit now, the first by name; None: there is none."""
        return min((other for other in self._by_tenant if other != tenant), default=None)

    def has_permits(self, tenant: str) -> bool:
        """Whether some pod of a tenant has a permit."""
        return tenant in self._by_tenant
