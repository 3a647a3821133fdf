"""Reflectors and the cache against a real API server that restarts, forgets, and cannot be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from e2e.caches import LiveCache
from e2e.objects import make_name, make_pod
from e2e.waiting import wait_for
from localplane.client import call_many

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace
    from e2e.relay import Relay
    from fairbind.cluster.cache.cache import ClusterCache
    from localplane.plane import ControlPlane


@pytest.fixture
def cache(cluster: Cluster) -> Iterator[LiveCache]:
    """A cache with the operator's rights that has listed everything."""
    with LiveCache(cluster.operator_kubeconfig()) as cache:
        cache.wait_synced()
        yield cache


@pytest.fixture
def distant_mirror(relay: Relay) -> Iterator[LiveCache]:
    """A cache whose wire to the API server can be cut."""
    with LiveCache(relay.kubeconfig) as cache:
        cache.wait_synced()
        yield cache


class Pods:
    """Pods of one namespace that wait for us, as the API has them and as a cache has them."""

    def __init__(self, api: Api, namespace: str) -> None:
        self.api = api
        self.namespace = namespace
        self.path = f"/api/v1/namespaces/{namespace}/pods"

    def create(self, count: int = 1, **spec: Any) -> list[str]:
        pods = [make_pod({"cpu": "1"}, name=make_name("pod"), **spec) for _ in range(count)]
        call_many(pods, lambda pod: self.api.post(self.path, pod))
        return [pod["metadata"]["name"] for pod in pods]

    def delete(self, name: str) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        self.api.delete(f"{self.path}/{name}", options)

    def wait_seen(self, cache: LiveCache) -> None:
        """Wait until the cache has exactly the pods that the API has."""
        expected = {pod["metadata"]["uid"] for pod in self.api.items(self.path)}
        wait_for(lambda: find_waiting(cache, self.namespace) == expected, describe="the cache to be true")


def find_waiting(cache: LiveCache, namespace: str) -> set[str]:
    """The UIDs of the pods of a namespace that wait."""

    def question(cache: ClusterCache) -> set[str]:
        tasks = (task for c in cache.build_snapshot().task_classes for task in c.tasks)
        return {task.uid for task in tasks if task.name.startswith(f"{namespace}/")}

    return cache.ask(question)


def find_problems(cache: LiveCache) -> set[str]:
    return {reflector.problem for reflector in cache.reflectors.values() if reflector.problem is not None}


def test_pods_come_and_go_in_the_mirror_as_in_the_api(cache: LiveCache, api: Api, namespace: MakeNamespace) -> None:
    pods = Pods(api, namespace())
    names = pods.create(30)
    pods.wait_seen(cache)
    for name in names[:10]:
        pods.delete(name)
    pods.wait_seen(cache)
    assert cache.restarts == []


def test_a_list_of_many_pages_is_complete(cluster: Cluster, api: Api, namespace: MakeNamespace) -> None:
    pods = Pods(api, namespace())
    pods.create(120)
    with LiveCache(cluster.operator_kubeconfig(), page_size=25) as cache:
        cache.wait_synced()
        assert len(find_waiting(cache, pods.namespace)) == 120


def test_an_event_may_be_longer_than_any_buffer(cache: LiveCache, api: Api, namespace: MakeNamespace) -> None:
    pods = Pods(api, namespace())
    pod = make_pod({"cpu": "1"})
    pod["metadata"]["annotations"] = {"example.com/long": "x" * 250_000}
    long: Json = {"name": "main", "image": "i", "env": [{"name": f"V{i}", "value": "y" * 1000} for i in range(700)]}
    pod["spec"]["containers"] = [long]
    api.post(pods.path, pod)
    pods.create()
    pods.wait_seen(cache)
    assert cache.restarts == []


@pytest.mark.local_plane
def test_a_restart_of_the_api_server_loses_nothing(
    cache: LiveCache, plane: ControlPlane, api: Api, namespace: MakeNamespace
) -> None:
    pods = Pods(api, namespace())
    doomed = pods.create(5)
    pods.wait_seen(cache)
    plane.restart_component("kube-apiserver", kill=True)
    pods.create(5)
    pods.delete(doomed[0])
    pods.wait_seen(cache)
    wait_for(lambda: not find_problems(cache), describe="the reflectors to be content")
    assert ("pods", "connection") in cache.restarts


@pytest.mark.local_plane
def test_while_the_api_server_is_away_the_mirror_says_so_and_keeps_what_it_knows(
    cache: LiveCache, plane: ControlPlane, api: Api, namespace: MakeNamespace
) -> None:
    pods = Pods(api, namespace())
    pods.create(3)
    pods.wait_seen(cache)
    plane.stop_component("kube-apiserver", kill=True)
    try:
        wait_for(lambda: len(find_problems(cache)) > 0, describe="the loss to be noticed")
        assert len(find_waiting(cache, pods.namespace)) == 3
    finally:
        plane.start_component("kube-apiserver")
    wait_for(lambda: not find_problems(cache), describe="the reflectors to be content")
    pods.create(3)
    pods.wait_seen(cache)


def test_a_wire_that_is_cut_is_taken_up_where_it_was(
    relay: Relay, distant_mirror: LiveCache, api: Api, namespace: MakeNamespace
) -> None:
    pods = Pods(api, namespace())
    doomed = pods.create(4)
    pods.wait_seen(distant_mirror)
    relay.cut()
    wait_for(lambda: len(find_problems(distant_mirror)) > 0, describe="the loss to be noticed")
    pods.create(4)
    pods.delete(doomed[0])
    relay.mend()
    pods.wait_seen(distant_mirror)
    assert ("pods", "expired") not in distant_mirror.restarts
    assert distant_mirror.restarts.count(("pods", "connection")) == 1


@pytest.mark.local_plane
def test_what_happened_while_the_server_was_away_is_found_also_when_its_history_was_compacted(
    relay: Relay, distant_mirror: LiveCache, plane: ControlPlane, api: Api, namespace: MakeNamespace
) -> None:
    pods = Pods(api, namespace())
    doomed = pods.create(6)
    pods.wait_seen(distant_mirror)
    relay.cut()
    pods.create(6)
    for name in doomed[:3]:
        pods.delete(name)
    plane.compact()
    relay.mend()
    pods.wait_seen(distant_mirror)
    assert ("pods", "connection") in distant_mirror.restarts
    pods.create(2)
    pods.wait_seen(distant_mirror)


def test_a_relist_finds_the_present(cache: LiveCache, api: Api, namespace: MakeNamespace) -> None:
    pods = Pods(api, namespace())
    names = pods.create(3)
    cache.relist()
    assert len(find_waiting(cache, pods.namespace)) == 3
    pods.delete(names[0])
    cache.relist()
    assert len(find_waiting(cache, pods.namespace)) == 2
    assert cache.restarts == []
