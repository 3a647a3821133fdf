"""Counts of what terms select on each node equal what asking each pod gives, whatever comes and goes."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from cluster.filters.test_anti_affinity import NAMESPACES, NODES, POD_LABELS, World, read_terms, terms
from fairbind.cluster.filters.placed_pods import PlacedPods
from fairbind.cluster.filters.term_index import covers
from fairbind.cluster.objects.facts import PodTerm
from fairbind.derived import Rotation

Pod = tuple[str, tuple[tuple[str, str], ...], str, bool]
INDEX = {"m": 0, "n": 1}


def count(world: World, pods: list[Pod], term: PodTerm, *, all_: bool) -> list[int]:
    found = Counter(
        node
        for namespace, labels, node, is_leaving in pods
        if (all_ or not is_leaving)
        and term.labels.is_met_by(dict(labels))
        and covers(term, namespace, world.namespaces[namespace])
    )
    return [found[node] for node in INDEX]


@given(st.lists(st.lists(terms, min_size=1, max_size=2), min_size=1, max_size=4), st.integers(0, 2**32))
def test_counts_equal_what_asking_each_pod_gives(drawn: list[list[dict[str, object]]], seed: int) -> None:
    world, draw = World(), random.Random(seed)
    placed = PlacedPods(lambda name: world.namespaces.get(name, {}), world.index.select, Rotation())
    known = list(dict.fromkeys(term for each in drawn for term in read_terms(*each)))
    watched: list[PodTerm] = []
    pods: list[Pod] = []
    seen: dict[int, list[int]] = {}
    for _ in range(40):
        match draw.choice(("hold", "hold", "hold", "release", "watch", "unwatch", "namespace")):
            case "hold":
                pod = draw.choice(NAMESPACES), draw.choice(POD_LABELS), draw.choice(NODES), draw.random() < 0.3
                pods.append(pod)
                placed.hold(*pod[:3], is_leaving=pod[3])
            case "release" if pods:
                pod = pods.pop(draw.randrange(len(pods)))
                placed.hold(*pod[:3], -1, is_leaving=pod[3])
            case "watch" if len(watched) < len(known):
                watched.append(next(term for term in known if term not in watched))
                world.index.watch(watched[-1:])
                placed.watch(watched[-1:])
            case "unwatch" if watched:
                term = watched.pop(draw.randrange(len(watched)))
                world.index.unwatch([term])
                placed.unwatch([term])
            case "namespace":
                name = draw.choice(NAMESPACES)
                world.namespaces[name] = {"env": draw.choice(("prod", "test", "new"))}
                world.index.note_labels(name)
                placed.note_labels(name)
        if draw.random() < 0.5:
            for term in watched:
                selected = placed.get(term)
                counts = selected.count_all(INDEX).tolist()
                assert counts == count(world, pods, term, all_=True)
                assert seen.setdefault(selected.version, counts) == counts
                assert selected.count_staying(INDEX).tolist() == count(world, pods, term, all_=False)
    for namespace, labels, node, is_leaving in pods:
        placed.hold(namespace, labels, node, -1, is_leaving=is_leaving)
    placed.unwatch(watched)
    world.index.unwatch(watched)
    assert not any((placed._groups, placed._selected, placed._new, world.index._uses, world.index._terms))


def test_a_term_changes_only_when_pods_change_that_it_selects() -> None:
    world = World()
    touched = Rotation[PodTerm]()
    placed = PlacedPods(lambda name: world.namespaces.get(name, {}), world.index.select, touched)
    (term,) = read_terms({"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}})
    world.index.watch([term])
    placed.watch([term])
    selected = placed.get(term)
    before = selected.version

    placed.hold("one", (("app", "b"),), "m", is_leaving=False)
    assert ([*touched], selected.version) == ([], before)
    placed.hold("one", (("app", "a"),), "m", is_leaving=False)
    assert [*touched] == [term]
    assert selected.version != before
