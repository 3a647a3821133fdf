from __future__ import annotations

from typing import Any

import pytest

from cluster.builders import Json, make_node, make_pod
from fairbind.cluster.objects.convert import convert_pod
from fairbind.cluster.objects.dry_run import DryRun
from fairbind.what_if.admission import UNASKED, UNKNOWN
from fairbind.what_if.answers import Submission, answer
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.submission import ONE_POD, read_manifests, submit
from what_if.snapshots import kind, make_snapshot, submit_to


def make_manifest(count: int = 1, *, of: str = "Job", labels: Json | None = None, **spec: Any) -> Json:
    """An object of namespace a; what is left goes into the spec of its pods."""
    pod = {"metadata": {"labels": labels or {}}, "spec": {"containers": [{"name": "main"}], **spec}}
    counts = {"parallelism": count} if of == "Job" else {"replicas": count}
    return {"kind": of, "metadata": {"name": "new", "namespace": "a"}, "spec": {**counts, "template": pod}}


def make_range(*, namespace: str = "a", of: str = "Container", **item: Any) -> Json:
    meta = {"name": "bounds", "namespace": namespace}
    return {"kind": "LimitRange", "metadata": meta, "spec": {"limits": [{"type": of, **item}]}}


def make_runtime(**parts: Any) -> Json:
    return {"kind": "RuntimeClass", "metadata": {"name": "sandbox"}, "handler": "x", **parts}


def make_priority(name: str, value: int, **parts: Any) -> Json:
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": value, **parts}


def make_cluster(*others: Json, nodes: int = 1) -> ListedObjects:
    return make_snapshot(nodes=make_nodes(nodes), pods=[], others=others)


def make_nodes(count: int) -> list[Json]:
    names = [f"n-{number}" for number in range(count)]
    return [make_node(name, labels={"kubernetes.io/hostname": name}) for name in names]


def judge(listed: ListedObjects, *documents: Json) -> Submission:
    found = answer(listed, listed, submit_to(listed, *documents), {}).submission
    assert found is not None
    return found


# --- what every API server adds ---


def test_a_port_of_a_pod_with_the_nodes_network_is_one_of_the_node() -> None:
    containers = [{"name": "main", "ports": [{"containerPort": 8080}]}]
    listed = make_cluster(nodes=2)

    assert len(judge(listed, make_manifest(4, hostNetwork=True, containers=containers)).nodes) == 2
    assert len(judge(listed, make_manifest(4, containers=containers)).nodes) == 4


@pytest.mark.parametrize("field", ["podAntiAffinity", "podAffinity"])
def test_labels_that_a_term_names_by_key_are_selected(field: str) -> None:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "matchLabelKeys": ["app", "absent"]}
    required = {field: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    other = make_pod("other", namespace="a", node="n-0", labels={"app": "other"})
    listed = make_snapshot(nodes=make_nodes(2), pods=[other])
    found = judge(listed, make_manifest(2, labels={"app": "web"}, affinity=required))

    # Repelled by its likes alone: one a node. Drawn to its likes alone, of which there is none yet: both on one node.
    assert len(found.nodes) == 2
    assert len(set(found.nodes)) == (2 if field == "podAntiAffinity" else 1)


def test_the_labels_of_a_deployments_revision_are_there_for_spread() -> None:
    constraint = {
        "topologyKey": "kubernetes.io/hostname",
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["pod-template-hash"],
    }
    old = [
        make_pod(f"old-{n}", namespace="a", node="n-0", labels={"app": "web", "pod-template-hash": "x"}) for n in "ab"
    ]
    listed = make_snapshot(nodes=make_nodes(2), pods=old)
    manifest = make_manifest(4, of="Deployment", labels={"app": "web"}, topologySpreadConstraints=[constraint])

    assert sorted(judge(listed, manifest).nodes) == ["n-0", "n-0", "n-1", "n-1"]  # not one: those of x count elsewhere


def test_what_a_pod_as_a_whole_is_limited_to_is_its_request() -> None:
    manifest = make_manifest(3, resources={"limits": {"cpu": "2"}})

    assert len(judge(make_cluster(), manifest).nodes) == 2  # of four cores


# --- LimitRanges ---


@pytest.mark.parametrize(
    "item",
    [{"defaultRequest": {"cpu": "3"}}, {"default": {"cpu": "3"}}, {"max": {"cpu": "3"}}, {"min": {"cpu": "3"}}],
    ids=lambda item: next(iter(item)),
)
def test_what_a_container_does_not_say_comes_from_the_limit_range(item: Json) -> None:
    """Four cores: one of four pods starts."""
    found = judge(make_cluster(make_range(**item)), make_manifest(4))

    assert (found.starts_now, found.pods, len(found.nodes)) == (False, 4, 1)
    assert len(judge(make_cluster(make_range(namespace="b", **item)), make_manifest(4)).nodes) == 4


def test_what_a_container_says_stays() -> None:
    resources = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}
    listed = make_cluster(
        make_range(default={"cpu": "3", "memory": "3Gi"}, defaultRequest={"cpu": "2", "memory": "2Gi"})
    )
    (pod,) = submit_to(listed, make_manifest(containers=[{"name": "main", "resources": resources}])).pods

    assert dict(convert_pod(pod).demand.real) == {"cpu": 1000, "memory": 2**30, "pods": 1}


