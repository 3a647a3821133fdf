from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.builders import Json, make_namespace, make_node, make_pod
from fairbind.cluster.objects.captured import POLICY_FIELDS, TENANT_FIELDS, RunTime
from fairbind.cluster.objects.convert import convert_node, convert_pod
from fairbind.cluster.objects.declared_features import MOUNT_OPTIONS, RESTART_ALL
from fairbind.cluster.tenancy.tenants import parse_tenant
from fairbind.model import InvalidProblemError
from fairbind.what_if.listed_objects import build_cache
from fairbind.what_if.snapshot_file import format_snapshot, parse_snapshot
from what_if.snapshots import make_list, make_snapshot, make_tenant

ROOT = Path(__file__).resolve().parents[2]
SECRET = "hunter2"

META = {"name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "labels", "labels.*"}
SELECTOR = {"matchLabels", "matchLabels.*", "matchExpressions", "matchExpressions.key", "matchExpressions.operator"}
SELECTOR |= {"matchExpressions.values"}
TERM = SELECTOR - {"matchLabels", "matchLabels.*"} | {
    f"matchFields{part}" for part in ("", ".key", ".operator", ".values")
}
AMOUNTS = {f"resources{part}" for part in ("", ".requests", ".requests.*", ".limits", ".limits.*")}
CONTAINER = {"name", "restartPolicy", "restartPolicyRules", "restartPolicyRules.action", "volumeMounts"}
CONTAINER |= {"volumeMounts.bindMountOptions", "ports", "ports.hostPort", "ports.hostIP", "ports.protocol", *AMOUNTS}
POD_TERM = {"topologyKey", "namespaces", "labelSelector", "namespaceSelector"}
POD_TERM |= {f"{where}.{part}" for where in ("labelSelector", "namespaceSelector") for part in SELECTOR}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def below(where: str, parts: set[str]) -> set[str]:
    return {where, *(f"{where}.{part}" for part in parts)}


SPEC = {
    *("nodeName", "schedulerName", "priority", "overhead", "overhead.*", "nodeSelector", "nodeSelector.*"),
    *AMOUNTS,
    *below("containers", CONTAINER),
    *below("initContainers", CONTAINER),
    *below("affinity", {"nodeAffinity", "podAffinity", "podAntiAffinity"}),
    *below(f"affinity.nodeAffinity.{REQUIRED}", {"nodeSelectorTerms"}),
    *below(f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms", TERM),
    *below(f"affinity.nodeAffinity.{PREFERRED}", {"weight"}),
    *below(f"affinity.nodeAffinity.{PREFERRED}.preference", TERM),
    *below(f"affinity.podAffinity.{REQUIRED}", POD_TERM),
    *below(f"affinity.podAntiAffinity.{REQUIRED}", POD_TERM),
    *below("tolerations", {"key", "operator", "value", "effect"}),
    *below("schedulingGates", {"name"}),
    *below("volumes", {"name", "persistentVolumeClaim", "persistentVolumeClaim.claimName", "ephemeral", "iscsi"}),
    *below(
        "topologySpreadConstraints",
        {
            *("topologyKey", "whenUnsatisfiable", "maxSkew", "minDomains", "matchLabelKeys"),
            *("nodeAffinityPolicy", "nodeTaintsPolicy"),
            *below("labelSelector", SELECTOR),
        },
    ),
    *below("resourceClaims", {"name"}),
    *below("schedulingGroup", {"podGroupName"}),
    *("workloadRef", "hostNetwork", "hostUsers"),
}
STATUS = {
    *("phase", "startTime", "nominatedNodeName", "allocatedResources", "allocatedResources.*"),
    *AMOUNTS,
    *below("conditions", {"type", "status", "reason"}),
    *below("containerStatuses", {"name", "allocatedResources", "allocatedResources.*", *AMOUNTS}),
    *below("initContainerStatuses", {"name", "allocatedResources", "allocatedResources.*", *AMOUNTS}),
}
LIMIT_ITEM = {"type", *(f"{name}{part}" for name in ("min", "max", "default", "defaultRequest") for part in ("", ".*"))}
ALLOWED = {
    *("kind", "formatVersion", "time", "schedulerName", "operatorNamespace"),
    *below("runTimes", {"namespace", "seconds"}),
    *below("pods", {"fault", *below("metadata", META), *below("spec", SPEC), *below("status", STATUS)}),
    *below("pods.metadata.ownerReferences", {"kind", "controller"}),
    *below("limitRanges", {*below("metadata", META), "spec", *below("spec.limits", LIMIT_ITEM)}),
    *below("runtimeClasses", below("metadata", META)),
    *below("runtimeClasses.overhead", {"podFixed", "podFixed.*"}),
    *below(
        "runtimeClasses.scheduling",
        {"nodeSelector", "nodeSelector.*", *below("tolerations", {"key", "operator", "value", "effect"})},
    ),
    *below("priorityClasses", {*below("metadata", META), "value", "globalDefault"}),
    *below("namespaces", {"fault", *below("metadata", META)}),
    *below("nodes", {"fault", *below("metadata", META)}),
    *below("nodes.spec", {"unschedulable", *below("taints", {"key", "value", "effect"})}),
    *below(
        "nodes.status", {"declaredFeatures", "allocatable", "allocatable.*", *below("conditions", {"type", "status"})}
    ),
    *below("tenants", below("metadata", META)),
    *below("tenants.spec", {"weight", "resourceWeights", "resourceWeights.*", "namespaces"}),
    *below("tenants.spec.namespaceSelector", SELECTOR),
    *below("schedulingPolicies", below("metadata", META)),
    *below("schedulingPolicies.spec", {"policy", "fairnessResources", "serverClassTolerance", "unclaimedNamespaces"}),
    *below("schedulingPolicies.spec", {"nodeSelector", "nodeSelector.*"}),
}
"""Every field that a snapshot may have: what kube-scheduler or fairbind decide by."""


def find_fields(value: Any, where: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for name, part in value.items():
            free = where.rpartition(".")[2] in {"labels", "matchLabels", "nodeSelector", "requests", "limits"}
            free |= where.rpartition(".")[2] in {"min", "max", "default", "defaultRequest", "podFixed"}
            free |= where.rpartition(".")[2] in {"allocatable", "overhead", "allocatedResources", "resourceWeights"}
            free &= where not in {"limitRanges.spec.limits", "runtimeClasses.overhead"}  # objects, not amounts
            path = f"{where}.{'*' if free else name}".lstrip(".")
            yield path
            yield from find_fields(part, path)
    elif isinstance(value, list):
        for part in value:
            yield from find_fields(part, where)


def poison(value: Any, fields: int = 3) -> Any:
    """The value with fields of a secret in every object in it, as hostile or careless writers leave them anywhere."""
    if isinstance(value, dict):
        more = {f"x-{number}": {"value": SECRET, "list": [SECRET]} for number in range(fields)}
        return {name: poison(part) if name not in FREE else part for name, part in value.items()} | more
    return [poison(part) for part in value] if isinstance(value, list) else value


FREE = {"labels", "matchLabels", "nodeSelector", "requests", "limits", "allocatable", "podFixed"}


def make_hostile_list() -> Json:
    """Objects with a secret in all the places where real ones have some."""
    manifest: Json = {
        "containers": [
            {
                "name": "main",
                "image": SECRET,
                "args": [SECRET],
                "command": [SECRET],
                "workingDir": SECRET,
                "env": [{"name": "PASSWORD", "value": SECRET}],
                "envFrom": [{"secretRef": {"name": SECRET}}],
                "ports": [{"name": SECRET, "containerPort": 80, "hostPort": 80}],
                "resources": {"requests": {"cpu": "1"}, "claims": [{"name": SECRET}]},
                "volumeMounts": [{"name": "v", "mountPath": SECRET, "bindMountOptions": [SECRET]}],
                "restartPolicyRules": [{"action": "RestartAllContainers", "exitCodes": {"values": [SECRET]}}],
                "livenessProbe": {"exec": {"command": [SECRET]}},
            }
        ],
        "volumes": [
            {"name": "v", "secret": {"secretName": SECRET}},
            {"name": "w", "hostPath": {"path": SECRET}},
            {"name": "x", "iscsi": {"secretRef": {"name": SECRET}, "iqn": SECRET}},
            {"name": "y", "persistentVolumeClaim": {"claimName": "claim"}},
            {"name": "z", "image": {"reference": SECRET}},
        ],
        "initContainers": [{"name": "init", "image": SECRET}],
        "imagePullSecrets": [{"name": SECRET}],
        "serviceAccountName": SECRET,
        "hostname": SECRET,
        "hostAliases": [{"hostnames": [SECRET]}],
        "affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone", "labelSelector": {"matchLabels": {}}}]}},
        "topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}],
    }
    status = {
        "message": SECRET,
        "podIP": SECRET,
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": SECRET, "message": SECRET}],
        "containerStatuses": [{"name": "main", "image": SECRET, "imageID": SECRET, "state": {"waiting": SECRET}}],
    }
    pods = [
        make_pod("waiting", status=status, **manifest),
        make_pod("running", node="n", phase="Running", status=status, **manifest),
        make_pod("odd", status=status, **{**manifest, "priority": f"{SECRET}"}),
        make_pod("failed", node="n", phase="Failed", status={**status, "reason": SECRET}, **manifest),
    ]
    node = make_node("n")
    node["status"] |= {"nodeInfo": {"kernelVersion": SECRET}, "addresses": [SECRET]}
    node["status"]["images"] = [{"names": [SECRET], "sizeBytes": 10**9}]
    node["status"]["declaredFeatures"] = [SECRET, RESTART_ALL]
    node["status"]["conditions"][0] |= {"message": SECRET, "reason": SECRET}
    node["spec"] |= {"providerID": SECRET, "podCIDR": SECRET}
    document = make_list(
        nodes=[node],
        pods=pods,
        namespaces=[make_namespace("team")],
        tenants=[make_tenant("team")],
        policy={},
        others=make_hostile_defaults(),
    )
    for item in document["items"]:
        item["metadata"] |= {
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET},
            "managedFields": [{"manager": SECRET}],
            "ownerReferences": [{"kind": "DaemonSet", "name": SECRET, "uid": SECRET, "controller": True}],
            "finalizers": [SECRET],
            "generateName": SECRET,
        }
    return {**document, "items": [poison(item) | {"kind": item["kind"]} for item in document["items"]]}


