"""Which faults there will be: a pure function of the seed and a fault's number, so that any of them can be repeated."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from faults.kinds import KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Collection

SHORTEST_SECONDS = 0.2
LONGEST_IN_CI_SECONDS = 6.0
OVERLAPPING = 0.3
"""The part of the faults that come two at once."""
NEVER_TOGETHER = {"plane", "objects"}
"""Objects cannot be changed while there is no API server."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind with what was drawn for it."""

    kind: Kind
    settings: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Draw:
    """One or two faults that overlap. seconds: for how long they last."""

    number: int
    faults: tuple[Fault, ...]
    seconds: float

    @property
    def name(self) -> str:
        """Their kinds."""
        return " + ".join(fault.kind.name for fault in self.faults)


def draw(seed: int, number: int, *, is_short: bool, without: Collection[str] = ()) -> Draw:
    """Return fault number so and so of a seed. without: names of kinds that cannot be had here."""
    generator = random.Random(f"{seed}/{number}")
    first = _deal(seed, number, is_short=is_short, without=without)
    chosen = [first]
    if generator.random() < OVERLAPPING:
        second = generator.choice(_make_deck(is_short=is_short, without=without))
        groups = {first.group, second.group}
        if len(groups) > 1 and groups != NEVER_TOGETHER:
            chosen.append(second)
    # The control plane goes last and comes back first: what the others do at their ends needs it.
    chosen.sort(key=lambda one: one.group == "plane")
    faults = tuple(Fault(one, one.draw(generator)) for one in chosen)
    longest = min(one.longest for one in chosen)
    seconds = _draw_seconds(generator, min(longest, LONGEST_IN_CI_SECONDS) if is_short else longest)
    return Draw(number, faults, seconds)


def _make_deck(*, is_short: bool, without: Collection[str]) -> list[Kind]:
    return [one for one in KINDS if one.name not in without for _ in range(one.weights[is_short])]


def _deal(seed: int, number: int, *, is_short: bool, without: Collection[str]) -> Kind:
    """Deal from a deck that is shuffled anew when it is empty: chance alone would leave kinds out of a short run."""
    deck = _make_deck(is_short=is_short, without=without)
    turn, place = divmod(number, len(deck))
    random.Random(f"{seed}/deck/{turn}").shuffle(deck)
    return deck[place]


def _draw_seconds(generator: random.Random, longest: float) -> float:
    """Short ones are as likely as long ones: what goes wrong in the first second differs from what does later."""
    return round(SHORTEST_SECONDS * math.pow(longest / SHORTEST_SECONDS, generator.random()), 2)
