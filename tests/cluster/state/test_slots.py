"""Slots count for shares exactly when they would run out first: both sides, in whole fillings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import inf
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cluster.builders import Cluster, Json, make_node, make_pod
from fairbind.cluster.objects.facts import BASE_RESOURCES, Demand
from fairbind.cluster.objects.requests import add_claimed, make_demand
from fairbind.cluster.state import slots as slots_module
from fairbind.cluster.state.slots import WantedPods
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.model import MAX_AMOUNT, PolicySettings
from fairbind.scheduling import run_cycle
from fairbind.scheduling.fair_shares.problem import make_exact_problem, solve_exactly

SLOTS = 110
NODES = 10
POLICIES = ("best-fit-drfh", "first-fit-drfh", "ps-dsf", "rps-dsf", "tsf", "drfh", "drf")
COUNTS_BY_DEFAULT = (True, True, True, False)


def fill(
    *tenants: tuple[str, str, int],
    cpu: str,
    policy: str = "best-fit-drfh",
    resources: tuple[str, ...] | None = None,
    nodes: int = NODES,
) -> Counter[str]:
    """How many pods of each tenant run in the end. tenants: namespace, CPUs of a pod and how many pods there are."""
    cluster = make_cluster(*tenants, cpu=cpu, nodes=nodes)
    settings = PolicySettings(policy, fairness_resources=resources)
    cluster.cache.set_policy(settings)
    problem = make_exact_problem(cluster.cache.build_detailed_snapshot(), settings)
    assert problem is not None
    cluster.cache.set_targets(solve_exactly(problem).targets)
    report = run_cycle(cluster.cache.build_snapshot(), settings, 0.0)
    return Counter(bind.tenant.removeprefix("ns/") for bind in report.bindings)


def make_cluster(*tenants: tuple[str, str, int], cpu: str, nodes: int = NODES) -> Cluster:
    cluster = Cluster()
    allocatable = {"cpu": cpu, "memory": "4Ti", "ephemeral-storage": "1Ti", "pods": str(SLOTS)}
    cluster.add_nodes(*(make_node(f"node-{n}", allocatable=allocatable) for n in range(nodes)))
    for namespace, request, count in tenants:
        pods = (make_pod(f"{namespace}-{n}", namespace=namespace, requests={"cpu": request}) for n in range(count))
        cluster.add_pods(*pods)
    return cluster


def get_counts(cluster: Cluster) -> tuple[bool, ...]:
    return cluster.cache.build_snapshot().counts_r


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("tiny", ["1m", "10m"])
def test_pods_that_ask_for_next_to_nothing_take_no_more_than_their_half_of_the_slots(policy: str, tiny: str) -> None:
    running = fill(("thief", tiny, 1_300), ("victim", "1", 1_300), cpu="256", policy=policy)
    half = NODES * SLOTS / 2
    assert running["thief"] == pytest.approx(half, rel=0.05)
    assert running["victim"] == pytest.approx(half, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("small", ["100m", "175m", "250m"])
def test_where_slots_are_not_scarce_small_pods_keep_the_share_that_they_have_without_slots(
    policy: str, small: str
) -> None:
    tenants = ("small", small, 1_000), ("large", "1", 400)
    running = fill(*tenants, cpu="16", policy=policy)
    without = fill(*tenants, cpu="16", policy=policy, resources=("cpu", "memory", "ephemeral-storage"))
    assert sum(running.values()) < NODES * SLOTS
    assert running["small"] == pytest.approx(without["small"], rel=0.05)
    assert running["large"] == pytest.approx(without["large"], rel=0.05)


def test_an_administrators_list_wins() -> None:
    tenants = ("thief", "1m", 600), ("victim", "1", 600)
    running = fill(*tenants, cpu="256", resources=("cpu", "memory"), nodes=3)
    assert running["thief"] > 0.9 * 3 * SLOTS
    fair = fill(("small", "100m", 1_000), ("large", "1", 400), cpu="16", resources=("pods",))
    assert fair["large"] == pytest.approx(fair["small"], abs=20)


def test_some_large_pods_among_tiny_ones_hide_nothing() -> None:
    cluster = make_cluster(("thief", "1m", 600), ("victim", "4", 200), cpu="256", nodes=3)
    large = [make_pod(f"large-{n}", namespace="thief", requests={"cpu": "100"}) for n in range(300)]
    cluster.add_pods(*large)
    assert get_counts(cluster)[-1]


def test_pods_that_are_not_looked_at_yet_because_they_all_differ_are_wanted_too() -> None:
    cluster = Cluster()
    names = [f"node-{n}" for n in range(40)]
    allocatable = {"cpu": "64", "memory": "1Ti", "pods": "20"}
    cluster.add_nodes(*(make_node(name, allocatable=allocatable, labels={"name": name}) for name in names))
    cluster.add_pods(*(make_pod(f"victim-{n}", namespace="victim", requests={"cpu": "1"}) for n in range(300)))
    for number, pair in enumerate(combinations(names, 2)):
        terms = [{"matchExpressions": [{"key": "name", "operator": "NotIn", "values": [*pair]}]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        pod = make_pod(
            f"thief-{number}", namespace="thief", requests={"cpu": "1m"}, affinity={"nodeAffinity": required}
        )
        cluster.add_pods(pod)
        if number == 499:  # 800 pods for as many slots
            assert get_counts(cluster) == COUNTS_BY_DEFAULT
    assert get_counts(cluster) == (True,) * 4
    cluster.cache.check_consistent()


def test_weights_say_how_many_pods_a_share_pays_for() -> None:
    cluster = make_cluster(("a", "1", 400), ("b", "4", 200), cpu="256", nodes=3)
    assert get_counts(cluster) == (True,) * 4
    cluster.cache.set_tenant(TenantSpec("light", weight=Fraction(1, 10), namespaces=frozenset("a")))
    assert get_counts(cluster) == COUNTS_BY_DEFAULT
    cluster.cache.set_tenant(TenantSpec("light", weight=Fraction(1), namespaces=frozenset("a")))
    assert get_counts(cluster) == (True,) * 4


def test_the_users_of_a_tenant_make_slots_no_scarcer_than_it_does_itself() -> None:
    cluster = make_cluster(("b", "4", 200), cpu="256", nodes=3)
    users: dict[str, Any] = {"namespaces": frozenset("a"), "users_label": "user"}
    cluster.cache.set_tenant(TenantSpec("light", weight=Fraction(1, 10), **users))
    for n in range(400):
        cluster.add_pods(make_pod(f"a-{n}", namespace="a", requests={"cpu": "1"}, labels={"user": f"u{n % 40}"}))
    assert get_counts(cluster) == COUNTS_BY_DEFAULT
    cluster.cache.set_tenant(TenantSpec("light", weight=Fraction(1), **users))
    assert get_counts(cluster) == (True,) * 4
    cluster.cache.check_consistent()


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"no": "such"}},
        {"schedulingGates": [{"name": "wait"}]},
        {"resourceClaims": [{"name": "r"}]},
        {"resources": {"requests": {"cpu": "5000"}}},
    ],
    ids=["not eligible", "gated", "not supported", "larger than the cluster"],
)
def test_pods_that_cannot_be_placed_make_no_slot_scarce(spec: Json) -> None:
    cluster = make_cluster(("a", "1m", 200), ("b", "1", 100), cpu="256", nodes=3)
    cluster.add_pods(*(make_pod(f"p{n}", namespace="a", **spec) for n in range(600)))
    assert get_counts(cluster) == COUNTS_BY_DEFAULT


def test_slots_count_as_long_as_they_are_scarce() -> None:
    cluster = make_cluster(("a", "10m", 331), cpu="256", nodes=3)
    assert get_counts(cluster) == (True,) * 4
    assert cluster.cache.queries.build_overview().counting == frozenset(BASE_RESOURCES)
    cluster.delete_pod(make_pod("a-0", namespace="a"))
    assert get_counts(cluster) == COUNTS_BY_DEFAULT
    assert "pods" not in cluster.cache.queries.build_overview().counting
    cluster.add_pods(make_pod("more", namespace="b"))
    assert get_counts(cluster) == (True,) * 4
    allocatable = {"cpu": "1", "pods": "110"}
    cluster.add_nodes(make_node("new", allocatable=allocatable))
    assert get_counts(cluster) == COUNTS_BY_DEFAULT


requests = st.sampled_from(("1m", "100m", "500m", "1", "3"))
backlogs = st.lists(st.tuples(st.sampled_from("abc"), requests, st.integers(1, 60)), min_size=1, max_size=6)


@given(backlog=backlogs, cpu=st.sampled_from(("2", "8", "32")), limit=st.integers(1, 40))
def test_no_placement_changes_whether_slots_count(backlog: list[tuple[str, str, int]], cpu: str, limit: int) -> None:
    cluster = make_cluster(
        *((f"{name}-{n}", request, count) for n, (name, request, count) in enumerate(backlog)), cpu=cpu, nodes=1
    )
    before = get_counts(cluster)
    while report := run_cycle(cluster.cache.build_snapshot(), PolicySettings(), 0.0, limit=limit).bindings:
        for bind in report:
            assert cluster.cache.assume(bind.task.uid, bind.server)
        assert get_counts(cluster) == before
    cluster.cache.check_consistent()


def test_nothing_is_computed_while_there_are_slots_for_all_or_nothing_wanted_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed: list[int] = []
    compute = slots_module._Kinds._compute

    def count(*arguments: Any) -> bool:
        computed.append(1)
        return compute(*arguments)

    monkeypatch.setattr(slots_module._Kinds, "_compute", count)
    cluster = make_cluster(("a", "10m", 110), cpu="8", nodes=1)
    assert get_counts(cluster) == COUNTS_BY_DEFAULT
    assert computed == []
    cluster.add_pods(make_pod("one-more", namespace="b"))
    assert get_counts(cluster) == (True,) * 4
    assert computed == [1]
    for n in range(50):
        cluster.cache.assume(f"uid-a-{n}", "node-0")
        get_counts(cluster)
    assert computed == [1]


def test_kinds_that_nobody_wants_any_more_are_forgotten() -> None:
    wanted = WantedPods()
    for n in range(1, 5_000):
        demand = make_demand({"cpu": n})
        wanted.hold("a", demand)
        wanted.hold("a", demand, -1)
    assert len(wanted._table.rows) < 200
    assert wanted.describe() == {}


# --- against plain fractions ---

VOLUMES = "volumes.disk.example.com"
AXES = (*BASE_RESOURCES, VOLUMES)
TOTAL_R = (8_000, 2**33, 0, 40, 60)
OTHERS_R = (True, True, True, False, False)
demands = st.builds(
    lambda cpu, memory, volumes: add_claimed(
        make_demand({"cpu": cpu, "memory": memory, "pods": 1}), {VOLUMES: volumes} if volumes else {}
    ),
    st.sampled_from((1, 100, 300, 2_000, 9_000, MAX_AMOUNT)),
    st.sampled_from((0, 2**20, 2**28, 2**31)),
    st.sampled_from((0, 1, 2, 7)),
)
wants = st.dictionaries(st.tuples(st.sampled_from("abc"), demands), st.integers(1, 60), min_size=1, max_size=8)
specs = st.fixed_dictionaries(
    {}, optional={"a": st.just(TenantSpec("a", weight=Fraction(3), resource_weights={"cpu": Fraction(1, 2)}))}
)


@given(wants=wants, specs=specs, resource=st.sampled_from(("pods", VOLUMES)))
def test_it_is_what_plain_fractions_say(
    wants: Mapping[tuple[str, Demand], int], specs: Mapping[str, TenantSpec], resource: str
) -> None:
    wanted = WantedPods()
    for (tenant, demand), count in wants.items():
        for _ in range(count):
            wanted.hold(tenant, demand)
    answer, margin = judge(wants, specs, resource)
    assume(margin > Fraction(1, 10**6))
    assert wanted.are_slots_scarce(resource, AXES, TOTAL_R, OTHERS_R, specs) == answer


def judge(
    wants: Mapping[tuple[str, Demand], int], specs: Mapping[str, TenantSpec], resource: str
) -> tuple[bool, Fraction]:
    """Whether slots are scarce, and how far that is from being otherwise."""
    steps, slots = list[Step](), TOTAL_R[AXES.index(resource)]
    for tenant in sorted({tenant for tenant, _ in wants}):
        start, spec = Fraction(0), specs.get(tenant, TenantSpec(tenant))
        sized = [
            (compute_size(demand, spec), count, compute_parts(demand), dict(demand.share).get(resource, 0))
            for (name, demand), count in wants.items()
            if name == tenant and max(compute_parts(demand)) <= 1
        ]
        for size, count, parts, number in sorted(sized, key=lambda each: each[0] / each[3] if each[3] else inf):
            steps.append((start, size, count, parts, number))
            start += size * count
    levels = sorted({edge for start, size, count, *_ in steps for edge in (start, start + size * count)})
    before = Fraction(0)
    for level in levels:
        running, used = run(steps, level)
        if running > slots:
            running_before, used_before = run(steps, before)
            part = (slots - running_before) / (running - running_before)
            at = max(one + part * (other - one) for one, other in zip(used_before, used, strict=True))
            return at < 1, abs(1 - at)
        before = level
    return False, Fraction(1)


def compute_parts(demand: Demand) -> list[Fraction]:
    share = dict(demand.share)
    return [Fraction(share["cpu"], TOTAL_R[0]), Fraction(share["memory"], TOTAL_R[1])]


def compute_size(demand: Demand, spec: TenantSpec) -> Fraction:
    cpu, memory = compute_parts(demand)
    return max(cpu / spec.resource_weights.get("cpu", Fraction(1)), memory) / spec.weight


Step = tuple[Fraction, Fraction, int, list[Fraction], int]


def run(steps: Sequence[Step], level: Fraction) -> tuple[Fraction, list[Fraction]]:
    """How many slots are taken at a level, and what the pods use of each resource, in parts of it."""
    counts = [min(max((level - start) / size, Fraction(0)), Fraction(count)) for start, size, count, *_ in steps]
    used = [
        sum((count * parts[r] for count, (*_, parts, _) in zip(counts, steps, strict=True)), Fraction(0))
        for r in range(2)
    ]
    taken = (count * number for count, (*_, number) in zip(counts, steps, strict=True))
    return sum(taken, Fraction(0)), used
