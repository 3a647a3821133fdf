"""What is written about nominated nodes, and how often; whole operators are in `kube.assembled.test_claims`."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from cluster.builders import make_pod
from cluster.volumes import VolumeCluster, claiming
from fairbind.cluster.loop.write_limits import PLACES_IN_A_ROW
from fairbind.cluster.state.nominations import NominationChange
from fairbind.kube.client.api import NotAllowedError
from fairbind.kube.client.errors import ApiError
from fairbind.kube.observer import SilentObserver
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.due_writes import WRITES_PER_LOOK
from fairbind.kube.writers.nominator import Nominator

Json = dict[str, Any]


class Scene:
    """Pods that say something else than they should, and an API server that remembers what is written.

    fails: what the server answers in a namespace. wrote: who has written the nominated node of all pods, or None.
    """

    def __init__(self) -> None:
        self.changes: list[NominationChange] = []
        self.writes: list[tuple[str, Json]] = []
        self.fails: dict[str, ApiError] = {}
        self.wrote: str | None = None
        self.reads = 0
        self.leads = self.decides = True
        self.now = 0.0
        self.nominator = Nominator(
            self,
            self,
            lambda: self.leads,
            lambda: self.decides,
            PartFailures(SilentObserver()),
            clock=lambda: self.now,
            sleep=self.sleep,
        )
        self._looks = 0

    def find_nomination_changes(self) -> list[NominationChange]:
        return self.changes

    async def request(self, method: str, path: str, **rest: Any) -> bytes:
        if method == "GET":
            self.reads += 1
            fields: Json = {"f:status": {"f:nominatedNodeName": {}, "f:conditions": {}}}
            managed = [] if self.wrote is None else [{"manager": self.wrote, "fieldsV1": fields}]
            others = {"manager": "kubelet", "fieldsV1": {"f:status": {"f:phase": {}}}}
            return msgspec.json.encode({"metadata": {"managedFields": [others, *managed]}})
        assert rest["query"] == {"fieldManager": "fairbind-nominator"}
        if not rest["guard"]():
            raise NotAllowedError(path)
        if (error := self.fails.get(path.split("/")[4])) is not None:
            self.writes.append((path, {}))
            raise error
        assert (method, path.rpartition("/")[2]) == ("PATCH", "status")
        self.writes.append((path, msgspec.json.decode(rest["body"])))
        return b"{}"

    async def sleep(self, seconds: float) -> None:
        if self._looks == 0:
            raise _EndedError
        self._looks -= 1
        self.now += seconds

    async def look(self, times: int = 1) -> list[tuple[str, Json]]:
        """Let it look so often; return what was written."""
        self.writes, self._looks = [], times
        with pytest.raises(_EndedError):
            await self.nominator.run()
        return self.writes


class _EndedError(Exception):
    """There were as many looks as were asked for."""


@pytest.fixture
def scene() -> Scene:
    return Scene()


def change(
    name: str = "p",
    node: str | None = "n1",
    *,
    namespace: str = "team",
    version: str = "7",
    said: str | None = None,
) -> NominationChange:
    return NominationChange(f"uid-{name}", namespace, name, version, node, said)


async def test_what_two_looks_ask_for_is_written_once(scene: Scene) -> None:
    scene.changes = [change()]
    assert await scene.look() == []
    expected = {"metadata": {"uid": "uid-p", "resourceVersion": "7"}, "status": {"nominatedNodeName": "n1"}}
    assert await scene.look() == [("/api/v1/namespaces/team/pods/p/status", expected)]
    assert await scene.look(3) == []  # the watch has not shown it yet
    scene.changes = [change(version="8")]
    assert len(await scene.look()) == 1  # another version says the same still


async def test_what_is_asked_for_in_one_look_only_is_not_written(scene: Scene) -> None:
    for node in ("n1", "n2", None):
        scene.changes = [change(node=node)]
        assert await scene.look() == []
    assert [write[1]["status"] for write in await scene.look()] == [{"nominatedNodeName": None}]


@pytest.mark.parametrize(
    "writer", ["fairbind-nominator", "fairbind", None], ids=["ours", "an earlier version's", "unknown"]
)
async def test_what_we_have_written_is_cleared(scene: Scene, writer: str | None) -> None:
    scene.wrote = writer
    scene.changes = [change(node=None, said="n1")]
    assert [write[1]["status"] for write in await scene.look(4)] == [{"nominatedNodeName": None}]


async def test_what_others_have_written_is_left_and_asked_about_once(scene: Scene) -> None:
    scene.wrote = "cluster-autoscaler"
    for version in ("7", "8", "9"):
        scene.changes = [change(node=None, version=version, said="n1")]
        assert await scene.look(4) == []
    assert scene.reads == 1
    scene.wrote = "fairbind-nominator"
    scene.changes = [change(node=None, version="10", said="n2")]
    assert len(await scene.look(4)) == 1


async def test_who_may_not_decide_looks_at_nothing_and_who_lost_the_lease_writes_nothing(scene: Scene) -> None:
    scene.changes = [change()]
    await scene.look()
    scene.decides = False
    assert await scene.look(3) == []
    scene.decides = True
    assert await scene.look() == []  # what was asked for before does not count
    scene.leads = False
    assert await scene.look(3) == []
    scene.leads = True
    assert len(await scene.look()) == 1


async def test_few_are_written_at_a_time_and_namespaces_take_turns(scene: Scene) -> None:
    scene.changes = [change(f"p{number:03}") for number in range(50)]
    scene.changes += [change("q", namespace="zoo")]
    writes = await scene.look(2)
    assert len(writes) == WRITES_PER_LOOK
    assert sum("/zoo/" in path for path, _ in writes) == 1
    assert len(await scene.look(8)) == 51 - WRITES_PER_LOOK


async def test_a_namespace_where_writes_fail_rests_and_no_other(scene: Scene) -> None:
    scene.fails = {"bad": ApiError(500, "InternalError", "failed calling webhook")}
    scene.changes = [change("p", namespace="bad"), change("q")]
    writes = await scene.look(6)
    assert [path.split("/")[4] for path, _ in writes] == ["bad", "team"]
    assert len(await scene.look(10)) == 1  # 5 s later


async def test_all_namespaces_rest_where_writes_fail_in_many(scene: Scene) -> None:
    places = [f"bad-{number}" for number in range(PLACES_IN_A_ROW)]
    scene.fails = dict.fromkeys(places, ApiError(500, "InternalError", "no"))
    scene.changes = [change(place, namespace=place) for place in places]
    assert len(await scene.look(2)) == PLACES_IN_A_ROW
    scene.changes = [change("q")]
    assert await scene.look(4) == []
    assert len(await scene.look(10)) == 1


@pytest.mark.parametrize("status", [404, 409])
async def test_a_pod_that_has_changed_is_written_when_the_watch_has_shown_it(scene: Scene, status: int) -> None:
    scene.fails = {"team": ApiError(status, "Conflict", "the object has been modified")}
    scene.changes = [change()]
    assert len(await scene.look(4)) == 1
    scene.fails = {}
    scene.changes = [change(version="8")]
    assert len(await scene.look(4)) == 1


class TestWhatPodsShouldSay:
    """`Queries.find_nomination_changes`."""

    @pytest.fixture
    def cluster(self) -> VolumeCluster:
        filled = VolumeCluster()
        filled.add_late_claim("claim")
        filled.add_pods(claiming("pod", "claim"))
        filled.cache.build_snapshot()
        return filled

    @staticmethod
    def find(cluster: VolumeCluster) -> list[tuple[str, str | None]]:
        return [(each.name, each.node) for each in cluster.cache.queries.find_nomination_changes()]

    @staticmethod
    def say(cluster: VolumeCluster, nominated: str | None, **more: Any) -> None:
        pod = claiming("pod", "claim", **more)
        pod["status"]["nominatedNodeName"] = nominated
        cluster.add_pods(pod)

    def test_a_pod_is_nominated_while_it_waits_on_its_node_for_volumes(self, cluster: VolumeCluster) -> None:
        assert self.find(cluster) == []
        assert cluster.cache.assume("uid-pod", "a")
        assert self.find(cluster) == [("pod", "a")]
        self.say(cluster, "a")
        assert self.find(cluster) == []
        cluster.add_volume("v", "a")
        cluster.add_claim("claim", "v", storage_class="late")
        assert self.find(cluster) == []  # all is there, and the binding is about to take it away
        cluster.cache.check_consistent()

    def test_what_it_says_is_stale_when_its_place_is_given_up(self, cluster: VolumeCluster) -> None:
        assert cluster.cache.assume("uid-pod", "a")
        self.say(cluster, "a")
        cluster.cache.forget("uid-pod")
        assert self.find(cluster) == [("pod", None)]
        cluster.cache.build_snapshot()
        assert cluster.cache.assume("uid-pod", "b")
        assert self.find(cluster) == [("pod", "b")]
        self.say(cluster, None)
        assert self.find(cluster) == [("pod", "b")]

    def test_of_pods_without_claims_we_say_nothing(self, cluster: VolumeCluster) -> None:
        pod = make_pod("plain")
        pod["status"]["nominatedNodeName"] = "a"
        cluster.add_pods(pod)
        assert self.find(cluster) == []

    def test_what_another_leader_wrote_is_stale_without_a_place(self, cluster: VolumeCluster) -> None:
        self.say(cluster, "a")
        assert self.find(cluster) == [("pod", None)]
        assert cluster.cache.assume("uid-pod", "a")
        assert self.find(cluster) == []

    @pytest.mark.parametrize(
        "more",
        [
            {"scheduler": "default-scheduler"},
            {"schedulingGates": [{"name": "g"}]},
            {"node": "b"},
        ],
        ids=["another scheduler's", "gated", "bound"],
    )
    def test_others_and_those_that_cannot_be_bound_are_left_alone(self, cluster: VolumeCluster, more: Json) -> None:
        self.say(cluster, "a", **more)
        assert self.find(cluster) == []

    def test_a_pod_that_is_deleted_is_left_alone(self, cluster: VolumeCluster) -> None:
        assert cluster.cache.assume("uid-pod", "a")
        pod = claiming("pod", "claim")
        pod["metadata"]["deletionTimestamp"] = "2026-01-02T00:00:00Z"
        cluster.add_pods(pod)
        assert self.find(cluster) == []
        cluster.delete_pod(pod)
        assert self.find(cluster) == []
