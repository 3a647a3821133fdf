"""ResourceClaims that pods of other schedulers wait for."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from cluster.builders import Json, make_pod, read_pod
from cluster.counting import count_calls
from cluster.devices import DeviceCluster
from fairbind.cluster.classes.cluster_state import ClusterState
from fairbind.cluster.objects.device_claims import MAX_DEVICE_CLAIMS
from fairbind.cluster.objects.facts import FAIRBIND_GATE
from fairbind.scheduling import run_cycle

if TYPE_CHECKING:
    from collections.abc import Iterable

OTHER = "default-scheduler"
GATE = [{"name": FAIRBIND_GATE}]


@pytest.fixture
def cluster() -> DeviceCluster:
    made = DeviceCluster(gated_scheduler=OTHER)
    list_claims(made)
    return made


def list_claims(cluster: DeviceCluster, *, is_served: bool = True) -> None:
    """Let the feed take an empty list; a server that has no claims gives it no version."""
    ((_, feed),) = [each for each in cluster.cache.device_feeds if each[0].name == "resourceclaims"]
    feed.replace((), "1" if is_served else "")


def claiming(name: str, uses: Iterable[Json], made: Iterable[Json] = (), **spec: Any) -> Json:
    """A gated pod. uses: of its spec. made: the claims that its status names."""
    status = {"resourceClaimStatuses": list(made)}
    spec = {"scheduler": OTHER, "schedulingGates": GATE, "requests": {"cpu": "1m"}, **spec}
    return make_pod(name, status=status, resourceClaims=list(uses), **spec)


def use(name: str, **source: str) -> Json:
    return {"name": name, **source}


NAMED = use("a", resourceClaimName="c1")
OF_TEMPLATE = use("b", resourceClaimTemplateName="gpus")


def waits_for_nothing(cluster: DeviceCluster, uid: str = "uid-p") -> bool:
    cluster.cache.build_snapshot()
    queue = cluster.cache.state.find_queue(uid)
    assert queue is not None
    return queue.unsupported is None


@pytest.mark.parametrize(
    ("uses", "made", "missing"),
    [
        ([NAMED], [], [("a", "c1")]),
        ([OF_TEMPLATE], [], [("b", "")]),
        ([NAMED, OF_TEMPLATE], [{"name": "b", "resourceClaimName": "c2"}], [("a", "c1"), ("b", "c2")]),
        ([OF_TEMPLATE], [{"name": "b"}], []),
        ([use("of-a-later-api")], [], []),
        ([use(f"u{n}", resourceClaimName=f"c{n}") for n in range(99)], [],
         [(f"u{n}", f"c{n}") for n in range(MAX_DEVICE_CLAIMS)]),
    ],
)  # fmt: skip
def test_the_claims_of_a_pod_are_those_that_its_spec_and_its_status_name(
    uses: list[Json], made: list[Json], missing: list[tuple[str, str]]
) -> None:
    assert list(read_pod(claiming("p", uses, made)).device_claims) == missing
    assert read_pod(claiming("p", uses, made, node="a")).device_claims == ()


def test_a_pod_waits_until_the_last_of_its_claims_is_there(cluster: DeviceCluster) -> None:
    pod = claiming("p", [NAMED, OF_TEMPLATE])
    cluster.add_pods(pod)
    assert not waits_for_nothing(cluster)
    cluster.put_claim("c1", [])
    assert not waits_for_nothing(cluster)
    cluster.change_pod(pod, lambda pod: pod["status"].update(resourceClaimStatuses=[use("b", resourceClaimName="c2")]))
    record = cluster.cache.find_pod("uid-p")
    assert record is not None
    assert record.unsupported == 'resourceclaim "c2" not found'
    woken = cluster.changes
    cluster.put_claim("c2", [], namespace="another")
    assert cluster.changes == woken
    cluster.put_claim("c2", [])
    assert cluster.changes > woken
    assert waits_for_nothing(cluster)
    cluster.put_claim("c1", [], is_gone=True)
    assert not waits_for_nothing(cluster)
    list_claims(cluster, is_served=False)
    assert waits_for_nothing(cluster), "nothing is known of claims"


def test_a_pod_that_fairbind_would_bind_waits_as_before_whether_its_claim_is_there_or_not(
    cluster: DeviceCluster,
) -> None:
    cluster.add_pods(claiming("p", [NAMED], scheduler="fairbind", schedulingGates=[]))
    for _ in range(2):
        assert not waits_for_nothing(cluster)
        record = cluster.cache.find_pod("uid-p")
        assert record is not None
        assert record.unsupported == "resource claim 'a'"
        cluster.put_claim("c1", [])


def test_a_claim_costs_what_waits_for_it_and_not_what_there_is(
    cluster: DeviceCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(300):
        cluster.add_pods(claiming(f"p{n}", [use("a", resourceClaimName=f"c{n}")]))
    cluster.cache.build_snapshot()
    counts = count_calls(monkeypatch, (ClusterState, "move"))
    cluster.put_claim("c7", [])
    assert waits_for_nothing(cluster, "uid-p7")
    assert counts["move"] <= 2


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_the_books_equal_those_that_are_rebuilt(seed: int) -> None:
    cluster, dice = DeviceCluster(gated_scheduler=OTHER), random.Random(seed)
    pods: dict[str, Json] = {}
    judged = 0
    for step in range(200):
        name = f"p{dice.randrange(5)}"
        match dice.randrange(5):
            case 0 | 1:
                cluster.put_claim(f"c{dice.randrange(3)}", [], is_gone=dice.random() < 0.5)
            case 2 if name in pods:
                cluster.delete_pod(pods.pop(name))
            case 3 if step % 3 == 0:
                list_claims(cluster, is_served=dice.random() < 0.8)
            case _:
                named = [use(f"u{n}", resourceClaimName=f"c{n}") for n in dice.sample(range(3), dice.randrange(3))]
                made = [use("b", resourceClaimName=f"c{dice.randrange(3)}")] if dice.random() < 0.5 else []
                node = dice.choice((None, None, "a"))
                gates: Json = {} if node is None else {"schedulingGates": []}
                pods[name] = claiming(name, [*named, OF_TEMPLATE], made, node=node, **gates)
                cluster.add_pods(pods[name])
        if step % 4 == 0:
            cluster.cache.check_consistent()
            queues = cluster.cache.state.queues.by_key
            judged += len({key.unsupported is None for key in queues}) == 2
            for bind in run_cycle(cluster.cache.build_snapshot(), cluster.cache.settings, 0.0).bindings[:1]:
                cluster.cache.assume(bind.task.uid, bind.server)
    assert judged
    for pod in pods.values():
        cluster.delete_pod(pod)
    assert not cluster.cache.state.devices.waits._pods_of
    assert not cluster.cache.state.devices.waits._keys_of
