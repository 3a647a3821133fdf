from __future__ import annotations

import pytest

from cluster.builders import Json, make_node, make_pod
from fairbind.cluster.objects.captured import RunTime
from fairbind.model.errors import InvalidProblemError
from fairbind.simulator.next_hour import NamespaceHour, compare_next_hour
from fairbind.what_if.listed_objects import ListedObjects
from what_if.snapshots import make_snapshot, make_tenant


def make_cluster(*, tenants: list[Json], running: int = 0) -> ListedObjects:
    """Four cores; a and b each have 40 pods of a core, of which some of a's run."""
    return make_snapshot(
        nodes=[make_node("n-1", allocatable={"cpu": "4", "memory": "64Gi", "pods": "110"})],
        pods=[
            make_pod(
                f"{name}-{number}", namespace=name, requests={"cpu": "1", "memory": "1Gi"},
                node="n-1" if name == "a" and number < running else None,
            )
            for name in "ab"
            for number in range(40)
        ],
        tenants=tenants,
        policy={"policy": "drf"},
    )  # fmt: skip


def find_shares(hours: list[NamespaceHour]) -> dict[str, tuple[float, float]]:
    return {hour.namespace: (hour.before / 1000, hour.after / 1000) for hour in hours}


def test_limits_change_what_namespaces_hold() -> None:
    listed = make_cluster(tenants=[])
    limited = make_tenant("a", limit=[{"resources": {"cpu": "1"}}])
    hours, known = compare_next_hour(listed, [limited])

    assert find_shares(hours) == {"a": (2.0, 1.0), "b": (2.0, 3.0)}
    assert {(hour.tenant, hour.resource, hour.capacity) for hour in hours} == {
        ("a", "cpu", 4000),
        ("ns/b", "cpu", 4000),
    }
    assert all(hour.is_changed for hour in hours)
    assert known == "0 of 80 pods have a run time, drawn from known ones; the others never end"


def test_the_tenants_replace_those_of_the_snapshot() -> None:
    listed = make_cluster(tenants=[make_tenant("a", weight=3)])

    assert find_shares(compare_next_hour(listed, [])[0]) == {"a": (3.0, 2.0), "b": (1.0, 2.0)}
    assert not any(
        hour.is_changed for hour in compare_next_hour(listed, [make_tenant("other", weight=3, namespaces=["a"])])[0]
    )


def test_pods_that_end_within_the_hour_count_for_their_time() -> None:
    listed = make_cluster(tenants=[], running=4)
    listed.run_times = [RunTime("a", 600.0), RunTime("b", 600.0)]
    hours, _ = compare_next_hour(listed, [make_tenant("a", limit=[{"resources": {"cpu": "0"}}])])

    after = find_shares(hours)["a"][1]
    assert after == pytest.approx(4 * 600 / 3600, rel=0.2)  # what runs, runs on to its end
    assert find_shares(hours)["b"][1] > find_shares(hours)["b"][0]


@pytest.mark.parametrize(
    ("before", "after", "is_changed"), [(10, 11, False), (10, 11.1, True), (10, 8.9, True), (0, 0, False), (0, 1, True)]
)
def test_a_change_is_more_than_a_tenth(before: float, after: float, *, is_changed: bool) -> None:
    assert NamespaceHour("a", "a", "cpu", before, after, 100).is_changed is is_changed


def test_a_snapshot_without_pods_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="pods: must have at least one"):
        compare_next_hour(make_snapshot(nodes=[make_node("n-1")]), [])
