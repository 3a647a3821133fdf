"""Pods and nodes of the recorded histories, drawn from a small world so that they meet."""

from __future__ import annotations

from cluster.builders import SCHEDULER, Json, make_pod
from scheduling.recorded.dice import Dice

NAMESPACES = ("team", "shop", "lab", "kube-system")
APPS = ("web", "db")
GPU = "gpu.io/x"
NODE_LABELS = {"zone": ("1", "2", "3"), "disk": ("ssd", "hdd"), "cores": ("4", "16", "many"), "rack": ("r1", "r2")}
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
AMOUNTS = {
    "cpu": ("2", "4", "4", "3900m", "8", "0"),
    "memory": ("4Gi", "8Gi", "8Gi", "16Gi"),
    "pods": ("3", "6", "110", "110"),
    "ephemeral-storage": ("1Gi", "100Gi"),
}
REQUESTS = {
    "cpu": ("100m", "500m", "1", "1", "2", "3"),
    "memory": ("256Mi", "1Gi", "2Gi", "4Gi"),
    "ephemeral-storage": ("1Gi",),
    GPU: ("1", "2"),
}
ASKED = {"cpu": 0.85, "memory": 0.7, "ephemeral-storage": 0.1, GPU: 0.15}


def draw_allocatable(dice: Dice) -> dict[str, str]:
    amounts = {resource: dice.pick(texts) for resource, texts in AMOUNTS.items() if dice.chance(0.95)}
    if dice.chance(0.3):
        amounts[GPU] = dice.pick(("0", "1", "2", "8"))
    return amounts


def draw_taints(dice: Dice) -> list[dict[str, str]]:
    if dice.chance(0.6):
        return []
    return [
        {"key": dice.pick(("gpu", "old")), "value": dice.pick(("", "x")), "effect": dice.pick(EFFECTS)}
        for _ in range(dice.between(1, 2))
    ]


def draw_pod(dice: Dice) -> Json:
    """A waiting pod, of ours or of somebody else; the caller gives it a name."""
    requests = {resource: dice.pick(texts) for resource, texts in REQUESTS.items() if dice.chance(ASKED[resource])}
    if dice.chance(0.02):
        requests["cpu"] = "nonsense"
    if dice.chance(0.03):
        requests["absent.io/y"] = "1"
    namespace = dice.pick(("team", "team", "shop", "shop", "lab", "kube-system"))
    others = 0.8 if namespace == "kube-system" else 0.12
    pod = make_pod(
        namespace=namespace,
        requests=requests,
        scheduler="default-scheduler" if dice.chance(others) else SCHEDULER,
        labels={"app": dice.pick(APPS)},
        priority=dice.pick((0, 0, 0, 10, -1)),
        **draw_constraints(dice),
    )
    if dice.chance(0.12):
        port = {"hostPort": dice.pick((80, 80, 443)), "protocol": dice.pick(("TCP", "TCP", "UDP"))}
        pod["spec"]["containers"][0]["ports"] = [{**port, **({"hostIP": "10.0.0.1"} if dice.chance(0.3) else {})}]
    return pod


def draw_constraints(dice: Dice) -> Json:
    spec: Json = {}
    if dice.chance(0.15):
        key = dice.pick(("disk", "zone"))
        spec["nodeSelector"] = {key: dice.pick(NODE_LABELS[key])}
    if dice.chance(0.25):
        spec["tolerations"] = [draw_toleration(dice) for _ in range(dice.between(1, 2))]
    affinity = draw_affinity(dice)
    if affinity:
        spec["affinity"] = affinity
    if dice.chance(0.06):
        spec["schedulingGates"] = [{"name": "gate"}]
    if dice.chance(0.04):
        spec.update(draw_seldom(dice))
    return spec


def draw_toleration(dice: Dice) -> Json:
    toleration: Json = {"key": dice.pick(("gpu", "old")), "operator": dice.pick(("Equal", "Exists"))}
    if toleration["operator"] == "Equal":
        toleration["value"] = dice.pick(("", "x"))
    if dice.chance(0.5):
        toleration["effect"] = dice.pick(EFFECTS)
    return toleration


def draw_seldom(dice: Dice) -> Json:
    """Draw what is spread over zones, or not honoured."""
    selector = {"matchLabels": {"app": APPS[0]}}
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    ways: tuple[Json, ...] = (
        {"topologySpreadConstraints": [spread]},
        {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "mine"}}]},
        {"resourceClaims": [{"name": "device"}]},
    )
    return dice.pick(ways)


def draw_affinity(dice: Dice) -> Json:
    affinity: Json = {}
    node: Json = {}
    if dice.chance(0.12):
        terms = [draw_term(dice) for _ in range(dice.between(1, 2))]
        node["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if dice.chance(0.15):
        wishes = [{"weight": dice.pick((1, 10, 100)), "preference": draw_term(dice)} for _ in range(dice.between(1, 2))]
        node["preferredDuringSchedulingIgnoredDuringExecution"] = wishes
    if node:
        affinity["nodeAffinity"] = node
    if dice.chance(0.1):
        selector = {"matchLabels": {"app": dice.pick(APPS)}}
        repelling: Json = {"topologyKey": dice.pick(("zone", "rack")), "labelSelector": selector}
        if dice.chance(0.4):
            choices: tuple[Json, ...] = ({}, {"matchLabels": {"env": "prod"}})
            repelling["namespaceSelector"] = dice.pick(choices)
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [repelling]}
    return affinity


def draw_term(dice: Dice) -> Json:
    match dice.pick(("in", "in", "not-in", "exists", "greater", "field")):
        case "in":
            expression: Json = {"key": "disk", "operator": "In", "values": ["ssd"]}
        case "not-in":
            expression = {"key": "zone", "operator": "NotIn", "values": dice.sift(NODE_LABELS["zone"], 0.5) or ["1"]}
        case "exists":
            expression = {"key": "rack", "operator": dice.pick(("Exists", "DoesNotExist"))}
        case "greater":
            expression = {"key": "cores", "operator": dice.pick(("Gt", "Lt")), "values": ["8"]}
        case _:
            return {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["x-0001"]}]}
    return {"matchExpressions": [expression]}
