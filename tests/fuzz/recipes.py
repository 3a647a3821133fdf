"""Recipes of large odd objects: a generator's name and its parameters, which say more than a body of 1.5 MiB.

Every object has the shape that the API server lets through for somebody: a tenant's pod, or an administrator's node,
namespace, Tenant or SchedulingPolicy. What is odd is how much there is of it, and which numbers and texts.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from cluster.builders import Json, make_namespace, make_node, make_pod
from cluster.devices import make_claim, make_class, make_slice

MAX_BYTES = 3 << 19
"""1.5 MiB: what etcd keeps of one object."""
ODD_QUANTITIES = (
    "0", "-1", "1m", "1n", "9" * 200, "1e18", "1E400", "1e-400", "0." + "0" * 200 + "1", "8Ei", "9223372036854775807",
    "9223372036854775808", "1.5Ki", ".5", "5.", "+1", "1 ", "", "NaN", "1e", "0x10", "\u0661",
)  # fmt: skip
ODD_TEXTS = ("", " ", "\u0000", "a" * 63, "a/b", "\U0001f600" * 15, "-9223372036854775809", "None", "0")
ODD_NUMBERS = (0, -1, 1, 2**31 - 1, -(2**31), 2**53 + 1, 2**63 - 1)
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Odd")


class Recipe(NamedTuple):
    """kind: of object. generator: the name of the function that makes it. parameters: its arguments."""

    kind: str
    generator: str
    parameters: dict[str, Any]

    def make(self) -> Json:
        """Return the object."""
        made: Json = GENERATORS[self.kind, self.generator](**self.parameters)
        return made

    def describe(self) -> str:
        """Return the recipe in one line."""
        stated = ", ".join(f"{name}={value!r}" for name, value in self.parameters.items())
        return f"{self.kind}: {self.generator}({stated})"


def _names(count: int, length: int = 12, prefix: str = "x") -> list[str]:
    return [f"{prefix}{number:0{max(length - len(prefix), 1)}d}" for number in range(count)]


def _expressions(count: int, values: int, operator: str, length: int = 12) -> list[Json]:
    texts = ["5"] * min(values, 1) if operator in {"Gt", "Lt"} else _names(values, length, "v")
    return [{"key": key, "operator": operator, "values": texts} for key in _names(count, 12, "key")]


def _fields(count: int, values: int, operator: str) -> list[Json]:
    return [
        {"key": "metadata.name", "operator": operator, "values": _names(values, 12, f"node-{number}-")}
        for number in range(count)
    ]


# --- pods ---


def _with_spec(pod: Json, field: str, value: object) -> Json:
    pod["spec"][field] = value
    return pod


def _place(pod: Json, *, placed: bool) -> Json:
    if placed:
        pod["spec"]["nodeName"] = "node-7"
        pod["status"]["phase"] = "Running"
    return pod


def make_affinity_pod(
    terms: int, expressions: int, values: int, operator: str = "In", *, placed: bool = False, preferred: bool = False
) -> Json:
    """Node affinity with many terms, expressions and values."""
    made = [{"matchExpressions": _expressions(expressions, values, operator)} for _ in range(terms)]
    for number, term in enumerate(made):
        for expression in term["matchExpressions"]:
            expression["key"] += f"-{number}"
    return _make_affine(made, placed=placed, preferred=preferred)


def make_field_pod(terms: int, values: int = 1, operator: str = "In", *, placed: bool = False) -> Json:
    """Node affinity that names nodes."""
    made: list[Json] = [{"matchFields": _fields(1, values, operator)} for _ in range(terms)]
    for number, term in enumerate(made):
        term["matchFields"][0]["values"] = [f"{value}-{number}" for value in term["matchFields"][0]["values"]]
    return _make_affine(made, placed=placed, preferred=False)


def _make_affine(terms: list[Json], *, placed: bool, preferred: bool) -> Json:
    if preferred:
        wishes = [{"weight": 1 + number % 100, "preference": term} for number, term in enumerate(terms)]
        affinity: Json = {"preferredDuringSchedulingIgnoredDuringExecution": wishes}
    else:
        affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return _place(make_pod("odd", affinity={"nodeAffinity": affinity}), placed=placed)


def make_selector_pod(count: int, length: int = 12, *, placed: bool = False) -> Json:
    """A node selector of many labels."""
    return _place(make_pod("odd", nodeSelector=dict.fromkeys(_names(count, length), "yes")), placed=placed)


def make_tolerant_pod(count: int, operator: str = "Equal", length: int = 12, *, placed: bool = False) -> Json:
    """Many tolerations."""
    tolerations = [{"key": key, "operator": operator, "value": "v"} for key in _names(count, length, "taint")]
    return _place(make_pod("odd", tolerations=tolerations), placed=placed)


def make_port_pod(count: int, addresses: int = 1, *, placed: bool = False) -> Json:
    """Many host ports."""
    ports = [
        {"containerPort": 1, "hostPort": 1 + number % 65535, "hostIP": f"10.0.{number % addresses // 250}.1"}
        for number in range(count)
    ]
    pod = make_pod("odd")
    pod["spec"]["containers"][0]["ports"] = ports
    return _place(pod, placed=placed)


def make_anti_affine_pod(
    terms: int, namespaces: int = 0, expressions: int = 1, values: int = 1, *, placed: bool = True, wide: bool = False
) -> Json:
    """Required anti-affinity with many terms; wide: over all namespaces."""
    made: list[Json] = []
    for number in range(terms):
        selector = {"matchExpressions": _expressions(expressions, values, "NotIn")}
        selector["matchExpressions"][0]["key"] += f"-{number}"
        term: Json = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
        if namespaces:
            term["namespaces"] = _names(namespaces, 12, "team")
        if wide:
            term["namespaceSelector"] = {}
        made.append(term)
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": made}}
    return _place(make_pod("odd", affinity=affinity), placed=placed)


def make_resource_pod(count: int, length: int = 30, amount: str = "1", *, placed: bool = False) -> Json:
    """Requests for many resources that nobody offers."""
    requests = dict.fromkeys(_names(count, length, "example.com/r"), amount)
    return _place(make_pod("odd", requests={"cpu": "100m", **requests}), placed=placed)


def make_crowded_pod(containers: int, inits: int = 0, resources: int = 2, *, placed: bool = False) -> Json:
    """Many containers and init containers."""
    requests = dict.fromkeys(["cpu", "memory", *_names(max(resources - 2, 0), 30, "example.com/r")], "1m")
    pod = make_pod("odd")
    made = [{"name": name, "resources": {"requests": requests}} for name in _names(containers, 12, "c")]
    pod["spec"]["containers"] = made
    pod["spec"]["initContainers"] = [
        {"name": name, "restartPolicy": "Always", "resources": {"requests": requests, "limits": requests}}
        for name in _names(inits, 12, "i")
    ]
    pod["status"]["containerStatuses"] = [
        {"name": container["name"], "allocatedResources": requests, "resources": {"requests": requests}}
        for container in made[: containers // 2]
    ]
    return _place(pod, placed=placed)


def make_image_pod(containers: int, length: int = 60, *, placed: bool = False) -> Json:
    """Many containers, each with an image of its own, and volumes with these images."""
    pod, images = make_pod("odd"), _names(containers, length)
    pod["spec"]["containers"] = [{"name": "c", "image": image} for image in images]
    pod["spec"]["volumes"] = [{"name": "v", "image": {"reference": image}} for image in images[: containers // 4]]
    return _place(pod, placed=placed)


def make_labelled_pod(count: int, length: int = 60, *, placed: bool = False) -> Json:
    """Many labels and annotations."""
    texts = dict.fromkeys(_names(count, length), "yes")
    pod = make_pod("odd", labels=texts)
    pod["metadata"]["annotations"] = texts
    return _place(pod, placed=placed)


def make_unsupported_pod(field: str, count: int, *, placed: bool = False) -> Json:
    """Much of something that is not honoured."""
    names = _names(count, 40)
    values: dict[str, list[Json]] = {
        "volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names],
        "topologySpreadConstraints": [{"topologyKey": name, "whenUnsatisfiable": "DoNotSchedule"} for name in names],
        "resourceClaims": [{"name": name} for name in names],
        "schedulingGates": [{"name": name} for name in names],
    }
    return _place(_with_spec(make_pod("odd"), field, values[field]), placed=placed)


def make_conditioned_pod(count: int, length: int, *, placed: bool = False) -> Json:
    """Many long conditions; one is the one that is read."""
    conditions = [{"type": name, "status": "False", "message": "m" * length} for name in _names(count)]
    conditions.append({"type": "PodScheduled", "status": "False", "message": "p" * length})
    return _place(make_pod("odd", status={"conditions": conditions}), placed=placed)


def make_odd_pod(quantity: int, text: int, number: int, *, placed: bool = False) -> Json:
    """Numbers at the edges and texts that nobody expects, everywhere."""
    amount, word, whole = ODD_QUANTITIES[quantity], ODD_TEXTS[text], ODD_NUMBERS[number]
    requests = {"cpu": amount, "memory": amount, "example.com/gpu": amount, word: amount}
    selector = {"matchExpressions": [{"key": word, "operator": each, "values": [word]} for each in OPERATORS]}
    pod = make_pod(
        "odd",
        requests=requests,
        created=word or amount,
        priority=whole,
        nodeSelector={word: word},
        overhead={"cpu": amount},
        tolerations=[{"key": word, "operator": word, "value": word, "effect": word}],
        affinity={
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [selector]}}
        },
        status={"conditions": [{"type": word, "status": word}], "startTime": amount},
    )
    pod["spec"]["containers"][0]["ports"] = [{"hostPort": whole, "hostIP": word, "protocol": word}]
    return _place(pod, placed=placed)


def make_deep_pod(depth: int, *, placed: bool = False) -> Json:
    """Deep values where the API keeps any, and another shape than is expected where we read."""
    nested: Any = "end"
    for number in range(depth):
        nested = {"f:x": nested} if number % 2 else [nested]
    pod = make_pod("odd")
    pod["metadata"]["managedFields"] = [{"fieldsV1": nested}]
    pod["spec"]["affinity"] = {"nodeAffinity": nested}
    pod["spec"]["tolerations"] = nested
    return _place(pod, placed=placed)


def make_long_pod(length: int, *, placed: bool = False) -> Json:
    """Long texts in whatever is kept, shared or looked up."""
    pod = make_pod("odd", namespace="n" * length, scheduler="fairbind" if placed else "s" * length)
    pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "g" * length}
    return _place(pod, placed=placed)


# --- what administrators, kubelets and drivers write ---


def make_labelled_node(labels: int, length: int = 40) -> Json:
    """A node of many labels."""
    return make_node("odd", labels=dict.fromkeys(_names(labels, length), "yes"))


def make_tainted_node(taints: int, effect: str = "NoSchedule") -> Json:
    """A node of many taints."""
    return make_node("odd", taints=[{"key": key, "value": "v", "effect": effect} for key in _names(taints, 40)])


def make_offering_node(resources: int, quantity: int = 2) -> Json:
    """A node that offers many resources, or odd amounts."""
    amount = ODD_QUANTITIES[quantity]
    offered = {"cpu": amount, "memory": amount, "pods": amount}
    return make_node("odd", allocatable=offered | dict.fromkeys(_names(resources, 30, "example.com/n"), amount))


def make_conditioned_node(count: int, length: int) -> Json:
    """A node of many long conditions and images."""
    node = make_node("odd")
    node["status"]["conditions"] += [
        {"type": name, "status": "False", "message": "m" * length} for name in _names(count)
    ]
    node["status"]["images"] = [{"names": [name], "sizeBytes": 1} for name in _names(count, 60)]
    return node


def make_node_of_images(count: int, values: int = 1, length: int = 60) -> Json:
    """A node of many images of many names, of which pods may use some."""
    node = make_node("odd")
    names = iter(_names(count * values, length))
    images = [{"names": [next(names) for _ in range(values)], "sizeBytes": 10**9} for _ in range(count)]
    node["status"]["images"] = images
    return node


def make_device_claim(devices: int, requests: int = 1, pods: int = 1, length: int = 12) -> Json:
    """A claim that was given many devices of a class each, for many pods; the API server stops at 32, 32 and 256."""
    names = _names(requests, length)
    claim = make_claim("odd", _names(devices), namespace="team1", driver="driver", pool="node-1")
    claim["spec"]["devices"]["requests"] = [{"name": name, "exactly": {"deviceClassName": name}} for name in names]
    for number, result in enumerate(claim["status"]["allocation"]["devices"]["results"] if devices else ()):
        result["request"] = names[number % requests]
    users = ("uid-other-1", *_names(pods - 1))
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": uid, "uid": uid} for uid in users]
    return claim


def make_published_slice(devices: int, counters: int = 0, length: int = 12) -> Json:
    """A slice of many devices that take from many counters."""
    amounts = {name: {"value": "1"} for name in _names(counters, length)}
    uses = {"consumesCounters": [{"counterSet": "set", "counters": amounts}]} if counters else {}
    listed = [{"name": name, **uses} for name in _names(devices)]
    sets = [{"name": "set", "counters": amounts}] if counters else []
    return make_slice("odd", listed, node="node-1", pool="odd", driver="driver", sharedCounters=sets)


def make_device_class(length: int) -> Json:
    """A class of a long name, which serves a resource of a long name."""
    return make_class("c" * length, f"example.com/{'r' * length}")


def make_labelled_namespace(labels: int, length: int = 40) -> Json:
    """A namespace of many labels."""
    return make_namespace("odd", dict.fromkeys(_names(labels, length), "yes"))


def make_tenant(namespaces: int = 0, expressions: int = 0, values: int = 1, weights: int = 0) -> Json:
    """A Tenant with as much as the CRD's schema lets through."""
    spec: Json = {"weight": 1}
    if namespaces:
        spec["namespaces"] = _names(namespaces, 12, "team")
    if expressions:
        spec["namespaceSelector"] = {"matchExpressions": _expressions(expressions, values, "NotIn", 60)}
    if weights:
        spec["resourceWeights"] = dict.fromkeys(_names(weights, 30, "example.com/r"), "2")
    return {"metadata": {"name": "odd", "uid": "uid-odd", "generation": 1}, "spec": spec}


