"""Pods that the living kube-scheduler places, or does not: whether the oracle and fairbind say the same of each.

A world is put on a local control plane, whose kube-scheduler runs. Pods are asked for one after the other: each is
created for it, and goes again when it is bound or is said to be unschedulable. What the API server lists just before is
the world in which the filters of both are asked:

- The node to which kube-scheduler bound the pod must be one that the oracle and fairbind allow.
- That node must be one of those with the most points in all, by the oracle, against whose scores fairbind's preferences
  are held.
- For a pod that it reports as unschedulable neither may allow any, and its message must count as many nodes for each
  reason as the oracle does, whose reasons are held against fairbind's.

Worlds hold what the other controllers of a cluster leave alone: no taint that evicts, no condition of a node, no pod
that has ended, and claims that are bound, missing or wait for a provisioner that is not there. kube-scheduler may not
have seen all of the world yet when it sees the pod, so a pod of which the three differ is asked for once more.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from differential.compare import Asked, ask_listed, compare
from differential.generate import (
    LISTED_IMAGES,
    NAMESPACES,
    OTHER_SCHEDULER,
    SCHEDULER,
    ZONE,
    Features,
    Generator,
)
from e2e.waiting import wait_for
from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.objects.decode import NAMESPACES as NAMESPACE_TYPE
from fairbind.cluster.objects.decode import NODES, PODS, ResourceType
from localplane.client import ApiError, call_many
from localplane.nodes import is_schedulable

if TYPE_CHECKING:
    from differential.oracle import Oracle, Scores, Verdict
    from localplane.plane import ControlPlane

Json = dict[str, Any]

PODS_OF_A_WORLD = 4
LEAST_NODES, MOST_NODES = 8, 20
ATTEMPTS = 4
FIRST_SEED = 20_000_036
OWN_NAMESPACES = tuple(name for name in NAMESPACES if name != "kube-system")
CLASS = "living-immediate"
SIZES = {name: size * 1024**2 for name, size in zip(LISTED_IMAGES, (90, 300, 700, 2_000, 5_000, 20_000), strict=True)}
_REFUSED = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY})
_MESSAGE = re.compile(r"0/(?P<nodes>\d+) nodes are available: (?P<reasons>.*?)\.(?: |$)")
_REASON = re.compile(r"(\d+) (.*)")


@dataclass(frozen=True, slots=True)
class LivingWorld:
    """What is to be created: nodes, volumes and claims, pods that have a node, and pods that kube-scheduler gets."""

    nodes: Sequence[Json]
    volumes: Sequence[Json]
    claims: Sequence[Json]
    placed: Sequence[Json]
    asked: Sequence[Json]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What kube-scheduler did about a pod. node: where it is bound; None: nowhere, and message says why."""

    pod: Json
    node: str | None
    message: str


@dataclass(slots=True)
class Tally:
    """What came of all cases. plugins: how many pods each refused somewhere. faults: sentences."""

    cases: int
    bound: int
    plugins: Counter[str]
    on_purpose: Counter[str]
    again: int
    faults: list[str]


def draw_living(seed: int) -> LivingWorld:
    """Return a world that a control plane with all its controllers leaves as it is."""
    generator = Generator(seed, Features(spread=True, affinity=True, wishes=True))
    drawn = generator.draw_world(seed, least_nodes=LEAST_NODES, most_nodes=MOST_NODES, asked=PODS_OF_A_WORLD)
    draw = random.Random(seed)
    names = [node["metadata"]["name"] for node in drawn.nodes]
    volumes, claims = _draw_claims(draw, seed, names)
    placed = [
        _clean_pod(draw, pod, OTHER_SCHEDULER, seed) for pod in drawn.pods if pod["spec"].get("nodeName") in names
    ]
    # kube-scheduler has an error where a preferred term compares with what is no number, and places no such pod.
    readable = [pod for pod in drawn.asked if '"x1"' not in json.dumps(pod["spec"].get("affinity"))]
    asked = [_clean_pod(draw, pod, OTHER_SCHEDULER, seed) for pod in readable]
    return LivingWorld([_clean_node(node) for node in drawn.nodes], volumes, claims, placed, asked)


