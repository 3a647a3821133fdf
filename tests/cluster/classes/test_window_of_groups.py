"""Of a tenant with very many placements the members of a group of pods are shown together, or not at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.builders import Cluster, Json, make_gang, make_node, make_pod
from fairbind.cluster.classes import window
from fairbind.cluster.objects.decode import POD_GROUPS
from fairbind.model import PolicySettings, RejectionKind, TaskClass
from fairbind.scheduling import run_cycle

NODES, MOST = 24, 8
EVERYWHERE = {"key": "metadata.name", "operator": "NotIn", "values": ["no-node"]}


@pytest.fixture(autouse=True)
def _small_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "MAX_TENANT_PLACEMENTS", MOST)
    monkeypatch.setattr(window, "MAX_TENANT_CLASSES", 200)
    monkeypatch.setattr(window, "MAX_TENANT_REASONS", 4)


def make_odd_pod(name: str, node: int, at: int, group: str | None = None, cpu: str = "1") -> Json:
    """A pod with a placement of its own; it began to wait at a minute."""
    fields = [{"key": "metadata.name", "operator": "In", "values": [f"n{node:02}"]}, EVERYWHERE]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    more: Json = {} if group is None else {"schedulingGroup": {"podGroupName": group}}
    created = f"2026-01-01T00:{at:02}:00Z"
    return make_pod(name, requests={"cpu": cpu}, created=created, affinity=affinity, **more)


def make_cluster(*sizes: int, singles: int = 0, cpu: str = "1") -> Cluster:
    """Groups of so many members, the older ones first, whose members come in turn, and single pods before them."""
    cluster = Cluster()
    cluster.add_nodes(*(make_node(f"n{number:02}") for number in range(NODES)))
    for number in range(singles):
        cluster.add_pods(make_odd_pod(f"s{number}", number, 0, cpu=cpu))
    for number, size in enumerate(sizes):
        created = f"2026-01-01T00:{number + 1:02}:00Z"
        cluster.put_objects(POD_GROUPS, make_gang(size, f"g{number}", created=created))
    for member in range(max(sizes, default=0)):
        for number, size in enumerate(sizes):
            if member < size:
                node = (singles + number * 5 + member) % NODES
                cluster.add_pods(make_odd_pod(f"g{number}-{member:02}", node, number + 1, f"g{number}", cpu))
    return cluster


def list_shown(cluster: Cluster) -> Iterator[TaskClass]:
    return (each for each in cluster.cache.build_snapshot().task_classes if each.blocked is None)


def count_shown(cluster: Cluster) -> dict[str, int]:
    """How many tasks of each group are shown."""
    counts: dict[str, int] = {}
    for task_class in list_shown(cluster):
        name = "single" if task_class.group is None else task_class.group.name
        counts[name] = counts.get(name, 0) + len(task_class.tasks)
    return counts


def test_groups_are_shown_whole_or_not_at_all() -> None:
    cluster = make_cluster(4, 4, 3)
    assert count_shown(cluster) == {"team/g0": 4, "team/g1": 4}
    assert count_shown(make_cluster(5, 5)) == {"team/g0": 5, "team/g1": 5}


def test_a_group_larger_than_the_window_is_shown_when_it_comes_first() -> None:
    cluster = make_cluster(MOST + 4, singles=0)
    cluster.add_pods(make_odd_pod("late", 20, 50))
    assert count_shown(cluster)["team/g0"] == MOST + 4


def test_all_groups_have_their_turn_behind_pods_that_fit_nowhere() -> None:
    """The single pods come first and are too large for the nodes as they are; so is each group but the last."""
    cluster = make_cluster(3, 3, MOST + 3, 2, singles=MOST, cpu="3")
    cluster.add_pods(
        *(make_pod(f"full{number}", node=f"n{number:02}", requests={"cpu": "2"}) for number in range(NODES))
    )
    seen: dict[str, int] = {}
    for _ in range(20):
        for name, count in count_shown(cluster).items():
            seen[name] = max(seen.get(name, 0), count)
        report = run_cycle(cluster.cache.build_snapshot(), PolicySettings(), 0.0)
        assert not report.bindings
        cluster.note_waits(report.waits)
    assert {name: count for name, count in seen.items() if name != "single"} == {
        "team/g0": 3,
        "team/g1": 3,
        "team/g2": MOST + 3,
        "team/g3": 2,
    }


def test_a_member_that_goes_takes_its_group_out_and_one_that_comes_brings_it_back() -> None:
    cluster = make_cluster(5, 5)
    gone = make_odd_pod("g1-00", 5, 2, "g1")
    cluster.delete_pod(gone)
    assert count_shown(cluster) == {"team/g0": 5}
    cluster.add_pods(make_odd_pod("g1-00", 5, 2, "g1"))
    assert count_shown(cluster) == {"team/g0": 5, "team/g1": 5}
    cluster.cache.check_consistent()


def test_many_incomplete_groups_are_few_classes() -> None:
    cluster = make_cluster(*(2 for _ in range(12)))
    for number in range(12):
        cluster.put_objects(POD_GROUPS, make_gang(3, f"g{number}"))
    blocked = [each for each in cluster.cache.build_snapshot().task_classes if each.blocked is not None]
    assert [each.blocked.kind for each in blocked if each.blocked] == [RejectionKind.GANG_INCOMPLETE] * 5
    assert sorted(len(each.tasks) for each in blocked) == [2, 2, 2, 2, 16]