def make_policy(policy: str, resources: int = 0, labels: int = 0) -> Json:
    """A SchedulingPolicy with as much as the CRD's schema lets through."""
    spec: Json = {"policy": policy}
    if resources:
        spec["fairnessResources"] = ["cpu", *_names(resources - 1, 300, "example.com/r")]
    if labels:
        spec["nodeSelector"] = dict.fromkeys(_names(labels, 63), "y" * 63)
    return {"metadata": {"name": "default"}, "spec": spec}


GENERATORS: dict[tuple[str, str], Callable[..., Json]] = {
    ("pod", "affinity"): make_affinity_pod,
    ("pod", "fields"): make_field_pod,
    ("pod", "selector"): make_selector_pod,
    ("pod", "tolerations"): make_tolerant_pod,
    ("pod", "ports"): make_port_pod,
    ("pod", "anti-affinity"): make_anti_affine_pod,
    ("pod", "resources"): make_resource_pod,
    ("pod", "containers"): make_crowded_pod,
    ("pod", "images"): make_image_pod,
    ("pod", "labels"): make_labelled_pod,
    ("pod", "unsupported"): make_unsupported_pod,
    ("pod", "conditions"): make_conditioned_pod,
    ("pod", "odd"): make_odd_pod,
    ("pod", "deep"): make_deep_pod,
    ("pod", "long"): make_long_pod,
    ("node", "labels"): make_labelled_node,
    ("node", "taints"): make_tainted_node,
    ("node", "resources"): make_offering_node,
    ("node", "conditions"): make_conditioned_node,
    ("node", "images"): make_node_of_images,
    ("claim", "devices"): make_device_claim,
    ("slice", "devices"): make_published_slice,
    ("class", "names"): make_device_class,
    ("namespace", "labels"): make_labelled_namespace,
    ("tenant", "tenant"): make_tenant,
    ("policy", "policy"): make_policy,
}