def make_hostile_defaults() -> list[Json]:
    """Objects that complete pods at their creation."""
    item = {"type": "Container", "default": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "2"}}
    return [
        {"kind": "LimitRange", "metadata": {"name": "l", "namespace": "team"}, "spec": {"limits": [item]}},
        {
            "kind": "RuntimeClass",
            "metadata": {"name": "r"},
            "handler": SECRET,
            "overhead": {"podFixed": {"cpu": "1"}},
            "scheduling": {"nodeSelector": {"pool": "r"}, "tolerations": [{"key": "k"}]},
        },
        {"kind": "PriorityClass", "metadata": {"name": "p"}, "value": 7, "description": SECRET},
    ]


def test_a_snapshot_has_only_fields_that_decide() -> None:
    document = json.loads(format_snapshot(parse_snapshot(make_hostile_list())))

    assert len(document["pods"]) == 3  # the failed one holds nothing
    assert set(find_fields(document)) - ALLOWED == set()
    assert SECRET not in json.dumps(document)
    assert document["nodes"][0]["status"]["declaredFeatures"] == [RESTART_ALL]
    assert convert_pod(parse_snapshot(document).pods[0]).constraints.features == (RESTART_ALL, MOUNT_OPTIONS)


def test_the_file_is_read_as_it_was_written() -> None:
    listed = make_snapshot(
        nodes=[make_node("n", taints=[{"key": "gpu", "effect": "NoSchedule"}])],
        pods=[make_pod("p", requests={"cpu": "1"}), make_pod("q", node="n", namespace="other")],
        tenants=[make_tenant("team", weight="1500m", namespaceSelector={})],
        policy={"policy": "ps-dsf"},
    )
    text = format_snapshot(listed)
    again = parse_snapshot(json.loads(text))

    assert format_snapshot(again) == text
    assert (again.tenants, again.policies, again.time) == (listed.tenants, listed.policies, listed.time)
    assert {convert_pod(pod) for pod in again.pods} == {convert_pod(pod) for pod in listed.pods}
    assert [convert_node(node) for node in again.nodes] == [convert_node(node) for node in listed.nodes]
    assert build_cache(again).settings.policy == "ps-dsf"
    assert again.tenants[0]["spec"]["namespaceSelector"] == {}  # selects all, where none would select nothing