def test_init_containers_get_defaults_too() -> None:
    listed = make_cluster(make_range(defaultRequest={"cpu": "3"}))
    containers = [{"name": "main", "resources": {"requests": {"cpu": "1"}}}]
    (pod,) = submit_to(listed, make_manifest(containers=containers, initContainers=[{"name": "first"}])).pods

    assert dict(convert_pod(pod).demand.real)["cpu"] == 3000


@pytest.mark.parametrize(
    ("item", "resources", "said"),
    [
        (
            {"max": {"cpu": "2"}},
            {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}},
            "maximum cpu usage per Container is 2",
        ),
        ({"min": {"cpu": "2"}}, {"requests": {"cpu": "1"}}, "minimum cpu usage per Container is 2"),
        ({"default": {"cpu": "1"}}, {"requests": {"cpu": "3"}}, "request for cpu must be less than or equal"),
        ({"of": "Pod", "max": {"cpu": "2"}}, {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}, "per Pod is 2"),
        ({"of": "Pod", "max": {"cpu": "9"}}, {"requests": {"cpu": "3"}}, "No limit is specified"),
        ({"of": "Pod", "min": {"cpu": "1"}}, {}, "No request is specified"),
    ],
)
def test_what_is_out_of_bounds_is_refused(item: Json, resources: Json, said: str) -> None:
    found = judge(
        make_cluster(make_range(**item)), make_manifest(2, containers=[{"name": "m", "resources": resources}])
    )

    assert (found.starts_now, found.pods, found.nodes, found.change, found.wait) == (False, 2, (), None, None)
    assert found.reason is not None
    assert found.reason.startswith("the API server refuses 2 of the pods: ")
    assert said in found.reason


# --- RuntimeClass and PriorityClass ---


def test_a_runtime_adds_its_overhead_its_selector_and_its_tolerations() -> None:
    taints = [{"key": "sandbox", "effect": "NoSchedule"}]
    nodes = [make_node("plain"), make_node("sandboxed", labels={"runtime": "sandbox"}, taints=taints)]
    runtime = make_runtime(
        overhead={"podFixed": {"cpu": "1500m"}},
        scheduling={"nodeSelector": {"runtime": "sandbox"}, "tolerations": [{"key": "sandbox", "operator": "Exists"}]},
    )
    listed = make_snapshot(nodes=nodes, pods=[], others=[runtime])

    assert judge(listed, make_manifest(3, runtimeClassName="sandbox")).nodes == ("sandboxed", "sandboxed")
    assert judge(listed, make_manifest(3)).nodes == ("plain",) * 3


def test_a_runtime_and_a_pod_that_disagree_are_refused() -> None:
    listed = make_cluster(make_runtime(scheduling={"nodeSelector": {"runtime": "sandbox"}}))
    found = judge(listed, make_manifest(runtimeClassName="sandbox", nodeSelector={"runtime": "other"}))

    assert "conflict: runtimeClass.scheduling.nodeSelector[runtime] = sandbox" in str(found.reason)
    assert 'RuntimeClass "gone" not found' in str(judge(listed, make_manifest(runtimeClassName="gone")).reason)


@pytest.mark.parametrize(
    ("spec", "priority"),
    [
        ({"priorityClassName": "high"}, 1000),
        ({}, 5),
        ({"priorityClassName": "high", "priority": 7}, 7),
    ],
)
def test_the_number_of_a_priority_is_that_of_its_class(spec: Json, priority: int) -> None:
    defaults = [make_priority("usual", 5, globalDefault=True), make_priority("more", 9, globalDefault=True)]
    listed = make_cluster(make_priority("high", 1000), *defaults)
    (pod,) = submit_to(listed, make_manifest(**spec)).pods

    assert pod.spec.priority == priority
    assert 'PriorityClass "gone" not found' in str(judge(listed, make_manifest(priorityClassName="gone")).reason)


def test_what_is_not_known_is_named() -> None:
    listed = make_cluster()
    found = judge(listed, make_manifest(runtimeClassName="sandbox", priorityClassName="high"))

    assert found.not_applied == (
        UNASKED,
        UNKNOWN["limitranges"],
        f"{UNKNOWN['runtimeclasses']} sandbox",
        f"{UNKNOWN['priorityclasses']} high",
    )
    known = make_cluster(make_range(namespace="other"))
    assert judge(known, make_manifest()).not_applied == (UNASKED,)


# --- dry runs ---


def run_dry(listed: ListedObjects, manifest: Json, *answers: DryRun, others: tuple[Json, ...] = ()) -> Submission:
    submitted = submit(read_manifests([*others, manifest]), listed, answers)
    found = answer(listed, listed, submitted, {}).submission
    assert found is not None
    return found


