"""Groups whose members claim volumes that exist already, such as local ones: a plan takes no volume twice."""

from __future__ import annotations

from random import Random

import pytest

from cluster.builders import make_gang, make_node
from cluster.volumes import ZONE, VolumeCluster, claiming
from fairbind.cluster.filters.volume_offers import NO_VOLUME
from fairbind.cluster.objects.decode import POD_GROUPS
from fairbind.scheduling import run_cycle
from seeds import draw_seeds


def make_cluster(nodes: dict[tuple[str, str], int]) -> VolumeCluster:
    """Return a cluster that makes no volumes. nodes: how many cpu each has, by its zone and name."""
    cluster = VolumeCluster()
    cluster.add(
        "storageclasses", "late", provisioner="kubernetes.io/no-provisioner", volumeBindingMode="WaitForFirstConsumer"
    )
    for (zone, name), cpu in nodes.items():
        amounts = {"cpu": str(cpu), "memory": "8Gi", "pods": "110"}
        cluster.add_nodes(make_node(name, allocatable=amounts, labels={ZONE: zone}))
    return cluster


def add_group(cluster: VolumeCluster, members: int, *sizes: str) -> None:
    """Add a group each of whose pods has a claim of each size."""
    cluster.put_objects(POD_GROUPS, make_gang(members))
    for member in range(members):
        claims = [f"c{member}-{number}" for number, _ in enumerate(sizes)]
        for claim, size in zip(claims, sizes, strict=True):
            cluster.add_late_claim(claim, size)
        cluster.add_pods(claiming(f"m{member}", *claims, schedulingGroup={"podGroupName": "g"}))


def decide(cluster: VolumeCluster) -> dict[str, str]:
    """Carry out what a cycle decides, plan by plan, and return which pods got which node."""
    placed = {}
    for plan in run_cycle(cluster.cache.build_snapshot(), cluster.cache.settings, 0.0).plans:
        for number, bind in enumerate(plan.binds):
            assert cluster.cache.assume(bind.task.uid, bind.server, joins=number > 0), "a plan is refused"
            placed[bind.task.uid] = bind.server
    return placed


def test_two_members_take_two_volumes_though_both_would_fit_where_one_is() -> None:
    cluster = make_cluster({("z0", "n0"): 4, ("z1", "n1"): 4})
    for zone in ("z0", "z1"):
        cluster.add_free(f"v-{zone}", zone)
    add_group(cluster, 2, "1Gi")

    assert sorted(decide(cluster).values()) == ["n0", "n1"]
    cluster.cache.check_consistent()


def test_a_group_waits_while_volumes_are_too_few_and_begins_with_one_more() -> None:
    cluster = make_cluster({("z0", "n0"): 4, ("z1", "n1"): 4})
    cluster.add_free("v", "z0")
    add_group(cluster, 2, "1Gi")
    assert decide(cluster) == {}
    report = run_cycle(cluster.cache.build_snapshot(), cluster.cache.settings, 0.0)
    [wait] = report.waits
    assert NO_VOLUME in dict(wait.rejections)
    assert wait.group is not None
    assert wait.group.fitting == 1

    cluster.add_free("w", "z1")
    assert len(decide(cluster)) == 2
    cluster.cache.check_consistent()


def test_claims_for_which_volumes_are_made_are_not_counted() -> None:
    cluster = VolumeCluster()
    for zone in "ab":
        cluster.add_free(f"v-{zone}", zone)
    add_group(cluster, 3, "1Gi")

    assert decide(cluster).keys() == {"uid-m0", "uid-m1", "uid-m2"}


@pytest.mark.parametrize("seed", draw_seeds(60, nightly=500))
def test_a_group_begins_at_once_where_its_volumes_are_enough_and_else_not(seed: int) -> None:
    """A node may have volumes of its own, or share those of a zone."""
    draw = Random(seed)
    cpus = {(f"z{draw.randint(0, 3)}", f"n{number}"): draw.randint(1, 4) for number in range(4)}
    stocks = {zone: draw.randint(0, 4) for zone, _ in cpus}
    cluster, claims, members = make_cluster(cpus), draw.choice([1, 1, 2]), draw.randint(2, 6)
    for zone, count in stocks.items():
        for number in range(count):
            cluster.add_free(f"v-{zone}-{number}", zone, draw.choice(["1Gi", "2Gi"]))
    add_group(cluster, members, *["1Gi"] * claims)

    room = sum(
        min(sum(cpu for (zone, _), cpu in cpus.items() if zone == other), count // claims)
        for other, count in stocks.items()
    )
    assert len(decide(cluster)) == (members if room >= members else 0)
    cluster.cache.check_consistent()
