"""Recorded histories of a cluster: what happens in it, told to the mirror, mostly at once, and what follows from it.

What is decided is assumed, later bound, refused or postponed, and comes back as pods that run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from cluster.builders import SCHEDULER, Json, make_namespace, make_node
from cluster.recorded.mirrored import Mirrored, ResourceType
from cluster.recorded.specs import NAMESPACES, NODE_LABELS, draw_allocatable, draw_pod, draw_taints
from scheduling.recorded import build
from scheduling.recorded.dice import Dice
from scheduling.recorded.draws import FOLLOWING, POLICY_IDS, TARGET_SHARES
from scheduling.recorded.recording import Series

HISTORIES = 100
STEPS = 40
NODES = (1, 2, 3, 4, 5, 6, 8, 10, 14, 25)
TENANTS = ("green", "red", "blue")
WEIGHTS = (1, 1, 2, "500m", "3", 1000, "0.001")
HAPPENINGS = (
    *("create", "create", "create", "create", "create", "create", "pod", "pod", "pod", "pod", "finish", "finish"),
    *("node", "node", "namespace", "tenant", "tenant", "policy"),
)
SELECTORS = (None, None, {"matchLabels": {"owner": "red"}}, {"matchLabels": {"env": "prod"}})


class History:
    """The truth, and the mirror that hears of it. open: decided and not yet bound, uid and node."""

    def __init__(self, number: int) -> None:
        self.dice = Dice(3, number)
        self.policy = POLICY_IDS[number % len(POLICY_IDS)]
        self.cache = Mirrored(has_memory=number % 2 == 0)
        self.objects: dict[ResourceType, dict[str, Json]] = {"pods": {}, "nodes": {}, "namespaces": {}}
        self.events: list[tuple[ResourceType, Json, bool]] = []
        self.heard = 0
        self.version = 0
        self.serial = 0
        self.open: dict[str, str] = {}
        self.postponed: list[str] = []

    # --- the truth ---

    def put(self, kind: ResourceType, item: Json) -> None:
        key = item["metadata"]["uid" if kind == "pods" else "name"]
        self.objects[kind][key] = self.note(kind, item, is_deleted=False)

    def delete(self, kind: ResourceType, key: str) -> None:
        self.note(kind, self.objects[kind].pop(key), is_deleted=True)

    def note(self, kind: ResourceType, item: Json, *, is_deleted: bool) -> Json:
        self.version += 1
        changed: Json = json.loads(json.dumps(item))
        changed["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((kind, changed, is_deleted))
        return changed

    def pick(self, kind: ResourceType) -> Json | None:
        items = list(self.objects[kind].values())
        return json.loads(json.dumps(self.dice.pick(items))) if items else None

    # --- what happens ---

    def start(self) -> None:
        for _ in range(self.dice.pick(NODES)):
            self.add_node()
        for name in NAMESPACES[:3]:
            self.put("namespaces", make_namespace(name, {"env": "prod"} if self.dice.chance(0.5) else {}))
        self.change_policy()

    def happen(self) -> None:
        match self.dice.pick(HAPPENINGS):
            case "create":
                self.create_pods()
            case "finish":
                self.finish_pods()
            case "pod":
                self.change_pod()
            case "node":
                self.change_node()
            case "namespace":
                self.change_namespace()
            case "tenant":
                self.change_tenant()
            case _:
                self.change_policy()

    def create_pods(self) -> None:
        """Some pods of one kind; a few of them run already, of somebody else or ours of before."""
        dice = self.dice
        pod, nodes = draw_pod(dice), list(self.objects["nodes"])
        for _ in range(dice.pick((1, 1, 2, 3, 5, 8))):
            self.serial += 1
            name = f"pod-{self.serial:04}"
            pod["metadata"].update(name=name, uid=f"uid-{9999 - self.serial}")
            pod["metadata"]["creationTimestamp"] = f"2026-01-01T00:{dice.below(60):02}:00Z"
            spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
            is_placed = bool(nodes) and dice.chance(0.1 if spec["schedulerName"] == SCHEDULER else 0.8)
            if is_placed and "schedulingGates" not in spec:
                spec["nodeName"] = dice.pick(nodes) if dice.chance(0.95) else "unheard-of"
            self.put("pods", {**pod, "spec": spec})

    def finish_pods(self) -> None:
        """Some of those that run come to their end."""
        running = [pod for pod in self.objects["pods"].values() if "nodeName" in pod["spec"]]
        for pod in self.dice.sift(running, 0.25):
            self.delete("pods", pod["metadata"]["uid"])

    def change_pod(self) -> None:
        pod = self.pick("pods")
        if pod is None:
            return
        uid, what = pod["metadata"]["uid"], self.dice.pick(("end", "end", "delete", "gate", "terminate", "resize"))
        match what:
            case "end":
                pod["status"]["phase"] = self.dice.pick(("Succeeded", "Failed"))
            case "delete":
                self.delete("pods", uid)
                return
            case "gate":
                pod["spec"].pop("schedulingGates", None)
            case "terminate":
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T01:00:00Z"
            case _:
                status = [{"name": "main", "allocatedResources": {"cpu": self.dice.pick(("1", "3"))}}]
                pod["status"]["containerStatuses"] = status if "nodeName" in pod["spec"] else []
        self.put("pods", pod)
        if what == "end" and self.dice.chance(0.5):
            self.delete("pods", uid)

    def add_node(self) -> None:
        dice = self.dice
        self.serial += 1
        labels = {key: dice.pick(values) for key, values in NODE_LABELS.items() if dice.chance(0.8)}
        name, taints = f"{dice.pick('xyz')}-{self.serial:04}", draw_taints(dice)
        self.put("nodes", make_node(name, allocatable=draw_allocatable(dice), labels=labels, taints=taints))

    def change_node(self) -> None:
        """A node joins, or one changes in one way or another, or goes."""
        dice, node = self.dice, self.pick("nodes")
        if node is None or dice.chance(0.15):
            self.add_node()
            return
        match dice.pick(("cordon", "cordon", "ready", "taints", "labels", "amounts", "amounts", "delete")):
            case "cordon":
                node["spec"]["unschedulable"] = not node["spec"].get("unschedulable", False)
            case "ready":
                is_ready = dice.chance(0.7)
                node["status"]["conditions"] = [{"type": "Ready", "status": "True" if is_ready else "Unknown"}]
            case "taints":
                node["spec"]["taints"] = draw_taints(dice)
            case "labels":
                node["metadata"]["labels"] = {key: dice.pick(values) for key, values in NODE_LABELS.items()}
            case "amounts":
                node["status"]["allocatable"] = draw_allocatable(dice)
            case _:
                self.delete("nodes", node["metadata"]["name"])
                return
        self.put("nodes", node)

    def change_namespace(self) -> None:
        name = self.dice.pick(NAMESPACES)
        if name in self.objects["namespaces"] and self.dice.chance(0.3):
            self.delete("namespaces", name)
        else:
            labels: dict[str, str] = self.dice.pick(({}, {"env": "prod"}, {"owner": "red"}))
            self.put("namespaces", make_namespace(name, labels))

    def change_tenant(self) -> None:
        dice, name = self.dice, self.dice.pick(TENANTS)
        if dice.chance(0.2):
            self.cache.remove_tenant(name)
            return
        spec: Json = {"weight": dice.pick(WEIGHTS), "namespaces": dice.sift(NAMESPACES, 0.3)}
        spec["namespaceSelector"] = dice.pick(SELECTORS)
        if dice.chance(0.3):
            spec["resourceWeights"] = {"cpu": dice.pick(WEIGHTS), "gpu.io/x": 2}
        meta = {"name": name, "creationTimestamp": f"2026-01-0{dice.between(1, 2)}T00:00:00Z"}
        self.cache.put_tenant({"metadata": meta, "spec": spec})

    def change_policy(self) -> None:
        dice = self.dice
        if dice.chance(0.15):
            self.policy = dice.pick(POLICY_IDS)
        spec: Json = {"policy": self.policy, "serverClassTolerance": dice.pick(("0", "0.02", "0.02", "0.5"))}
        if dice.chance(0.25):
            spec["fairnessResources"] = dice.pick((["memory"], ["cpu", "gpu.io/x"], ["absent"]))
        if dice.chance(0.1):
            spec["nodeSelector"] = {"disk": "ssd"}
        if dice.chance(0.3):
            seed = dice.below(100)
            if self.policy == "two-choices-drfh":
                spec["twoChoicesDrfh"] = {"seed": seed}
        self.cache.put_policy({"spec": spec})
        self.cache.set_targets(self.draw_targets() if dice.chance(0.8) else None)

    def draw_targets(self) -> build.Targets | None:
        dice, nodes = self.dice, list(self.objects["nodes"])
        if self.policy not in FOLLOWING:
            return None
        names = dice.sift((*TENANTS, *(f"ns/{name}" for name in NAMESPACES)), 0.8)
        shares = {name: (dice.pick(TARGET_SHARES), dice.pick(TARGET_SHARES)) for name in names}
        if dice.chance(0.4):
            return build.build_targets(self.policy, ("cpu", "memory"), shares, (), {}, {})
        class_of = {node: dice.below(2) for node in dice.sift(nodes, 0.9)}
        return build.build_targets(self.policy, ("cpu", "memory"), shares, ("k0", "k1"), class_of, shares)

    # --- what the mirror hears ---

    def hear(self) -> None:
        """Mostly all; sometimes something stays for later, comes again, or comes as a whole list."""
        stop = len(self.events) if self.dice.chance(0.85) else self.dice.between(self.heard, len(self.events))
        for kind, item, is_deleted in self.events[self.heard : stop]:
            self.cache.tell(kind, item, is_deleted=is_deleted)
        self.heard = stop
        if stop and self.dice.chance(0.15):
            kind, item, is_deleted = self.events[self.dice.below(stop)]
            self.cache.tell(kind, item, is_deleted=is_deleted)
        if self.dice.chance(0.06):
            kinds: tuple[ResourceType, ...] = ("pods", "nodes", "namespaces")
            kind = self.dice.pick(kinds)
            self.cache.tell_list(kind, list(self.objects[kind].values()), str(self.version))

    # --- what becomes of decisions ---

    def conclude(self) -> Iterator[str]:
        """Some bindings end: done, refused for good, or to be tried again later."""
        for uid, node in list(self.open.items()):
            yield self.cache.render_pod(uid, node)
            outcome = self.dice.pick(("open", "open", "bound", "bound", "bound", "bound", "failed", "postponed"))
            if outcome != "open":
                del self.open[uid]
            pod = self.objects["pods"].get(uid)
            if outcome == "bound" and pod is not None:
                changed = json.loads(json.dumps(pod))
                changed["spec"].setdefault("nodeName", node)
                self.put("pods", changed)
            elif outcome != "open":
                self.cache.forget(uid, is_postponed=outcome == "postponed")
                self.postponed.append(uid)
        for uid in self.dice.sift(self.postponed, 0.3):
            self.postponed.remove(uid)
            self.cache.resume(uid)

    def play(self) -> Iterator[str]:
        dice = self.dice
        self.start()
        for step in range(STEPS):
            for _ in range(dice.between(1, 4)):
                self.happen()
            self.hear()
            text, bindings = self.cache.decide(float(step), None if dice.chance(0.7) else dice.pick((0, 1, 2, 5)))
            yield text
            for uid, node in bindings:
                if dice.chance(0.97):
                    assert self.cache.assume(uid, node), f"{uid} was decided and does not wait"
                    self.open[uid] = node
            if dice.chance(0.9):
                self.cache.note_waits()
            if step % 3 == 0:
                fair_shares = {f"ns/{name}": 0.25 for name in NAMESPACES} if dice.chance(0.4) else None
                yield self.cache.render_overview(fair_shares)
            yield from self.conclude()


def play_history(number: int) -> Iterator[str]:
    yield from History(number).play()


MIRRORED = Series("mirrors", HISTORIES, 5, play_history)
