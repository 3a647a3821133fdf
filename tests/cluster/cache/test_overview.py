"""To look at a cache changes nothing: one that is asked for overviews all the time says what one says that is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import rule

from cluster.builders import SCHEDULER, Cluster, Json, make_namespace, make_node, make_pod, read_namespace
from cluster.cache.test_histories import KINDS, Histories
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.cache.overview import SHOWN_CLASSES
from fairbind.cluster.messages import compute_condition_reason, format_unschedulable
from fairbind.cluster.state.consistency import describe
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.model import CycleReport, PolicySettings, Unclaimed
from fairbind.model.overview import OTHER_CLASSES
from fairbind.scheduling import run_cycle
from fairbind.scheduling.fair_shares.problem import make_exact_problem, solve_exactly


def make_cluster() -> Cluster:
    """Three pods for which too little is free, one that may go nowhere, one that is not honoured, one that fits."""
    cluster = Cluster()
    cluster.add_nodes(make_node("a"))
    cluster.add_pods(
        make_pod("running", node="a", requests={"cpu": "1"}),
        *(make_pod(f"large-{n}", requests={"cpu": "4"}) for n in range(3)),
        make_pod("nowhere", nodeSelector={"no": "such"}),
        make_pod("claims", resourceClaims=[{"name": "r"}]),
        make_pod("fits", requests={"cpu": "1"}),
    )
    return cluster


def count_pending(cluster: Cluster) -> dict[str, int]:
    (tenant,) = cluster.cache.queries.build_overview().tenants
    return dict(tenant.pending)


def test_an_overview_that_is_built_again_is_the_same_and_leaves_the_picture_alone() -> None:
    cluster = make_cluster()
    cache = cluster.cache
    cache.note_waits(decide(cache).waits)
    pictures, overviews = [], []
    for _ in range(3):
        pictures.append(describe(cache.build_snapshot(), cache.state.usage, cache.state.servers))
        overviews.append(cache.queries.build_overview())
    assert pictures[0] == pictures[1] == pictures[2]
    assert overviews[0] == overviews[1] == overviews[2]
    assert overviews[0].tenants[0].pending == {"queued": 1, "insufficient": 3, "ineligible": 1, "unsupported": 1}


def test_what_is_free_and_too_scattered_for_a_group_is_told() -> None:
    """Two pods of 2 fit in 4 cores that are free, but not in 1, 1 and 2."""
    cluster = Cluster()
    cluster.add_nodes(
        *(make_node(name, allocatable={"cpu": cpu, "pods": "9"}) for name, cpu in (("a", "1"), ("b", "1"), ("c", "2")))
    )
    marks = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    cluster.add_pods(
        *(
            make_pod(f"m{n}", requests={"cpu": "2"}, labels={"kueue.x-k8s.io/pod-group-name": "g"}, annotations=marks)
            for n in range(2)
        )
    )
    assert cluster.cache.queries.build_overview().scattered == {}
    cluster.cache.note_waits(decide(cluster.cache).waits)

    assert cluster.cache.queries.build_overview().scattered["cpu"] == 4.0


def make_waiting(name: str, second: int, **changes: Any) -> Json:
    return make_pod(name, created=f"2026-01-01T00:00:{second:02}Z", **{"requests": {"cpu": "4"}, **changes})


def test_the_oldest_pod_is_found_that_could_be_placed() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("a"))
    pods = [
        make_waiting("later", 30, priority=5),
        make_waiting("late", 40, priority=5),
        make_waiting("older", 20, priority=1),
        make_waiting("young", 50, priority=9),
    ]
    cluster.add_pods(
        *pods,
        make_pod("running", node="a", requests={"cpu": "1"}),
        make_waiting("too-large", 4, requests={"cpu": "5"}),
        make_waiting("of-a-kind-that-no-node-has", 5, requests={"cpu": "1", "x.io/gpu": "1"}),
        make_waiting("blocked", 1, resourceClaims=[{"name": "r"}]),
        make_waiting("nowhere", 2, nodeSelector={"no": "such"}),
        make_waiting("gated", 3, schedulingGates=[{"name": "g"}]),
    )
    midnight = 1767225600.0

    def find_oldest() -> float | None:
        (tenant,) = cluster.cache.queries.build_overview().tenants
        return None if tenant.oldest_pending is None else tenant.oldest_pending - midnight

    cluster.cache.note_waits(decide(cluster.cache).waits)
    assert find_oldest() == 20.0
    cluster.delete_pod(pods[2])
    assert find_oldest() == 30.0
    oldest = make_waiting("oldest", 10, priority=7)
    cluster.add_pods(oldest)
    assert find_oldest() == 10.0
    for pod in (oldest, pods[0], pods[1], pods[3]):
        cluster.delete_pod(pod)
    assert find_oldest() is None


@pytest.mark.parametrize("is_told", [True, False])
def test_a_pod_that_no_node_is_large_enough_for_is_not_what_some_node_may_take(*, is_told: bool) -> None:
    cluster = Cluster()
    taint = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
    cluster.add_nodes(make_node("a"), make_node("b", allocatable={"cpu": "64", "pods": "110"}, taints=[taint]))
    cluster.add_pods(make_waiting("too-large", 4, requests={"cpu": "5"}))

    def look() -> tuple[dict[str, int], bool, str]:
        (wait,) = decide(cluster.cache).waits
        cluster.cache.note_waits([wait] if is_told else ())
        (tenant,) = cluster.cache.queries.build_overview().tenants
        assert tenant.backlogged == (tenant.oldest_pending is not None)
        assert compute_condition_reason(wait) == "Unschedulable"  # for which autoscalers add a larger node
        return dict(tenant.pending), tenant.backlogged, format_unschedulable(wait, 2)

    tainted = "1 node(s) had untolerated taint(s)"
    enough = "no node is large enough, even when empty, among those that admit the pod."
    said = f"0/2 nodes are available: 1 Insufficient cpu, {tainted}. {enough}"
    assert look() == ({"ineligible": 1}, False, said)
    cluster.add_pods(make_pod("running", node="a", requests={"cpu": "1"}))
    cluster.add_nodes(make_node("a", allocatable={"cpu": "5", "memory": "8Gi", "pods": "110"}))
    said = f"0/2 nodes are available: 1 Insufficient cpu, {tainted}."
    assert look() == ({"insufficient" if is_told else "queued": 1}, True, said)


def test_classes_show_what_they_have_and_what_is_held_there() -> None:
    cluster = Cluster()
    big, gpu = (
        {"cpu": "16", "memory": "4Gi", "pods": "10"},
        {"cpu": "8", "memory": "4Gi", "pods": "10", "x.io/gpu": "4"},
    )
    cluster.add_nodes(*(make_node(f"big-{n}", allocatable=big) for n in range(3)), make_node("gpu", allocatable=gpu))
    cluster.add_nodes(make_node("away", allocatable=big, unschedulable=True))
    cluster.add_pods(
        make_pod("p", node="big-1", requests={"cpu": "1500m"}),
        make_pod("q", node="gpu", requests={"x.io/gpu": "3"}),
        make_pod("r", node="away", requests={"cpu": "2"}),
    )
    overview = cluster.cache.queries.build_overview()
    shown = {each.name: each for each in overview.classes}
    assert list(shown) == sorted(shown)
    assert {name: each.servers for name, each in shown.items()} == {"away": 4, "gpu": 1}
    # Of those that are usable, and what is held on the other one.
    assert shown["away"].capacity == {"cpu": 50.0, "memory": 3 * 2.0**32, "pods": 31.0}
    assert shown["away"].allocated == {"cpu": 3.5, "memory": 0.0, "pods": 2.0}
    assert (shown["gpu"].capacity["x.io/gpu"], shown["gpu"].allocated["x.io/gpu"]) == (4.0, 3.0)
    for resource, total in overview.capacity.items():
        assert sum(each.capacity.get(resource, 0.0) for each in overview.classes) == total


def test_fair_shares_are_parts_of_the_same_totals() -> None:
    """All want what they hold, some of it on a cordoned node, so nothing is unfair."""
    cluster = Cluster()
    cluster.add_nodes(make_node("a"), make_node("b"), make_node("c", unschedulable=True))
    cluster.add_pods(
        make_pod("p", namespace="x", node="c", requests={"cpu": "2"}),
        make_pod("q", namespace="y", node="a", requests={"cpu": "3"}),
    )
    problem = make_exact_problem(cluster.cache.build_detailed_snapshot(), PolicySettings())
    assert problem is not None
    fair_shares = solve_exactly(problem).fair_shares
    assert fair_shares == pytest.approx({"ns/x": 2 / 10, "ns/y": 3 / 10})
    shown = cluster.cache.queries.build_overview(fair_shares)
    assert {tenant.name: tenant.dominant_share for tenant in shown.tenants} == pytest.approx(fair_shares)


def test_small_classes_are_shown_together() -> None:
    cluster = Cluster()
    for n in range(SHOWN_CLASSES + 3):
        cluster.add_nodes(make_node(f"n{n:02}", allocatable={"cpu": str(2**n), "memory": "4Gi", "pods": "10"}))
    cluster.add_nodes(make_node("z", allocatable={"cpu": "1", "memory": "4Gi", "pods": "10"}))  # as n00
    classes = cluster.cache.queries.build_overview().classes
    assert [(each.name, each.servers) for each in classes[:2]] == [("n00", 2), ("n01", 1)]
    assert (classes[-1].name, classes[-1].servers) == (OTHER_CLASSES, 3)
    assert classes[-1].capacity["cpu"] == 7.0 * 2**SHOWN_CLASSES
    assert len(classes) == SHOWN_CLASSES + 1


def test_a_cluster_without_nodes_has_no_classes() -> None:
    assert Cluster().cache.queries.build_overview().classes == ()


def test_each_namespace_has_its_tenant() -> None:
    cluster = Cluster()
    for name in ("x", "y", "kube-system"):
        cluster.add_namespaces(make_namespace(name, {"team": name}))
    cluster.cache.set_tenant(TenantSpec("a", namespaces=frozenset({"x", "not-there"})))

    def find() -> dict[str, str]:
        return dict(cluster.cache.queries.build_overview().namespaces)

    assert find() == {"x": "a", "y": "ns/y"}
    assert cluster.cache.queries.build_overview().namespaces is cluster.cache.queries.build_overview().namespaces
    cluster.cache.set_policy(PolicySettings(unclaimed=Unclaimed.TOGETHER))
    assert find() == {"x": "a", "y": "ns/*"}
    cluster.cache.set_tenant(TenantSpec("b", namespaces=frozenset({"kube-system"})))
    assert find() == {"x": "a", "y": "ns/*", "kube-system": "b"}
    cluster.cache.delete_tenant("a")
    cluster.cache.namespaces.delete(read_namespace(make_namespace("y")))
    assert find() == {"x": "ns/*", "kube-system": "b"}


def test_names_that_no_node_offers_are_shown_nowhere() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("a"))
    cluster.add_pods(
        make_pod("p", node="a", requests={"cpu": "1", "made.up/thing": "5"}),
        make_pod("q", node="not-there", requests={"made.up/other": "5"}),
    )
    overview = cluster.cache.queries.build_overview()
    (tenant,) = overview.tenants
    assert dict(tenant.allocated) == {"cpu": 1.0, "pods": 1.0}
    assert dict(overview.allocated) == {"cpu": 1.0, "memory": 0.0, "ephemeral-storage": 0.0, "pods": 1.0}
    cluster.add_nodes(make_node("b", allocatable={"made.up/thing": "8"}))
    (tenant,) = cluster.cache.queries.build_overview().tenants
    assert tenant.allocated["made.up/thing"] == 5.0


@pytest.mark.parametrize("looks", [True, False], ids=["looked at", "left alone"])
def test_what_the_last_cycle_saw_stays_true_for_the_pods_that_are_left(looks: bool) -> None:  # noqa: FBT001 - a parameter
    """The first pod of a class, which a wait names, may go at any time."""
    cluster = make_cluster()
    cluster.cache.note_waits(decide(cluster.cache).waits)
    if looks:
        cluster.cache.queries.build_overview()
    cluster.delete_pod(make_pod("large-0"))
    cluster.add_pods(make_pod("new", requests={"cpu": "3500m"}))
    assert count_pending(cluster) == {"queued": 2, "insufficient": 2, "ineligible": 1, "unsupported": 1}
    cluster.cache.note_waits(())
    assert count_pending(cluster) == {"queued": 5, "unsupported": 1}


def test_a_pod_that_may_be_placed_since_has_not_had_its_turn() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("a"))
    broken = make_pod("p", tolerations="nonsense")
    cluster.add_pods(broken)
    cluster.cache.note_waits(decide(cluster.cache).waits)
    assert count_pending(cluster) == {"unsupported": 1}
    cluster.change_pod(broken, lambda pod: pod["spec"].pop("tolerations"))
    assert count_pending(cluster) == {"queued": 1}
    cluster.cache.note_waits(decide(cluster.cache).waits)
    cluster.change_pod(broken)
    assert count_pending(cluster) == {"unsupported": 1}


def test_a_pod_that_has_become_unreadable_counts_as_that() -> None:
    cluster = Cluster()
    large = make_pod("p", requests={"cpu": "4"})
    cluster.add_nodes(make_node("a"))
    cluster.add_pods(large, make_pod("running", node="a", requests={"cpu": "1"}))
    cluster.cache.note_waits(decide(cluster.cache).waits)
    assert count_pending(cluster) == {"insufficient": 1}
    cluster.change_pod(large, lambda pod: pod["spec"].update(tolerations="nonsense"))
    assert count_pending(cluster) == {"unsupported": 1}


@pytest.mark.parametrize("looks", [True, False], ids=["looked at", "left alone"])
def test_a_tenant_that_is_made_again_is_as_young_as_its_object(looks: bool) -> None:  # noqa: FBT001 - a parameter
    cache = ClusterCache(SCHEDULER, lambda: None)
    cache.set_tenant(TenantSpec("a", created=1.0))
    cache.queries.build_overview()
    cache.delete_tenant("a")
    if looks:
        cache.queries.build_overview()
    cache.set_tenant(TenantSpec("a", created=2.0))
    assert [tenant.since for tenant in cache.build_snapshot().tenants] == [2.0]


class Pair:
    """Two caches that hear the same; only the first of them is looked at in between."""

    def __init__(self) -> None:
        self.looked_at, self.left_alone = ClusterCache(SCHEDULER, lambda: None), ClusterCache(SCHEDULER, lambda: None)

    def __getattr__(self, name: str) -> Any:
        seen, unseen = getattr(self.looked_at, name), getattr(self.left_alone, name)
        if name in KINDS:
            return BothFeeds(seen, unseen)
        if name in {"build_snapshot", "queries", "find_pod", "check_consistent", "settings", "_builder"}:
            return seen

        def tell_both(*args: Any, **options: Any) -> Any:
            answer = seen(*args, **options)
            assert unseen(*args, **options) == answer
            return answer

        return tell_both


class BothFeeds:
    def __init__(self, *feeds: Any) -> None:
        self.feeds = feeds

    def __getattr__(self, name: str) -> Any:
        def tell_both(*args: Any) -> None:
            for feed in self.feeds:
                getattr(feed, name)(*args)

        return tell_both


class LookedAt(Histories):
    def __init__(self) -> None:
        super().__init__()
        self.pair = Pair()
        self.cache: Any = self.pair

    @rule()
    def look(self) -> None:
        self.pair.looked_at.queries.build_overview()
        self.pair.looked_at.queries.tenant_states()
        _ = self.pair.looked_at.queries.unknown_fairness_resources

    @rule()
    def note_what_a_cycle_sees(self) -> None:
        self.cache.note_waits(decide(self.pair.looked_at).waits)

    @rule()
    def both_say_the_same(self) -> None:
        overviews, states, pictures, decisions = zip(
            *map(see, (self.pair.looked_at, self.pair.left_alone)), strict=True
        )
        assert overviews[0] == overviews[1]
        assert states[0] == states[1]
        assert pictures[0] == pictures[1]
        assert decisions[0] == decisions[1]

    def teardown(self) -> None:
        self.both_say_the_same()
        super().teardown()


def see(cache: ClusterCache) -> tuple[Any, ...]:
    """Everything that a cache says: as the last look, because looking at one could bring it in line with the other."""
    overview = cache.queries.build_overview()
    report = decide(cache)
    decisions = report.bindings, report.weighted_shares, [(w.first, w.waiting, w.rejections) for w in report.waits]
    snapshot = cache.build_snapshot()
    picture = describe(snapshot, cache.state.usage, cache.state.servers), [tenant.since for tenant in snapshot.tenants]
    return overview, (cache.queries.tenant_states(), cache.queries.unknown_fairness_resources), picture, decisions


def decide(cache: ClusterCache) -> CycleReport:
    return run_cycle(cache.build_snapshot(), cache.settings, 0.0)


TestLookedAt = pytest.mark.slow(LookedAt.TestCase)
TestLookedAt.settings = settings(stateful_step_count=50)
