"""To look at a cache changes nothing: one that is asked for overviews all the time says what one says that is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import rule

from cluster.builders import SCHEDULER, Cluster, make_node, make_pod
from cluster.cache.test_histories import KINDS, Histories
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.cache.consistency import describe
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.model import CycleReport
from fairbind.scheduling import run_cycle


def make_cluster() -> Cluster:
    """Three pods too large for the only node, one that may go nowhere, one that is not honoured, one that fits."""
    cluster = Cluster()
    cluster.add_nodes(make_node("a"))
    cluster.add_pods(
        *(make_pod(f"large-{n}", requests={"cpu": "64"}) for n in range(3)),
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
        pictures.append(describe(cache.build_snapshot(), cache.books.usage, cache.books.servers))
        overviews.append(cache.queries.build_overview())
    assert pictures[0] == pictures[1] == pictures[2]
    assert overviews[0] == overviews[1] == overviews[2]
    assert overviews[0].tenants[0].pending == {"queued": 1, "insufficient": 3, "ineligible": 1, "unsupported": 1}


def test_names_that_no_node_offers_are_shown_nowhere() -> None:
    cluster = Cluster()
    cluster.add_nodes(make_node("a"))
    cluster.add_pods(
        make_pod("p", node="a", requests={"cpu": "1", "made.up/thing": "5"}),
        make_pod("q", node="not-there", requests={"made.up/other": "5"}),
    )
    overview = cluster.cache.queries.build_overview()
    (tenant,) = overview.tenants
    assert dict(tenant.allocated) == {"cpu": 1.0, "pods": 2.0}
    assert dict(overview.allocated) == {"cpu": 1.0, "memory": 0.0, "ephemeral-storage": 0.0, "pods": 2.0}
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
    cluster.add_pods(make_pod("new", requests={"cpu": "65"}))
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
    large = make_pod("p", requests={"cpu": "64"})
    cluster.add_nodes(make_node("a"))
    cluster.add_pods(large)
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
        if name in {"build_snapshot", "queries", "find_pod", "check_consistent"}:
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
    picture = describe(snapshot, cache.books.usage, cache.books.servers), [tenant.since for tenant in snapshot.tenants]
    return overview, (cache.queries.tenant_states(), cache.queries.unknown_fairness_resources), picture, decisions


def decide(cache: ClusterCache) -> CycleReport:
    return run_cycle(cache.build_snapshot(), cache.settings, 0.0)


TestLookedAt = LookedAt.TestCase
TestLookedAt.settings = settings(stateful_step_count=50)
