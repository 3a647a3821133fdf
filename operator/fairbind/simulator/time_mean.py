"""The mean over time of what stays constant for a while."""

from __future__ import annotations


class TimeMean:
    """The mean over time of something that stays constant for a while; times without a value do not count."""

    __slots__ = ("_since", "_sum", "_time", "_value")

    def __init__(self) -> None:
        self._since = 0
        self._sum = 0.0
        self._time = 0
        self._value: float | None = None

    def set(self, value: float | None, now: int) -> None:
        """Let the value be this from now on."""
        if self._value is not None:
            self._sum += self._value * (now - self._since)
            self._time += now - self._since
        self._since, self._value = now, value

    def compute(self, now: int) -> float | None:
        """Return the mean up to now; None when there is nothing to average."""
        self.set(self._value, now)
        return self._sum / self._time if self._time else None
