"""All objects of a cluster at one time, as the operator reads them, and the cache that it would make of them.

They come from a list of a live cluster or from a snapshot file. What looks at a cluster without acting (audit, replay,
what-if) starts here, so it sees what the operator would see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.objects import wire
from fairbind.cluster.objects.captured import RunTime
from fairbind.cluster.objects.convert import convert_namespace, convert_node, convert_pod
from fairbind.cluster.tenancy.administration import Administration, AdministrationObserver

DEFAULT_SCHEDULER_NAME = "fairbind"
DEFAULT_NAMESPACE = "fairbind-system"


class ListedObjects(msgspec.Struct, kw_only=True):
    """See the module.

    time: when they were listed, seconds since the epoch. scheduler_name: pods wait for fairbind when their
    schedulerName is this, or one of other_names. operator_namespace: its pods belong to no tenant. tenants, policies:
    as the API has them.
    run_times: of pods that have succeeded. storage: objects about volumes, devices and groups of pods, by the
    resource's name.
    admission: those by which pods are completed when they are created, too; of a kind that is not there none are known.
    unseen: in words, what of the groups may not be listed, so that its objects count as missing; empty: nothing.
    """

    time: float
    scheduler_name: str = DEFAULT_SCHEDULER_NAME
    other_names: tuple[str, ...] = ()
    operator_namespace: str = DEFAULT_NAMESPACE
    nodes: list[wire.Node] = msgspec.field(default_factory=list)
    pods: list[wire.Pod] = msgspec.field(default_factory=list)
    namespaces: list[wire.Namespace] = msgspec.field(default_factory=list)
    tenants: list[dict[str, Any]] = msgspec.field(default_factory=list)
    policies: list[dict[str, Any]] = msgspec.field(default_factory=list)
    run_times: list[RunTime] = msgspec.field(default_factory=list)
    storage: dict[str, list[Any]] = msgspec.field(default_factory=dict)
    admission: dict[str, list[Any]] = msgspec.field(default_factory=dict)
    unseen: str = ""

    def is_ours(self, pod: wire.Pod) -> bool:
        """Whether fairbind places a pod, by its schedulerName."""
        return pod.spec.scheduler_name in (self.scheduler_name, *self.other_names)

    def set_names(self, names: Sequence[str]) -> None:
        """Let pods with these schedulerNames, at least one, wait for fairbind."""
        self.scheduler_name, *others = dict.fromkeys(names)
        self.other_names = tuple(others)


class SilentAdministration:
    """An observer of administration that notes nothing."""

    def object_left_out(self, kind: str, name: str, problem: str) -> None:
        """Note nothing."""

    def policy_applied(self, description: str) -> None:
        """Note nothing."""


def build_cache(
    listed: ListedObjects,
    on_change: Callable[[], None] = lambda: None,
    observer: AdministrationObserver | None = None,
) -> ClusterCache:
    """Return a cache of the objects. on_change: see `ClusterCache`. observer: told of objects that are left out."""
    cache = ClusterCache(
        listed.scheduler_name,
        on_change,
        operator_namespace=listed.operator_namespace,
        other_names=frozenset(listed.other_names),
    )
    administration = Administration(cache, lambda: None, observer or SilentAdministration())
    administration.tenants.replace(listed.tenants, "")
    administration.policies.replace(listed.policies, "")
    for resource_type, feed in (*cache.volume_feeds, *cache.device_feeds, *cache.group_feeds):
        feed.replace(map(resource_type.convert, listed.storage.get(resource_type.name, ())))
    cache.pods.replace(convert_pod(pod) for pod in listed.pods)
    cache.nodes.replace(convert_node(node) for node in listed.nodes)
    cache.namespaces.replace(convert_namespace(namespace) for namespace in listed.namespaces)
    return cache