def _clean_node(node: Json) -> Json:
    spec = dict(node["spec"])
    taints = [taint for taint in spec.pop("taints", ()) if not taint["key"].startswith("node.kubernetes.io/")]
    unique = {taint["key"]: {**taint, "effect": taint["effect"].replace("NoExecute", "NoSchedule")} for taint in taints}
    labels = {**node["metadata"]["labels"], "type": "kwok"}
    status = {key: node["status"][key] for key in ("allocatable", "capacity", "declaredFeatures")}
    # kube-scheduler takes the size of an image on one node for all.
    status["images"] = [image | {"sizeBytes": SIZES[image["names"][1]]} for image in node["status"].get("images", ())]
    name = node["metadata"]["name"]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {**spec, "taints": [*unique.values()]},
        "status": status,
    }


def _clean_pod(draw: random.Random, pod: Json, scheduler: str, seed: int) -> Json:
    """Return a pod as a person creates it. Some claim a volume."""
    meta, spec = pod["metadata"], dict(pod["spec"])
    for name in ("priority", "overhead"):
        spec.pop(name, None)
    if meta["namespace"] in OWN_NAMESPACES and draw.random() < 0.3:
        claim = draw.choice([*(_name_claim(seed, number) for number in range(4)), "missing", f"waits-{seed}"])
        if claim in {"missing", f"waits-{seed}"} and draw.random() < 0.5:
            claim = _name_claim(seed, 0)
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
    spec |= {"schedulerName": scheduler, "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False}
    own = {key: meta[key] for key in ("name", "namespace", "labels")}
    return {"metadata": {**own, "name": f"{meta['name']}-{seed}"}, "spec": spec}


def _name_claim(seed: int, number: int) -> str:
    return f"claim-{seed}-{number}"


def _draw_claims(draw: random.Random, seed: int, nodes: Sequence[str]) -> tuple[list[Json], list[Json]]:
    """Return volumes, each for a claim, and the claims; and in each namespace one that waits for a provisioner."""
    volumes: list[Json] = []
    claims: list[Json] = []
    asks: Json = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    for namespace in OWN_NAMESPACES:
        for number in range(4):
            name = _name_claim(seed, number)
            volume = f"{namespace}-{name}"
            where = draw.choice(
                (
                    {"key": ZONE, "operator": "In", "values": [draw.choice("abc")]},
                    {"key": ZONE, "operator": "NotIn", "values": [draw.choice("abc")]},
                    {"key": "kubernetes.io/hostname", "operator": "In", "values": draw.sample(nodes, 3)},
                    None,
                )
            )
            spec: Json = {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteMany"],
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": namespace, "name": name},
                "csi": {"driver": "disk.example.com", "volumeHandle": volume},
            }
            labels = {}
            if where is not None:
                spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}}
            elif draw.random() < 0.5:
                labels = {ZONE: draw.choice("abc")}
            volumes.append({"metadata": {"name": volume, "labels": labels}, "spec": spec})
            meta = {"name": name, "namespace": namespace}
            claims.append({"metadata": meta, "spec": {**asks, "storageClassName": "", "volumeName": volume}})
        claims.append(
            {"metadata": {"name": f"waits-{seed}", "namespace": namespace}, "spec": {**asks, "storageClassName": CLASS}}
        )
    return volumes, claims


