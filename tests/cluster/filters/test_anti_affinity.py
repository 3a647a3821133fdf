"""The index of terms and waiting pods says what asking each term about each pod says, and asks far less often."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.builders import Cluster, Json, make_namespace, make_node, make_pod, read_node, read_pod
from cluster.counting import count_calls
from fairbind.cluster.classes import cluster_state
from fairbind.cluster.filters.anti_affinity import AntiAffinity
from fairbind.cluster.filters.selector_bits import SelectorBits
from fairbind.cluster.objects.budget import MAX_REPELLING_TERMS
from fairbind.cluster.objects.facts import PodTerm
from fairbind.cluster.objects.selectors import LabelSelector, Requirement

KEYS, VALUES, NAMESPACES, NODES = ("app", "tier"), ("a", "b", "c"), ("one", "two"), ("m", "n", "gone")
NAMESPACE_LABELS = {"one": {"env": "prod"}, "two": {"env": "test"}}
POD_LABELS = [(), (("app", "a"),), (("app", "b"), ("tier", "a")), (("app", "c"), ("tier", "b")), (("tier", "c"),)]

expressions = st.fixed_dictionaries(
    {
        "key": st.sampled_from(KEYS),
        "operator": st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist")),
        "values": st.lists(st.sampled_from(VALUES), max_size=2),
    }
)
terms = st.fixed_dictionaries(
    {
        "topologyKey": st.sampled_from(("zone", "host", "none")),
        "labelSelector": st.fixed_dictionaries(
            {},
            optional={
                "matchLabels": st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES), max_size=2),
                "matchExpressions": st.lists(expressions, max_size=2),
            },
        ),
    },
    optional={
        "namespaces": st.lists(st.sampled_from(NAMESPACES), max_size=2),
        "namespaceSelector": st.sampled_from(({}, {"matchLabels": {"env": "prod"}}, {"matchLabels": {"env": "new"}})),
    },
)


def repel(*each: Json) -> Json:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(each)}}


def read_terms(*each: Json, namespace: str = "one") -> tuple[PodTerm, ...]:
    return read_pod(make_pod(namespace=namespace, node="m", affinity=repel(*each))).repels


class World:
    """What is told to the index, and what follows from it by asking every term."""

    def __init__(self) -> None:
        self.namespaces = {name: dict(labels) for name, labels in NAMESPACE_LABELS.items()}
        self.index = AntiAffinity(lambda name: self.namespaces.get(name, {}))
        self.nodes: dict[str, dict[str, str]] = {}
        self.placed: list[tuple[tuple[PodTerm, ...], str]] = []
        self.waiting: list[tuple[str, str, tuple[tuple[str, str], ...]]] = []

    def find_domains(self, term: PodTerm) -> set[str]:
        nodes = [self.nodes.get(node, {}) for held, node in self.placed if term in held]
        return {node[term.topology_key] for node in nodes if term.topology_key in node}

    def select(self, namespace: str, labels: tuple[tuple[str, str], ...]) -> set[PodTerm]:
        return {
            term
            for held, _ in self.placed
            for term in held
            if self.find_domains(term) and term.labels.is_met_by(dict(labels)) and self.covers(term, namespace)
        }

    def covers(self, term: PodTerm, namespace: str) -> bool:
        selector = term.namespace_selector
        return namespace in term.namespaces or (
            selector is not None and selector.is_met_by(self.namespaces.get(namespace, {}))
        )

    def happen(self, draw: random.Random, held: list[tuple[PodTerm, ...]], number: int) -> None:
        match draw.choice(("hold", "hold", "release", "node", "node", "wait", "wait", "stop", "namespace")):
            case "hold":
                place = draw.choice(held), draw.choice(NODES)
                self.placed.append(place)
                self.index.hold(*place)
            case "release" if self.placed:
                self.index.release(*self.placed.pop(draw.randrange(len(self.placed))))
            case "node":
                name = draw.choice(NODES)
                if name in self.nodes and draw.random() < 0.4:
                    del self.nodes[name]
                    self.index.set_node(name, None)
                else:
                    self.nodes[name] = {"zone": draw.choice("xy"), **({"host": name} if draw.random() < 0.7 else {})}
                    self.index.set_node(name, read_node(make_node(name, labels=self.nodes[name])))
            case "wait":
                pod = f"p{number}", draw.choice(NAMESPACES), draw.choice(POD_LABELS)
                self.waiting.append(pod)
                self.index.wait(*pod)
            case "stop" if self.waiting:
                self.index.stop_waiting(*self.waiting.pop(draw.randrange(len(self.waiting))))
            case "namespace":
                name = draw.choice(NAMESPACES)
                self.namespaces[name] = {"env": draw.choice(("prod", "test", "new"))}
                self.index.note_labels(name)


@given(st.lists(st.lists(terms, min_size=1, max_size=3), min_size=1, max_size=4), st.integers(0, 2**32))
def test_the_index_finds_what_asking_every_term_finds(drawn: list[list[Json]], seed: int) -> None:
    world, draw = World(), random.Random(seed)
    held = [read_terms(*each) for each in drawn]
    known: dict[str, frozenset[PodTerm]] = {}
    for number in range(40):
        world.happen(draw, held, number)
        now = {uid: world.index.find_terms(namespace, labels) for uid, namespace, labels in world.waiting}
        for uid, namespace, labels in world.waiting:
            assert now[uid] == world.select(namespace, labels)
        stale = world.index.take_stale()
        assert {uid for uid in now if uid in known and known[uid] != now[uid]} <= set(stale)
        assert world.index.take_stale() == []
        known = now
    for place in world.placed:
        world.index.release(*place)
    for pod in world.waiting:
        world.index.stop_waiting(*pod)
    assert not any((world.index._domains, world.index._terms, world.index._groups, world.index._groups_by_key))
    assert not world.index._noted


def test_equal_terms_are_one_object() -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}
    assert read_terms(term)[0] is read_terms(term)[0]
    assert read_terms(term)[0] is not read_terms(term, namespace="two")[0]


def test_a_term_on_a_node_that_does_not_exist_is_compared_with_nothing() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("a", labels={"zone": "x"}))
    cluster.add_pods(make_pod("waiting", namespace="one", labels={"app": "a"}))
    term = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {}}
    cluster.add_pods(make_pod("wild", namespace="two", scheduler="another", node="none", affinity=repel(term)))
    assert cluster.find_eligible("uid-waiting") == {"a"}
    assert not cluster.cache.state.filters.anti_affinity._domains

    cluster.add_nodes(make_node("none", labels={"zone": "x"}))
    assert cluster.find_eligible("uid-waiting") == set()
    cluster.cache.check_consistent()
    cluster.add_nodes(make_node("none", labels={"zone": "y"}))
    assert cluster.find_eligible("uid-waiting") == {"a"}
    cluster.cache.check_consistent()
    cluster.cache.nodes.delete(read_node(make_node("none")))
    assert cluster.find_eligible("uid-waiting") == {"a"}
    assert not cluster.cache.state.filters.anti_affinity._domains


def make_crowd(count: int) -> Cluster:
    """So many waiting pods of ten namespaces, no two with the same labels."""
    cluster = Cluster()
    cluster.add_nodes(*(make_node(f"n{k}", labels={"zone": str(k % 3), "host": f"n{k}"}) for k in range(9)))
    cluster.add_namespaces(*(make_namespace(f"ns{n}", {"name": f"ns{n}"}) for n in range(10)))
    for n in range(count):
        cluster.add_pods(make_pod(f"p{n}", namespace=f"ns{n % 10}", labels={"app": f"app{n % 50}", "pod": str(n)}))
    cluster.cache.build_snapshot()
    return cluster


def list_terms(count: int, namespaces: Json) -> Iterator[Json]:
    for n in range(count):
        yield {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": f"other{n}"}}, **namespaces}


def measure_placing(cluster: Cluster, affinity: Json, rounds: int = 3) -> float:
    """The least CPU time that a placed pod costs until the next snapshot, and until it is gone again."""
    best = float("inf")
    for _ in range(rounds):
        pod = make_pod("wild", namespace="wild", scheduler="another", node="n1", affinity=affinity)
        facts = read_pod(pod)
        started = time.process_time()
        cluster.cache.pods.apply(facts)
        cluster.cache.build_snapshot()
        cluster.delete_pod(pod)
        cluster.cache.build_snapshot()
        best = min(best, time.process_time() - started)
    return best


@pytest.mark.parametrize("namespaces", [{"namespaceSelector": {}}, {"namespaces": [f"ns{n}" for n in range(10)]}])
def test_a_placed_pods_terms_are_compared_with_those_pods_only_that_have_their_labels(namespaces: Json) -> None:
    """Asking each term about each waiting pod costs hundreds of times as much with 2,000 pods as with 20."""
    affinity = repel(*list_terms(MAX_REPELLING_TERMS, namespaces))
    with_few = measure_placing(make_crowd(20), affinity)
    with_many = measure_placing(make_crowd(2_000), affinity)

    assert with_many < 10 * with_few + 0.005


def test_thousands_of_terms_that_select_thousands_of_pods_cost_a_few_times_what_the_pods_cost() -> None:
    """Asking each term about each pod costs fifty times as much."""
    started = time.process_time()
    cluster = make_crowd(3_000)
    reading = time.process_time() - started
    broad = ({"matchExpressions": [{"key": "pod", "operator": "NotIn", "values": [f"x{n}"]}]} for n in range(2_000))
    affinity = repel(*({"topologyKey": "host", "namespaceSelector": {}, "labelSelector": each} for each in broad))

    assert measure_placing(cluster, affinity, rounds=1) < 8 * reading


def test_each_group_of_pods_is_asked_once_whatever_the_number_of_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """A placed pod with 32 terms that select waiting pods of all namespaces, each with a label of its own."""
    cluster = Cluster()
    cluster.add_nodes(make_node("a", labels={"host": "a"}), make_node("b", labels={"host": "b"}))
    pods, kinds = 400, 5
    labels = [{"app": f"a{n % kinds}", "own": str(n)} for n in range(pods)]
    cluster.add_pods(*(make_pod(f"w{n}", namespace=f"t{n % 9}", labels=labels[n]) for n in range(pods)))
    cluster.cache.build_snapshot()
    terms = [
        {
            "topologyKey": "host",
            "namespaceSelector": {},
            "labelSelector": {
                "matchExpressions": [
                    {"key": "app", "operator": "In", "values": [f"a{n}" for n in range(kinds - 1)]},
                    {"key": f"absent{number}", "operator": "DoesNotExist"},
                ]
            },
        }
        for number in range(32)
    ]
    counts = count_calls(
        monkeypatch, (LabelSelector, "is_met_by"), (SelectorBits, "find_met"), (cluster_state, "locate")
    )
    cluster.add_pods(make_pod("evil", node="a", affinity=repel(*terms)))

    assert cluster.find_eligible("uid-w0") == {"b"}
    assert cluster.find_eligible(f"uid-w{kinds - 1}") == {"a", "b"}
    assert counts["find_met"] == 9 + pods * (kinds - 1) // kinds, "each namespace, each selected pod"
    assert counts["is_met_by"] == 0
    assert counts["locate"] == 1, "pods move to other queues together"
    cluster.cache.check_consistent()


def test_pods_keep_their_turn_and_their_books_when_terms_move_them_together() -> None:
    cluster = Cluster()
    cluster.add_nodes(*(make_node(name, labels={"host": name}) for name in "abc"))
    for n in range(12):
        created = f"2026-01-01T00:00:{59 - n}Z"
        labels = {"app": "ab"[n % 2], "tier": str(n % 3)}
        cluster.add_pods(make_pod(f"w{n}", namespace=f"t{n % 2}", created=created, labels=labels))
    for app, node in (("a", "a"), ("b", "b"), ("a", "c")):
        term = {"topologyKey": "host", "namespaceSelector": {}, "labelSelector": {"matchLabels": {"app": app}}}
        cluster.add_pods(make_pod(f"by-{node}", namespace="other", node=node, affinity=repel(term)))
        cluster.cache.check_consistent()
    assert cluster.find_eligible("uid-w0") == {"b"}
    assert cluster.find_eligible("uid-w1") == {"a", "c"}
    (first,) = (each for each in cluster.cache.build_snapshot().task_classes if each.tenant == "ns/t0")
    assert [task.uid for task in first.tasks] == [f"uid-w{n}" for n in range(10, -1, -2)]
    for node in "abc":
        cluster.delete_pod(make_pod(f"by-{node}", namespace="other"))
        cluster.cache.check_consistent()
    assert cluster.find_eligible("uid-w0") == set("abc")


label_selectors = st.builds(
    lambda drawn: LabelSelector(
        tuple(Requirement(key, operator, tuple(sorted(each))) for key, operator, each in drawn)
    ),
    st.lists(
        st.tuples(
            st.sampled_from(KEYS),
            st.sampled_from(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Odd")),
            st.sets(st.sampled_from((*VALUES, "1", "2")), max_size=3),
        ),
        max_size=4,
    ),
)


@given(
    st.lists(st.none() | label_selectors, max_size=6),
    st.lists(st.dictionaries(st.sampled_from((*KEYS, "x")), st.sampled_from((*VALUES, "z", "1", "2"))), max_size=8),
)
def test_many_selectors_at_once_say_what_each_says(
    selectors: list[LabelSelector | None], objects: list[dict[str, str]]
) -> None:
    bits = SelectorBits(selectors)
    for labels in objects:
        met = [selector is not None and selector.is_met_by(labels) for selector in selectors]
        assert bits.find_met(tuple(labels.items())) == sum(1 << n for n, is_met in enumerate(met) if is_met)
