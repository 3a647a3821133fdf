"""Plays a case of scheduler_perf on a cluster whose scheduler runs, and times it.

As there, pods are created as fast as it goes, and the time runs from the first creation of a measured part to its last
binding. Unlike there, nodes have a kubelet that is played by kwok, and pods of a case carry the name of the scheduler.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from exam.cases import Case, CaseError, Operation, Template, find_measured, keeps_nodes
from exam.timeline import Part, Spent, Timeline
from exam.volumes import CLAIMS, CSI_NODES, VOLUMES, allow_volumes, bind_volume, make_csi_node, mount_claim
from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.errors import ApiError
from localplane.nodes import is_schedulable
from perf.cluster import IN_FLIGHT, ask, run_many
from perf.measure import BindingWatch, MeasureError
from perf.workload import RUN_LABEL

Json = dict[str, Any]

COLLECTIONS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
}
"""By kind: where objects of a case are, in a namespace."""
BASE_NODE = {
    "metadata": {"generateName": "node-"},
    "status": {"capacity": {"pods": "110", "cpu": "4", "memory": "32Gi"}},
}
"""What a case gets that has no template for its nodes; so does scheduler_perf."""
NOT_FOUND, CONFLICT, TIMED_OUT = 404, 409, 504
READY_SECONDS = 600.0
FIRST_BINDING_SECONDS, STALL_SECONDS = 120.0, 60.0
ATTEMPT_STALL_SECONDS = 30.0
POLL_SECONDS = 0.2
PRIORITY = "exam-priority-"
DEFAULT_CHURN_MILLISECONDS = 500


@dataclass(frozen=True, slots=True)
class Measured:
    """What a measured part gave. seconds: from the first creation to the last binding, of those that were bound.

    spent: what these seconds went into, by `Spent`.
    """

    pods: int
    bound: int
    seconds: float
    spent: Mapping[str, Part] = field(default_factory=dict)

    @property
    def rate(self) -> float:
        """Pods a second."""
        return self.bound / self.seconds if self.seconds > 0 else float("nan")


@dataclass(slots=True)
class _Batch:
    """The pods of one step. watch: sees them bound."""

    operation: Operation
    label: str
    namespace: str
    labels: Mapping[str, str]
    count: int
    began_at: float
    watch: BindingWatch


@dataclass(slots=True)
class Player:
    """A context manager: at its end churn stops; what was made stays, for `clear`.

    run: a DNS label that no other run on this cluster has. scheduler: what pods name. nodes: the names of those that
    are there, by the step that made them, in this run or an earlier one of the case.
    """

    api: ApiClient
    run: str
    scheduler: str
    nodes: dict[int, set[str]] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=set)
    _claimed: set[str] = field(default_factory=set)
    _timeline: Timeline = field(default_factory=Timeline)
    _batches: list[_Batch] = field(default_factory=list)
    _made: int = 0
    _stack: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def prepare(self, case: Case) -> None:
        """Make what a case has before its scheduler runs: priority classes, bound claims, and nodes where it may.

        Then both schedulers meet the same cluster, and nothing of this is in what is measured.
        """
        for operation in case.operations:
            pods: Operation = operation.fields.get("createPodsOp", operation)
            templates = [pods.fields.get("podTemplatePath"), *operation.fields.get("templatePaths", ())]
            await self._ensure_priority_classes([one.make(0, 1) for one in templates if one is not None])
            if "persistentVolumeClaimTemplatePath" in operation.fields:
                await self._create_claims(operation)
            if operation.opcode == "createNodes" and keeps_nodes(case):
                await self._create_nodes(operation)

    async def play(self, case: Case) -> list[Measured]:
        """Do all steps and return what each measured part gave."""
        for operation in case.operations:
            step = _STEPS.get(operation.opcode)
            if step is not None:
                await step(self, operation)
        return [self._measure(case, *part) for part in find_measured(case.operations)]

    def _measure(self, case: Case, first: int, after: int) -> Measured:
        head = case.operations[first]
        batches = [batch for batch in self._batches if first <= batch.operation.position < after]
        if head.opcode == "startCollectingMetrics":
            batches = [batch for batch in batches if _is_collected(head.fields, batch)]
        times = [at for batch in batches for at in batch.watch.bound_at.values()]
        pods = sum(batch.count for batch in batches)
        if not times:
            return Measured(pods, 0, 0.0)
        began_at = min(batch.began_at for batch in batches)
        return Measured(pods, len(times), max(times) - began_at, self._timeline.compute_parts(began_at, times))

    # --- steps ---

    async def _create_nodes(self, operation: Operation) -> None:
        if operation.position in self.nodes:
            return
        template: Template | None = operation.fields.get("nodeTemplatePath")
        volumes: Json | None = operation.fields.get("nodeAllocatableStrategy")
        nodes, csi_nodes = [], []
        for index in range(operation.count):
            node = json.loads(json.dumps(BASE_NODE)) if template is None else template.make(index, operation.count)
            nodes.append(self._finish_node(node, index, operation.fields.get("labelNodePrepareStrategy")))
            if volumes is not None:
                allow_volumes(node, volumes)
                csi_nodes.append(make_csi_node(node["metadata"]["name"], volumes))
        with self._timeline.note(Spent.NODES):
            await run_many(csi_nodes, lambda node: self._post(CSI_NODES, node), IN_FLIGHT)
            await run_many(nodes, lambda node: self._post("/api/v1/nodes", node), IN_FLIGHT)
            self.nodes[operation.position] = {node["metadata"]["name"] for node in nodes}
            await self._wait_ready(self.nodes[operation.position])

    async def _wait_ready(self, names: set[str]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while len(await self._find_ready(names)) < len(names):
            if time.monotonic() > deadline:
                raise MeasureError("nodes do not become ready")
            await asyncio.sleep(POLL_SECONDS)

    def _finish_node(self, node: Json, index: int, strategy: Json | None) -> Json:
        """Name a node and label it as its kubelet would; kwok adds its conditions."""
        self._name(node)
        labels = node["metadata"].setdefault("labels", {})
        labels |= {"kubernetes.io/hostname": node["metadata"]["name"], "type": "kwok"}
        if strategy is not None:
            values = strategy["labelValues"]
            labels[strategy["labelKey"]] = values[index % len(values)]
        status = node["status"]
        node["status"] = {"capacity": status["capacity"], "allocatable": status.get("allocatable", status["capacity"])}
        return node

    async def _find_ready(self, names: set[str]) -> list[Json]:
        nodes = await self._list(COLLECTIONS["Node"], "resourceVersion=0")
        return [node for node in nodes if node["metadata"]["name"] in names and is_schedulable(node)]

    async def _create_namespaces(self, operation: Operation) -> None:
        template: Template | None = operation.fields.get("namespaceTemplatePath")
        for index in range(operation.count):
            namespace: Json = {} if template is None else template.make(index, operation.count)
            await self._ensure_namespace(f"{operation.fields['prefix']}-{index}", namespace)

    async def _ensure_namespace(self, name: str, content: Json | None = None) -> None:
        if name in self.namespaces:
            return
        self.namespaces.add(name)
        metadata = {**(content or {}).get("metadata", {}), "name": name}
        with contextlib.suppress(_TakenError):
            await self._post("/api/v1/namespaces", {"metadata": metadata})
        while not await self._exists(f"/api/v1/namespaces/{name}/serviceaccounts/default"):  # noqa: ASYNC110  no event
            await asyncio.sleep(POLL_SECONDS)

    async def _create_pods(self, operation: Operation) -> None:
        await self._create_batch(operation, operation.namespace)

    async def _create_sets(self, operation: Operation) -> None:
        pods: Operation = operation.fields["createPodsOp"]
        for index in range(operation.count):
            await self._create_batch(pods, f"{operation.fields['namespacePrefix']}-{index}")

    async def _create_batch(self, operation: Operation, namespace: str) -> None:
        await self._ensure_namespace(namespace)
        label, count = f"{self.run}-{len(self._batches)}", operation.count
        template: Template = operation.fields["podTemplatePath"]
        pods = [self._finish_pod(template.make(index, count), label) for index in range(count)]
        if "persistentVolumeClaimTemplatePath" in operation.fields:
            for index, pod in enumerate(pods):
                mount_claim(pod, index)
        labels = pods[0]["metadata"].get("labels", {}) if pods else {}
        watch = await self._stack.enter_async_context(BindingWatch(self.api, label))
        batch = _Batch(operation, label, namespace, labels, count, time.monotonic(), watch)
        self._batches.append(batch)
        path = COLLECTIONS["Pod"].format(namespace)
        with self._timeline.note(Spent.PODS):
            await run_many(pods, lambda pod: self._post(path, pod), IN_FLIGHT)
        if not operation.fields.get("skipWaitToCompletion"):
            await self._wait_bound(batch)

    async def _create_claims(self, operation: Operation) -> None:
        """Make a claim and a volume for each pod of a step, and wait until they are bound: pods come after that."""
        volume, claim = (
            operation.fields[name].make(0, operation.count)
            for name in ("persistentVolumeTemplatePath", "persistentVolumeClaimTemplatePath")
        )
        pairs = [bind_volume(volume, claim, operation.namespace, index) for index in range(operation.count)]
        collection = CLAIMS.format(operation.namespace)
        await self._ensure_namespace(operation.namespace)
        self._claimed.add(collection)
        await run_many(pairs, lambda pair: self._post(VOLUMES, pair[0]), IN_FLIGHT)
        await run_many(pairs, lambda pair: self._post(collection, pair[1]), IN_FLIGHT)
        deadline = time.monotonic() + READY_SECONDS
        while any(map(_is_unbound_claim, await self._list(collection, "resourceVersion=0"))):
            if time.monotonic() > deadline:
                raise MeasureError(f"claims do not become bound: {collection}")
            await asyncio.sleep(POLL_SECONDS)

    def _finish_pod(self, pod: Json, label: str) -> Json:
        self._name(pod)
        pod["metadata"].setdefault("labels", {})[RUN_LABEL] = label
        spec = pod["spec"]
        spec["schedulerName"] = self.scheduler
        if "priority" in spec:  # the templates are for a server without the admission that wants a class
            spec["priorityClassName"] = f"{PRIORITY}{spec.pop('priority')}"
        return pod

    async def _ensure_priority_classes(self, pods: Sequence[Json]) -> None:
        """Make the classes that stand for the numbers in templates."""
        for value in sorted({pod["spec"]["priority"] for pod in pods if "priority" in pod.get("spec", {})}):
            thing = {"metadata": {"name": f"{PRIORITY}{value}"}, "value": value}
            with contextlib.suppress(_TakenError):
                await self._post("/apis/scheduling.k8s.io/v1/priorityclasses", thing)

    async def _create_any(self, operation: Operation) -> None:
        template: Template = operation.fields["templatePath"]
        namespace = operation.fields.get("namespace")
        if namespace:
            await self._ensure_namespace(namespace)
        for index in range(operation.count):
            await self._create_object(template.make(index, operation.count), namespace)

    async def _create_object(self, thing: Json, namespace: str | None) -> str:
        """Create an object of a kind that has no step of its own, and return its path."""
        collection = _find_collection(thing).format(namespace)
        self._name(thing)
        if thing["kind"] == "Pod":
            thing = self._finish_pod(thing, f"{self.run}-more")
        elif thing["kind"] == "Node":
            thing = self._finish_node(thing, 0, None)
        await self._post(collection, thing)
        return f"{collection}/{thing['metadata']['name']}"

    async def _update_any(self, operation: Operation) -> None:
        template: Template = operation.fields["templatePath"]
        rate = operation.fields.get("updatePerSecond", 0)
        began_at = time.monotonic()
        for index in range(operation.count):
            await self._update(template.make(index, operation.count))
            await _keep_rate(began_at, index + 1, rate)

    async def _update(self, thing: Json) -> None:
        """Change a node to what a template says."""
        if thing["kind"] != "Node":
            raise CaseError(f"updateAny of a {thing['kind']} is not played")
        thing = self._finish_node(thing, 0, None)
        path = f"{_find_collection(thing)}/{thing['metadata']['name']}"
        before = json.loads(await ask(self.api, "GET", path))
        thing["metadata"]["labels"] = {**before["metadata"]["labels"], **thing["metadata"]["labels"]}
        after = json.loads(await ask(self.api, "PUT", path, body=json.dumps(thing).encode()))
        after["metadata"].pop("resourceVersion", None)  # its kubelet writes its status, too
        status = {**after, "status": {**before["status"], **thing["status"]}}
        await ask(self.api, "PUT", f"{path}/status", body=json.dumps(status).encode())

    async def _churn(self, operation: Operation) -> None:
        await self._ensure_namespace(operation.namespace)
        task = asyncio.create_task(self._churn_for_ever(operation))

        async def end() -> None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

        self._stack.push_async_callback(end)

    async def _churn_for_ever(self, operation: Operation) -> None:
        """Create an object of each template at an interval; where the mode is recreate, delete it in the next round."""
        fields = operation.fields
        pause_seconds = fields.get("intervalMilliseconds", DEFAULT_CHURN_MILLISECONDS) / 1000
        number, rounds = fields.get("number", 0), 0
        paths: dict[tuple[int, int], str] = {}
        while fields["mode"] == "recreate" or not number or rounds < number:
            await asyncio.sleep(pause_seconds)
            for place, template in enumerate(fields["templatePaths"]):
                key = (place, rounds % number if number else rounds)
                if fields["mode"] == "recreate" and key in paths:
                    await self._delete(paths.pop(key))
                else:
                    paths[key] = await self._create_object(template.make(rounds, number), operation.namespace)
            rounds += 1

    async def _wait_at_barrier(self, operation: Operation) -> None:
        is_attempt = operation.fields.get("stageRequirement") == "Attempted"
        for batch in self._batches:
            if _is_collected(operation.fields, batch):
                await (self._wait_attempted(batch) if is_attempt else self._wait_bound(batch))

    async def _wait_bound(self, batch: _Batch) -> None:
        with self._timeline.note(Spent.BOUND):
            await batch.watch.wait_bound(batch.count, start_seconds=FIRST_BINDING_SECONDS, stall_seconds=STALL_SECONDS)

    async def _wait_attempted(self, batch: _Batch) -> None:
        """Wait until the scheduler has said something of each pod; go on when it says no more for a while."""
        collection = COLLECTIONS["Pod"].format(batch.namespace)
        with self._timeline.note(Spent.TRIED):
            await self._poll_attempted(collection, batch)

    async def _poll_attempted(self, collection: str, batch: _Batch) -> None:
        seen, changed_at = -1, time.monotonic()
        while seen < batch.count and time.monotonic() - changed_at < ATTEMPT_STALL_SECONDS:
            pods = await self._list(collection, f"labelSelector={RUN_LABEL}%3D{batch.label}&resourceVersion=0")
            found = sum(any(map(_is_about_scheduling, pod["status"].get("conditions", ()))) for pod in pods)
            if found > seen:
                seen, changed_at = found, time.monotonic()
            await asyncio.sleep(POLL_SECONDS)

    async def _delete_pods(self, operation: Operation) -> None:
        selected = operation.fields.get("labelSelector", {})
        rate = operation.fields.get("deletePodsPerSecond", 0)
        work = self._delete_selected(operation.namespace, selected, rate)
        if not operation.fields.get("skipWaitToCompletion"):
            await work
            return
        task = asyncio.create_task(work)
        self._stack.push_async_callback(lambda: task)

    async def _delete_selected(self, namespace: str, labels: Mapping[str, str], rate: float) -> None:
        collection = COLLECTIONS["Pod"].format(namespace)
        selector = "%2C".join(f"{key}%3D{value}" for key, value in sorted(labels.items()))
        began_at = time.monotonic()
        for number, pod in enumerate(await self._list(collection, f"labelSelector={selector}"), 1):
            await self._delete(f"{collection}/{pod['metadata']['name']}")
            await _keep_rate(began_at, number, rate)

    # --- the API ---

    def _name(self, thing: Json) -> None:
        """Name an object that is to have a generated name; a name is not used twice on a cluster."""
        metadata = thing["metadata"]
        if "name" not in metadata:
            metadata["name"] = f"{metadata.pop('generateName')}{self.run}-{self._made}"
            self._made += 1

    async def _post(self, path: str, body: Json) -> None:
        try:
            await ask(self.api, "POST", path, body=json.dumps(body).encode(), timeout_seconds=60.0)
        except ApiError as error:
            if error.status == CONFLICT:
                raise _TakenError from error
            raise

    async def _delete(self, path: str) -> None:
        with contextlib.suppress(ApiError):
            await ask(self.api, "DELETE", path, body=b'{"gracePeriodSeconds": 0}')

    async def _exists(self, path: str) -> bool:
        try:
            await ask(self.api, "GET", path)
        except ApiError as error:
            if error.status == NOT_FOUND:
                return False
            raise
        return True

    async def clear(self, *, keeps_nodes: bool) -> None:
        """Delete services, pods, volumes and, if they are not kept, nodes; wait until all but the services are gone.

        Namespaces stay.
        """
        for namespace in sorted(self.namespaces):
            services = COLLECTIONS["Service"].format(namespace)
            for service in await self._list(services):
                await self._delete(f"{services}/{service['metadata']['name']}")
        collections = [COLLECTIONS["Pod"].format(namespace) for namespace in sorted(self.namespaces)]
        if self._claimed:
            collections += [*sorted(self._claimed), VOLUMES]
        if not keeps_nodes:
            collections += [COLLECTIONS["Node"], CSI_NODES]
            self.nodes.clear()
        body = json.dumps({"gracePeriodSeconds": 0, "propagationPolicy": "Background"}).encode()
        deadline = time.monotonic() + READY_SECONDS
        for collection in collections:
            while not await self._is_empty(collection):
                if time.monotonic() > deadline:
                    raise MeasureError(f"{collection} does not become empty")
                with contextlib.suppress(ApiError):  # a slow machine does not delete all within a minute
                    await ask(self.api, "DELETE", collection, body=body, timeout_seconds=120.0)

    async def _list(self, collection: str, query: str = "") -> list[Json]:
        listed: Json = json.loads(await ask(self.api, "GET", f"{collection}?{query}", timeout_seconds=60.0))
        return listed["items"] or []

    async def _is_empty(self, collection: str) -> bool:
        return not await self._list(collection, "limit=1")


class _TakenError(RuntimeError):
    """An object of this name is there."""


_STEPS: Mapping[str, Callable[[Player, Operation], Awaitable[None]]] = {
    "createNodes": Player._create_nodes,
    "createNamespaces": Player._create_namespaces,
    "createPods": Player._create_pods,
    "createPodSets": Player._create_sets,
    "createAny": Player._create_any,
    "updateAny": Player._update_any,
    "churn": Player._churn,
    "barrier": Player._wait_at_barrier,
    "deletePods": Player._delete_pods,
}


def _find_collection(thing: Json) -> str:
    if thing["kind"] not in COLLECTIONS:
        raise CaseError(f"a {thing['kind']} is not played")
    return COLLECTIONS[thing["kind"]]


def _is_unbound_claim(claim: Json) -> bool:
    return bool(claim.get("status", {}).get("phase") != "Bound")


async def _keep_rate(began_at: float, number: int, rate: float) -> None:
    """Wait until so many things may have been done at a rate a second; 0: at once."""
    await asyncio.sleep(max(0.0, began_at + number / rate - time.monotonic()) if rate else 0.0)


def _is_about_scheduling(condition: Json) -> bool:
    return bool(condition["type"] == "PodScheduled")


def _is_collected(fields: Json, batch: _Batch) -> bool:
    """Tell whether a step with namespaces and a label selector, either of which may be missing, is about a batch."""
    namespaces, labels = fields.get("namespaces"), fields.get("labelSelector") or {}
    return (not namespaces or batch.namespace in namespaces) and labels.items() <= batch.labels.items()