def test_what_completes_pods_is_read_as_it_was_written() -> None:
    listed = make_snapshot(nodes=[make_node()], pods=[make_pod()], others=make_hostile_defaults())
    again = parse_snapshot(json.loads(format_snapshot(listed)))

    assert again.admission == listed.admission
    assert again.admission.keys() == {"limitranges", "runtimeclasses", "priorityclasses"}


def test_none_and_not_known_differ() -> None:
    """A file that is older has no such fields; a cluster may have no such objects."""
    listed = make_snapshot(nodes=[make_node()], pods=[make_pod()])
    older = json.loads(format_snapshot(listed))

    assert "limitRanges" not in older
    assert parse_snapshot(older).admission == {}
    listed.admission = {"limitranges": []}
    assert parse_snapshot(json.loads(format_snapshot(listed))).admission == {"limitranges": []}


def test_a_file_is_no_longer_than_it_needs_to_be() -> None:
    assert "null" not in format_snapshot(make_snapshot(nodes=[make_node()], pods=[make_pod()]))


def test_the_run_times_of_pods_that_succeeded_are_kept() -> None:
    ended = {"terminated": {"finishedAt": "2026-01-01T00:01:30Z", "message": SECRET}}
    status = {"startTime": "2026-01-01T00:00:00Z", "containerStatuses": [{"name": "main", "state": ended}]}
    pods = [make_pod(phase, node="n", phase=phase, status=status) for phase in ("Succeeded", "Failed", "Running")]
    listed = make_snapshot(nodes=[make_node("n")], pods=pods)

    assert [pod.metadata.name for pod in listed.pods] == ["Running"]
    assert listed.run_times == [RunTime("team", 90.0)]
    assert parse_snapshot(json.loads(format_snapshot(listed))).run_times == listed.run_times


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda file: file.update(nods=[]), r"nods: is no field here; .*nodes"),
        (lambda file: file.pop("nodes"), r"nodes: is missing"),
        (lambda file: file.update(kind="Pod"), r'kind: must be FairbindSnapshot, not "Pod"'),
        (lambda file: file.update(formatVersion=2), r"formatVersion: must be 1.*not 2"),
        (lambda file: file.update(time="yesterday"), r"time: must be a time.*yesterday"),
        (lambda file: file.update(pods={}), r"pods: must be a list"),
        (lambda file: file["pods"].append(7), r"pods\[1\]: must be an object, not 7"),
        (lambda file: file["pods"][0]["spec"].update(priority="high"), r"pods\[0\]\.spec\.priority: expected .*int"),
        (lambda file: file["pods"].append(file["pods"][0]), r"pods\[1\]\.metadata\.uid: must differ"),
        (lambda file: file["nodes"].append(file["nodes"][0]), r"nodes\[1\]\.metadata\.name: must differ"),
        (lambda file: file["nodes"][0]["metadata"].pop("name"), r"nodes\[0\]\.metadata\.name: is missing"),
        (lambda file: file["tenants"].append({"spec": {}}), r"tenants\[0\]\.metadata\.name: must be text"),
        (lambda file: file["runTimes"].append({"namespace": "a", "seconds": -1}), r"runTimes\[0\]\.seconds: must be"),
        (lambda file: file["runTimes"].append({"namespace": "a"}), r"runTimes\[0\]\.seconds: is missing"),
    ],
)
def test_what_makes_no_sense_is_named_with_its_field(change: Any, said: str) -> None:
    file = json.loads(format_snapshot(make_snapshot(nodes=[make_node()], pods=[make_pod()])))
    change(file)

    with pytest.raises(InvalidProblemError, match=rf"^{said}") as caught:
        parse_snapshot(file)
    assert "\n" not in str(caught.value)