class Stage:
    """A control plane with kube-scheduler, on which one world after the other is put."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._api = plane.client
        self._nodes: list[str] = []
        self._volumes: list[str] = []
        self._pods: list[Json] = []

    def set_up(self) -> None:
        """Make the namespaces, and a class without a provisioner."""
        for name in OWN_NAMESPACES:
            path = f"/api/v1/namespaces/{name}"
            wait_for(lambda at=path: not self._api.exists(at), describe=f"no namespace {name}")  # type: ignore[misc]
            self._api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": NAMESPACES[name]}})
        for name in OWN_NAMESPACES:
            account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            wait_for(lambda at=account: self._api.exists(at), describe=account)  # type: ignore[misc]
        made = {"metadata": {"name": CLASS}, "provisioner": "nothing.example.com", "volumeBindingMode": "Immediate"}
        self._api.post("/apis/storage.k8s.io/v1/storageclasses", made)

    def put(self, world: LivingWorld) -> None:
        """Put a world in the place of the one before."""
        self.clear()
        self._nodes = [node["metadata"]["name"] for node in world.nodes]
        self._volumes += [volume["metadata"]["name"] for volume in world.volumes]
        self._pods = list(world.placed)
        call_many(world.nodes, lambda node: self._api.post("/api/v1/nodes", node))
        call_many(world.volumes, lambda volume: self._api.post("/api/v1/persistentvolumes", volume))
        call_many(world.claims, lambda claim: self._create("persistentvolumeclaims", claim))
        call_many(world.placed, lambda pod: self._create("pods", pod))
        names = {claim["metadata"]["name"] for claim in world.claims if claim["spec"].get("volumeName")}

        def is_settled() -> bool:
            nodes = self._api.items("/api/v1/nodes")
            claims = self._api.items("/api/v1/persistentvolumeclaims")
            bound = [claim for claim in claims if claim["metadata"]["name"] in names and _is_claim_bound(claim)]
            has_all = {node["metadata"]["name"] for node in nodes}.issuperset(self._nodes)
            return has_all and all(map(_is_node_settled, nodes)) and len(bound) == len(names) * len(OWN_NAMESPACES)

        wait_for(is_settled, describe="nodes to be ready and claims to be bound")

    def ask(self, pod: Json) -> tuple[Asked, Outcome] | None:
        """Have kube-scheduler place a pod; return the world before without a verdict, and what came of it.

        None: the API server does not take the pod.
        """
        before = self._list()
        stored = self._create("pods", pod)
        if stored is None:
            return None
        path = self._find_path("pods", stored)
        found: Json = wait_for(
            lambda: _find_outcome(self._api.get(f"{path}/{stored['metadata']['name']}")),
            describe=f"kube-scheduler to decide about {stored['metadata']['name']}",
        )
        self._remove_pods([stored])
        return before, Outcome(stored, found["node"], found["message"])

    def clear(self) -> None:
        """Take pods and nodes away; volumes and claims stay, as each world has its own."""
        self._remove_pods(self._pods)
        call_many(self._nodes, lambda name: self._remove(f"/api/v1/nodes/{name}"))
        self._nodes, self._pods = [], []

    def tear_down(self) -> None:
        """Take all away that was made."""
        self.clear()
        paths = [f"/api/v1/persistentvolumes/{name}" for name in self._volumes]
        paths += [f"/api/v1/namespaces/{name}" for name in OWN_NAMESPACES]
        call_many([*paths, f"/apis/storage.k8s.io/v1/storageclasses/{CLASS}"], self._remove)

    def _create(self, kind: str, item: Json) -> Json | None:
        """Create an object; None: the API server refuses it."""
        try:
            made: Json = self._api.post(self._find_path(kind, item), item)
        except ApiError as error:
            if error.status in _REFUSED:
                return None
            raise
        return made

    @staticmethod
    def _find_path(kind: str, item: Json) -> str:
        return f"/api/v1/namespaces/{item['metadata']['namespace']}/{kind}"

    def _remove_pods(self, pods: Sequence[Json]) -> None:
        paths = [f"{self._find_path('pods', pod)}/{pod['metadata']['name']}" for pod in pods]
        call_many(paths, self._remove)
        for path in paths:
            wait_for(lambda at=path: not self._api.exists(at), describe=f"{path} to be gone")  # type: ignore[misc]

    def _remove(self, path: str) -> None:
        """Delete an object at once, if it is there."""
        try:
            self._api.delete(path, {"gracePeriodSeconds": 0})
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    def _list(self) -> Asked:
        about_volumes = (resource_type for resource_type, _ in ClusterCache(SCHEDULER, lambda: None).volume_feeds)
        types: list[ResourceType[Any]] = [PODS, NODES, NAMESPACE_TYPE, *about_volumes]
        listed = {each.name: self._api.items(each.path) for each in types}
        nodes, pods, namespaces = (listed.pop(kind) for kind in ("nodes", "pods", "namespaces"))
        return Asked(0, nodes, namespaces, pods, (), (), listed)


def _is_claim_bound(claim: Json) -> bool:
    return "pv.kubernetes.io/bind-completed" in claim["metadata"].get("annotations", {})


def _is_node_settled(node: Json) -> bool:
    """Whether a node is ready, and the controllers have said by taints what is to be said."""
    keys = {taint["key"] for taint in node["spec"].get("taints", ())}
    is_cordoned = node["spec"].get("unschedulable", False)
    return is_schedulable(node) and ("node.kubernetes.io/unschedulable" in keys) == is_cordoned


def _find_outcome(pod: Json) -> Json:
    """Return what became of a pod; empty: nothing yet."""
    if pod["spec"].get("nodeName"):
        return {"node": pod["spec"]["nodeName"], "message": ""}
    for condition in pod["status"].get("conditions", ()):
        if (condition["type"], condition.get("reason")) == ("PodScheduled", "Unschedulable"):
            return {"node": None, "message": condition["message"]}
    return {}


def play(stage: Stage, oracle: Oracle, seeds: Sequence[int]) -> Tally:
    """Put the worlds of these seeds on the stage and ask for their pods."""
    tally = Tally(0, 0, Counter(), Counter(), 0, [])
    for seed in seeds:
        world = draw_living(seed)
        stage.put(world)
        for pod in world.asked:
            _play_pod(stage, oracle, pod, tally)
    return tally


def _play_pod(stage: Stage, oracle: Oracle, pod: Json, tally: Tally) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        answer = stage.ask(pod)
        if answer is None:
            return
        before, outcome = answer
        waiting = {**outcome.pod, "spec": {**outcome.pod["spec"], "schedulerName": SCHEDULER}}
        asked = ask_listed(oracle, before, waiting)
        differences = list(compare(asked))
        faults = [difference.text for difference in differences if not difference.why]
        faults.extend(judge(outcome, asked.verdicts[0]))
        if outcome.node is not None:
            faults.extend(judge_choice(outcome.node, oracle.score_next([], [waiting])[0]))
        if faults and attempt < ATTEMPTS:
            tally.again += 1
            continue
        tally.cases += 1
        tally.bound += outcome.node is not None
        tally.plugins.update({refusal.plugin for refusal in asked.verdicts[0].values() if refusal is not None})
        tally.on_purpose.update(difference.why for difference in differences if difference.why)
        tally.faults.extend(f"{pod['metadata']['name']}: {fault}" for fault in faults)
        return


def judge(outcome: Outcome, verdict: Verdict) -> Iterator[str]:
    """Yield where kube-scheduler did something else than the oracle says."""
    feasible = sorted(node for node, refusal in verdict.items() if refusal is None)
    if outcome.node is not None:
        if outcome.node not in feasible:
            yield f"bound to {outcome.node}, the oracle allows {feasible}: {verdict.get(outcome.node)}"
    elif feasible:
        yield f"unschedulable ({outcome.message}), the oracle allows {feasible}"
    elif (told := count_told(outcome.message)) != (expected := count_expected(verdict, len(verdict))):
        yield f"{outcome.message!r} tells {told}; the oracle: {expected}"


def judge_choice(node: str, scores: Scores) -> Iterator[str]:
    """Yield where kube-scheduler chose a node that is worth less than another, by the oracle."""
    worth = {name: sum(by_plugin.values()) for name, by_plugin in scores.items()}
    if worth.get(node, 0) < max(worth.values(), default=0):
        yield f"bound to {node}, but others are worth more: {scores}"


def count_told(message: str) -> Mapping[str, int]:
    """Return how many nodes kube-scheduler counts for each reason; for one that is about the pod, all.

    >>> count_told("0/3 nodes are available: 1 Insufficient cpu, 2 Too many pods. preemption: not helpful")
    {'Insufficient cpu': 1, 'Too many pods': 2}
    >>> count_told('0/3 nodes are available: persistentvolumeclaim "missing" not found. preemption: not helpful')
    {'persistentvolumeclaim "missing" not found': 3}
    """
    found = _MESSAGE.match(message)
    assert found is not None, message
    counted = [_REASON.fullmatch(part) for part in re.split(r", (?=\d+ )", found["reasons"])]
    if not all(counted):
        return {found["reasons"]: int(found["nodes"])}
    return {part[2]: int(part[1]) for part in counted if part is not None}


def count_expected(verdict: Verdict, nodes: int) -> Mapping[str, int]:
    """Return the same of the oracle's verdict, on so many nodes."""
    assert len(verdict) == nodes
    counts = Counter[str]()
    for refusal in verdict.values():
        if refusal is not None:
            counts.update(refusal.reasons or [f"node(s) didn't satisfy plugin(s) [{refusal.plugin}]"])
    return dict(sorted(counts.items()))
