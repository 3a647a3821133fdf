"""An API server in memory, as far as the operator uses one: what it keeps, how it answers, what must never happen.

It runs in virtual time behind the protocol of `ApiClient`; see `connection`. Everything that happens to pods is checked
at once: `broken` names each binding that overcommits a node or would bind a pod twice, and each write, other than to
the lease, of a replica that does not hold the lease.
"""

from __future__ import annotations

import asyncio
import contextvars
import copy
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import msgspec

from fairbind.cluster.objects.quantity import parse_quantity
from fairbind.kube.client.errors import ApiError, TransientClusterError
from kube.assembled.faults import Fault, Silence

Json = dict[str, Any]
LEASE = "fairbind-system/fairbind"
COLLECTIONS = {
    "/api/v1/pods": "pods",
    "/api/v1/nodes": "nodes",
    "/api/v1/namespaces": "namespaces",
    "/api/v1/persistentvolumeclaims": "persistentvolumeclaims",
    "/api/v1/persistentvolumes": "persistentvolumes",
    "/apis/storage.k8s.io/v1/storageclasses": "storageclasses",
    "/apis/storage.k8s.io/v1/csinodes": "csinodes",
    "/apis/storage.k8s.io/v1/csidrivers": "csidrivers",
    "/apis/storage.k8s.io/v1/volumeattachments": "volumeattachments",
    "/apis/storage.k8s.io/v1/csistoragecapacities": "csistoragecapacities",
    "/apis/resource.k8s.io/v1/resourceclaims": "resourceclaims",
    "/apis/resource.k8s.io/v1/deviceclasses": "deviceclasses",
    "/apis/resource.k8s.io/v1/resourceslices": "resourceslices",
    "/apis/scheduling.k8s.io/v1beta1/podgroups": "podgroups.scheduling.k8s.io",
    "/apis/scheduling.x-k8s.io/v1alpha1/podgroups": "podgroups.scheduling.x-k8s.io",
    "/apis/scheduling.volcano.sh/v1beta1/podgroups": "podgroups.scheduling.volcano.sh",
    "/apis/batch/v1/jobs": "jobs",
    "/api/v1/resourcequotas": "resourcequotas",
    "/apis/fairbind.io/v1alpha1/tenants": "tenants",
    "/apis/fairbind.io/v1alpha1/schedulingpolicies": "schedulingpolicies",
}
KINDS = (*COLLECTIONS.values(), "leases", "events")
FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class Request:
    """One request as it came in. at: virtual seconds."""

    at: float
    who: str
    method: str
    path: str
    query: dict[str, str]
    body: Any


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a kind's history."""

    at: float
    version: int
    line: bytes


