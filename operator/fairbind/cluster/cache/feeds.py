"""How what is read from the API server reaches the cache, in order, whatever comes twice or too late.

All objects of one kind share one growing version number. A watch tells of changes in that order; so what is not newer
than the newest that was seen is a repetition and is left out. A whole list starts again: what it does not have is gone,
and its version counts even when it is lower (a cluster that was restored from a backup has gone back in time).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Generic, Protocol, TypeVar


class Versioned(Protocol):
    """What is known of an object."""

    @property
    def version(self) -> str:
        """Its resourceVersion."""


PART = 500
"""So many objects of a list are taken at a time: some ten milliseconds."""

Facts = TypeVar("Facts", bound=Versioned)
Item = TypeVar("Item", contravariant=True)  # noqa: PLC0105  the usual short name; variance is said here


class Sink(Protocol[Item]):
    """Takes what a reflector reads."""

    def replace_in_parts(self, items: Iterable[Item], version: str = "") -> Iterator[None]:
        """Take a whole list: what is not in it is gone. Between two parts is a state that never was."""

    def apply(self, item: Item) -> None:
        """Take one object that was added or changed."""

    def delete(self, item: Item) -> None:
        """Take one object away; its version is that of the deletion."""


class Feed(Generic[Facts]):
    """A sink that hands on only what is new, one object at a time."""

    def __init__(
        self,
        *,
        key: Callable[[Facts], str],
        put: Callable[[Facts], None],
        remove: Callable[[str], None],
        known: Callable[[], Collection[str]],
        on_listed: Callable[[bool], None] = lambda _is_served: None,
    ) -> None:
        """known: the keys of all objects that were put and not removed.

        on_listed: called after each whole list. A server that has no such kind of object gives a list no version.
        """
        self._key = key
        self._put = put
        self._remove = remove
        self._known = known
        self._on_listed = on_listed
        self._newest = -1

    def replace(self, items: Iterable[Facts], version: str = "") -> None:
        """Take a whole list: what is not in it is gone."""
        for _ in self.replace_in_parts(items, version):
            pass

    def replace_in_parts(self, items: Iterable[Facts], version: str = "") -> Iterator[None]:
        """Do the same, and let others work after each `PART` of it."""
        newest, listed = parse_version(version) or -1, set()
        for n, item in enumerate(items, start=1):
            listed.add(self._key(item))
            newest = max(newest, parse_version(item.version) or -1)
            self._put(item)
            if n % PART == 0:
                yield
        for n, gone in enumerate([key for key in self._known() if key not in listed], start=1):
            self._remove(gone)
            if n % PART == 0:
                yield
        self._newest = newest
        self._on_listed(bool(version))

    def apply(self, item: Facts) -> None:
        """Take one object that was added or changed, unless something newer was seen."""
        if self._is_new(item.version):
            self._put(item)

    def delete(self, item: Facts) -> None:
        """Take one object away, unless something newer was seen."""
        if self._is_new(item.version):
            self._remove(self._key(item))

    def _is_new(self, version: str) -> bool:
        number = parse_version(version)
        if number is None:
            return True
        if number <= self._newest:
            return False
        self._newest = number
        return True


def parse_version(version: str) -> int | None:
    """Return a resourceVersion as a number; None for one that is none (then its order is unknown)."""
    return int(version) if version.isdecimal() and version.isascii() else None
