"""Selectors: label expressions over nodes, namespaces and pods, with Kubernetes' meaning of every operator.

An expression looks at one key. `NotIn` and `DoesNotExist` hold when the key is absent; `Gt` and `Lt` compare whole
numbers and hold for nothing else. An expression that makes no sense (an unknown operator, `Gt` with two values) never
holds: what cannot be understood must not let a task in.

A value is looked up among the values of an expression, which are sorted, and not compared with each of them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from fairbind.cluster.objects import wire

NAME_FIELD = "metadata.name"

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_INT64 = 2**63
_REMEMBERED_BOUNDS = 4096


def _parse_integer(text: str | None) -> int | None:
    if text is None or _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None


@lru_cache(maxsize=_REMEMBERED_BOUNDS)
def _parse_bound(text: str) -> int | None:
    """Return what `Gt` or `Lt` compares with: the same for each of thousands of nodes."""
    return _parse_integer(text)


@dataclass(frozen=True, slots=True, order=True)
class Requirement:
    """One expression. values: sorted."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def is_met_by(self, value: str | None) -> bool:
        """Whether the expression holds for the value of its key; None when the key is absent."""
        match self.operator:
            case "In":
                return self.has_value(value)
            case "NotIn":
                return bool(self.values) and not self.has_value(value)
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares_with(value)
        return False

    def has_value(self, value: str | None) -> bool:
        """Whether a value is one of those of the expression."""
        if value is None:
            return False
        index = bisect_left(self.values, value)
        return index < len(self.values) and self.values[index] == value

    def _compares_with(self, value: str | None) -> bool:
        bound = _parse_bound(self.values[0]) if len(self.values) == 1 else None
        number = _parse_integer(value) if bound is not None else None
        if number is None or bound is None:
            return False
        return number > bound if self.operator == "Gt" else number < bound


@dataclass(frozen=True, slots=True, order=True)
class NodeTerm:
    """A term of a node selector: all expressions over labels and all over fields must hold."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def is_met_by(self, labels: Mapping[str, str], name: str) -> bool:
        """Whether a node with these labels and this name matches; the empty term matches nothing."""
        return bool(self.labels or self.fields) and (
            all(requirement.is_met_by(labels.get(requirement.key)) for requirement in self.labels)
            and all(is_field_met(requirement, name) for requirement in self.fields)
        )


def is_field_met(requirement: Requirement, name: str) -> bool:
    """Whether an expression over the fields of a node holds; the API knows only `metadata.name`, In and NotIn."""
    if requirement.key != NAME_FIELD or len(requirement.values) != 1:
        return False
    return requirement.operator in {"In", "NotIn"} and requirement.is_met_by(name)


@dataclass(frozen=True, slots=True, order=True)
class LabelSelector:
    """All requirements must hold; the empty selector matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def is_met_by(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return all(requirement.is_met_by(labels.get(requirement.key)) for requirement in self.requirements)


def make_requirements(expressions: Iterable[wire.SelectorRequirement] | None) -> tuple[Requirement, ...]:
    """Return the expressions, sorted, so that equal sets are equal tuples."""
    return tuple(sorted(Requirement(e.key, e.operator, tuple(sorted(set(e.values or ())))) for e in expressions or ()))


def make_term(term: wire.NodeSelectorTerm) -> NodeTerm:
    """Return one term of a node selector."""
    return NodeTerm(make_requirements(term.match_expressions), make_requirements(term.match_fields))


def make_label_selector(selector: wire.LabelSelector | None) -> LabelSelector | None:
    """Return a label selector; None, which selects nothing, stays None."""
    if selector is None:
        return None
    pairs = (Requirement(key, "In", (value,)) for key, value in (selector.match_labels or {}).items())
    return LabelSelector(tuple(sorted((*pairs, *make_requirements(selector.match_expressions)))))