def test_what_a_dry_run_adds_counts_and_the_rest_stays() -> None:
    completed = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {
            "schedulerName": "other",
            "priority": 0,
            "schedulingGates": [{"name": "fairbind.io/turn"}],
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "3"}}}],
        },
    }
    found = run_dry(make_cluster(), make_manifest(4, priority=9), DryRun(pod=completed))
    submitted = submit(read_manifests([make_manifest(4, priority=9)]), make_cluster(), [DryRun(pod=completed)])

    assert (found.pods, len(found.nodes), found.not_applied) == (4, 1, (ONE_POD,))
    assert {(pod.spec.priority, pod.spec.scheduler_name) for pod in submitted.pods} == {(9, "fairbind")}


def test_what_a_dry_run_refuses_does_not_start() -> None:
    found = run_dry(make_cluster(), make_manifest(2), DryRun(refusal="exceeded quota: small"))

    assert (found.pods, found.nodes, found.wait) == (2, (), None)
    assert found.reason == "the API server refuses 2 of the pods: exceeded quota: small"


def test_without_an_answer_defaults_are_those_of_what_is_listed() -> None:
    listed = make_cluster(make_range(defaultRequest={"cpu": "3"}))
    found = run_dry(listed, make_manifest(4), DryRun(trouble='User "u" cannot create resource "pods"'))

    assert len(found.nodes) == 1
    assert found.not_applied[0] == 'a dry run on the cluster: User "u" cannot create resource "pods"'


def test_a_refusal_for_what_the_file_brings_says_nothing() -> None:
    account = {"kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "a"}}
    refusal = DryRun(refusal='serviceaccount "robot" not found')
    found = run_dry(make_cluster(), make_manifest(2), refusal, others=(account,))

    assert found.starts_now
    assert 'serviceaccount "robot" not found' in found.not_applied[0]


# --- what comes with a file ---


def test_objects_of_the_file_count() -> None:
    tenant = {"kind": "Tenant", "metadata": {"name": "new"}, "spec": {"namespaces": ["a"]}}
    found = judge(make_cluster(), tenant, make_range(defaultRequest={"cpu": "3"}), make_manifest(4))

    assert (found.tenants, len(found.nodes)) == (("new",), 1)


def make_class(
    name: str, *, waits: bool = True, is_default: bool = False, created: str = "2026-01-01T00:00:00Z"
) -> Json:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true" if is_default else "false"}
    (item,) = kind(
        "StorageClass", {"metadata": {"name": name, "annotations": annotations, "creationTimestamp": created}}
    )
    return {**item, "provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer" if waits else "Immediate"}


def make_set(count: int, **claim: Any) -> Json:
    template = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], **claim}}
    manifest = make_manifest(count, of="StatefulSet")
    manifest["spec"]["volumeClaimTemplates"] = [template]
    return manifest


def test_claims_of_a_stateful_set_are_made_one_a_pod() -> None:
    listed = make_cluster(make_class("fast"))
    submitted = submit_to(listed, make_set(3, storageClassName="fast"))

    assert [claim.metadata.name for claim in submitted.listed.storage["persistentvolumeclaims"]] == [
        f"data-new-{number}" for number in range(3)
    ]
    assert judge(listed, make_set(3, storageClassName="fast")).starts_now
    assert "unbound immediate" in str(judge(listed, make_set(3, storageClassName="none-such")).reason)


@pytest.mark.parametrize("waits", [True, False])
def test_a_claim_without_a_class_is_of_the_default_one(*, waits: bool) -> None:
    classes = [make_class("other", waits=not waits), make_class("old", waits=not waits, is_default=True)]
    newest = make_class("new", waits=waits, is_default=True, created="2026-02-01T00:00:00Z")

    assert judge(make_cluster(*classes, newest), make_set(2)).starts_now == waits


def test_many_claims_do_not_wait_for_each_other() -> None:
    """More than may wait for volumes at a time in a live cluster: here volumes are there at once."""
    listed = make_cluster(make_class("fast"), nodes=3)

    assert judge(listed, make_set(300, storageClassName="fast")).starts_now


def test_a_claim_that_is_there_is_used_again() -> None:
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-new-0", "namespace": "a", "uid": "kept"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "none-such"},
        "status": {"phase": "Pending"},
    }
    listed = make_cluster(make_class("fast"), claim)
    submitted = submit_to(listed, make_set(2, storageClassName="fast"))

    assert [one.metadata.uid for one in submitted.listed.storage["persistentvolumeclaims"]] == ["kept", "a/data-new-1"]
    assert len(judge(listed, make_set(2, storageClassName="fast")).nodes) == 1


def test_ephemeral_volumes_get_their_claims() -> None:
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"storageClassName": "fast"}}}}]
    listed = make_cluster(make_class("fast"))

    assert judge(listed, make_manifest(2, volumes=volumes)).starts_now
    assert not judge(make_cluster(make_class("fast", waits=False)), make_manifest(2, volumes=volumes)).starts_now


def test_a_claim_of_the_file_is_that_of_its_pod() -> None:
    claim = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "a"}, "spec": {}}
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    listed = make_cluster(make_class("fast", is_default=True))

    assert judge(listed, claim, make_manifest(volumes=volumes)).starts_now
    assert 'persistentvolumeclaim "data" not found' in str(judge(listed, make_manifest(volumes=volumes)).reason)