@dataclass(slots=True)
class Kind:
    """All objects of one kind by key, and what happened to them. oldest: up to here the history is forgotten."""

    objects: dict[str, Json] = field(default_factory=dict)
    history: list[Entry] = field(default_factory=list)
    oldest: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class ApiServer:
    """See the module. faults: the first that matches a request applies."""

    def __init__(self) -> None:
        self.version = 100
        self.kinds = {name: Kind() for name in KINDS}
        self.faults: list[Fault] = []
        self.requests: list[Request] = []
        self.open: list[Request] = []
        self.bound: list[tuple[float, str, str, str]] = []
        """When, by whom, which pod, to which node."""
        self.opened: list[tuple[float, str, str]] = []
        """When, by whom, which pod's gate."""
        self.broken: list[str] = []
        self.breaks = 0
        self._backed_up = 0
        self._began = asyncio.get_running_loop().time()
        self._context = contextvars.copy_context()
        self._pages: dict[str, tuple[int, list[Json]]] = {}
        self._page_numbers = itertools.count()
        self._demands: dict[str, dict[str, Fraction]] = {}
        self._answering: set[asyncio.Task[None]] = set()

    # --- what the world does ---

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time() - self._began

    def put(self, kind: str, *objects: Json) -> None:
        """Create or replace objects."""
        for item in objects:
            made = _copy(item)
            meta = made["metadata"]
            known = self.kinds[kind].objects.get(find_key(made))
            meta.setdefault("uid", f"uid-{find_key(made)}")
            meta.setdefault("creationTimestamp", "2026-01-01T00:00:00Z")
            meta["generation"] = 1 if known is None else known["metadata"]["generation"] + 1
            self._store(kind, made)

    def change(self, kind: str, key: str, change: Callable[[Json], object]) -> Json:
        """Change one object."""
        changed = _copy(self.kinds[kind].objects[key])
        change(changed)
        self._store(kind, changed)
        return changed

    def delete(self, kind: str, key: str) -> None:
        gone = self.kinds[kind].objects.pop(key)
        self._log(kind, "DELETED", gone)

    def get(self, kind: str, key: str) -> Json:
        return self.kinds[kind].objects[key]

    def bind_elsewhere(self, key: str, node: str) -> None:
        """Bind a pod as another scheduler would."""
        self.change("pods", key, lambda pod: pod["spec"].update(nodeName=node))

    def finish(self, key: str) -> None:
        """Let a pod end."""
        self.change("pods", key, lambda pod: pod["status"].update(phase="Succeeded"))

    def compact(self) -> None:
        """Forget what happened up to now."""
        for kind in self.kinds.values():
            kind.oldest = self.version

    def break_watches(self) -> None:
        """End all watches with an error."""
        self.breaks += 1
        for kind in self.kinds.values():
            kind.wake()

    def back_up(self) -> dict[str, dict[str, Json]]:
        """Return what is kept now, for `restore`."""
        self._backed_up = self.version
        return {name: {key: _copy(item) for key, item in kind.objects.items()} for name, kind in self.kinds.items()}

    def restore(self, backup: dict[str, dict[str, Json]]) -> None:
        """Go back in time, as an etcd that is restored from a snapshot: the versions too."""
        self.version = self._backed_up
        for name, objects in backup.items():
            self.kinds[name].objects = {key: _copy(item) for key, item in objects.items()}
            self.kinds[name].history.clear()
        self.break_watches()

    # --- what is looked at ---

    @property
    def holder(self) -> str:
        """Who holds the lease; empty: nobody."""
        lease = self.kinds["leases"].objects.get(LEASE)
        return "" if lease is None else str(lease["spec"].get("holderIdentity") or "")

    def find_node(self, key: str) -> str | None:
        node: str | None = self.get("pods", key)["spec"].get("nodeName")
        return node

    def find_requests(self, path_end: str, method: str = "", who: str = "") -> list[Request]:
        return [
            request
            for request in self.requests
            if request.path.endswith(path_end) and method in {"", request.method} and who in {"", request.who}
        ]

    def find_demand(self, pod: Json) -> dict[str, Fraction]:
        """What a pod asks for, and one of the pods that a node takes."""
        uid = pod["metadata"]["uid"]
        if uid not in self._demands:
            demand = self._demands[uid] = {"pods": Fraction(1)}
            for container in pod["spec"]["containers"]:
                for resource, amount in (container["resources"].get("requests") or {}).items():
                    demand[resource] = demand.get(resource, Fraction(0)) + parse_quantity(amount)
        return self._demands[uid]

    def find_free(self, node: str) -> dict[str, Fraction]:
        """What a node has left; below 0 where it is overcommitted."""
        allocatable = self.get("nodes", node)["status"]["allocatable"]
        free = {resource: parse_quantity(amount) for resource, amount in allocatable.items()}
        for pod in self.kinds["pods"].objects.values():
            if pod["spec"].get("nodeName") == node and pod["status"].get("phase") not in FINISHED:
                for resource, amount in self.find_demand(pod).items():
                    free[resource] = free.get(resource, Fraction(0)) - amount
        return free

    # --- requests ---

    def receive(self, request: Request, latency: float) -> asyncio.Future[bytes]:
        """Take a request; its answer comes when it comes, whoever waits for it or not."""
        self.requests.append(request)
        self.open.append(request)
        self._check_writer(request)
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        work = self._serve(request, latency, answer)
        task = asyncio.get_running_loop().create_task(work, context=self._context)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)
        return answer

    async def close(self) -> None:
        """End what is still being answered."""
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    def find_fault(self, request: Request) -> Fault | None:
        for fault in self.faults:
            if fault.matches(request.method, request.path, request.who, self.now):
                fault.times -= 1
                return fault
        return None

    async def _serve(self, request: Request, latency: float, answer: asyncio.Future[bytes]) -> None:
        fault = self.find_fault(request)
        delay = fault.delay_seconds if fault is not None else 0.0
        limit = float(request.query.get("timeout", "60s").removesuffix("s"))
        await asyncio.sleep(latency + min(delay, limit))
        outcome: bytes | Exception | Silence = b""
        if delay >= limit:
            outcome = ApiError(504, "Timeout", "the request did not complete within the allotted timeout")
        elif fault is None or fault.happens:
            try:
                outcome = self._carry_out(request)
            except ApiError as error:
                outcome = error
        self.open.remove(request)
        if fault is not None and fault.answer is not None:
            outcome = fault.answer
        if isinstance(outcome, Silence):
            return
        await asyncio.sleep(latency)
        if answer.done():
            return  # nobody waits for it any more
        if isinstance(outcome, Exception):
            answer.set_exception(copy.copy(outcome) if isinstance(outcome, TransientClusterError) else outcome)
            answer.exception()  # whoever asked may be gone
        else:
            answer.set_result(outcome)

    def _check_writer(self, request: Request) -> None:
        if request.method != "GET" and "/leases" not in request.path and request.who != self.holder:
            self.broken.append(
                f"{request.at:.2f}: {request.who} writes {request.path} while {self.holder or 'nobody'} holds the lease"
            )

    def _carry_out(self, request: Request) -> bytes:
        if request.path in COLLECTIONS:
            return self._list(COLLECTIONS[request.path], request.query)
        match request.path.strip("/").split("/"):
            case ["api", "v1", "namespaces", namespace, "pods", name, *sub]:
                return self._answer_pod(request, f"{namespace}/{name}", sub)
            case ["api", "v1", "namespaces", namespace, "persistentvolumeclaims" as kind, name]:
                return self._answer_storage(request, kind, f"{namespace}/{name}")
            case ["api", "v1", "persistentvolumes" as kind, name]:
                return self._answer_storage(request, kind, name)
            case ["apis", "fairbind.io", _, kind, name, "status"]:
                return self._patch_status(kind, name, request.body)
            case ["apis", _, _, "namespaces", namespace, kind, *names]:
                answer = {"leases": self._answer_lease, "events": self._answer_event}[kind]
                return answer(request.method, "/".join([namespace, *names]), request.body)
        raise AssertionError(f"{request.method} {request.path}")

    def _answer_pod(self, request: Request, key: str, sub: list[str]) -> bytes:
        match request.method, sub:
            case "POST", ["binding"]:
                return self._bind(request, key)
            case "PATCH", ["status"]:
                return self._patch_pod_status(key, request.body, request.query.get("fieldManager", "fairbind"))
            case "PATCH", []:
                return self._open_gate(request, key)
        assert (request.method, sub) == ("GET", [])
        return _encode(self._find("pods", key))

    def _answer_storage(self, request: Request, kind: str, key: str) -> bytes:
        found = self._find(kind, key)
        if request.method == "PATCH":
            patch = request.body
            self._check_preconditions(found, patch["metadata"])
            found = self.change(kind, key, lambda item: merge(item, patch))
        return _encode(found)

    def _list(self, kind: str, query: dict[str, str]) -> bytes:
        if (token := query.get("continue")) is not None:
            if token not in self._pages:
                raise ApiError(410, "Expired", "the continue token is too old")
            version, items = self._pages.pop(token)
        else:
            version, items = self.version, [item for _, item in sorted(self.kinds[kind].objects.items())]
        limit = int(query.get("limit", "0")) or len(items)
        meta = {"resourceVersion": str(version)}
        if len(items) > limit:
            meta["continue"] = f"page-{next(self._page_numbers)}"
            self._pages[meta["continue"]] = version, items[limit:]
        return _encode({"metadata": meta, "items": items[:limit] or None})

    def _find(self, kind: str, key: str) -> Json:
        found = self.kinds[kind].objects.get(key)
        if found is None:
            raise ApiError(404, "NotFound", f'{kind} "{key}" not found')
        return found

    def _bind(self, request: Request, key: str) -> bytes:
        pod, body = self._find("pods", key), request.body
        node, meta = body["target"]["name"], pod["metadata"]
        if not node:
            raise ApiError(422, "Invalid", "target.name: Required value")
        if body["metadata"]["uid"] != meta["uid"]:
            raise ApiError(409, "Conflict", f"Precondition failed: UID in precondition: {body['metadata']['uid']}")
        if meta.get("deletionTimestamp"):
            raise ApiError(409, "Conflict", f"pod {key} is being deleted, cannot be assigned to a host")
        bound_to = pod["spec"].get("nodeName")
        if bound_to:
            if any(uid == meta["uid"] for _, _, uid, _ in self.bound) and bound_to != node:
                self.broken.append(
                    f"{self.now:.2f}: {request.who} binds {key} to {node}, but we bound it to {bound_to}"
                )
            raise ApiError(409, "Conflict", f"pod {key} is already assigned to node {bound_to}")
        if pod["spec"].get("schedulingGates"):
            raise ApiError(409, "Conflict", f"pod {key} has non-empty .spec.schedulingGates")

        def take_node(taken: Json) -> None:
            taken["spec"]["nodeName"] = node
            taken["status"].pop("nominatedNodeName", None)
            merge_conditions(taken["status"], [{"type": "PodScheduled", "status": "True"}])

        self.change("pods", key, take_node)
        self.bound.append((self.now, request.who, meta["uid"], node))
        self._check_room(request.who, key, node)
        self._check_claims(request.who, pod)
        return _encode({"kind": "Status", "status": "Success", "code": 201})

    def _open_gate(self, request: Request, key: str) -> bytes:
        """As a strategic merge patch and the chart's policy have it."""
        patch, pod = request.body, self._find("pods", key)
        self._check_preconditions(pod, patch["metadata"])
        gates, asked = pod["spec"].get("schedulingGates") or [], patch["spec"]["schedulingGates"]
        if len(gates) != 1 or [{**gates[0], "$patch": "delete"}] != asked:
            raise ApiError(403, "Forbidden", "the operator may change a pod only by removing the scheduling gate")

        def open_gate(opened: Json) -> None:
            del opened["spec"]["schedulingGates"]
            merge(opened["spec"], {"affinity": patch["spec"].get("affinity") or {}})

        self.change("pods", key, open_gate)
        self.opened.append((self.now, request.who, pod["metadata"]["uid"]))
        return _encode(self.get("pods", key))

    def _check_room(self, who: str, key: str, node: str) -> None:
        if node not in self.kinds["nodes"].objects:
            return
        lacking = {resource: float(amount) for resource, amount in self.find_free(node).items() if amount < 0}
        if lacking:
            self.broken.append(f"{self.now:.2f}: {who} binds {key} to {node}, which lacks {lacking}")

    def _check_claims(self, who: str, pod: Json) -> None:
        """A pod whose claims are not bound would wait on its node for ever."""
        for volume in pod["spec"].get("volumes") or ():
            name = volume.get("persistentVolumeClaim", {}).get("claimName")
            claim = self.kinds["persistentvolumeclaims"].objects.get(f"{pod['metadata']['namespace']}/{name}")
            if name and (claim is None or not is_bound(claim)):
                self.broken.append(f"{self.now:.2f}: {who} binds {find_key(pod)}, whose claim {name} is not bound")

    def nominate(self, key: str, node: str | None, manager: str) -> None:
        """Write the node to which a pod is nominated, and note who did, as the API server does."""

        def write(pod: Json) -> None:
            pod["status"].pop("nominatedNodeName", None)
            pod["metadata"].pop("managedFields", None)
            if node is not None:
                fields: Json = {"f:status": {"f:nominatedNodeName": {}}}
                pod["status"]["nominatedNodeName"] = node
                pod["metadata"]["managedFields"] = [{"manager": manager, "operation": "Update", "fieldsV1": fields}]

        self.change("pods", key, write)

    def _patch_pod_status(self, key: str, patch: Json, manager: str) -> bytes:
        self._check_preconditions(self._find("pods", key), patch["metadata"])
        written = dict(patch["status"])
        conditions = written.pop("conditions", [])
        if "nominatedNodeName" in written:
            self.nominate(key, written.pop("nominatedNodeName"), manager)

        def write(pod: Json) -> None:
            if conditions:
                merge_conditions(pod["status"], conditions)
            merge(pod["status"], written)

        return _encode(self.change("pods", key, write))

    def _patch_status(self, kind: str, name: str, patch: Json) -> bytes:
        self._check_preconditions(self._find(kind, name), patch["metadata"])
        return _encode(self.change(kind, name, lambda item: merge(item.setdefault("status", {}), patch["status"])))

    def _check_preconditions(self, item: Json, wanted: Json) -> None:
        for field_name in ("uid", "resourceVersion"):
            if field_name in wanted and wanted[field_name] != item["metadata"][field_name]:
                raise ApiError(409, "Conflict", f"the {field_name} is another one")

    def _answer_lease(self, method: str, key: str, body: Json) -> bytes:
        if method == "POST":
            if find_key(body) in self.kinds["leases"].objects:
                raise ApiError(409, "AlreadyExists", "the lease already exists")
            self.put("leases", body)
            return _encode(self.get("leases", find_key(body)))
        lease = self._find("leases", key)
        if method == "PUT":
            self._check_preconditions(lease, body["metadata"])
            lease = self.change("leases", key, lambda it: it.update(spec=body["spec"]))
        return _encode(lease)

    def _answer_event(self, method: str, key: str, body: Json) -> bytes:
        if method == "POST":
            self.put("events", body)
            return b"{}"
        self._find("events", key)
        return _encode(self.change("events", key, lambda event: merge(event, body)))

    # --- versions and history ---

    def _store(self, kind: str, item: Json) -> None:
        event = "MODIFIED" if find_key(item) in self.kinds[kind].objects else "ADDED"
        self.kinds[kind].objects[find_key(item)] = item
        self._log(kind, event, item)

    def _log(self, kind: str, event: str, item: Json) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        line = _encode({"type": event, "object": item})
        self.kinds[kind].history.append(Entry(self.now, self.version, line))
        self.kinds[kind].wake()


