"""The view that members of a namespace may have: which of its pods wait, in which order, and why.

Pods of a queue are equal, so a queue is what a member is told of at once. Reasons are those of the last cycle. The
order is that of the whole tenant; which pods there are is told for each namespace by itself, because members of one may
not see those of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fairbind.cluster.cache.tenant_ranking import TenantRanking
from fairbind.cluster.classes.cluster_state import ClusterState
from fairbind.cluster.classes.task_queue import TaskQueue
from fairbind.cluster.objects.facts import PODS, Amounts
from fairbind.cluster.objects.task_names import split_task_name
from fairbind.cluster.state.pods import find_detail
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.model import Task, Wait
from fairbind.scheduling import POLICIES
from fairbind.scheduling.cycle.order.task_queues import compute_sort_key


@dataclass(frozen=True, slots=True)
class WaitingPods:
    """Equal pods of one namespace that wait.

    pods: how many. first: the one that comes first. position: how many kinds of the tenant's pods, or of the user's
    where it has users and shares decide, that may be placed come before, plus one. is_placeable: whether free capacity
    is what they wait for. requests: of each, base units, of resources that nodes offer; what else a pod names is its
    author's free text.
    wait: why they wait; None while no cycle has said so. detail: for a blocked class, the very thing that the first pod
    carries.
    """

    pods: int
    first: Task
    position: int
    is_placeable: bool
    requests: Amounts
    wait: Wait | None
    detail: str | None = None

    @property
    def name(self) -> str:
        """The name of the first pod, without its namespace."""
        return split_task_name(self.first)[1]


class TenantView:
    """Answers from one state; changes nothing. `look` comes first, and again when answers shall be those of now."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._waits: dict[QueueKey, Wait] = {}

    @property
    def policy(self) -> str:
        """The id of the policy."""
        return self._state.policy.settings.policy

    @property
    def has_order(self) -> bool:
        """True where shares decide which tenant is next."""
        return POLICIES[self.policy].is_fair

    @property
    def node_count(self) -> int:
        """The number of nodes."""
        return len(self._state.servers.names)

    def exists(self, namespace: str) -> bool:
        """Tell whether a namespace is there."""
        return namespace in self._state.directory.namespaces

    def look(self) -> None:
        """Take why pods wait, as the last cycle saw it."""
        state, self._waits = self._state, {}
        for wait in state.policy.waits:
            key = state.find_queue(wait.first.uid)
            if key is None:
                continue
            self._waits[key] = wait
            if wait.waiting > len(state.queues.by_key[key].tasks):  # several queues are one class
                keys = (state.find_queue(task.uid) for task in wait.task_class.tasks)
                self._waits.update({other: wait for other in keys if other is not None})

    def list_namespaces(self) -> list[tuple[str, str]]:
        """Return tenant and name of each namespace that has pods and belongs to a tenant, sorted."""
        tenants = self._state.directory.find_tenants()
        return sorted((tenants[name], name) for name in self._state.pods.by_namespace if name in tenants)

    def list_waiting(self, tenant: str, ranking: TenantRanking | None) -> dict[str, list[WaitingPods]]:
        """Return the pods of a tenant that wait to be decided, by namespace, in the tenant's order.

        ranking: of all tenants; its users have a line each then, those who come first at its head; None: one for all.
        """
        lines: list[list[TaskQueue]] = [[*self._find_queues(leaf)] for leaf in self._list_leaves(tenant, ranking)]
        if ranking is None:
            lines = [[queue for line in lines for queue in line]]
        placed = [each for line in lines for each in self._place(line)]
        waiting: dict[str, list[WaitingPods]] = {}
        for namespace, pods in sorted(placed, key=lambda each: each[1].position):
            waiting.setdefault(namespace, []).append(pods)
        return waiting

    def _place(self, queues: Iterable[TaskQueue]) -> Iterator[tuple[str, WaitingPods]]:
        """Yield the pods of one line, in their order, with their namespace."""
        offered = frozenset(self._state.servers.axes)
        position = 1
        for queue in sorted(queues, key=lambda queue: compute_sort_key(queue.tasks[0])):
            wait = self._waits.get(queue.key)
            is_placeable = queue.is_placeable and not (wait is not None and (wait.blocked or wait.is_too_large))
            requests = tuple(pair for pair in queue.key.demand.held if pair[0] != PODS and pair[0] in offered)
            for namespace, tasks in _split_by_namespace(queue).items():
                detail = self._find_detail(tasks[0].uid) if queue.key.unsupported else None
                pods = WaitingPods(len(tasks), tasks[0], position, is_placeable, requests, wait, detail)
                yield namespace, pods
            position += is_placeable

    def _list_leaves(self, tenant: str, ranking: TenantRanking | None) -> Iterable[str]:
        """Return the leaves that hold pods of a tenant's namespaces: itself, or its users."""
        spec = self._state.directory.specs.get(tenant)
        if spec is None or spec.users_label is None:
            return [tenant]
        leaves = list(self._state.queues.waiting.list_leaves(tenant))
        return leaves if ranking is None else sorted(leaves, key=ranking.get_leaf_rank)

    def _find_queues(self, leaf: str) -> Iterable[TaskQueue]:
        return self._state.queues.waiting.by_leaf.get(leaf, {}).values()

    def _find_detail(self, uid: str) -> str | None:
        return find_detail(self._state.pods.entries[uid], self._state.volumes, self._state.devices)


def _split_by_namespace(queue: TaskQueue) -> Mapping[str, list[Task]]:
    tasks: dict[str, list[Task]] = {}
    for task in queue.tasks:
        tasks.setdefault(split_task_name(task)[0], []).append(task)
    return tasks