def test_a_list_with_another_kind_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match=r'^items\[0\]\.kind: must be one of Node, .* not "Secret"'):
        parse_snapshot({"kind": "List", "items": [{"kind": "Secret"}]})


@pytest.mark.parametrize(("file", "fields"), [("tenants", TENANT_FIELDS), ("schedulingpolicies", POLICY_FIELDS)])
def test_every_field_of_a_spec_is_kept(file: str, fields: tuple[str, ...]) -> None:
    """What is decided from a snapshot is decided from all that an administrator may write."""
    crd = yaml.safe_load((ROOT / "crds" / f"{file}.yaml").read_text(encoding="utf-8"))
    (version,) = crd["spec"]["versions"]
    assert set(fields) == set(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])


def test_specs_of_tenants_are_kept() -> None:
    amounts = [{"nodes": {"matchLabels": {"gpu": "h100"}}, "resources": {"nvidia.com/gpu": "3"}}]
    spec = {
        "parent": "b",
        "priority": -5,
        "guarantee": amounts,
        "lending": "Never",
        "limit": amounts,
        "minRuntimeSeconds": 60,
        "users": {"label": "user"},
    }
    written = format_snapshot(make_snapshot(tenants=[make_tenant("a", **spec)], pods=[make_pod("p")]))
    listed = parse_snapshot(json.loads(written))
    assert listed.tenants[0]["spec"] == {"namespaces": ["a"], **spec}


def test_a_deletion_of_a_tenant_is_kept() -> None:
    tenant = make_tenant("a")
    tenant["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    (kept,) = make_snapshot(tenants=[tenant]).tenants
    assert parse_tenant(kept).is_deleted
