"""Of a tenant with very many placements a snapshot holds a few, and all have their turn."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_namespace, make_node, make_pod, read_node
from fairbind.cluster.classes import window, window_groups
from fairbind.cluster.messages import format_unschedulable
from fairbind.cluster.tenancy.tenants import parse_tenant
from fairbind.model import CycleReport, PolicySettings, RejectionKind, TaskClass
from fairbind.scheduling import run_cycle
from fairbind.scheduling.cycle.order.task_queues import compute_sort_key
from seeds import draw_seeds

MOST, ROTATING, MOST_OF_ALL = 8, 2, 30
MOST_CLASSES, ROTATING_CLASSES, MOST_CLASSES_OF_ALL = 20, 5, 60
NODES = 40
NOBODY = {"key": "metadata.name", "operator": "NotIn", "values": ["nobody"]}


@pytest.fixture(autouse=True)
def _small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "MAX_TENANT_PLACEMENTS", MOST)
    monkeypatch.setattr(window, "MAX_PLACEMENTS", MOST_OF_ALL)
    monkeypatch.setattr(window, "MAX_TENANT_CLASSES", 200)


def pin(node: int) -> Json:
    """Ask for one node in a way that is not taken for a pin, so that each node is another placement."""
    return ask_for({"key": "metadata.name", "operator": "In", "values": [f"n{node:02}"]}, NOBODY)


def ask_for(*fields: Json) -> Json:
    term = {"matchFields": list(fields)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def make_cluster(pods: int, cpu: str = "1") -> Cluster:
    """Pods that each may go to one node, the older ones first."""
    cluster = Cluster()
    cluster.add_nodes(*(make_node(f"n{n:02}") for n in range(NODES)))
    for n in range(pods):
        created = f"2026-01-01T00:{n // 60:02}:{n % 60:02}Z"
        cluster.add_pods(make_pod(f"p{n:02}", requests={"cpu": cpu}, created=created, affinity=pin(n)))
    return cluster


def split(cluster: Cluster) -> tuple[list[TaskClass], list[TaskClass]]:
    classes = cluster.cache.build_snapshot().task_classes
    return [c for c in classes if c.blocked is None], [c for c in classes if c.blocked is not None]


def name_tasks(classes: list[TaskClass]) -> list[str]:
    return sorted(task.uid for each in classes for task in each.tasks)


def decide(cluster: Cluster) -> CycleReport:
    report = run_cycle(cluster.cache.build_snapshot(), PolicySettings(), 0.0)
    for bind in report.bindings:
        assert cluster.cache.assume(bind.task.uid, bind.server)
    cluster.note_waits(report.waits)
    return report


def place_first(cluster: Cluster, *, cycles: int) -> list[str]:
    """Decide until something is placed, in so many cycles at most; return what it is."""
    for _ in range(cycles):
        changes = cluster.changes
        if placed := [bind.task.uid for bind in decide(cluster).bindings]:
            return placed
        assert cluster.changes > changes, "no other cycle follows"
    return []


def look(cluster: Cluster) -> list[str]:
    """Decide, and return what could have been placed."""
    shown = name_tasks(split(cluster)[0])
    decide(cluster)
    return shown


def test_a_tenant_at_the_limit_is_shown_in_full() -> None:
    shown, blocked = split(make_cluster(MOST))
    assert len(shown) == MOST
    assert blocked == []


def test_a_daemonset_is_shown_in_full_and_each_pod_goes_to_its_node() -> None:
    cluster = make_cluster(0)
    for n in range(NODES):
        affinity = ask_for({"key": "metadata.name", "operator": "In", "values": [f"n{n:02}"]})
        cluster.add_pods(make_pod(f"d{n:02}", requests={"cpu": "1"}, affinity=affinity))
    shown, blocked = split(cluster)

    assert (len(shown), blocked) == (NODES, [])
    assert {bind.task.uid[-2:]: bind.server[-2:] for bind in decide(cluster).bindings} == {
        f"{n:02}": f"{n:02}" for n in range(NODES)
    }
    cluster.cache.check_consistent()


def test_beyond_the_limit_those_wait_whose_turn_comes_last_with_a_reason() -> None:
    cluster = make_cluster(MOST + 5)
    shown, (later,) = split(cluster)
    assert name_tasks(shown) == [f"uid-p{n:02}" for n in range(MOST)]
    assert [task.uid for task in later.tasks] == [f"uid-p{n:02}" for n in range(MOST, MOST + 5)]
    assert later.blocked is not None
    assert later.blocked.kind == RejectionKind.LATER

    report = run_cycle(cluster.cache.build_snapshot(), PolicySettings(), 0.0)
    (wait,) = report.waits
    said = "pod waits: other pods of its tenant, with too many different constraints or requests, come first."
    assert format_unschedulable(wait, NODES) == f"0/40 nodes are available: {said}"
    cluster.cache.note_waits(report.waits)
    (tenant,) = cluster.cache.queries.build_overview().tenants
    assert tenant.pending == {"queued": MOST + 5}


def test_the_rest_comes_as_earlier_ones_leave_and_each_of_them_is_placed() -> None:
    cluster = make_cluster(NODES)
    order: list[str] = []
    while cluster.cache.queries.has_waiting:
        bindings = decide(cluster).bindings
        assert 0 < len(bindings) <= MOST
        order.extend(bind.task.uid for bind in bindings)
    assert order == [f"uid-p{n:02}" for n in range(NODES)]
    cluster.cache.check_consistent()


def test_pods_that_fit_nowhere_do_not_keep_those_behind_them_from_being_placed() -> None:
    cluster = make_cluster(NODES - 1, cpu="9")
    cluster.add_pods(make_pod("last", requests={"cpu": "1"}, created="2026-02-01T00:00:00Z", affinity=pin(NODES - 1)))
    assert place_first(cluster, cycles=NODES // ROTATING) == ["uid-last"]


def test_a_round_ends_when_all_were_looked_at_and_the_next_begins_with_a_change() -> None:
    cluster = make_cluster(NODES, cpu="9")
    for _ in range(2):
        seen: set[str] = set()
        rounds = 0
        while True:
            changes = cluster.changes
            seen.update(look(cluster))
            rounds += 1
            assert rounds <= NODES
            if cluster.changes == changes:
                break
        assert seen == {f"uid-p{n:02}" for n in range(NODES)}
        cluster.add_nodes(make_node("n00", allocatable={"cpu": "5", "pods": "9"}))


def test_when_nothing_waits_any_more_there_is_no_round_to_end() -> None:
    cluster = make_cluster(NODES, cpu="5")
    decide(cluster)
    assert cluster.cache._builder.window.has_more
    for n in range(NODES):
        cluster.delete_pod(make_pod(f"p{n:02}"))
    cluster.cache.skip_snapshot()
    assert not cluster.cache._builder.window.has_more


def test_a_higher_priority_comes_first_also_when_it_comes_late() -> None:
    cluster = make_cluster(NODES)
    cluster.add_pods(make_pod("urgent", priority=9, created="2026-03-01T00:00:00Z", affinity=pin(3)))
    assert "uid-urgent" in name_tasks(split(cluster)[0])


def test_pods_that_differ_in_what_no_node_has_are_one_class() -> None:
    cluster = make_cluster(0)
    for n in range(5 * MOST):
        toleration = {"key": f"k{n}", "operator": "Exists"}
        cluster.add_pods(make_pod(f"t{n:02}", requests={"cpu": "1"}, tolerations=[toleration]))
    (one,), blocked = split(cluster)
    assert blocked == []
    assert [task.uid for task in one.tasks] == sorted(task.uid for task in one.tasks)
    assert len(one.tasks) == 5 * MOST

    cluster.add_nodes(make_node("n00", taints=[{"key": "k7", "effect": "NoSchedule"}]))
    shown, _ = split(cluster)
    assert sorted(len(each.tasks) for each in shown) == [1, 5 * MOST - 1]
    cluster.cache.check_consistent()


def test_unsupported_pods_of_such_a_tenant_are_one_class_a_reason() -> None:
    claim = [{"name": "v", "gcePersistentDisk": {"pdName": "d"}}]
    cluster = make_cluster(2)
    for n in range(MOST):
        cluster.add_pods(make_pod(f"u{n}", requests={"cpu": f"{n + 1}m"}, volumes=claim))
    shown, (unsupported,) = split(cluster)
    assert len(shown) == 2
    assert len(unsupported.tasks) == MOST
    assert unsupported.blocked is not None
    assert unsupported.blocked.kind == RejectionKind.NOT_SUPPORTED


def test_who_joins_those_that_are_left_out_waits_with_them() -> None:
    cluster = make_cluster(2 * MOST)
    split(cluster)
    second = make_pod("second", requests={"cpu": "1"}, created="2026-01-02T00:00:00Z", affinity=pin(2 * MOST - 1))
    cluster.add_pods(second)
    shown, blocked = split(cluster)
    assert "uid-second" in name_tasks(blocked)
    assert len(name_tasks(shown)) + len(name_tasks(blocked)) == 2 * MOST + 1
    cluster.delete_pod(second)
    assert "uid-second" not in name_tasks(split(cluster)[1])


def test_the_other_tenants_are_shown_as_ever() -> None:
    cluster = make_cluster(MOST + 5)
    for n in range(3):
        cluster.add_pods(make_pod(f"other{n}", namespace="elsewhere", affinity=pin(n)))
    shown, _ = split(cluster)
    assert len([each for each in shown if each.tenant == "ns/elsewhere"]) == 3


def test_a_tenant_whose_pods_leave_has_a_class_for_each_queue_again() -> None:
    cluster = make_cluster(MOST + 1)
    kept = cluster.cache.build_snapshot()
    assert len(kept.task_classes) == MOST + 1
    cluster.delete_pod(make_pod("p00"))
    shown, blocked = split(cluster)
    assert len(shown) == MOST
    assert blocked == []
    cluster.cache.check_consistent()


def make_sprawl(tenants: int, pods: int) -> Cluster:
    """One person's namespaces, each with pods that each may go to one node, and one of somebody else."""
    cluster = make_cluster(0)
    for t in range(tenants):
        for n in range(pods):
            cluster.add_pods(make_pod(f"s{t}-{n}", namespace=f"sprawl{t}", affinity=pin((8 * t + n) % NODES)))
    cluster.add_pods(make_pod("honest", namespace="honest"))
    return cluster


