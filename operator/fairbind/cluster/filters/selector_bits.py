"""Many label selectors asked at once: which of them a set of labels meets, as the bits of one number.

Each expression has a bit. What a label says about it is looked up, so an object costs a look-up for each of its labels
and not a comparison for each expression. Bits of expressions that fail are toggled from where no label is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fairbind.cluster.objects.selectors import LabelSelector, Requirement

Labels = Sequence[tuple[str, str]]


class _Key:
    """What a label of one key toggles. by_value: for the values that expressions list. otherwise: for all others."""

    __slots__ = ("by_value", "otherwise")

    def __init__(self) -> None:
        self.by_value: dict[str, int] = {}
        self.otherwise = 0


class SelectorBits:
    """Selectors by number; None selects nothing."""

    def __init__(self, selectors: Sequence[LabelSelector | None]) -> None:
        self._keys: dict[str, _Key] = {}
        self._failing_without = 0
        self._needed: list[tuple[int, int]] = []
        self._met: dict[int, int] = {}
        self._comparing: list[tuple[Requirement, int]] = []
        bit = 1
        for number, selector in enumerate(selectors):
            if selector is None:
                continue
            needed = 0
            for requirement in selector.requirements:
                self._add(requirement, bit)
                needed |= bit
                bit <<= 1
            self._needed.append((1 << number, needed))
        for key in self._keys.values():
            for value, toggled in key.by_value.items():
                key.by_value[value] = toggled ^ key.otherwise

    def _add(self, requirement: Requirement, bit: int) -> None:
        """Take an expression; `by_value` says what differs from `otherwise` until all are there."""
        key = self._keys.setdefault(requirement.key, _Key())
        operator = requirement.operator
        if operator in {"Gt", "Lt"}:  # no selector of labels that the API server lets through has one
            self._comparing.append((requirement, bit))
        is_listing = operator in {"In", "NotIn"} and bool(requirement.values)
        fails_without = not requirement.is_met_by(None)
        fails_otherwise = operator != "Exists" and not (is_listing and operator == "NotIn")
        if fails_without:
            self._failing_without |= bit
        if fails_without != fails_otherwise:
            key.otherwise |= bit
        for value in requirement.values if is_listing else ():
            key.by_value[value] = key.by_value.get(value, 0) | bit

    @property
    def keys(self) -> Iterable[str]:
        """The keys of labels that the selectors ask about: to all objects without any of these they say the same."""
        return self._keys

    def find_met(self, labels: Labels) -> int:
        """Return the selectors that an object with these labels meets: bit n for number n."""
        failing, keys = self._failing_without, self._keys
        for label, value in labels:
            key = keys.get(label)
            if key is not None:
                failing ^= key.by_value.get(value, key.otherwise)
        for requirement, bit in self._comparing:
            if requirement.is_met_by(dict(labels).get(requirement.key)):
                failing ^= bit
        met = self._met.get(failing)
        if met is None:
            met = self._met[failing] = sum(selector for selector, needed in self._needed if not failing & needed)
        return met
