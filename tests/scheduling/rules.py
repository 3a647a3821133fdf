"""Rules and soft wishes about topology domains for random worlds.

Domains are few and counts small, so that rules close and open all of them, and wishes change their minds.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from fairbind.model import (
    AffinityRule,
    DomainCounter,
    DomainRule,
    DomainRules,
    Domains,
    EvenPreference,
    LimitRule,
    Preference,
    Preferences,
    PullPreference,
    Rejection,
    RejectionKind,
    SeparationRule,
    ServerPreference,
    Snapshot,
    SpreadRule,
)
from scheduling.worlds import build_servers

SUBJECTS = ("red", "blue", "green")
SPREAD = Rejection(RejectionKind.SPREAD)
AFFINITY = Rejection(RejectionKind.AFFINITY)
OWN = Rejection(RejectionKind.OWN_ANTI_AFFINITY)
FULL = Rejection(RejectionKind.VOLUME_LIMIT)


def build_domains(domain_k: list[int], size: int | None = None) -> Domains:
    return Domains(np.array(domain_k, dtype=np.int32), max([-1, *domain_k]) + 1 if size is None else size)


FOUR = build_servers({"a1": (9, 9), "a2": (9, 9), "b1": (9, 9), "c1": (9, 9)})
ZONES = build_domains([0, 0, 1, 2])
HOSTS = build_domains([0, 1, 2, 3])
"""Domains of the four servers."""


def build_counter(subject: str, domains: Domains, count_d: list[int]) -> DomainCounter:
    return DomainCounter(subject, domains, np.array(count_d, dtype=np.int64))


@st.composite
def counters(draw: st.DrawFn, count: int) -> DomainCounter:
    """A domain may have no servers: one that no server is in any more."""
    size = draw(st.integers(1, 4))
    domains = build_domains(draw(st.lists(st.integers(-1, size - 1), min_size=count, max_size=count)), size)
    counts = draw(st.lists(st.sampled_from([0, 0, 0, 1, 1, 2]), min_size=size, max_size=size))
    return build_counter(draw(st.sampled_from(SUBJECTS)), domains, counts)


@st.composite
def domain_rules(draw: st.DrawFn, known: list[DomainCounter]) -> DomainRule:
    counter = st.sampled_from(known)
    match draw(st.sampled_from(["spread", "spread", "affinity", "separation", "limit"])):
        case "spread":
            skew, least = draw(st.integers(1, 2)), draw(st.sampled_from([0, 1, 2, 5]))
            chosen = draw(counter)
            servers = [k for k, domain in enumerate(chosen.domains.domain_k) if domain >= 0]
            some = st.lists(st.sampled_from(servers), max_size=2, unique=True) if servers else st.just([])
            reserved = tuple((k, draw(st.integers(1, 2))) for k in sorted(draw(some)))
            return SpreadRule(chosen, skew, least, draw(st.booleans()), SPREAD, reserved)
        case "affinity":
            several = draw(st.lists(counter, min_size=1, max_size=2, unique_by=id))
            return AffinityRule(tuple(several), draw(st.booleans()), AFFINITY)
        case "limit":
            chosen = draw(counter)
            size = len(chosen.count_d)
            most = draw(st.lists(st.integers(0, 5), min_size=size, max_size=size))
            return LimitRule(chosen, draw(st.integers(1, 3)), np.array(most, dtype=np.int64), FULL)
    return SeparationRule(draw(counter), OWN)


@st.composite
def add_rules(draw: st.DrawFn, snapshot: Snapshot) -> Snapshot:
    """Give some classes rules; some share all their rules, some a rule, some only a counter."""
    known = draw(st.lists(counters(len(snapshot.servers.names)), min_size=1, max_size=3))
    rules = draw(st.lists(domain_rules(known), min_size=1, max_size=3))
    some = st.lists(st.sampled_from(rules), min_size=1, max_size=3, unique_by=id)
    sets = [None, *(DomainRules(tuple(each)) for each in draw(st.lists(some, min_size=1, max_size=3)))]
    return replace(
        snapshot,
        task_classes=tuple(
            replace(
                task_class,
                rules=draw(st.sampled_from(sets)),
                counts_as=draw(st.frozensets(st.sampled_from(SUBJECTS))),
                brings=tuple(draw(st.dictionaries(st.sampled_from(SUBJECTS), st.integers(1, 3), max_size=2)).items()),
            )
            for task_class in snapshot.task_classes
        ),
    )


@st.composite
def preferences(draw: st.DrawFn, known: list[DomainCounter], count: int) -> Preference:
    counter, weight = st.sampled_from(known), draw(st.sampled_from([1, 2, 3]))
    match draw(st.sampled_from(["server", "pull", "pull", "even", "even"])):
        case "server":
            amounts = draw(st.lists(st.sampled_from([0, 0, 1, 3, 7, 150]), min_size=count, max_size=count))
            most = draw(st.sampled_from([None, None, 150, 400]))
            return ServerPreference(np.array(amounts, dtype=np.int64), weight, draw(st.booleans()), most)
        case "pull":
            pull = st.tuples(counter, st.sampled_from([-100, -1, 1, 7, 50]))
            return PullPreference(tuple(draw(st.lists(pull, min_size=1, max_size=3))), weight)
    return EvenPreference(tuple(draw(st.lists(st.tuples(counter, st.integers(1, 3)), min_size=1, max_size=2))), weight)


@st.composite
def add_wishes(draw: st.DrawFn, snapshot: Snapshot) -> Snapshot:
    """Give some classes soft wishes; some classes share all of theirs, some only a counter."""
    count = len(snapshot.servers.names)
    known = draw(st.lists(counters(count), min_size=1, max_size=3))
    some = st.lists(preferences(known, count), min_size=1, max_size=3)
    sets = [None, *(Preferences(tuple(each)) for each in draw(st.lists(some, min_size=1, max_size=3)))]
    return replace(
        snapshot,
        task_classes=tuple(
            replace(
                task_class,
                preferences=draw(st.sampled_from(sets)),
                counts_as=task_class.counts_as | draw(st.frozensets(st.sampled_from(SUBJECTS))),
            )
            for task_class in snapshot.task_classes
        ),
    )
