"""The control plane does what tests take for granted; each test leaves it as it was."""

from __future__ import annotations

import json
import os
import ssl
from typing import TYPE_CHECKING, Any

import pytest
import urllib3

from local.waiting import wait_for
from localplane.client import ApiClient, ApiError
from localplane.nodes import make_node

if TYPE_CHECKING:
    from pathlib import Path

    from localplane.plane import ControlPlane

PODS = "/api/v1/namespaces/default/pods"
GRACE_SECONDS = 300
"""More than kwok may need for anything on a busy machine."""


def make_name(prefix: str) -> str:
    return f"{prefix}-{os.urandom(4).hex()}"


def create_pod(plane: ControlPlane, *, annotations: dict[str, str] | None = None, **spec: Any) -> str:
    name = make_name("pod")
    container = {"name": "main", "image": "registry.invalid/none"}
    body = {"metadata": {"name": name, "annotations": annotations or {}}, "spec": {"containers": [container], **spec}}
    plane.client.post(PODS, body)
    return name


def create_node(plane: ControlPlane, **options: Any) -> str:
    [name] = plane.add_nodes([make_node(make_name("node"), **options)])
    plane.wait_nodes_ready([name])
    return name


def whoami(kubeconfig: Path) -> dict[str, Any]:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    with ApiClient.from_kubeconfig(kubeconfig) as client:
        answer: dict[str, Any] = client.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)
    return answer["status"]["userInfo"]  # type: ignore[no-any-return]  # JSON


def test_version_is_the_pinned_one(plane: ControlPlane) -> None:
    assert plane.client.get("/version")["gitVersion"] == "v1.37.0"


def test_identities_are_who_they_say(plane: ControlPlane) -> None:
    someone = whoami(plane.certificate_kubeconfig("someone@example.org", ["group-a", "group-b"]))
    account = whoami(plane.service_account_kubeconfig("default", "default"))

    assert someone["username"] == "someone@example.org"
    assert {"group-a", "group-b"} <= set(someone["groups"])
    assert account["username"] == "system:serviceaccount:default:default"
    assert "system:masters" in whoami(plane.kubeconfig)["groups"]


def test_role_based_access_is_on(plane: ControlPlane) -> None:
    with (
        ApiClient.from_kubeconfig(plane.certificate_kubeconfig("nobody")) as client,
        pytest.raises(ApiError) as caught,
    ):
        client.get("/api/v1/nodes")

    assert (caught.value.status, caught.value.reason) == (403, "Forbidden")
    assert "nobody" in caught.value.message


def test_priority_and_fairness_is_on(plane: ControlPlane) -> None:
    assert plane.client.items("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas")


def test_keys_are_readable_by_their_owner_only(plane: ControlPlane) -> None:
    secrets = [*plane.layout.pki.glob("*.key"), *plane.layout.kubeconfigs.iterdir()]

    assert len(secrets) > 4
    assert [path.name for path in secrets if path.stat().st_mode & 0o077] == []


def test_etcd_refuses_strangers(plane: ControlPlane) -> None:
    trusting = ssl.create_default_context(cafile=str(plane.layout.pki / "ca.crt"))
    with (
        ApiClient(plane.etcd_url, tls=trusting) as stranger,
        pytest.raises(urllib3.exceptions.HTTPError, match=r"SSL|reset|closed"),
    ):
        stranger.post("/v3/maintenance/status", {})


def test_kube_scheduler_binds_as_itself_and_the_audit_log_knows(plane: ControlPlane) -> None:
    node = create_node(plane)
    name = create_pod(plane, nodeSelector={"kubernetes.io/hostname": node})
    wait_for(lambda: plane.client.get(f"{PODS}/{name}")["status"]["phase"] == "Running", "the pod to run")

    def find_binding() -> dict[str, Any] | None:
        events = [json.loads(line) for line in plane.audit_log.read_text().splitlines() if f'"{name}"' in line]
        bindings = [event for event in events if event["objectRef"].get("subresource") == "binding"]
        return bindings[0] if bindings else None

    wait_for(find_binding, "the audit log")
    binding = find_binding()
    assert binding is not None
    assert binding["user"]["username"] == "system:kube-scheduler"
    assert "system:masters" not in binding["user"]["groups"]
    assert binding["requestObject"]["target"]["name"] == node
    assert binding["responseStatus"]["code"] == 201