_COUNTS = (1, 2, 10, 100, 1000, 3000, 10_000, 30_000)
_FEW = (1, 2, 5, 30, 200)
_LENGTHS = (12, 30, 63, 250, 5000, 100_000)
_POLICIES = ("drfh", "ps-dsf", "tsf", "fifo", "best-fit-drfh", "ceei", "nothing")
_CHOICES: dict[str, tuple[Any, ...]] = {
    "terms": _COUNTS, "expressions": _FEW, "values": _COUNTS, "operator": OPERATORS, "count": _COUNTS,
    "length": _LENGTHS, "addresses": (1, 200, 5000), "namespaces": (0, 1, 50, 1000), "amount": ODD_QUANTITIES,
    "containers": _COUNTS, "inits": (0, 1, 50, 2000), "resources": (2, 10, 64), "labels": (0, 5, 30),
    "depth": (1, 50, 400), "field": ("volumes", "topologySpreadConstraints", "resourceClaims", "schedulingGates"),
    "quantity": (*range(len(ODD_QUANTITIES)),), "text": (*range(len(ODD_TEXTS)),),
    "number": (*range(len(ODD_NUMBERS)),),
    "taints": (0, 1, 100, 10_000), "effect": ("NoSchedule", "PreferNoSchedule", "Odd"), "weights": (0, 5, 64),
    "policy": _POLICIES, "placed": (False, True), "preferred": (False, True), "wide": (False, True),
}  # fmt: skip
_BY_KIND: dict[str, dict[str, tuple[Any, ...]]] = {
    "claim": {"devices": _COUNTS[:6], "requests": (1, 10, 100, 1000), "pods": _COUNTS[:6], "length": _LENGTHS[:4]},
    "slice": {"devices": _COUNTS[:6], "counters": (0, 1, 30, 200), "length": _LENGTHS[:4]},
    "class": {"length": _LENGTHS[:4]},
    "node": {"labels": _COUNTS, "resources": (1, 5, 30, 64, 1000)},
    "namespace": {"labels": _COUNTS, "length": _LENGTHS[:4]},
    "tenant": {"expressions": (0, 1, 32), "values": (1, 100, 1000)},
}


