"""What placed pods of one tenant say about others has a budget: what it costs another tenant's pod does not grow."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.builders import Cluster, Json, make_namespace, make_node, make_pod
from cluster.counting import count_calls
from cluster.filters.test_anti_affinity import NAMESPACES, POD_LABELS, read_terms, repel
from cluster.filters.test_anti_affinity import terms as drawn_terms
from fairbind.cluster.filters import term_index
from fairbind.cluster.filters.selector_bits import SelectorBits
from fairbind.cluster.filters.term_index import TermIndex, Use, count_parts, find_places
from fairbind.cluster.objects.facts import PodTerm
from fairbind.cluster.objects.selectors import LabelSelector
from fairbind.cluster.tenancy.tenants import TenantSpec

PLACED, TERMS = 300, 32
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
KINDS = [REQUIRED, PREFERRED]
Select = Callable[[int, int], Json]


def exists(n: int, j: int) -> Json:
    return {"matchExpressions": [{"key": f"z{n}-{j}", "operator": "Exists"}]}


def differs(n: int, j: int) -> Json:
    return {"matchExpressions": [{"key": "job", "operator": "NotIn", "values": [f"v{n}-{j}"]}]}


def shares_a_pair(n: int, j: int) -> Json:
    return {"matchLabels": {"app": "web"}, **exists(n, j)}


def make_affinity(kind: str, each: list[Json], *, weight: int = 1) -> Json:
    """Anti-affinity by these terms."""
    weighted = [{"weight": weight, "podAffinityTerm": term} for term in each]
    return {"podAntiAffinity": {kind: each if kind == REQUIRED else weighted}}


def make_world(*, placed: int, select: Select, kind: str = REQUIRED, users_label: str | None = None) -> Cluster:
    """Nodes with so many placed pods of one tenant, each with terms of its own about the pods of all.

    users_label: of both tenants; each pod names another user.
    """
    cluster = Cluster()
    cluster.add_namespaces(*(make_namespace(name) for name in ("evil", "good")))
    for name in ("evil", "good"):
        cluster.cache.set_tenant(TenantSpec(name, namespaces=frozenset({name}), users_label=users_label))
    cluster.add_nodes(*(make_node(f"n{k}", labels={"host": f"n{k}"}) for k in range(40)))
    for n in range(placed):
        each = [{"topologyKey": "host", "namespaceSelector": {}, "labelSelector": select(n, j)} for j in range(TERMS)]
        affinity = make_affinity(kind, each, weight=1 + n % 100)
        labels = {"user": f"u{n}"} if users_label else {}
        cluster.add_pods(make_pod(f"e{n}", namespace="evil", node=f"n{n % 20}", affinity=affinity, labels=labels))
    cluster.cache.build_snapshot()
    return cluster


@pytest.mark.parametrize("select", [exists, differs, shares_a_pair])
@pytest.mark.parametrize("kind", KINDS)
def test_what_a_pod_of_another_tenant_is_asked_does_not_grow_with_a_tenants_terms(
    monkeypatch: pytest.MonkeyPatch, select: Select, kind: str
) -> None:
    def count_asked(placed: int) -> tuple[int, int]:
        cluster = make_world(placed=placed, select=select, kind=kind)
        with monkeypatch.context() as context:
            counts = count_calls(context, (LabelSelector, "is_met_by"), (SelectorBits, "find_met"))
            for n in range(20):  # each with a label of its own
                cluster.add_pods(make_pod(f"g{n}", namespace="good", labels={"app": "web", "job": f"v{n}-0"}))
                cluster.cache.build_snapshot()
        selected_by = [queue.selected_by for queue in cluster.cache.state.queues.waiting.by_leaf["good"]]
        assert max(map(len, selected_by)) <= 128
        cluster.cache.check_consistent()
        return counts["is_met_by"], counts["find_met"]

    few, many = count_asked(3), count_asked(PLACED)
    assert many <= few
    assert sum(many) <= 20 * 6


@pytest.mark.parametrize("kind", KINDS)
def test_a_placed_pod_that_only_changes_its_labels_asks_nothing(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    cluster = make_world(placed=2, select=differs, kind=kind)
    cluster.add_pods(*(make_pod(f"g{n}", namespace="good", labels={"own": str(n)}) for n in range(50)))
    cluster.cache.build_snapshot()
    each = [{"topologyKey": "host", "namespaceSelector": {}, "labelSelector": differs(9, j)} for j in range(TERMS)]
    affinity = make_affinity(kind, each)
    pod = make_pod("e1", namespace="evil", node="n1", affinity=affinity)
    cluster.add_pods(pod)
    cluster.cache.build_snapshot()
    counts = count_calls(monkeypatch, (SelectorBits, "find_met"), (TermIndex, "add"), (TermIndex, "remove"))
    cluster.change_pod(pod, lambda made: made["metadata"]["labels"].update(x="1"))
    assert counts == Counter({"find_met": 2}), "by its own new labels alone"
    cluster.cache.check_consistent()


@pytest.mark.parametrize("users_label", [None, "user"])
def test_the_terms_of_another_tenant_count_whatever_one_tenant_has(users_label: str | None) -> None:
    cluster = make_world(placed=PLACED, select=differs, users_label=users_label)
    everything = {"topologyKey": "host", "namespaceSelector": {}, "labelSelector": {}}
    cluster.add_pods(make_pod("guard", namespace="good", node="n30", affinity=repel(everything)))
    cluster.add_pods(make_pod("x", namespace="evil"))
    assert "n30" not in cluster.find_eligible("uid-x")
    assert "n31" in cluster.find_eligible("uid-x")
    cluster.cache.check_consistent()


def test_however_many_weights_a_term_is_carried_with_it_is_counted_once() -> None:
    cluster = make_world(placed=90, select=lambda _, j: differs(0, j), kind=PREFERRED)
    cluster.add_pods(make_pod("x", namespace="good"))
    wishes = cluster.get_class("uid-x").preferences
    assert wishes is not None
    (pull,) = wishes.preferences
    assert len(pull.pulls) == TERMS  # type: ignore[union-attr]  # what the wish is
    worth = {tuple(counter.count_d[:2].tolist()) for counter, _ in pull.pulls}  # type: ignore[union-attr]
    assert worth == {(-(1 + 21 + 41 + 61 + 81), -(2 + 22 + 42 + 62 + 82))}


def test_a_term_of_many_namespaces_and_many_values_stands_in_few_places() -> None:
    names, values = [f"ns{n}" for n in range(250)], [f"v{n}" for n in range(240)]
    selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": values}]}
    (term,) = read_terms({"topologyKey": "host", "namespaces": names, "labelSelector": selector})
    assert len(list(find_places(term))) == 240
    index = TermIndex(lambda _: {})
    assert index.add([("evil", term)]) == [term]
    assert index.select("ns7", (("app", "v9"),)) == {term}
    assert index.select("ns7", (("app", "else"),)) == index.select("other", (("app", "v9"),)) == frozenset()


@given(
    st.lists(st.lists(drawn_terms, min_size=1, max_size=3), min_size=1, max_size=6),
    st.integers(0, 2**32),
    st.integers(1, 3),
)
def test_of_each_tenant_so_many_count_the_first_ones_first(drawn: list[list[Json]], seed: int, most: int) -> None:
    """After any history: each bucket within its limits, nothing waits that has a place, and nothing stays."""
    random_ = random.Random(seed)
    known = list(dict.fromkeys(term for each in drawn for term in read_terms(*each)))
    with pytest.MonkeyPatch.context() as context:
        context.setattr(term_index, "MAX_TERMS", most)
        context.setattr(term_index, "OWNERS", 2)
        context.setattr(term_index, "ASKED_ONE_BY_ONE", 1)
        index, uses, counting = TermIndex(lambda name: {"env": name}), dict[Use, None](), set[PodTerm]()
        for _ in range(40):
            use = random_.choice(("a", "b", "c", None)), random_.choice(known)
            if use in uses:
                del uses[use]
                removed, added = index.remove([use])
                counting.difference_update(removed)
            else:
                uses[use] = None
                added = index.add([use])
            counting.update(added)
            check_index(index, uses, counting, most)
        index.remove(uses)
        assert not any((index, index._full_bucket_of, index._counting))


def check_index(index: TermIndex, uses: dict[Use, None], counting: set[PodTerm], most: int) -> None:
    waiting = set(index._full_bucket_of)
    assert waiting <= uses.keys()
    assert all(owner is not None for owner, _ in waiting)
    assert counting == {term for owner, term in uses if (owner, term) not in waiting}
    by_place = Counter[object]()
    for owner, term in uses.keys() - waiting:
        if owner is not None:
            by_place.update((place, owner) for place in find_places(term))
    assert max(by_place.values(), default=0) <= most
    for owner, term in waiting:
        buckets = [index._buckets[namespace][pair] for namespace, pair in find_places(term)]
        assert not all(bucket.has_place(owner, count_parts(term)) for bucket in buckets)  # type: ignore[arg-type]
    for namespace in NAMESPACES:
        for labels in POD_LABELS:
            selecting = {
                term
                for term in counting
                if term.labels.is_met_by(dict(labels)) and term_index.covers(term, namespace, {"env": namespace})
            }
            assert index.select(namespace, labels) == selecting
