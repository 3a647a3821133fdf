"""Gates that are being opened, and what waits until those with free capacity behind them are open."""

from __future__ import annotations

from math import inf

MAX_HELD_SECONDS = 1.0
"""The longest time for which gates without capacity wait while those with capacity are opened, one after the other."""


class Openings:
    """The UIDs of pods whose gates are being opened."""

    def __init__(self) -> None:
        self._all: set[str] = set()
        self._with_capacity: set[str] = set()
        self._holds_scale_up = False
        self._held_since = inf

    def __contains__(self, uid: str) -> bool:
        """Tell whether the gate of a pod is being opened."""
        return uid in self._all

    def begin(self, uid: str, *, has_capacity: bool) -> None:
        """Note that a gate is being opened. has_capacity: whether capacity is kept for its pod."""
        self._all.add(uid)
        if has_capacity:
            self._with_capacity.add(uid)

    def end(self, uid: str) -> bool:
        """Note that a gate is open, or does not open after all; see `end_waiting` for what is returned."""
        self._all.discard(uid)
        return self.end_waiting(uid)

    def end_waiting(self, uid: str) -> bool:
        """Let nothing wait for this gate any more; return whether it was the last for which something waited."""
        self._with_capacity.discard(uid)
        if not self._holds_scale_up or self._with_capacity:
            return False
        self._holds_scale_up = False
        return True

    def must_wait(self, now: float, *, has_candidates: bool) -> bool:
        """Tell whether gates without capacity wait for those with capacity, for `MAX_HELD_SECONDS` at most.

        The other scheduler takes pods in the order in which it sees their gates open.
        """
        is_behind = has_candidates and bool(self._with_capacity)
        self._held_since = min(self._held_since, now) if is_behind else inf
        self._holds_scale_up = is_behind and now - self._held_since < MAX_HELD_SECONDS
        if not self._holds_scale_up:
            self._held_since = inf
        return self._holds_scale_up
