"""An API server in memory for two groups of pods: it answers a binding when it is told to, and as it is told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote

from cluster.builders import (
    Json,
    make_gang,
    make_node,
    make_pod,
    next_version,
)
from fairbind.kube.client.api import NotAllowedError
from fairbind.kube.client.errors import ApiError


class GroupSpec(NamedTuple):
    """A group. is_native: whether it has a PodGroup; else its pods say what they are. cores: of its pods in turn."""

    name: str
    minimum: int
    pods: int
    is_native: bool
    cores: tuple[int, ...] = (1,)


class Setting(NamedTuple):
    """A cluster: the cores of each node, and the groups, each of a tenant of its own."""

    cores: tuple[int, ...]
    groups: tuple[GroupSpec, ...]


@dataclass(slots=True)
class Request:
    """A binding that waits for its answer."""

    key: str
    uid: str
    node: str
    answered: asyncio.Future[bytes]


class Server:
    """What the API server holds. broken: what was done that must not be. listen: told of each object that changed."""

    def __init__(self, setting: Setting) -> None:
        self.nodes = {
            f"n{number}": make_node(f"n{number}", allocatable={"cpu": str(cores), "pods": "9"})
            for number, cores in enumerate(setting.cores)
        }
        self.pods: dict[str, Json] = {}
        self.pod_groups: dict[str, Json] = {}
        self.minimum = {group.name: group.minimum for group in setting.groups}
        self.finished = dict.fromkeys(self.minimum, 0)
        self.requests: list[Request] = []
        self.asked = asyncio.Event()
        self.broken: list[str] = []
        self.listen: Callable[[str, Json], None] = lambda _kind, _item: None
        self._natives = {group.name for group in setting.groups if group.is_native}
        self._cores = {group.name: group.cores for group in setting.groups}
        self._made = 0
        for group in setting.groups:
            if group.is_native:
                self.pod_groups[group.name] = make_gang(group.minimum, group.name, namespace=group.name)
            for number in range(group.pods):
                self.make(group.name, f"{group.name}-{number}")

    def make(self, group: str, name: str) -> None:
        """Make a pod of a group; one of the name may have been there before."""
        self._made += 1
        mark: Json = {"schedulingGroup": {"podGroupName": group}}
        if group not in self._natives:
            mark = {
                "labels": {"kueue.x-k8s.io/pod-group-name": group},
                "annotations": {"kueue.x-k8s.io/pod-group-total-count": str(self.minimum[group])},
            }
        cores = self._cores[group]
        requests = {"cpu": str(cores[int(name.removeprefix(f"{group}-").rstrip("'")) % len(cores)])}
        pod = make_pod(name, namespace=group, uid=f"{name}.{self._made}", requests=requests, **mark)
        self.pods[name] = pod
        self.listen("pod", pod)

    def change_pod(self, name: str, change: Callable[[Json], Any]) -> None:
        self.pods[name] = self._change("pod", self.pods[name], change)

    def change_group(self, name: str, change: Callable[[Json], Any]) -> None:
        self.pod_groups[name] = self._change("group", self.pod_groups[name], change)

    def _change(self, kind: str, item: Json, change: Callable[[Json], Any]) -> Json:
        changed: Json = json.loads(json.dumps(item))
        change(changed)
        changed["metadata"]["resourceVersion"] = next_version()
        self.listen(kind, changed)
        return changed

    def delete(self, name: str) -> None:
        self._change("gone", self.pods.pop(name), lambda _: None)

    def set_minimum(self, group: str, minimum: int) -> None:
        self.minimum[group] = minimum
        self.change_group(group, lambda item: item["spec"]["schedulingPolicy"]["gang"].update(minCount=minimum))

    # --- requests, as `Requests` has them ---

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, guard: Callable[[], bool] | None = None, **_: Any
    ) -> bytes:
        if guard is not None and not guard():
            raise NotAllowedError("not leading")
        name = unquote(path.split("/")[-1 if method == "GET" else -2])
        if method == "GET":
            if name not in self.pods:
                raise ApiError(404, "NotFound", name)
            return json.dumps(self.pods[name]).encode()
        sent = json.loads(body or b"{}")
        if method == "PATCH":
            self.change_group(name, lambda item: item.update(status=sent["status"]))
            return b"{}"
        request = Request(name, sent["metadata"]["uid"], sent["target"]["name"], asyncio.Future())
        self.requests.append(request)
        self.asked.set()
        return await request.answered

    def bind(self, request: Request) -> ApiError | None:
        """Carry a binding out, or return why not."""
        pod = self.pods.get(request.key)
        if pod is None:
            return ApiError(404, "NotFound", request.key)
        if pod["metadata"]["uid"] != request.uid:
            return ApiError(409, "Conflict", "Precondition failed: UID in precondition")
        if "nodeName" in pod["spec"]:
            if pod["spec"]["nodeName"] != request.node:
                self.broken.append(f"{request.key} is bound a second time, to {request.node}")
            return ApiError(409, "Conflict", f"pod {request.key} is already assigned to node")
        self.change_pod(request.key, lambda pod: pod["spec"].update(nodeName=request.node))
        if self.count_free(request.node) < 0:
            self.broken.append(f"{request.node} is overcommitted")
        return None

    # --- what is looked at ---

    def count_free(self, node: str) -> int:
        taken = sum(count_cores(pod) for pod in self.pods.values() if get_node(pod) == node and not has_ended(pod))
        return int(self.nodes[node]["status"]["allocatable"]["cpu"]) - taken

    def fit(self, pods: Sequence[Json], free: Sequence[int] | None = None) -> bool:
        """Return whether pods fit on the nodes together. free: of each node; None: as it is now."""
        if not pods:
            return True
        left, cores = [self.count_free(node) for node in self.nodes] if free is None else free, count_cores(pods[0])
        return any(
            most >= cores and self.fit(pods[1:], [*left[:n], most - cores, *left[n + 1 :]])
            for n, most in enumerate(left)
        )

    def list_members(self, group: str) -> list[Json]:
        return [pod for pod in self.pods.values() if pod["metadata"]["namespace"] == group and not has_ended(pod)]


def get_node(pod: Json) -> str:
    node: str = pod["spec"].get("nodeName", "")
    return node


def count_cores(pod: Json) -> int:
    return int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def has_ended(pod: Json) -> bool:
    return pod["status"]["phase"] in {"Succeeded", "Failed"}
