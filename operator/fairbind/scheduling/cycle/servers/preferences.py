"""Preferences of one shape in a draft: what each server is worth to its tasks, of those on which a task fits just now.

Servers that are in the same domains of all counters and are liked equally are worth the same. So they are put into rows
once, and each question costs as much as there are rows: a handful for preferences about zones, one a server for
preferences about servers. What was worked out stays until a counter changes or a row gains or loses its last server
on which a task fits.

The scores are those of kube-scheduler, which works with whole numbers: fractions are cut off where it cuts them off.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import log
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fairbind.model import EvenPreference, Preference, Preferences, PullPreference, ServerPreference
from fairbind.model.preferences import FULL_SCORE
from fairbind.model.servers import BoolArray, IndexArray
from fairbind.model.topology import CountArray, DomainArray
from fairbind.scheduling.cycle.servers.topology import TopologyState, WorkingCounter

ScoreArray = NDArray[np.int64]

NOT_FITTING = -1
"""The score of a server on which no task fits: below all others."""


class _Preference(Protocol):
    """A preference about rows of servers. fits_g: on which of them a task fits, at least one, shape (G,)."""

    def compute_scores(self, fits_g: BoolArray) -> ScoreArray:
        """Return a score from 0 to 100 for each row that fits, and any number for the others, shape (G,)."""
        ...


class _ServerPreference:
    """See `ServerPreference`."""

    __slots__ = ("_amount_g", "_is_dislike", "_most")

    def __init__(self, preference: ServerPreference, amount_g: ScoreArray) -> None:
        self._amount_g = amount_g
        self._is_dislike = preference.is_dislike
        self._most = preference.most

    def compute_scores(self, fits_g: BoolArray) -> ScoreArray:
        most = self._most or max(1, int(self._amount_g[fits_g].max()))
        score_g = FULL_SCORE * self._amount_g // most
        return FULL_SCORE - score_g if self._is_dislike else score_g


class _PullPreference:
    """See `PullPreference`. domain_cg: the domain of each row for each counter, or `NO_DOMAIN`."""

    __slots__ = ("_counters", "_domain_cg", "_worths")

    def __init__(
        self, preference: PullPreference, counters: Sequence[WorkingCounter], domain_cg: Sequence[DomainArray]
    ) -> None:
        self._counters = counters
        self._worths = [worth for _, worth in preference.pulls]
        self._domain_cg = domain_cg

    def compute_scores(self, fits_g: BoolArray) -> ScoreArray:
        sum_g = np.zeros(len(fits_g), dtype=np.int64)
        for counter, worth, domain_g in zip(self._counters, self._worths, self._domain_cg, strict=True):
            sum_g += worth * count_by_row(counter, domain_g)
        among = sum_g[fits_g]
        least = int(among.min())
        width = int(among.max()) - least
        if width == 0:
            return np.zeros_like(sum_g)
        return (FULL_SCORE * ((sum_g - least) / width)).astype(np.int64)


class _EvenPreference:
    """See `EvenPreference`. Tasks weigh more where there are more domains, so that many small ones count beside few."""

    __slots__ = ("_counters", "_domain_cg", "_in_all_g", "_skews")

    def __init__(
        self, preference: EvenPreference, counters: Sequence[WorkingCounter], domain_cg: Sequence[DomainArray]
    ) -> None:
        self._counters = counters
        self._skews = [skew for _, skew in preference.counters]
        self._domain_cg = domain_cg
        self._in_all_g: BoolArray = np.logical_and.reduce([domain_g >= 0 for domain_g in domain_cg])

    def compute_scores(self, fits_g: BoolArray) -> ScoreArray:
        scored_g = fits_g & self._in_all_g
        if not scored_g.any():
            return np.zeros(len(fits_g), dtype=np.int64)
        load_g = np.zeros(len(fits_g))
        for counter, skew, domain_g in zip(self._counters, self._skews, self._domain_cg, strict=True):
            domains = np.count_nonzero(np.bincount(domain_g[scored_g]))
            load_g += count_by_row(counter, domain_g) * log(domains + 2) + (skew - 1)
        whole_g = np.floor(load_g + 0.5).astype(np.int64)
        among = whole_g[scored_g]
        least, most = int(among.min()), int(among.max())
        if most == 0:
            return np.where(self._in_all_g, FULL_SCORE, 0)
        return np.where(self._in_all_g, FULL_SCORE * (most + least - whole_g) // most, 0)


def count_by_row(counter: WorkingCounter, domain_g: DomainArray) -> CountArray:
    """Return how many tasks the domain of each row has; none where a row is in no domain."""
    return np.append(counter.count_d, 0)[domain_g]


class PreferenceScores:
    """See the module. Positions are those of the servers that a shape looks at."""

    __slots__ = ("_counters", "_fits_g", "_fits_n", "_preferences", "_row_n", "_score_n", "_version", "_weights")

    def __init__(self, preferences: Preferences, topology: TopologyState, servers: IndexArray) -> None:
        """servers: their indices by position, shape (n,)."""
        self._counters = topology.get_counters(preferences)
        partitions = dict.fromkeys(counter.domains for counter in self._counters)
        columns: list[NDArray[np.int32] | NDArray[np.int64]]
        columns = [domains.domain_k[servers] for domains in partitions]
        amounts = [
            preference.amount_k[servers]
            for preference in preferences.preferences
            if isinstance(preference, ServerPreference)
        ]
        self._row_n, first_g = number_rows([*columns, *amounts], len(servers))
        self._weights = [preference.weight for preference in preferences.preferences]
        self._preferences = [
            _make_preference(preference, topology, servers[first_g]) for preference in preferences.preferences
        ]
        self._fits_n: BoolArray = np.zeros(0, dtype=np.bool_)
        self._fits_g: BoolArray = np.zeros(len(first_g), dtype=np.bool_)
        self._score_n: ScoreArray = np.zeros(0, dtype=np.int64)
        self._version = -1

    def compute(self, fits_n: BoolArray) -> ScoreArray:
        """Return what each server is worth, more is better, and `NOT_FITTING` where no task fits, shape (n,).

        fits_n: where a task fits. The result is not to be changed.
        """
        version = sum(counter.version for counter in self._counters)
        is_same = np.array_equal(fits_n, self._fits_n)
        if is_same and version == self._version:
            return self._score_n
        if not is_same:
            self._fits_n = fits_n
            self._fits_g = np.zeros(len(self._fits_g), dtype=np.bool_)
            self._fits_g[self._row_n[fits_n]] = True
        self._version = version
        score_g = np.zeros(len(self._fits_g), dtype=np.int64)
        if self._fits_g.any():
            for weight, preference in zip(self._weights, self._preferences, strict=True):
                score_g += weight * preference.compute_scores(self._fits_g)
        self._score_n = np.where(fits_n, score_g[self._row_n], NOT_FITTING)
        return self._score_n


def _make_preference(preference: Preference, topology: TopologyState, servers: IndexArray) -> _Preference:
    """Return a preference about rows. servers: one of each row."""
    match preference:
        case ServerPreference():
            return _ServerPreference(preference, preference.amount_k[servers])
        case PullPreference():
            counters = [topology.get_counter(counter) for counter, _ in preference.pulls]
            return _PullPreference(preference, counters, [counter.domains.domain_k[servers] for counter in counters])
        case EvenPreference():
            counters = [topology.get_counter(counter) for counter, _ in preference.counters]
            return _EvenPreference(preference, counters, [counter.domains.domain_k[servers] for counter in counters])


def number_rows(columns: Iterable[NDArray[np.int32] | NDArray[np.int64]], count: int) -> tuple[IndexArray, IndexArray]:
    """Return for each of `count` positions a number, equal where all columns are, and the first position of each.

    >>> row_n, first_g = number_rows([np.array([7, 7, 1, 7]), np.array([0, 1, 1, 0])], 4)
    >>> row_n.tolist(), first_g.tolist()
    ([1, 2, 0, 1], [2, 0, 1])
    """
    row_n = np.zeros(count, dtype=np.int64)
    for column_n in columns:
        values, code_n = np.unique(column_n, return_inverse=True)
        row_n = np.unique(row_n * len(values) + code_n.reshape(-1), return_inverse=True)[1].reshape(-1)
    _, first_g = np.unique(row_n, return_index=True)
    return row_n.astype(np.intp), first_g.astype(np.intp)
