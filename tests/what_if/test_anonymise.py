from __future__ import annotations

import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.builders import Json, make_namespace, make_node, make_pod
from fairbind.cluster.objects.captured import belongs_to_node
from fairbind.scheduling import POLICIES
from fairbind.what_if.anonymise import anonymise, number_words
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.replay import describe_replay, replay
from fairbind.what_if.snapshot_file import format_snapshot, parse_snapshot
from nights import leave_to_nights
from what_if.snapshots import make_snapshot, make_tenant

NAMES = ("ada", "ada-two", "ada2", "kube-zoo", "zeta", "nova", "pluto", "mike", "lima", "quebec")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
LEFT_OUT = {"two-choices-drfh", "alpha-pf-vds"}
"""One draws by UID; the other solves a minute for so many different demands, and reads no name of its own."""


def make_varied(seed: int, policy: str = "best-fit-drfh") -> ListedObjects:
    """A cluster in which everything that may have a name has one, and many decisions are ties."""
    draw = random.Random(seed)
    keys, zones = ("acme.example/pool", "team_of"), ("red-zone", "blue-zone")

    def pick_labels() -> dict[str, str]:
        return {key: draw.choice(zones) for key in keys if draw.random() < 0.6}

    nodes = []
    for number in range(6):
        name = f"{draw.choice(NAMES)}-rack{number}.example"
        taints = [{"key": keys[0], "value": draw.choice(zones), "effect": "NoSchedule"}] if number == 5 else []
        labels = {"kubernetes.io/hostname": name, "generation": str(number), **pick_labels()}
        allocatable = {"cpu": str(draw.choice((8, 12))), "memory": "32Gi", "pods": "110"}
        nodes.append(make_node(name, allocatable=allocatable, labels=labels, taints=taints))
    pods = []
    for number in range(40):
        spec: Json = {}
        kind = draw.randrange(6)
        if kind == 0:
            spec["nodeSelector"] = {draw.choice(keys): draw.choice(zones)}
        elif kind == 1:
            spec["tolerations"] = [{"key": keys[0], "operator": "Equal", "value": draw.choice(zones)}]
        elif kind == 2:
            terms = [{"matchExpressions": [{"key": "generation", "operator": "Gt", "values": ["2"]}]}]
            spec["affinity"] = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
        elif kind == 3:
            fields = [{"key": "metadata.name", "operator": "In", "values": [draw.choice(nodes)["metadata"]["name"]]}]
            required = {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": fields}]}
            }
            spec["affinity"] = {"nodeAffinity": required}
        namespace = draw.choice(NAMES)
        repels = [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": namespace}}}]
        is_bound = number < 8
        if is_bound:
            spec["affinity"] = {"podAntiAffinity": {REQUIRED: repels}}
        pods.append(
            make_pod(
                f"{namespace}-{draw.choice(NAMES)}-{number}",
                namespace=namespace,
                requests={"cpu": str(draw.randint(1, 3)), "memory": "1Gi"},
                labels={"app": draw.choice(NAMES)},
                node=draw.choice(nodes)["metadata"]["name"] if is_bound else None,
                uid=f"{draw.choice(NAMES)}{draw.randrange(10**6)}-{number}",
                created=f"2026-01-01T00:00:0{draw.randrange(3)}Z",
                **spec,
            )
        )
    amounts = [{"nodes": {"matchLabels": {keys[0]: zones[0]}}, "resources": {"cpu": "3"}}]
    return make_snapshot(
        nodes=nodes,
        pods=pods,
        namespaces=[make_namespace(name, {"kubernetes.io/metadata.name": name, "org": name[0]}) for name in NAMES],
        tenants=[
            make_tenant("zeta", parent="first", priority=1, lending="Never", users={"label": "acme/user"}),
            make_tenant(
                "first", namespaces=[], namespaceSelector={"matchLabels": {"org": "a"}}, weight=2, guarantee=amounts
            ),
            make_tenant("ns-like", namespaces=["nova", "lima"], limit=amounts),
        ],
        policy={"policy": policy, "nodeSelector": {}},
    )


def decide(listed: ListedObjects) -> list[tuple[str, str, str]]:
    found = describe_replay(replay(listed))
    return [(f"{one['namespace']}/{one['pod']}", one["tenant"], one["node"]) for one in found["decisions"]]


def find_names(listed: ListedObjects) -> dict[str, list[str]]:
    """All names in the order in which they decide ties."""
    return {
        "node": sorted(node.metadata.name for node in listed.nodes),
        "pod": sorted(f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in listed.pods),
        "tenant": sorted(tenant["metadata"]["name"] for tenant in listed.tenants),
        "user": sorted(f"@{tenant['metadata']['name']}" for tenant in listed.tenants),
        "implicit": sorted(f"ns/{one.metadata.name}" for one in listed.namespaces),
    }


@pytest.mark.parametrize("policy", leave_to_nights(sorted(set(POLICIES) - LEFT_OUT), but={"best-fit-drfh", "drbf"}))
def test_decisions_stay_the_same_up_to_names(policy: str) -> None:
    for seed in range(3):
        listed = parse_snapshot(json.loads(format_snapshot(make_varied(seed, policy))))
        other = anonymise(listed)
        renamed = {
            old: new
            for kind, names in find_names(listed).items()
            for old, new in zip(names, find_names(other)[kind], strict=True)
        }
        decisions = decide(listed)

        assert len(decisions) > 5
        assert [(renamed[pod], renamed[tenant], renamed[node]) for pod, tenant, node in decisions] == decide(other)


@pytest.mark.parametrize("seed", range(5))
def test_no_name_that_somebody_gave_is_left(seed: int) -> None:
    listed = make_varied(seed)
    text = format_snapshot(anonymise(listed))
    words = {word for name in NAMES for word in name.split("-")} - {"kube"}
    words |= {"acme", "pool", "team", "red", "blue", "zone", "rack", "first", "like", "main", "app", "org"}

    assert {word for word in words if re.search(rf"\b{word}\b|{word}[0-9-]", text)} == set()


def test_amounts_times_and_well_known_keys_stay() -> None:
    node = make_node(
        "n", allocatable={"cpu": "8", "example.com/gpu": "2", "pods": "9"}, labels={"kubernetes.io/os": "x"}
    )
    pod = make_pod("p", requests={"cpu": "250m", "example.com/gpu": "1"}, namespace="kube-system")
    gate = make_pod("q", schedulingGates=[{"name": "acme.example/quota"}])
    before = make_snapshot(nodes=[node], pods=[pod, gate], policy={"policy": "ps-dsf"})
    after = anonymise(before)

    assert after.nodes[0].status == before.nodes[0].status
    assert list(after.nodes[0].metadata.labels or ()) == ["kubernetes.io/os"]
    kept = next(one for one in after.pods if one.metadata.namespace == "kube-system")
    assert kept.spec.containers is not None
    assert kept.spec.containers[0].resources is not None
    assert kept.spec.containers[0].resources.requests == {"cpu": "250m", "example.com/gpu": "1"}
    assert kept.metadata.creation_timestamp == "2026-01-01T00:00:00Z"
    assert (after.policies, after.scheduler_name, after.time) == (before.policies, "fairbind", before.time)
    assert "quota" not in json.dumps(format_snapshot(after))


def test_what_completes_pods_does_so_under_other_names() -> None:
    """Bounds stay, names of namespaces and classes are others; the kind of a pod's owner is no name."""
    owner = {"kind": "DaemonSet", "name": "acme-agent", "uid": "u", "controller": True}
    agent = make_pod("acme-agent-1", node="n")
    agent["metadata"]["ownerReferences"] = [owner]
    item = {"type": "Container", "defaultRequest": {"cpu": "3"}, "max": {"acme.example/gpu": "4"}}
    others: list[Json] = [
        {"kind": "LimitRange", "metadata": {"name": "acme", "namespace": "team"}, "spec": {"limits": [item]}},
        {
            "kind": "RuntimeClass",
            "metadata": {"name": "acme"},
            "overhead": {"podFixed": {"cpu": "1"}},
            "scheduling": {"nodeSelector": {"acme.example/pool": "red"}},
        },
        {"kind": "PriorityClass", "metadata": {"name": "acme"}, "value": 7, "globalDefault": True},
        {
            "kind": "StorageClass",
            "metadata": {"name": "acme", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
            "provisioner": "acme.example",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    ]
    before = make_snapshot(nodes=[make_node("n")], pods=[agent], others=others)
    after = anonymise(before)
    (bounds,), (runtime,), (priority,) = (after.admission[name] for name in before.admission)

    assert bounds.metadata.namespace == after.pods[0].metadata.namespace != "team"
    assert bounds.spec == before.admission["limitranges"][0].spec
    assert (runtime.overhead.pod_fixed, priority.value, priority.global_default) == ({"cpu": "1"}, 7, True)
    assert belongs_to_node(after.pods[0])
    assert after.storage["storageclasses"][0].metadata.annotations
    text = format_snapshot(after).replace("acme.example/gpu", "")  # a resource
    assert "acme" not in text
    assert "red" not in text


WORDS = st.text(alphabet="aklmnoprstuz019", min_size=1, max_size=4) | st.sampled_from(["kube", "ns", "system", "node"])


@settings(max_examples=200)
@given(st.sets(st.lists(WORDS, min_size=1, max_size=3).map(tuple), min_size=2, max_size=12), st.sampled_from("-./"))
def test_new_names_are_in_the_order_of_the_old_ones(names: set[tuple[str, ...]], separator: str) -> None:
    numbers = number_words(word for name in names for word in name)
    old = {name: separator.join(name) for name in names}
    new = {name: separator.join(numbers[word] for word in name) for name in names}

    assert sorted(names, key=old.__getitem__) == sorted(names, key=new.__getitem__)
