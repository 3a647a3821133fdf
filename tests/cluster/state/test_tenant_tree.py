"""Tenants below tenants: what counts where, whose limits apply, and that the order of events says nothing."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from typing import Any

import pytest

from cluster.builders import Json, make_namespace, make_node, make_pod
from cluster.limited import CPU, GPU_NODES, World, make_pods, make_tenant
from fairbind.cluster.cache.tenant_overviews import SHOWN_USERS
from fairbind.cluster.messages import compute_condition_reason, format_unschedulable
from fairbind.cluster.state.consistency import describe
from fairbind.cluster.tenancy.guarantees import GuaranteeOf
from fairbind.cluster.tenancy.tenants import parse_tenant
from fairbind.model import Rejection, RejectionKind, Snapshot, UsageBelow
from fairbind.model.hierarchy import FLAT
from fairbind.model.overview import TenantOverview
from fairbind.model.topology import LimitOf
from seeds import draw_seeds

TOP_LIMIT = {"resources": {"cpu": "3"}}
USERS: dict[str, Any] = {"users": {"label": "user"}}


def make_family(*limit: Json, **top: Any) -> list[Json]:
    """A parent without namespaces, and two children."""
    children = [make_tenant(name, parent="top") for name in "ab"]
    return [make_tenant("top", *limit, namespaces=[], **top), *children]


def list_inner(snapshot: Snapshot) -> dict[str, int]:
    """What each inner tenant holds of CPUs, in thousandths."""
    return {name: each.tenant.allocated_r[0] for name, each in snapshot.hierarchy.inner.items()}


def find_parents(snapshot: Snapshot) -> dict[str, str | None]:
    return {tenant.name: snapshot.hierarchy.get_place(tenant.name).parent for tenant in snapshot.tenants}


def find_shown(world: World) -> dict[str, TenantOverview]:
    return {tenant.name: tenant for tenant in world.cache.queries.build_overview().shown}


# --- limits on the path ---


def test_a_limit_of_a_parent_holds_for_all_below_it_and_is_named() -> None:
    world = World(*make_family(TOP_LIMIT))
    world.add_pods(*make_pods("a", 1, "x", node="n0", scheduler="default-scheduler", phase="Running"))
    world.add_pods(*make_pods("a", 4), *make_pods("b", 4))

    assert len(world.decide().bindings) == 2
    assert world.get_held("top") == 3000
    for tenant in "ab":
        wait = world.find_wait(tenant)
        assert wait.at_limit == Rejection(RejectionKind.AT_LIMIT, "cpu of tenant top")
        assert wait.until == (UsageBelow(LimitOf("top", 0, "cpu"), 2001),)
        assert compute_condition_reason(wait) == "AtLimit"
        assert format_unschedulable(wait, 4).endswith("The limit for cpu of tenant top is reached.")


def test_each_limit_on_the_path_names_its_own_tenant() -> None:
    children = [make_tenant("a", {"resources": {"cpu": "1"}}, parent="top"), make_tenant("b", parent="top")]
    world = World(make_tenant("top", TOP_LIMIT, namespaces=[]), *children)
    world.add_pods(*make_pods("a", 3))
    assert len(world.decide().bindings) == 1
    wait = world.find_wait("a")
    assert wait.at_limit == Rejection(RejectionKind.AT_LIMIT, "cpu of tenant a")

    world.add_pods(*make_pods("b", 3))
    assert len(world.decide().bindings) == 2
    assert {each.at_limit.subject for each in world.decide().waits if each.at_limit} == {
        "cpu of tenant a",
        "cpu of tenant top",
    }


def test_pods_of_one_child_let_those_of_another_go_in_the_cycle_in_which_they_end() -> None:
    world = World(*make_family(TOP_LIMIT))
    running = make_pods("a", 3, "x", node="n0", phase="Running")
    world.add_pods(*running, *make_pods("b", 6))
    assert world.decide().bindings == ()
    assert world.decide().bindings == ()
    world.change_pod(running[0], lambda pod: pod["status"].update(phase="Succeeded"))
    assert len(world.decide().bindings) == 1
    assert world.decide().bindings == ()


def test_a_limit_of_a_parent_that_rises_falls_and_goes_counts_at_once() -> None:
    world = World(*make_family({"resources": {"cpu": "1"}}))
    world.add_pods(*make_pods("a", 9))
    assert len(world.decide().bindings) == 1
    world.set_tenants(*make_family(TOP_LIMIT))
    assert len(world.decide().bindings) == 2
    world.set_tenants(*make_family({"resources": {"cpu": "1"}}))
    assert world.decide().bindings == ()
    world.set_tenants(*make_family())
    assert len(world.decide().bindings) == 6


def test_any_number_of_classes_of_children_goes_on_below_the_limit_of_their_parent() -> None:
    world = World(*make_family({"resources": {"memory": "1Gi"}}), nodes=8)
    running = make_pods("b", 1, "x", node="n0", phase="Running", requests={"memory": "1Gi"})
    pods = [make_pod(f"p{n}", namespace="ab"[n % 2], requests={"memory": f"{100 + n}Mi"}) for n in range(400)]
    world.add_pods(*running, *pods)
    assert world.decide().bindings == ()
    assert world.decide().bindings == ()
    world.delete_pod(running[0])
    assert len(world.decide().bindings) >= 5
    assert world.get_held("top", resource="memory") <= 2**30
    assert world.get_held("top", resource="memory") > 2**30 - 100 * 2**20


def test_a_tenant_of_users_keeps_its_guarantee_before_the_first_of_them_comes() -> None:
    """It is the only Tenant, and has no leaf below it yet."""
    promise = [{"resources": {"cpu": "10"}}]
    world = World(make_tenant("a", guarantee=promise, lending="Never", **USERS))
    world.add_pods(*make_pods("c", 9))

    assert len(world.decide().bindings) == 16 - 10
    assert len(world.decide().waits) == 1


# --- who is below whom ---


def test_a_flat_cluster_has_no_tree() -> None:
    world = World(make_tenant("a", TOP_LIMIT), make_tenant("b"))
    assert world.cache.build_snapshot().hierarchy is FLAT


def test_a_child_that_moves_takes_along_what_it_holds() -> None:
    tops = [make_tenant(name, TOP_LIMIT, namespaces=[]) for name in ("p", "q")]
    world = World(*tops, make_tenant("a", parent="p"), make_tenant("b", parent="q"))
    world.add_pods(*make_pods("a", 3))
    assert len(world.decide().bindings) == 3
    assert list_inner(world.cache.build_snapshot()) == {"p": 3000, "q": 0}

    world.set_tenants(*tops, make_tenant("a", parent="q"), make_tenant("b", parent="q"))
    assert list_inner(world.cache.build_snapshot()) == {"q": 3000}  # nothing is below p, so that it is a leaf
    assert (world.get_held("p"), world.get_held("q")) == (0, 3000)
    world.add_pods(*make_pods("b", 1))
    assert world.find_wait("b").at_limit == Rejection(RejectionKind.AT_LIMIT, "cpu of tenant q")
    world.cache.check_consistent()


def test_a_tenant_with_children_and_namespaces_is_both() -> None:
    tenants = [make_tenant("top", {"resources": {"cpu": "4"}}, weight=3), make_tenant("a", parent="top")]
    world = World(*tenants)
    world.add_pods(*make_pods("top", 2), *make_pods("a", 4))
    assert len(world.decide().bindings) == 4

    snapshot = world.cache.build_snapshot()
    assert find_parents(snapshot) == {"a": "top", "top": "top"}
    assert {tenant.name: tenant.weight for tenant in snapshot.tenants} == {"a": Fraction(1), "top": Fraction(1)}
    assert snapshot.hierarchy.inner["top"].tenant.weight == 3
    assert list_inner(snapshot) == {"top": 4000}
    shown = find_shown(world)
    assert {name: (each.running, each.limit) for name, each in shown.items()} == {
        "a": (2, {}),
        "top": (4, {"cpu": 4.0}),
    }


def test_a_tenant_in_trouble_hangs_below_the_root_with_its_own_subtree() -> None:
    world = World(make_tenant("x", parent="gone"), make_tenant("y", parent="x"), make_tenant("z", parent="z2"))
    snapshot = world.cache.build_snapshot()
    assert find_parents(snapshot) == {"x": "x", "y": "x", "z": None}
    assert snapshot.hierarchy.inner["x"].place.parent is None


def test_what_did_not_change_is_the_same_object() -> None:
    tenants = [make_tenant("p", namespaces=[], priority=1), make_tenant("q", namespaces=[])]
    guaranteed = [{"resources": {"cpu": "2"}}]
    world = World(*tenants, make_tenant("a", parent="p", guarantee=guaranteed), make_tenant("b", parent="q"))
    before = world.cache.build_snapshot().hierarchy
    world.add_pods(*make_pods("b", 1))
    assert len(world.decide().bindings) == 1
    after = world.cache.build_snapshot().hierarchy
    assert after.inner["p"] is before.inner["p"]
    assert after.inner["q"] is not before.inner["q"]
    assert after.inner["q"].place is before.inner["q"].place
    assert after.leaves is before.leaves


# --- users ---


def test_each_value_of_the_label_is_a_child() -> None:
    world = World(make_tenant("a", {"resources": {"cpu": "5"}}, **USERS))
    pods = [make_pods("a", 3, user, labels={"user": user} if user else {}) for user in ("va", "vb", "")]
    world.add_pods(*itertools.chain(*pods))
    assert find_parents(world.cache.build_snapshot()) == {"@a": "a", "va@a": "a", "vb@a": "a"}
    assert len(world.decide().bindings) == 5
    assert world.get_held("a") == 5000
    assert {wait.at_limit.subject for wait in world.decide().waits if wait.at_limit} == {"cpu of tenant a"}
    world.cache.check_consistent()


def test_users_come_and_go_with_their_pods_and_labels() -> None:
    world = World(make_tenant("a", **USERS))
    assert world.cache.build_snapshot().tenants == ()
    (pod,) = make_pods("a", 1, labels={"user": "va"}, node="n0", phase="Running")
    world.add_pods(pod)
    assert find_parents(world.cache.build_snapshot()) == {"va@a": "a"}
    moved = world.change_pod(pod, lambda pod: pod["metadata"]["labels"].update(user="vb"))
    assert find_parents(world.cache.build_snapshot()) == {"vb@a": "a"}
    assert list_inner(world.cache.build_snapshot()) == {"a": 1000}

    world.set_tenants(make_tenant("a"))
    assert find_parents(world.cache.build_snapshot()) == {"a": None}
    world.set_tenants(make_tenant("a", users={"label": "other"}))
    assert find_parents(world.cache.build_snapshot()) == {"@a": "a"}
    world.delete_pod(moved)
    assert world.cache.build_snapshot().tenants == ()
    world.cache.check_consistent()


@pytest.mark.parametrize("value", ["v/a", "v@b", "x" * 64, "-va", "", "v a\n"])
def test_a_value_that_no_label_has_counts_as_none(value: str) -> None:
    world = World(make_tenant("a", **USERS), make_tenant("b"))
    world.add_pods(*make_pods("a", 1, labels={"user": value}))
    assert find_parents(world.cache.build_snapshot()) == {"@a": "a", "b": None}


def test_the_largest_users_are_shown_and_a_sum_of_the_others() -> None:
    world = World(make_tenant("a", **USERS), nodes=12)
    for n in range(SHOWN_USERS + 3):
        world.add_pods(*make_pods("a", 2 if n < SHOWN_USERS else 1, f"u{n}x", labels={"user": f"u{n}"}))
    placed = len(world.decide().bindings)
    shown = find_shown(world)
    assert len(shown) == SHOWN_USERS + 2
    assert shown["a"].running == placed
    assert shown["*@a"].running + sum(each.running for name, each in shown.items() if name.startswith("u")) == placed
    assert (shown["*@a"].weight, shown["*@a"].allocated["cpu"], shown["*@a"].parent) == (3.0, 3.0, "a")


# --- guarantees ---


def test_guarantees_are_counted_and_follow_the_nodes() -> None:
    entries = [{"resources": {"cpu": "20"}}, {"nodes": GPU_NODES, "resources": {"cpu": "6"}}]
    tenants = [make_tenant("a", guarantee=entries, weight=3), make_tenant("b", guarantee=entries[:1])]
    world = World(*tenants)  # four nodes of 4 cores, of which two have GPUs
    world.add_pods(*make_pods("a", 2, "x", node="n1", phase="Running"), *make_pods("a", 1, "y", node="n0"))
    snapshot = world.cache.build_snapshot()
    place = snapshot.hierarchy.get_place("a")
    assert [(each.subject, each.amount) for each in place.guarantees] == [
        (GuaranteeOf("a", 0, "cpu"), 12_000),
        (GuaranteeOf("a", 1, "cpu"), 6_000),
    ]
    assert [each.amount for each in snapshot.hierarchy.get_place("b").guarantees] == [4_000]
    assert [snapshot.held[each.subject] for each in place.guarantees] == [3_000, 2_000]
    assert place.guarantees[1].servers.domain_k.tolist() == [-1, 0, -1, 0]

    world.add_nodes(*(make_node(f"m{n}") for n in range(6)))
    after = world.cache.build_snapshot().hierarchy
    assert [each.amount for each in after.get_place("a").guarantees] == [20_000, 6_000]
    world.add_nodes(make_node("n1", labels={"gpu": "h100"}, unschedulable=True))
    after = world.cache.build_snapshot().hierarchy
    assert [each.amount for each in after.get_place("a").guarantees] == [20_000, 4_000]
    world.cache.check_consistent()


def test_a_class_brings_what_it_asks_for_to_all_guarantees_on_its_path() -> None:
    promised = [{"resources": {"cpu": "2", "nvidia.com/gpu": 1}}]
    tenants = [make_tenant("top", TOP_LIMIT, namespaces=[], guarantee=promised)]
    world = World(*tenants, make_tenant("a", parent="top", guarantee=promised))
    world.add_pods(*make_pods("a", 1))
    (task_class,) = world.cache.build_snapshot().task_classes
    assert set(task_class.brings) == {
        (GuaranteeOf("a", 0, "cpu"), 1000),
        (GuaranteeOf("top", 0, "cpu"), 1000),
        (LimitOf("top", 0, "cpu"), 1000),
    }


def test_a_guarantee_and_a_limit_of_the_same_entry_are_counted_apart() -> None:
    entry = {"nodes": GPU_NODES, "resources": {"cpu": "2"}}
    world = World(make_tenant("a", {"resources": {"cpu": "2"}}, guarantee=[entry]))
    world.add_pods(*make_pods("a", 1, node="n0", phase="Running"))
    assert world.cache.build_snapshot().held == {LimitOf("a", 0, "cpu"): 1000, GuaranteeOf("a", 0, "cpu"): 0}


def test_what_is_guaranteed_and_kept_back_is_told() -> None:
    promised = [{"resources": {"cpu": "4"}}]
    tenants = [make_tenant("top", namespaces=[], guarantee=[{"resources": {"cpu": "3"}}])]
    world = World(*tenants, make_tenant("a", parent="top", guarantee=promised, lending="Never"))
    world.add_pods(*make_pods("a", 1, node="n0", phase="Running"))
    shown = find_shown(world)
    assert {name: (each.guaranteed, each.kept_back) for name, each in shown.items()} == {
        "a": ({"cpu": 3.0}, {"cpu": 3.0}),
        "top": ({"cpu": 3.0}, {}),
    }


def test_a_growth_is_measured_by_the_parts_at_each_level() -> None:
    """Users of one tenant leave the parts of all others as they are."""
    world = World(make_tenant("a", **USERS), make_tenant("b"))
    for n in range(4):
        world.add_pods(*make_pods("a", 1, f"u{n}x", labels={"user": f"u{n}"}))
    world.add_pods(*make_pods("b", 1))
    world.cache.build_snapshot()
    usage = world.cache.state.usage
    parts = {name: usage.inner.compute_part(each) for name, each in usage.by_name.items()}
    assert parts == {"b": Fraction(1, 2)} | {f"u{n}@a": Fraction(1, 8) for n in range(4)}


# --- the order of events ---


@pytest.mark.parametrize("seed", draw_seeds(8))
def test_the_order_of_events_says_nothing(seed: int) -> None:
    """Children before their parents, pods before their Tenants, and others that come and go meanwhile."""
    draw = random.Random(seed)
    promised = [{"resources": {"cpu": "3"}}]
    tenants = [
        make_tenant("top", TOP_LIMIT, namespaces=[], guarantee=promised),
        make_tenant("mid", parent="top", priority=2),
        make_tenant("a", TOP_LIMIT, parent="mid", **USERS),
        make_tenant("b", parent="mid", guarantee=promised),
        make_tenant("lost", parent="nobody"),
    ]
    pods = [
        make_pod(f"p{n}", namespace=draw.choice(["a", "b", "mid", "c"]), requests=CPU, labels={"user": f"u{n % 3}"})
        for n in range(12)
    ]
    for n, pod in enumerate(pods[:6]):
        pod["spec"]["nodeName"], pod["status"]["phase"] = f"n{n % 3}", "Running"
    passing = [make_tenant("mid", parent="lost"), make_tenant("top", parent="b", namespaces=["c"]), make_tenant("z")]
    passing_pods = [make_pod("gone", namespace="a", requests=CPU, node="n0", labels={"user": "u9"})]

    def tell(order: random.Random) -> dict[str, Any]:
        world = World(nodes=0)
        events: list[Any] = [
            *(lambda each=each: world.change_pod(each) for each in pods),
            *(lambda each=each: world.cache.set_tenant(parse_tenant(each)) for each in tenants),
            *(lambda name=name: world.add_namespaces(make_namespace(name)) for name in ("a", "b", "mid", "c")),
            *(lambda n=n: world.add_nodes(make_node(f"n{n}", labels={"gpu": "h100"})) for n in range(3)),
        ]
        order.shuffle(events)
        world.add_pods(*passing_pods)
        for each in passing:
            world.cache.set_tenant(parse_tenant(each))
        for n, event in enumerate(events):
            event()
            if n % 3 == 0:
                world.cache.build_snapshot()
        for each in tenants:
            world.cache.set_tenant(parse_tenant(each))
        world.cache.delete_tenant("z")
        world.delete_pod(passing_pods[0])
        snapshot = world.cache.build_snapshot(whole=True)
        assert snapshot.held == world.cache.state.usage.limits.get_held()
        world.cache.check_consistent()
        described = describe(snapshot, world.cache.state.usage, world.cache.state.servers)
        return {**described, "running": dict(described["running"]), "held": dict(snapshot.held)}

    first = tell(random.Random(0))
    for number in range(3):
        assert tell(random.Random(seed * 10 + number)) == first