def count_placements(cluster: Cluster) -> int:
    return len({id(each.placement) for each in split(cluster)[0]})


@pytest.mark.parametrize(("tenants", "each"), [(3, MOST), (5, (MOST_OF_ALL - 1) // 5), (20, 4)])
def test_many_tenants_together_have_fewer_each(tenants: int, each: int) -> None:
    cluster = make_sprawl(tenants, MOST)
    shown, _ = split(cluster)
    of_tenant = [len([c for c in shown if c.tenant == f"ns/sprawl{t}"]) for t in range(tenants)]
    assert of_tenant == [each] * tenants
    assert name_tasks([c for c in shown if c.tenant == "ns/honest"]) == ["uid-honest"]


def make_users(count: int) -> Cluster:
    """A tenant with users of which each has pods that may each go to one node, and another tenant with such pods."""
    cluster = make_cluster(0)
    spec = {"namespaces": ["many"], "users": {"label": "user"}}
    cluster.cache.replace_tenants([parse_tenant({"metadata": {"name": "many"}, "spec": spec})])
    cluster.add_namespaces(make_namespace("many"))
    for u in range(count):
        for n in range(MOST):
            more: dict[str, Any] = {"labels": {"user": f"u{u}"}, "affinity": pin((MOST * u + n) % NODES)}
            cluster.add_pods(make_pod(f"u{u}-{n}", namespace="many", **more))
    cluster.add_pods(*(make_pod(f"honest{n}", namespace="honest", affinity=pin(n)) for n in range(MOST)))
    return cluster


@pytest.mark.parametrize(("users", "each"), [(1, MOST), (2, MOST // 2), (20, 2)])
def test_the_users_of_a_tenant_divide_what_one_tenant_may_have(users: int, each: int) -> None:
    cluster = make_users(users)
    counts = Counter(each.tenant for each in split(cluster)[0])
    assert counts.pop("ns/honest") == MOST
    assert counts == {f"u{u}@many": each for u in range(users)}
    cluster.cache.check_consistent()


def test_each_pod_of_each_user_is_looked_at() -> None:
    cluster = make_users(20)
    seen = set[str]()
    for _ in range(MOST):
        seen.update(name_tasks(split(cluster)[0]))
        decide(cluster)
    assert seen.issuperset(f"uid-u{u}-{n}" for u in range(20) for n in range(MOST))


@pytest.mark.parametrize(("users", "each"), [(2, 30), (4, 20), (50, 2)])
def test_the_users_of_a_tenant_divide_its_classes(users: int, each: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "MAX_TENANT_CLASSES", 80)
    cluster = make_users(0)
    for u in range(users):
        for n in range(30):
            more: dict[str, Any] = {"labels": {"user": f"u{u}"}, "requests": {"cpu": f"{n + 1}m"}}
            cluster.add_pods(make_pod(f"u{u}-{n}", namespace="many", **more))
    counts = Counter(each.tenant for each in split(cluster)[0])
    assert counts.pop("ns/honest") == MOST
    assert counts == {f"u{u}@many": each for u in range(users)}
    cluster.cache.check_consistent()


def test_tenants_with_the_same_constraints_are_not_many_placements() -> None:
    cluster = make_cluster(0)
    for t in range(20):
        for n in range(MOST):
            cluster.add_pods(make_pod(f"a{t}-{n}", namespace=f"alike{t}", affinity=pin(n)))
    shown, blocked = split(cluster)
    assert (len(shown), blocked) == (20 * MOST, [])
    assert count_placements(cluster) == MOST


AWAITED = ("fresh", "fast")
"""Labels of nodes for which pods wait that may use no node until then."""


@pytest.mark.parametrize("seed", draw_seeds(6, nightly=24))
def test_what_is_kept_sorted_equals_what_is_sorted_anew_whatever_changes(seed: int) -> None:
    """Pods come, go, are placed and let go again; nodes come with taints and labels that set pods apart."""
    random = Random(seed)
    cluster = make_cluster(2 * MOST)
    pods: dict[str, Json] = {}
    for step in range(120):
        name = f"r{random.randrange(30)}"
        match random.randrange(6):
            case 0 if name in pods:
                cluster.delete_pod(pods.pop(name))
            case 1:
                cluster.cache.assume(f"uid-{name}", f"n{random.randrange(NODES):02}")
            case 2:
                cluster.cache.forget(f"uid-{name}")
            case 3:
                taints = [{"key": f"k{random.randrange(4)}", "effect": "NoSchedule"}] if random.random() < 0.5 else []
                labels = {key: "x" for key in AWAITED if random.random() < 0.3}
                cluster.add_nodes(make_node(f"n{random.randrange(3):02}", taints=taints, labels=labels))
            case _:
                tolerations = [{"key": f"k{random.randrange(12)}", "operator": "Exists"}]
                where: Json = {"tolerations": tolerations}
                if random.random() < 0.3:
                    where = {"affinity": pin(random.randrange(5))}
                elif random.random() < 0.5:
                    where["nodeSelector"] = {random.choice(AWAITED): "x"}
                volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}] if random.random() < 0.1 else []
                requests = {"cpu": str(random.randrange(1, 3))}
                pods[name] = make_pod(name, requests=requests, priority=random.randrange(3), volumes=volumes, **where)
                cluster.add_pods(pods[name])
        if step % random.randrange(1, 4) == 0:
            cluster.cache.check_consistent()


# --- classes: pods that all ask for other amounts ---


@pytest.fixture
def few_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "MAX_TENANT_CLASSES", MOST_CLASSES)
    monkeypatch.setattr(window, "MAX_CLASSES", MOST_CLASSES_OF_ALL)


def add_sizes(cluster: Cluster, count: int, *, least: int = 100, namespace: str = "team") -> list[str]:
    """Let pods come of which each asks for more than the one before, the older ones first; return their UIDs."""
    for n in range(count):
        created = f"2026-01-01T00:{n // 60:02}:{n % 60:02}Z"
        requests = {"cpu": f"{least + n}m"}
        cluster.add_pods(make_pod(f"{namespace}{n:03}", namespace=namespace, requests=requests, created=created))
    return [f"uid-{namespace}{n:03}" for n in range(count)]


@pytest.mark.usefixtures("few_classes")
def test_a_tenant_at_the_limit_of_classes_is_shown_in_full() -> None:
    cluster = make_cluster(0)
    uids = add_sizes(cluster, MOST_CLASSES)
    assert (name_tasks(split(cluster)[0]), split(cluster)[1]) == (uids, [])


@pytest.mark.usefixtures("few_classes")
def test_beyond_the_limit_of_classes_the_first_are_shown_and_some_of_the_others() -> None:
    cluster = make_cluster(0)
    uids = add_sizes(cluster, MOST_CLASSES + 4)
    shown, (later,) = split(cluster)
    assert name_tasks(shown) == uids[:MOST_CLASSES]
    assert later.blocked is not None
    assert later.blocked.kind is RejectionKind.LATER
    assert name_tasks([later]) == uids[MOST_CLASSES:]


@pytest.mark.usefixtures("few_classes")
def test_of_many_sizes_each_is_placed() -> None:
    cluster = make_cluster(0)
    uids = add_sizes(cluster, 5 * MOST_CLASSES)
    placed: list[str] = []
    while cluster.cache.queries.has_waiting:
        bindings = decide(cluster).bindings
        assert 0 < len(bindings) <= MOST_CLASSES
        placed.extend(bind.task.uid for bind in bindings)
    assert sorted(placed) == uids
    cluster.cache.check_consistent()


@pytest.mark.usefixtures("few_classes")
def test_sizes_that_fit_nowhere_do_not_keep_those_behind_them_from_being_placed() -> None:
    cluster = make_cluster(0)
    add_sizes(cluster, 5 * MOST_CLASSES, least=90_000)
    cluster.add_pods(make_pod("last", requests={"cpu": "1"}, created="2026-02-01T00:00:00Z"))
    assert place_first(cluster, cycles=5 * MOST_CLASSES // ROTATING_CLASSES) == ["uid-last"]


@pytest.mark.usefixtures("few_classes")
def test_who_is_shown_for_its_placement_counts_as_a_class_too() -> None:
    cluster = make_cluster(MOST + 2)
    uids = add_sizes(cluster, MOST_CLASSES)
    shown, _ = split(cluster)
    assert len(shown) == MOST_CLASSES
    assert count_placements(cluster) <= MOST
    assert {"uid-p00", uids[0]} <= set(name_tasks(shown))


@pytest.mark.usefixtures("few_classes")
def test_a_daemonset_counts_little_and_is_shown_in_full() -> None:
    cluster = make_cluster(0)
    for n in range(NODES):
        field = {"key": "metadata.name", "operator": "In", "values": [f"n{n:02}"]}
        cluster.add_pods(make_pod(f"d{n:02}", requests={"cpu": "1"}, affinity=ask_for(field)))
    add_sizes(cluster, MOST_CLASSES - 3)
    shown, blocked = split(cluster)
    assert NODES * window_groups.PINNED_PART < 3
    assert (len(shown), blocked) == (NODES + MOST_CLASSES - 3, [])
    assert len(decide(cluster).bindings) == len(shown)


@pytest.mark.usefixtures("few_classes")
def test_a_round_goes_on_where_it_is_when_a_node_sets_others_apart() -> None:
    """A taint that comes and goes must not keep those from being looked at that come last."""
    cluster = make_cluster(0)
    sizes = add_sizes(cluster, 5 * MOST_CLASSES, least=90_000)
    tolerant = [{"key": "k", "operator": "Exists"}]
    for n in range(5 * MOST_CLASSES):  # so many that all are sorted again
        cluster.add_pods(make_pod(f"t{n:03}", requests={"cpu": f"{n + 90}"}, tolerations=tolerant))
    seen: set[str] = set()
    for cycle in range(12 * MOST_CLASSES // ROTATING_CLASSES):
        taints = [{"key": "k", "effect": "NoSchedule"}] if cycle % 2 else []
        cluster.add_nodes(make_node("n00", taints=taints))
        seen.update(look(cluster))
    assert seen.issuperset(sizes)


@pytest.mark.usefixtures("few_classes")
def test_a_round_goes_on_where_it_is_when_most_of_those_leave_that_were_seen() -> None:
    cluster = make_cluster(0)
    sizes = add_sizes(cluster, 10 * MOST_CLASSES, least=90_000)
    seen: set[str] = set()
    while len(seen) < 8 * MOST_CLASSES:
        seen.update(look(cluster))
    for n in range(7 * MOST_CLASSES):
        cluster.delete_pod(make_pod(f"team{n:03}"))
    left = len(sizes) - len(seen)
    for _ in range(left // ROTATING_CLASSES):
        seen.update(look(cluster))
    assert seen.issuperset(sizes)


@pytest.mark.usefixtures("few_classes")
def test_many_tenants_together_have_fewer_classes_each() -> None:
    cluster = make_cluster(0)
    for tenant in range(5):
        add_sizes(cluster, MOST_CLASSES, namespace=f"many{tenant}")
    add_sizes(cluster, 3, namespace="honest")
    counts = Counter(each.tenant for each in split(cluster)[0])
    assert counts.pop("ns/honest") == 3
    assert set(counts.values()) == {(MOST_CLASSES_OF_ALL - 3) // 5}


@pytest.mark.usefixtures("few_classes")
def test_so_many_tenants_that_each_has_few_classes_have_fewer_all_the_same() -> None:
    cluster = make_cluster(0)
    for tenant in range(2 * MOST_CLASSES_OF_ALL // MOST):
        add_sizes(cluster, MOST, namespace=f"many{tenant}")
    counts = Counter(each.tenant for each in split(cluster)[0])
    assert set(counts.values()) == {MOST // 2}


# --- pods that change their queues, but not what they have in common with others ---

TOLERANT: Json = {"tolerations": [{"key": "absent", "operator": "Exists"}]}
"""Of a taint that no node has."""


def test_an_older_pod_joins_a_queue_to_which_another_came_before() -> None:
    cluster = make_cluster(2 * MOST)
    cluster.add_pods(make_pod("old", requests={"cpu": "2"}, created="2025-01-01T00:00:00Z"))
    cluster.add_pods(make_pod("young", requests={"cpu": "2"}, **TOLERANT))
    cluster.cache.build_snapshot()
    cluster.add_pods(make_pod("younger", requests={"cpu": "2"}, **TOLERANT))
    cluster.add_pods(make_pod("old", requests={"cpu": "2"}, created="2025-01-01T00:00:00Z", **TOLERANT))
    shown, _ = split(cluster)
    (together,) = [each for each in shown if {task.uid for task in each.tasks} & {"uid-old"}]
    assert [task.uid for task in together.tasks] == ["uid-old", "uid-young", "uid-younger"]
    cluster.cache.check_consistent()


def test_what_a_node_offered_for_a_while_is_lacking_again_when_it_has_gone() -> None:
    """The first queue of a group comes back to its place with what it found out before."""
    cluster = make_cluster(2 * MOST)
    gpu = {"cpu": "1", "example.com/gpu": "1"}
    cluster.add_pods(make_pod("first", requests=gpu, created="2025-01-02T00:00:00Z"))
    assert "uid-first" not in {bind.task.uid for bind in decide(cluster).bindings}
    cluster.add_nodes(make_node("gpu", allocatable={"cpu": "4", "pods": "9", "example.com/gpu": "1"}))
    cluster.add_pods(make_pod("urgent", requests=gpu, priority=9, **TOLERANT))
    cluster.cache.build_snapshot()
    cluster.delete_pod(make_pod("urgent"))
    cluster.cache.nodes.delete(read_node(make_node("gpu")))
    assert "uid-first" not in {bind.task.uid for bind in decide(cluster).bindings}


@pytest.mark.parametrize("others", [0, 2])
def test_a_pod_whose_binding_failed_at_once_is_shown_again(others: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its queue went and came between two snapshots. others: pods of the same class in other queues."""
    monkeypatch.setattr(window, "MAX_TENANT_CLASSES", 4)
    cluster = Cluster()
    cluster.add_nodes(make_node("a"))
    likes_nothing = [
        {"weight": n + 1, "preference": {"matchExpressions": [{"key": "no", "operator": "Exists"}]}} for n in range(3)
    ]
    for n in range(1 + others):
        affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [likes_nothing[n]]}}
        cluster.add_pods(make_pod(f"p{n}", requests={"cpu": "1m"}, affinity=affinity))
    cluster.add_pods(*(make_pod(f"q{n}", requests={"cpu": f"{n + 2}m"}) for n in range(5)))

    def list_tasks() -> list[list[str]]:
        return [[task.uid for task in each.tasks] for each in cluster.cache.build_snapshot().task_classes]

    before = list_tasks()
    assert cluster.cache.assume("uid-p0", "a")
    cluster.cache.forget("uid-p0")
    assert sorted(list_tasks()) == sorted(before)


def test_without_a_limit_all_are_shown() -> None:
    cluster = Cluster(is_limited=False)
    cluster.add_nodes(make_node("a"))
    cluster.add_pods(*(make_pod(f"p{n}", requests={"cpu": f"{n + 1}m"}) for n in range(210)))

    classes = cluster.cache.build_snapshot().task_classes

    assert (len(classes), {each.blocked for each in classes}) == (210, {None})
    assert not cluster.cache.note_waits([])


def test_the_tasks_of_several_queues_are_in_turn_and_the_first_of_all_tells_the_group() -> None:
    cluster, group = Cluster(), window_groups.Group()
    pods = [
        make_pod(f"p{n}", created=f"2026-01-01T00:00:0{n}Z", tolerations=[{"key": f"k{n % 2}", "operator": "Exists"}])
        for n in range(4)
    ]
    cluster.add_pods(*pods)
    for queue in cluster.cache.state.queues.by_key.values():
        group.add(compute_sort_key(queue.tasks[0]), queue)
    assert [task.uid for task in group.tasks] == ["uid-p0", "uid-p1", "uid-p2", "uid-p3"]
    assert group.uid == "uid-p0"

    first = group.first
    group.remove(compute_sort_key(first.tasks[0]))
    cluster.delete_pod(pods[0])
    group.add(compute_sort_key(first.tasks[0]), first)
    assert [task.uid for task in group.tasks] == ["uid-p1", "uid-p2", "uid-p3"]
    assert group.uid == "uid-p1"
