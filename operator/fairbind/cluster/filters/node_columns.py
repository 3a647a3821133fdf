"""The nodes of one moment by columns: the values of one label key over all nodes, as codes.

An expression is asked once for each different value, not for each node, and what lists values or names looks them up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from fairbind.cluster.filters.refusals import Standing, find_standing
from fairbind.cluster.objects.facts import NodeFacts, Toleration
from fairbind.cluster.objects.selectors import NAME_FIELD, NodeTerm, Requirement, is_field_met
from fairbind.model.servers import BoolArray

CodeArray = NDArray[np.int32]

_ABSENT = -1


class NodeColumns:
    """Columns are made when they are first asked for.

    answers: what was asked of the standings, by tolerations, for who asks.
    """

    def __init__(
        self, nodes: Sequence[NodeFacts], index: Mapping[str, int], server_selector: Sequence[tuple[str, str]]
    ) -> None:
        """Take nodes. index: of each, by its name."""
        self.answers: dict[tuple[Toleration, ...], tuple[CodeArray, CodeArray | None]] = {}
        self._count = len(nodes)
        self._index = index
        self._labels = [dict(node.labels) for node in nodes]
        self._features = [node.features for node in nodes]
        self._columns: dict[str, tuple[CodeArray, dict[str, int]]] = {}
        self._masks: dict[Requirement, BoolArray] = {}
        codes: dict[Standing, int] = {}
        standings = map(find_standing, nodes)
        self._code_k = np.fromiter((codes.setdefault(each, len(codes)) for each in standings), np.int32, self._count)
        self._standings = list(codes)
        self.outside_k = ~self.match_pairs(server_selector)

    def map_standings(self, ask: Callable[[Standing], int]) -> CodeArray:
        """Return ask's answer for each node's standing, shape (K,)."""
        return np.array([ask(standing) for standing in self._standings] or [0], dtype=np.int32)[self._code_k]

    def match_features(self, names: Iterable[str]) -> BoolArray:
        """Return which nodes declare all these features, shape (K,)."""
        wanted = frozenset(names)
        return np.fromiter((wanted.issubset(features) for features in self._features), np.bool_, self._count)

    def match_pairs(self, pairs: Iterable[tuple[str, str]]) -> BoolArray:
        """Return which nodes carry all these labels, shape (K,)."""
        return self.match_all(Requirement(key, "In", (value,)) for key, value in pairs)

    def match_term(self, term: NodeTerm) -> BoolArray:
        """Return which nodes meet a term, shape (K,)."""
        if not term.labels and not term.fields:
            return np.zeros(self._count, dtype=np.bool_)
        match_k = self.match_all(term.labels)
        for requirement in term.fields:
            self._restrict_by_name(match_k, requirement)
        return match_k

    def match_wanted(self, selector: Iterable[tuple[str, str]], required: Sequence[NodeTerm] | None) -> BoolArray:
        """Return which nodes are what a selector and a required affinity ask for, shape (K,)."""
        match_k = self.match_pairs(selector)
        if required is not None:
            nowhere = np.zeros(self._count, dtype=np.bool_)
            match_k &= reduce(np.logical_or, (self.match_term(term) for term in required), nowhere)
        return match_k

    def get_codes(self, key: str) -> tuple[CodeArray, int]:
        """Return a number from 0 on for each node's value of a label, -1 without it, and how many values there are."""
        code_k, codes = self._get_column(key)
        return code_k, len(codes)

    def mark_values(self, key: str, values: Iterable[str]) -> NDArray[np.int64]:
        """Return 1 for each number of `get_codes` whose value is one of these, and 0 for the others."""
        _, codes = self._get_column(key)
        return _find_listed(codes, values)[:-1].astype(np.int64)

    def match_values(self, key: str, values: Iterable[str]) -> BoolArray:
        """Return which nodes have one of these values of a label, shape (K,).

        Not remembered: the values are those of nodes on which some pods are just now, and will be others.
        """
        code_k, codes = self._get_column(key)
        return _find_listed(codes, values)[code_k]

    def find_unique(self, key: str, names: Sequence[str]) -> list[str] | None:
        """Return the values of a label on some nodes, in order; None where one lacks it or shares its value."""
        code_k, codes = self._get_column(key)
        values, nodes_d = list(codes), np.bincount(code_k[code_k != _ABSENT], minlength=len(codes))
        found = code_k[[self._index[name] for name in names if name in self._index]].tolist()
        is_unique = len(found) == len(names) and all(code != _ABSENT and nodes_d[code] == 1 for code in found)
        return [values[code] for code in found] if found and is_unique else None

    def match_present(self, key: str) -> BoolArray:
        """Return which nodes carry a label, shape (K,)."""
        return self._match(Requirement(key, "Exists"))

    def _restrict_by_name(self, match_k: BoolArray, requirement: Requirement) -> None:
        """Take out the nodes whose name does not meet an expression, which names one node or all others."""
        names = requirement.values
        index = self._index.get(names[0]) if len(names) == 1 else None
        is_kept = index is not None and bool(match_k[index]) and is_field_met(requirement, names[0])
        if requirement.key != NAME_FIELD or requirement.operator != "NotIn" or len(names) != 1:
            match_k[:] = False  # no other name meets it
        if index is not None:
            match_k[index] = is_kept

    def match_all(self, requirements: Iterable[Requirement]) -> BoolArray:
        """Return which nodes meet all expressions over labels, shape (K,)."""
        everywhere = np.ones(self._count, dtype=np.bool_)
        return reduce(np.logical_and, (self._match(requirement) for requirement in requirements), everywhere)

    def _match(self, requirement: Requirement) -> BoolArray:
        mask_k = self._masks.get(requirement)
        if mask_k is None:
            code_k, codes = self._get_column(requirement.key)
            mask_k = self._masks[requirement] = _answer(requirement, codes)[code_k]
        return mask_k

    def _get_column(self, key: str) -> tuple[CodeArray, dict[str, int]]:
        column = self._columns.get(key)
        if column is None:
            codes: dict[str, int] = {}
            found = (labels.get(key) for labels in self._labels)
            code_k = np.fromiter(
                (_ABSENT if value is None else codes.setdefault(value, len(codes)) for value in found),
                np.int32,
                self._count,
            )
            column = self._columns[key] = (code_k, codes)
        return column


def _answer(requirement: Requirement, codes: Mapping[str, int]) -> BoolArray:
    """Return for each code whether the expression holds for its value; the last entry answers for absent keys."""
    match requirement.operator:
        case "In":
            return _find_listed(codes, requirement.values)
        case "NotIn" if requirement.values:
            return ~_find_listed(codes, requirement.values)
    return np.array([*map(requirement.is_met_by, codes), requirement.is_met_by(None)], dtype=np.bool_)


def _find_listed(codes: Mapping[str, int], values: Iterable[str]) -> BoolArray:
    """Return for each code whether its value is among these; the last entry answers for absent keys."""
    listed = np.zeros(len(codes) + 1, dtype=np.bool_)
    listed[[codes[value] for value in values if value in codes]] = True
    return listed
