"""Values that follow from others: recomputed when what they are made of has changed, and kept until then.

A derived value is a pure function of what its declaration lists in `of`. It is declared with one of three kinds:
`Derived` is one value, `Table` has one for each key and recomputes only those whose key was noted, and `Memo` remembers
the answers of a function that is asked by key. Each input has a revision. A value is recomputed when the revision of an
input is another, and where it comes out equal, its own revision stays, so that nothing above it is recomputed.

So no owner clears anything by hand: it notes what changed (`Given`), and asks. docs/reference/derived-values.md
lists all declarations. One property holds for all: what is kept is what is computed from nothing.

What may be brought up to date a part at a time is in a `Rotation`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import eq
from typing import Any, Generic, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Input(Protocol):
    """What a derived value may be made of."""

    def refresh(self) -> int:
        """Bring it up to date, and return its revision: another number after each change."""


class Given:
    """What is changed from outside, by who owns it."""

    __slots__ = ("revision",)

    def __init__(self) -> None:
        self.revision = 0

    def note_change(self) -> None:
        """Note that it is not what it was."""
        self.revision += 1

    def refresh(self) -> int:
        """Return the revision."""
        return self.revision


class Setting(Given, Generic[V]):
    """A value that is given from outside."""

    __slots__ = ("value",)

    def __init__(self, value: V) -> None:
        super().__init__()
        self.value = value

    def set(self, value: V) -> None:
        """Take a value, which changes nothing where it is equal."""
        if value != self.value:
            self.value = value
            self.note_change()


class Watch:
    """Whether any of some inputs has changed since this was asked last; the first time it has."""

    __slots__ = ("_of", "_seen")

    def __init__(self, *of: Input) -> None:
        self._of = of
        self._seen: list[int] | None = None

    @property
    def is_due(self) -> bool:
        """Whether any has changed."""
        return [each.refresh() for each in self._of] != self._seen

    def take(self) -> bool:
        """Return whether any has changed; asked again, none has."""
        seen, self._seen = self._seen, [each.refresh() for each in self._of]
        return seen != self._seen


class Derived(Generic[V]):
    """One value. is_same: whether two of them say the same; then the one before stays.

    value: as of the last time that it was asked for.
    """

    __slots__ = ("_compute", "_is_same", "_made_of", "_of", "revision", "value")
    value: V

    def __init__(self, compute: Callable[[], V], *, of: Sequence[Input], is_same: Callable[[V, V], Any] = eq) -> None:
        self._compute = compute
        self._of = of
        self._is_same = is_same
        self._made_of: list[int] | None = None
        self.revision = 0

    @property
    def is_stale(self) -> bool:
        """Whether it must be computed when it is asked for."""
        return [each.refresh() for each in self._of] != self._made_of

    def refresh(self) -> int:
        """Bring the value up to date, and return its revision."""
        made_of = [each.refresh() for each in self._of]
        if made_of != self._made_of:
            value = self._compute()
            self._made_of = made_of
            if not self.revision or not self._is_same(self.value, value):
                self.value = value
                self.revision += 1
        return self.revision

    def get(self) -> V:
        """Return the value as of now; the same object as before while it says the same."""
        self.refresh()
        return self.value

    def list_wrong(self, is_same: Callable[[V | None, V | None], Any]) -> list[object]:
        """Return what is kept and is not what is computed from nothing, for tests."""
        value = self.get()
        return [] if is_same(value, self._compute()) else [value]


class Memo(Generic[P, V]):
    """The answers of a function, by what it was asked, until something changes that the answers are made of too.

    Objects that are equal to themselves only are keys as they are. most: so many answers are kept; with more all go.
    """

    __slots__ = ("_compute", "_known", "_made_of", "_most", "_of")

    def __init__(self, compute: Callable[P, V], *, of: Sequence[Input] = (), most: int) -> None:
        self._compute = compute
        self._of = of
        self._most = most
        self._made_of: list[int] = []
        self._known: dict[Any, V] = {}

    def __call__(self, *key: P.args, **named: P.kwargs) -> V:
        """Return the answer. Of names nothing is remembered, so arguments have none."""
        made_of = [each.refresh() for each in self._of]
        if made_of != self._made_of or len(self._known) >= self._most:
            self._made_of = made_of
            self._known.clear()
        try:
            return self._known[key]
        except KeyError:
            answer = self._known[key] = self._compute(*key, **named)
            return answer

    def __len__(self) -> int:
        return len(self._known)

    def list_wrong(self, is_same: Callable[[V | None, V | None], Any]) -> list[object]:
        """Return what is kept and is not what is computed from nothing, for tests."""
        compute: Callable[..., V] = self._compute
        if self._made_of != [each.refresh() for each in self._of]:
            return []
        return [key for key, answer in self._known.items() if not is_same(answer, compute(*key))]


class Table(Generic[K, V]):
    """A value for each key. compute: None where the key is no more. list_keys: all keys that may have a value.

    values: as of the last `refresh`; not to be written to.
    """

    __slots__ = ("_changed", "_compute", "_list_keys", "_made_of", "_of", "revision", "values")

    def __init__(
        self, compute: Callable[[K], V | None], list_keys: Callable[[], Iterable[K]], *, of: Sequence[Input] = ()
    ) -> None:
        self._compute = compute
        self._list_keys = list_keys
        self._of = of
        self._made_of: list[int] | None = None
        self._changed: dict[K, None] = {}
        self.values: dict[K, V] = {}
        self.revision = 0

    def note_change(self, key: K) -> None:
        """Note that what a key's value is made of has changed, or came, or went."""
        if self._made_of is not None:  # else all are computed when they are asked for first
            self._changed[key] = None

    def refresh(self) -> int:
        """Bring the values up to date, and return the revision."""
        self.take_changes()
        return self.revision

    @property
    def is_stale(self) -> bool:
        """Whether some value must be computed when it is asked for."""
        return bool(self._changed) or [each.refresh() for each in self._of] != self._made_of

    def take_changes(self) -> Mapping[K, tuple[V | None, V | None]]:
        """Bring the values up to date, and return those that changed: before and now. None: there is none."""
        made_of = [each.refresh() for each in self._of]
        if made_of != self._made_of:
            self._made_of = made_of
            self._changed = dict.fromkeys([*self.values, *self._list_keys()])
        changes: dict[K, tuple[V | None, V | None]] = {}
        for key in self._changed:
            before, value = self.values.get(key), self._compute(key)
            if value is None:
                self.values.pop(key, None)
            elif value is not before and value != before:
                self.values[key] = value
            else:
                continue
            if value is not before:
                changes[key] = before, value
        self._changed.clear()
        self.revision += bool(changes)
        return changes

    def list_wrong(self, is_same: Callable[[V | None, V | None], Any]) -> list[object]:
        """Return what is kept and is not what is computed from nothing, for tests."""
        self.refresh()
        wanted = {key: value for key in self._list_keys() if (value := self._compute(key)) is not None}
        return [key for key in {**self.values, **wanted} if not is_same(self.values.get(key), wanted.get(key))]


class Rotation(Generic[K]):
    """What is out of date and is brought up to date a part at a time, in the order in which it came."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[K, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[K]:
        return iter(self._waiting)

    def __contains__(self, key: object) -> bool:
        return key in self._waiting

    def add(self, keys: Iterable[K]) -> None:
        """Take more, after those that are here already."""
        self._waiting |= dict.fromkeys(keys)

    def discard(self, key: K) -> None:
        """Let one go that is up to date, or is no more."""
        self._waiting.pop(key, None)

    def take_all(self) -> list[K]:
        """Let all go, and return them."""
        keys = list(self._waiting)
        self._waiting.clear()
        return keys

    def take(self, most: int) -> Iterator[K]:
        """Let the first ones go, one by one as they are asked for, and yield them."""
        for key in list(islice(self._waiting, most)):
            del self._waiting[key]
            yield key
