"""What a pod's constraints may cost: counted before anything is made of them, and said when it is too much."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cluster.builders import Cluster, Json, make_node, make_pod, read_pod
from fairbind.cluster.classes import window
from fairbind.cluster.objects import budget, wire
from fairbind.cluster.objects.constraints import NO_CONSTRAINTS
from fairbind.cluster.objects.decode import PODS
from fairbind.model import RejectionKind


def name_node(name: str) -> Json:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}


def expect(count: int, values: int = 1) -> list[Json]:
    return [{"key": f"k{n}", "operator": "NotIn", "values": [f"v{v}" for v in range(values)]} for n in range(count)]


def require(*terms: Json) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def prefer(*terms: Json) -> Json:
    wishes = [{"weight": 1, "preference": term} for term in terms]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}


def listen(count: int) -> list[Json]:
    return [{"name": "main", "ports": [{"containerPort": 1, "hostPort": 1 + n} for n in range(count)]}]


def tolerate(count: int, text: str = "") -> list[Json]:
    return [{"key": f"{text}{n}", "operator": "Exists"} for n in range(count)]


MANY: dict[str, tuple[int, Callable[[int], Json]]] = {
    "node selector labels": (budget.MAX_SELECTOR_LABELS, lambda n: {"nodeSelector": {f"k{i}": "" for i in range(n)}}),
    "tolerations": (budget.MAX_TOLERATIONS, lambda n: {"tolerations": tolerate(n)}),
    "labels": (budget.MAX_LABELS, lambda n: {"labels": {f"k{i}": "" for i in range(n)}}),
    "node affinity terms": (
        budget.MAX_NODE_TERMS,
        lambda n: {"affinity": require(*(name_node(str(i)) for i in range(n)))},
    ),
    "node affinity expressions": (
        budget.MAX_NODE_EXPRESSIONS,
        lambda n: {"affinity": prefer({"matchExpressions": expect(n)})},
    ),
    "node affinity values": (
        budget.MAX_NODE_VALUES,
        lambda n: {"affinity": require({"matchExpressions": expect(1, n)})},
    ),
    "host ports": (budget.MAX_HOST_PORTS, lambda n: {"containers": listen(n)}),
    "terms about other pods": (budget.MAX_POD_TERMS, lambda n: {"affinity": repel(n)}),
    "parts of terms about other pods": (
        budget.MAX_POD_TERM_PARTS,
        lambda n: {"affinity": repel(1, matchExpressions=expect(1, n - 2))},
    ),
    "characters in its constraints": (
        budget.MAX_CHARACTERS,
        lambda n: {"tolerations": [{"key": "k" * (n - 6), "operator": "Exists"}]},
    ),
}


@pytest.mark.parametrize("what", MANY)
def test_a_pod_at_a_limit_is_read_in_full(what: str) -> None:
    limit, make = MANY[what]
    facts = read_pod(make_pod(**make(limit)))

    assert facts.unsupported is None
    assert facts.labels or facts.pod_terms is not None or facts.constraints is not NO_CONSTRAINTS


@pytest.mark.parametrize("what", MANY)
def test_a_pod_above_a_limit_waits_with_the_count_and_the_limit_and_costs_nothing_else(what: str) -> None:
    limit, make = MANY[what]
    facts = read_pod(make_pod(**make(limit + 1)))

    assert facts.unsupported is not None
    assert facts.unsupported == (RejectionKind.NOT_SUPPORTED, f"more than {limit:,} {what}")
    assert facts.unsupported_detail == f"more than {limit:,} {what} ({limit + 1:,})"
    assert facts.constraints is NO_CONSTRAINTS
    assert facts.labels == ()


TEXT = "x" * budget.MAX_CHARACTERS


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {TEXT: "v"}},
        {"nodeSelector": {"k": TEXT}},
        {"labels": {TEXT: "v"}},
        {"labels": {"k": TEXT}},
        *({"tolerations": [{"operator": "Exists", part: TEXT}]} for part in ("key", "value", "effect")),
        {"tolerations": [{"key": "k", "operator": TEXT}]},
        {"affinity": {}, "nodeSelector": {"k": TEXT}},
    ],
)
def test_characters_count_wherever_they_are(spec: Json) -> None:
    assert read_pod(make_pod(**spec)).unsupported is not None


def test_all_pods_above_a_limit_have_one_reason_whatever_they_count() -> None:
    counts = range(budget.MAX_TOLERATIONS + 1, budget.MAX_TOLERATIONS + 20)
    pods = [read_pod(make_pod(tolerations=tolerate(count))) for count in counts]

    assert len({pod.unsupported for pod in pods}) == 1
    assert len({pod.unsupported_detail for pod in pods}) == len(pods)


def test_required_and_preferred_terms_are_counted_together() -> None:
    half = [name_node(str(i)) for i in range(budget.MAX_NODE_TERMS // 2 + 1)]
    both = {"nodeAffinity": {**require(*half)["nodeAffinity"], **prefer(*half)["nodeAffinity"]}}

    assert read_pod(make_pod(affinity=require(*half))).unsupported is None
    assert read_pod(make_pod(affinity=both)).unsupported is not None


def test_what_cannot_be_read_is_the_reason_also_above_a_limit() -> None:
    facts = read_pod(make_pod(requests={"cpu": "nonsense"}, tolerations=tolerate(5_000)))

    assert facts.unsupported is not None
    assert facts.unsupported.kind == RejectionKind.UNREADABLE
    assert facts.constraints is NO_CONSTRAINTS


def test_a_placed_pod_above_a_limit_holds_what_it_has_with_its_ports() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("a"))
    wild = make_pod("wild", node="a", requests={"cpu": "1"}, containers=listen(200), tolerations=tolerate(5_000))
    cluster.add_pods(wild, make_pod("plain", containers=listen(1)))

    facts = cluster.cache.state.pods.entries["uid-wild"].facts
    assert facts.constraints.tolerations == ()
    assert len(facts.constraints.exclusive_keys.taken) == 400
    assert "TCP:1/any" in cluster.cache.build_snapshot().servers.taken_keys[0]
    assert cluster.get_free("a")["pods"] == 109
    cluster.cache.check_consistent()


def test_of_a_placed_pods_ports_so_many_are_known() -> None:
    facts = read_pod(make_pod(node="a", containers=listen(budget.MAX_PLACED_HOST_PORTS + 10)))

    assert len(facts.constraints.exclusive_keys.taken) == 2 * budget.MAX_PLACED_HOST_PORTS


def repel(count: int, **selector: Any) -> Json:
    terms = [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"n": str(n)}, **selector}} for n in range(count)]
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def test_of_a_placed_pods_anti_affinity_the_first_terms_count() -> None:
    facts = read_pod(make_pod(node="a", affinity=repel(2_000)))
    first = read_pod(make_pod(node="a", affinity=repel(budget.MAX_REPELLING_TERMS)))

    assert facts.unsupported is not None  # its owner's events would say so if it waited
    assert facts.repels == first.repels
    assert len(first.repels) == budget.MAX_REPELLING_TERMS


def test_terms_that_say_very_much_are_fewer() -> None:
    values = [f"v{n}" for n in range(100)]
    facts = read_pod(
        make_pod(node="a", affinity=repel(9, matchExpressions=[{"key": "k", "operator": "In", "values": values}]))
    )

    assert len(facts.repels) == budget.MAX_REPELLING_PARTS // 102


def test_a_pod_that_waits_with_more_terms_about_other_pods_is_not_supported() -> None:
    spread = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    most = repel(budget.MAX_POD_TERMS - 1)

    within = read_pod(make_pod(affinity=most, topologySpreadConstraints=[spread]))
    beyond = read_pod(make_pod(affinity=most, topologySpreadConstraints=[spread, spread]))

    assert within.unsupported is None
    assert within.pod_terms is not None
    assert beyond.unsupported_detail == "more than 32 terms about other pods (33)"
    assert beyond.pod_terms is None


def test_a_pod_that_waits_with_terms_that_say_very_much_is_not_supported() -> None:
    values = [f"v{n}" for n in range(100)]
    facts = read_pod(make_pod(affinity=repel(6, matchExpressions=[{"key": "k", "operator": "In", "values": values}])))

    assert facts.unsupported_detail == "more than 512 parts of terms about other pods (612)"
    assert facts.pod_terms is None
    assert facts.labels == ()


HUGE = {
    "15,000 terms": make_pod(affinity=require(*(name_node(f"n{i}") for i in range(15_000)))),
    "120,000 values": make_pod(affinity=require({"matchExpressions": expect(1, 120_000)})),
    "15,000 terms of anti-affinity": make_pod(node="a", affinity=repel(10_000)),
    "10,000 terms of anti-affinity of a pod that waits": make_pod(affinity=repel(10_000)),
    "20,000 tolerations": make_pod(tolerations=tolerate(20_000)),
}


ROUNDS = 15


def measure(call: Callable[[bytes], object], body: bytes) -> float:
    started = time.process_time()
    call(body)
    return time.process_time() - started


@pytest.mark.parametrize("name", HUGE)
def test_a_pod_above_the_budget_costs_little_more_than_its_decoding(name: str) -> None:
    body = json.dumps(HUGE[name]).encode()
    decode = msgspec.json.Decoder(wire.Pod).decode

    calls = decode, PODS.decode_item
    decoding, whole = map(min, zip(*([measure(call, body) for call in calls] for _ in range(ROUNDS)), strict=True))

    assert whole < 3 * decoding


def test_a_pod_above_the_budget_has_no_verdict_of_its_own_however_often_it_changes() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("a"))
    cluster.add_pods(make_pod("plain"))
    cluster.cache.build_snapshot()
    pod = HUGE["15,000 terms"]
    for change in range(3):
        cluster.add_pods(make_pod("huge", labels={"n": str(change)}, affinity=pod["spec"]["affinity"]))
        assert cluster.get_class("uid-huge").blocked is not None
        assert len(cluster.cache.state.filters.eligibility) == 1


def test_the_guide_names_the_limits() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "reference" / "pods.md").read_text(encoding="utf-8")
    section = guide.partition("## What a pod's constraints may cost")[2].partition("\n## ")[0]
    of_waiting = [line.split("|")[2].strip() for line in section.splitlines() if line.startswith("| ")][2:]
    assert sorted(of_waiting) == sorted(f"{limit:,}" for limit, _ in MANY.values())
    of_placed = budget.MAX_REPELLING_TERMS, budget.MAX_REPELLING_PARTS, budget.MAX_PLACED_HOST_PORTS
    of_tenants = window.MAX_TENANT_PLACEMENTS, window.MAX_PLACEMENTS, window.MIN_TENANT_PLACEMENTS
    of_classes = window.MAX_TENANT_CLASSES, window.MAX_CLASSES
    assert [number for number in (*of_placed, *of_tenants, *of_classes) if f"{number:,}" not in section] == []


def test_the_message_says_it_all() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("a"))
    cluster.add_pods(HUGE["15,000 terms"])
    record = cluster.cache.find_pod("uid-pod")

    assert record is not None
    assert record.unsupported == "more than 64 node affinity terms (15,000)"