def test_pods_end_after_their_time_even_when_they_change(plane: ControlPlane) -> None:
    node = create_node(plane)
    staying = create_pod(plane, nodeName=node)
    wait_for(lambda: plane.client.get(f"{PODS}/{staying}")["status"]["phase"] == "Running", "the other pod to run")
    ending = create_pod(plane, nodeName=node, annotations={"fairbind.io/run-seconds": "2"})

    def has_ended() -> bool:
        plane.client.patch(f"{PODS}/{ending}", {"metadata": {"labels": {"touched": os.urandom(3).hex()}}})
        return bool(plane.client.get(f"{PODS}/{ending}")["status"]["phase"] == "Succeeded")

    wait_for(has_ended, "the pod to end although it is changed all the time")
    status = plane.client.get(f"{PODS}/{ending}")["status"]
    assert status["containerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    assert plane.client.get(f"{PODS}/{staying}")["status"]["phase"] == "Running"


def test_pods_of_a_job_succeed(plane: ControlPlane) -> None:
    node = create_node(plane)
    name = make_name("job")
    container = {"name": "main", "image": "registry.invalid/none"}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], "nodeName": node}}
    path = "/apis/batch/v1/namespaces/default/jobs"
    plane.client.post(path, {"metadata": {"name": name}, "spec": {"completions": 2, "template": template}})

    wait_for(lambda: plane.client.get(f"{path}/{name}")["status"].get("succeeded") == 2, "the job to succeed")


def test_a_deleted_pod_goes_at_once(plane: ControlPlane) -> None:
    name = create_pod(plane, nodeName=create_node(plane), terminationGracePeriodSeconds=GRACE_SECONDS)
    wait_for(lambda: plane.client.get(f"{PODS}/{name}")["status"]["phase"] == "Running", "the pod to run")
    plane.client.delete(f"{PODS}/{name}")

    wait_for(lambda: not plane.client.exists(f"{PODS}/{name}"), "the pod to go", timeout=GRACE_SECONDS - 100)


def test_what_is_allocatable_belongs_to_the_test(plane: ControlPlane) -> None:
    node = create_node(plane)
    path = f"/api/v1/nodes/{node}"
    plane.client.patch(f"{path}/status", {"status": {"allocatable": {"cpu": "3", "example.com/thing": "5"}}})
    # not ready: kwok plays the first stage again and must leave the resources alone
    conditions = plane.client.get(path)["status"]["conditions"]
    changed = [{**entry, "status": "False"} if entry["type"] == "Ready" else entry for entry in conditions]
    plane.client.patch(f"{path}/status", {"status": {"conditions": changed}})
    plane.wait_nodes_ready([node])

    allocatable = plane.client.get(path)["status"]["allocatable"]
    assert (allocatable["cpu"], allocatable["example.com/thing"]) == ("3", "5")
    assert allocatable["memory"] == "128Gi"


def test_node_has_its_name_for_an_address(plane: ControlPlane) -> None:
    name = create_node(plane)

    assert {"type": "Hostname", "address": name} in plane.client.get(f"/api/v1/nodes/{name}")["status"]["addresses"]


def test_namespaces_can_be_deleted(plane: ControlPlane) -> None:
    name = make_name("ns")
    plane.client.post("/api/v1/namespaces", {"metadata": {"name": name}})
    plane.client.delete(f"/api/v1/namespaces/{name}")

    wait_for(lambda: not plane.client.exists(f"/api/v1/namespaces/{name}"), "the namespace to go")


def test_kubectl_and_helm_reach_it(plane: ControlPlane) -> None:
    assert "Server Version: v1.37.0" in plane.run_kubectl(["version"])
    assert plane.run_helm(["list", "--all-namespaces", "--short"]) == ""


def test_watch_yields_events(plane: ControlPlane) -> None:
    version = plane.client.get(PODS)["metadata"]["resourceVersion"]
    name = create_pod(plane, nodeName=create_node(plane))
    event = next(plane.client.watch(PODS, resourceVersion=version, fieldSelector=f"metadata.name={name}"))

    assert event["type"] == "ADDED"
    assert event["object"]["metadata"]["name"] == name