def is_bound(claim: Json) -> bool:
    """Whether a claim and its volume both say that they are bound."""
    annotations = claim["metadata"].get("annotations") or {}
    return bool(claim["spec"].get("volumeName")) and "pv.kubernetes.io/bind-completed" in annotations


def find_key(item: Json) -> str:
    """Return NAMESPACE/NAME, or the name of what has no namespace."""
    meta = item["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def merge(item: Json, patch: Json) -> None:
    """Apply a merge patch (RFC 7386)."""
    for key, value in patch.items():
        if value is None:
            item.pop(key, None)
        elif isinstance(value, dict):
            inner = item.get(key)
            item[key] = inner if isinstance(inner, dict) else {}
            merge(item[key], value)
        else:
            item[key] = value


def merge_conditions(status: Json, conditions: list[Json]) -> None:
    """Apply conditions as a strategic merge does: by their type."""
    known = {condition["type"]: condition for condition in status.get("conditions") or []}
    for condition in conditions:
        known[condition["type"]] = {**known.get(condition["type"], {}), **condition}
    status["conditions"] = list(known.values())


def _copy(item: Json) -> Json:
    copied: Json = msgspec.json.decode(msgspec.json.encode(item))
    return copied


def _encode(content: Json) -> bytes:
    return msgspec.json.encode(content)
