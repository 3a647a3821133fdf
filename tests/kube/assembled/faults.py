"""What can go wrong with a request, on the server's side or on the way."""

from __future__ import annotations

import math
import random
import re
from dataclasses import dataclass, field

from fairbind.kube.client.errors import ApiError, TransientClusterError

BINDINGS = r"/binding$"
LEASES = r"/leases"
EVENTS = r"/events"
POD_STATUSES = r"/pods/[^/]+/status$"


class Silence:
    """No answer ever comes; the client gives up."""


SILENCE = Silence()


@dataclass(slots=True)
class Fault:
    """What happens to requests that it matches, instead of what should.

    method, path, who: of the request; empty: any. path is searched for as a regular expression. since, until: in
    virtual seconds. times: so many requests at most. delay_seconds: passes before anything is carried out.
    chance: that a request which matches is concerned. dice: what decides it.
    happens: whether the request is carried out. answer: what comes back instead of the true answer; None: that one.
    """

    path: str = ""
    method: str = ""
    who: str = ""
    since: float = 0.0
    until: float = math.inf
    times: float = math.inf
    delay_seconds: float = 0.0
    happens: bool = False
    answer: ApiError | TransientClusterError | Silence | None = field(default=SILENCE)
    chance: float = 1.0
    dice: random.Random = field(default_factory=lambda: random.Random(0))

    def matches(self, method: str, path: str, who: str, now: float) -> bool:
        return (
            self.times > 0
            and self.since <= now < self.until
            and self.method in {"", method}
            and self.who in {"", who}
            and re.search(self.path, path) is not None
            and (self.chance == 1.0 or self.dice.random() < self.chance)
        )


def delay(seconds: float, path: str = "", **limits: object) -> Fault:
    """Answer rightly, but late."""
    return Fault(path, happens=True, answer=None, delay_seconds=seconds, **limits)  # type: ignore[arg-type]  # by name


def refuse(
    status: int, path: str = "", *, message: str = "", retry_after: float | None = None, **limits: object
) -> Fault:
    """Answer with a refusal and do nothing."""
    return Fault(path, answer=ApiError(status, "Refused", message, retry_after), **limits)  # type: ignore[arg-type]


def lose_answer(path: str = "", *, happens: bool = True, **limits: object) -> Fault:
    """Break the connection, after or before the request was carried out."""
    lost = TransientClusterError("the connection was lost")
    return Fault(path, happens=happens, answer=lost, **limits)  # type: ignore[arg-type]  # by name


def ignore(path: str = "", *, happens: bool = False, **limits: object) -> Fault:
    """Never answer."""
    return Fault(path, happens=happens, answer=SILENCE, **limits)  # type: ignore[arg-type]  # by name