def draw_recipe(randomness: random.Random) -> Recipe:
    """Return a recipe whose object is not larger than the API server lets through."""
    while True:
        kind, generator = randomness.choice(list(GENERATORS))
        choices = _CHOICES | _BY_KIND.get(kind, {})
        names = GENERATORS[kind, generator].__annotations__.keys() - {"return"}
        drawn = {name: randomness.choice(choices[name]) for name in sorted(names)}
        if _guess_size(drawn) <= 4 * MAX_BYTES:
            recipe = Recipe(kind, generator, drawn)
            if len(json.dumps(recipe.make())) <= MAX_BYTES:
                return recipe


def _guess_size(parameters: dict[str, Any]) -> int:
    """Return about how large an object becomes, so that none of a gigabyte is made only to be thrown away."""
    size = 1
    for name, value in parameters.items():
        if isinstance(value, int) and not isinstance(value, bool) and name not in {"quantity", "text", "number"}:
            size *= max(value, 1)
    return size


def halve(recipe: Recipe) -> list[Recipe]:
    """Return smaller recipes of the same kind: each number halved."""
    return [
        recipe._replace(parameters=recipe.parameters | {name: value // 2})
        for name, value in recipe.parameters.items()
        if isinstance(value, int) and not isinstance(value, bool) and value > 1
    ]
