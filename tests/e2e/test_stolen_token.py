"""What a stolen token of the operator's ServiceAccount is worth while the chart's own policies hold, and without them.

Whoever has the token sends what the operator never sends. Each attempt is a dry run: it would be refused or let through
all the same, and changes nothing for the next one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from e2e.conftest import remove
from e2e.members import check_compiled, check_refused, wait_allowed, wait_refused
from e2e.objects import make_name, make_pod
from e2e.waiting import wait_for
from e2e.workloads import SMALL, count_bound, create_pods
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, StartOperator

pytestmark = pytest.mark.oldest_kubernetes

WAITS = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
CONTAINER = {"name": "main", "image": "x", "imageID": "", "ready": True, "restartCount": 0}
HOLDER = "example.com/hold"
VOLUMES = "/api/v1/persistentvolumes"
_BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
MARKED = {"metadata": {"annotations": {_BOUND_BY_CONTROLLER: "yes"}}}
UNMARKED = {"metadata": {"annotations": {_BOUND_BY_CONTROLLER: None}}}
MODE_VALUES: dict[str, Json] = {
    "bind": {},
    "gate": {"gate": {"schedulerName": "default-scheduler"}},
    "extender": {"extender": {"tlsSecretName": "unused", "ignorable": True}},
}
CLAIM_OF_ANOTHER = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": "claim"}


@pytest.fixture
def thief(cluster: Cluster) -> Iterator[Api]:
    """Somebody with a token of the operator's ServiceAccount."""
    client = cluster.connect_as(cluster.operator_kubeconfig())
    yield client
    client.close()


@pytest.fixture
def pods(namespace: MakeNamespace) -> str:
    """The path of the pods of a new namespace."""
    return f"/api/v1/namespaces/{namespace()}/pods"


@pytest.fixture
def waiting(api: Api, pods: str) -> Json:
    """A pod that waits for fairbind, with labels, an annotation and a condition of somebody else."""
    pod = make_pod(SMALL, labels={"app": "a"})
    pod["metadata"]["annotations"] = {"note": "1"}
    made = api.post(pods, pod)
    other = {"type": "example.com/Ready", "status": "False", "reason": "NotYet"}
    path = f"{pods}/{made['metadata']['name']}"
    api.patch(f"{path}/status", {"status": {"conditions": [other]}}, kind="strategic")
    pod = api.get(path)
    pod["path"] = path
    return dict(pod)


def write_status(client: Api, path: str, body: Any, *, kind: str = "strategic") -> Any:
    """Try to patch a pod's status."""
    return client.patch(f"{path}/status", body, kind=kind, dryRun="All")


def explain(client: Api, path: str) -> Any:
    """Try what the operator does: say why a pod waits."""
    return write_status(client, path, {"status": {"conditions": [WAITS]}})


def bind(client: Api, pod: Json, **metadata: Any) -> Any:
    """Try to bind a pod, as the operator does, but for this metadata."""
    own = {"name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"], **metadata}
    target = {"apiVersion": "v1", "kind": "Node", "name": "nowhere"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": own, "target": target}
    return client.post(f"{pod['path']}/binding", binding, dryRun="All")


class TestStatus:
    """The status of pods."""

    @pytest.fixture(autouse=True)
    def policy(self, thief: Api, waiting: Json) -> None:
        failed = {"status": {"phase": "Failed"}}
        wait_refused(lambda: write_status(thief, waiting["path"], failed), "fairbind-own-status")

    STATUSES: ClassVar[dict[str, Json]] = {
        "a phase": {"phase": "Succeeded"},
        "a nominated node": {"nominatedNodeName": "nowhere"},
        "an address": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}]},
        "a start": {"startTime": "2026-01-02T03:04:05Z"},
        "a message": {"message": "all is well"},
        "a container": {"containerStatuses": [CONTAINER]},
        "readiness": {"conditions": [{"type": "Ready", "status": "True"}]},
        "another's condition": {"conditions": [{"type": "example.com/Ready", "status": "True"}]},
        "that it is scheduled": {"conditions": [{**WAITS, "status": "True"}]},
        "a phase besides": {"phase": "Failed", "conditions": [WAITS]},
    }

    @pytest.mark.parametrize("what", STATUSES)
    def test_no_other_field_and_no_other_condition_can_be_written(self, thief: Api, waiting: Json, what: str) -> None:
        attempt = functools.partial(write_status, thief, waiting["path"], {"status": self.STATUSES[what]})
        check_refused(attempt, "fairbind-own-status", what=what)

    def test_a_node_is_nominated_for_pods_with_claims_only(self, thief: Api, api: Api, pods: str) -> None:
        """Those wait on a node that they have, and say so; the node may be withdrawn from any pod that waits."""
        claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
        nominated = {"status": {"nominatedNodeName": "nowhere"}}
        for volumes in ([claim], [{"name": "scratch", "emptyDir": {}}]):
            path = f"{pods}/{api.post(pods, make_pod(SMALL, volumes=volumes))['metadata']['name']}"
            if volumes == [claim]:
                written = thief.patch(f"{path}/status", nominated, kind="merge")
                assert written["status"]["nominatedNodeName"] == "nowhere"
            else:
                check_refused(lambda at=path: write_status(thief, at, nominated), "fairbind-own-status")  # type: ignore[misc]
                api.patch(f"{path}/status", nominated, kind="merge")
            for more in ({"phase": "Failed"}, {"podIP": "10.0.0.1"}):
                body = {"status": {"nominatedNodeName": None, **more}}
                attempt = functools.partial(write_status, thief, path, body, kind="merge")
                check_refused(attempt, "fairbind-own-status", what=str(body))
            cleared = thief.patch(f"{path}/status", {"status": {"nominatedNodeName": None}}, kind="merge")
            assert "nominatedNodeName" not in cleared["status"]

    def test_what_others_said_cannot_be_taken_away(self, thief: Api, waiting: Json) -> None:
        for body in ({"status": {"conditions": None}}, {"status": {"conditions": [WAITS]}}, {"status": None}):
            attempt = functools.partial(write_status, thief, waiting["path"], body, kind="merge")
            check_refused(attempt, "fairbind-own-status", what=str(body))

    @pytest.mark.parametrize(
        "metadata",
        [
            {"labels": {"app": "b"}},
            {"labels": {"app": None}},
            {"labels": {"more": "1"}},
            {"labels": None},
            {"annotations": {"note": "2"}},
            {"annotations": None},
            {"finalizers": [HOLDER]},
        ],
        ids=str,
    )
    def test_a_pods_metadata_cannot_be_changed_through_its_status(
        self, thief: Api, waiting: Json, metadata: Json
    ) -> None:
        body = {"metadata": metadata, "status": {"conditions": [WAITS]}}
        attempt = functools.partial(write_status, thief, waiting["path"], body)
        check_refused(attempt, "fairbind-own-status", what=str(metadata))

    def test_pods_of_other_schedulers_are_left_alone(self, thief: Api, api: Api, pods: str) -> None:
        for scheduler in ("default-scheduler", "fairbind2"):
            name = api.post(pods, make_pod(SMALL, scheduler_name=scheduler))["metadata"]["name"]
            attempt = functools.partial(explain, thief, f"{pods}/{name}")
            check_refused(attempt, "only of pods that wait for fairbind", what=scheduler)

    def test_bound_pods_are_left_alone(self, thief: Api, api: Api, pods: str) -> None:
        name = api.post(pods, make_pod(SMALL, nodeName="nowhere"))["metadata"]["name"]
        for body in ({"conditions": [WAITS]}, {"phase": "Failed"}):
            attempt = functools.partial(write_status, thief, f"{pods}/{name}", {"status": body})
            check_refused(attempt, "only of pods that wait for fairbind", what=str(body))

    def test_what_the_operator_writes_is_let_through(self, thief: Api, api: Api, waiting: Json) -> None:
        path, metadata = waiting["path"], waiting["metadata"]
        precondition = {key: metadata[key] for key in ("uid", "resourceVersion")}
        condition = {**WAITS, "lastTransitionTime": "2026-01-02T03:04:05Z"}
        body = {"metadata": precondition, "status": {"conditions": [condition]}}
        first = thief.patch(f"{path}/status", body, kind="strategic")
        again = thief.patch(f"{path}/status", {"status": {"conditions": [{**WAITS, "message": "b"}]}}, kind="strategic")

        assert {part["type"] for part in first["status"]["conditions"]} == {"PodScheduled", "example.com/Ready"}
        (written,) = (part for part in again["status"]["conditions"] if part["type"] == "PodScheduled")
        assert (written["message"], written["lastTransitionTime"]) == ("b", "2026-01-02T03:04:05Z")
        assert api.get(path)["metadata"]["labels"] == {"app": "a"}

    def test_others_are_not_held_to_it(self, api: Api, waiting: Json) -> None:
        write_status(api, waiting["path"], {"status": {"phase": "Failed"}, "metadata": {"labels": {"app": "b"}}})


class TestBindings:
    """Bindings of pods."""

    @pytest.fixture(autouse=True)
    def policy(self, thief: Api, waiting: Json) -> None:
        wait_refused(lambda: bind(thief, waiting, uid=""), "fairbind-own-bindings")

    def test_a_binding_cannot_carry_anything_to_its_pod(self, thief: Api, waiting: Json) -> None:
        for metadata in ({"annotations": {"a": "b"}}, {"labels": {"app": "b"}}):
            check_refused(lambda found=metadata: bind(thief, waiting, **found), "fairbind-own-bindings")  # type: ignore[misc]

    def test_what_the_operator_sends_is_let_through(self, thief: Api, waiting: Json) -> None:
        bind(thief, waiting)

    def test_others_are_not_held_to_it(self, api: Api, waiting: Json) -> None:
        bind(api, waiting, uid="", annotations={"a": "b"})


class TestVolumes:
    """Volumes and claims: the operator writes which claim a volume is for, and for which node a volume is made."""

    @pytest.fixture
    def claim(self, api: Api, pods: str) -> str:
        """The path of a claim that has no volume."""
        path = pods.replace("/pods", "/persistentvolumeclaims")
        spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        meta = {"name": "claim", "labels": {"app": "a"}, "annotations": {"note": "1"}}
        api.post(path, {"metadata": meta, "spec": {**spec, "storageClassName": "none"}})
        return f"{path}/claim"

    @pytest.fixture
    def volumes(self, api: Api) -> Iterator[dict[str, str]]:
        """The paths of a volume that is free, and of one that is for a claim."""
        made = {}
        for kind in ("free", "taken"):
            name = make_name("volume")
            spec = {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "none",
                "hostPath": {"path": "/data"},
                **({"claimRef": CLAIM_OF_ANOTHER} if kind == "taken" else {}),
            }
            api.post(VOLUMES, {"metadata": {"name": name}, "spec": spec})
            made[kind] = f"{VOLUMES}/{name}"
        yield made
        for path in made.values():
            remove(api, path)

    @pytest.fixture(autouse=True)
    def policy(self, thief: Api, claim: str) -> None:
        wait_refused(lambda: self.patch(thief, claim, {"metadata": {"labels": {"app": "b"}}}), "fairbind-own-volumes")

    @staticmethod
    def patch(client: Api, path: str, body: Json) -> Any:
        return client.patch(path, body, kind="merge", dryRun="All")

    CLAIMS: ClassVar[dict[str, Json]] = {
        "a volume": {"spec": {"volumeName": "any"}},
        "a label": {"metadata": {"labels": {"more": "1"}}},
        "another's annotation": {"metadata": {"annotations": {"note": "2"}}},
        "that it is bound": {"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}},
        "a finalizer": {"metadata": {"finalizers": [HOLDER]}},
    }

    @pytest.mark.parametrize("what", CLAIMS)
    def test_nothing_else_of_a_claim_can_be_written(self, thief: Api, claim: str, what: str) -> None:
        check_refused(lambda: self.patch(thief, claim, self.CLAIMS[what]), "fairbind-own-volumes", what=what)

    def test_nothing_else_of_a_volume_can_be_written(self, thief: Api, volumes: dict[str, str]) -> None:
        bodies: list[Json] = [
            {"spec": {"capacity": {"storage": "9Gi"}}},
            {"spec": {"persistentVolumeReclaimPolicy": "Delete"}},
            {"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}},
            {"metadata": {"annotations": {"note": "2"}}},
        ]
        for body in bodies:
            check_refused(
                lambda body=body: self.patch(thief, volumes["free"], body),  # type: ignore[misc]
                "fairbind-own-volumes",
                what=str(body),
            )

    def test_no_volume_can_be_given_to_another_claim(self, thief: Api, volumes: dict[str, str]) -> None:
        other = {"spec": {"claimRef": {**CLAIM_OF_ANOTHER, "name": "thief"}}}
        check_refused(lambda: self.patch(thief, volumes["taken"], other), "fairbind-own-volumes")

    def test_a_volume_that_a_person_keeps_for_a_claim_stays_with_it(self, thief: Api, volumes: dict[str, str]) -> None:
        for body in ({"spec": {"claimRef": None}}, MARKED, {**UNMARKED, "spec": {"claimRef": None}}):
            attempt = functools.partial(self.patch, thief, volumes["taken"], body)
            check_refused(attempt, "fairbind-own-volumes", what=str(body))

    @pytest.mark.parametrize("mode", ["bind", "gate", "extender"])
    def test_a_released_volume_keeps_its_files_for_its_owner(
        self, cluster: Cluster, thief: Api, api: Api, volumes: dict[str, str], mode: str
    ) -> None:
        """Its claim is gone, and the files are there: neither is the claim taken off it nor another one written."""
        cluster.install_chart({"operator": {"enabled": False}, "mode": mode, **MODE_VALUES[mode]})
        try:
            path = volumes["taken"]
            gone = {"spec": {"claimRef": {**CLAIM_OF_ANOTHER, "uid": "gone"}}}
            api.patch(path, {**MARKED, **gone}, kind="merge")
            wait_for(lambda: api.get(path)["status"]["phase"] == "Released", describe="the volume to be released")
            bodies: list[Json] = [
                {"spec": {"claimRef": None}},
                {**UNMARKED, "spec": {"claimRef": None}},
                {"spec": {"claimRef": {"uid": None}}},
                {"spec": {"claimRef": {"uid": "of-a-new-claim"}}},
                UNMARKED,
            ]
            for body in bodies:
                attempt = functools.partial(self.patch, thief, path, body)
                check_refused(attempt, "fairbind-own-volumes", what=f"{mode}: {body}")
        finally:
            cluster.install_chart({"operator": {"enabled": False}})

    def test_what_the_operator_writes_is_let_through(
        self, thief: Api, api: Api, claim: str, volumes: dict[str, str]
    ) -> None:
        self.patch(thief, volumes["free"], {**MARKED, "spec": {"claimRef": CLAIM_OF_ANOTHER}})
        self.patch(thief, volumes["taken"], {"spec": {"claimRef": {**CLAIM_OF_ANOTHER, "uid": "1"}}})
        api.patch(volumes["taken"], MARKED, kind="merge")
        self.patch(thief, volumes["taken"], {**UNMARKED, "spec": {"claimRef": None}})
        for node in ("nowhere", None):
            annotations = {"volume.kubernetes.io/selected-node": node}
            self.patch(thief, claim, {"metadata": {"annotations": annotations}})


def set_protection(cluster: Cluster, **values: bool) -> None:
    cluster.install_chart({"operator": {"enabled": False}, "admission": {"protect": values}})


@pytest.fixture
def protect(cluster: Cluster) -> Iterator[Callable[..., None]]:
    """A function that has the chart installed with these values of `admission.protect`; its defaults come back."""
    yield functools.partial(set_protection, cluster)
    set_protection(cluster)


class TestEvictions:
    """Evictions of pods, of which the operator has the right only with `groups.undo`."""

    @pytest.fixture(autouse=True)
    def policy(self, cluster: Cluster, thief: Api, waiting: Json) -> Iterator[None]:
        cluster.install_chart({"operator": {"enabled": False}, "groups": {"undo": True}})
        wait_refused(lambda: self.evict(thief, waiting), "fairbind-own-evictions", "UID")
        yield
        cluster.install_chart({"operator": {"enabled": False}})

    @staticmethod
    def evict(client: Api, pod: Json, **options: Any) -> Any:
        metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        more = {"deleteOptions": {**options, "dryRun": ["All"]}}
        return client.post(f"{pod['path']}/eviction", {**eviction, **more})

    def test_they_name_their_pod_and_leave_its_grace_period(self, api: Api, thief: Api, waiting: Json) -> None:
        named = {"preconditions": {"uid": waiting["metadata"]["uid"]}}
        check_refused(lambda: self.evict(thief, waiting, **named, gracePeriodSeconds=0), "grace period")
        self.evict(thief, waiting, **named)
        self.evict(api, waiting, gracePeriodSeconds=0)  # others are not held to it
        check_compiled(api, "fairbind-own-evictions")

    def test_pods_of_system_namespaces_are_safe(self, api: Api, thief: Api) -> None:
        pod = api.post("/api/v1/namespaces/kube-system/pods", make_pod(SMALL))
        path = f"/api/v1/namespaces/kube-system/pods/{pod['metadata']['name']}"
        try:
            named = {"preconditions": {"uid": pod["metadata"]["uid"]}}
            check_refused(lambda: self.evict(thief, {**pod, "path": path}, **named), "system namespaces")
        finally:
            remove(api, path)


class TestBindingsOfOthersPods:
    """The API server itself refuses to bind a bound pod; whose scheduler a pod waits for is looked up by a policy."""

    @pytest.fixture
    def foreign(self, api: Api, pods: str) -> Json:
        """A pod that waits for another scheduler."""
        made = api.post(pods, make_pod(SMALL, scheduler_name="other"))
        return {**made, "path": f"{pods}/{made['metadata']['name']}"}

    def test_they_are_refused_and_nothing_else_is(
        self,
        thief: Api,
        api: Api,
        nodes: MakeNodes,
        pods: str,
        waiting: Json,
        foreign: Json,
        operator: StartOperator,
        protect: Callable[..., None],
    ) -> None:
        protect(lookUpPods=True)
        wait_refused(lambda: bind(thief, foreign), "fairbind-own-pods", "whose spec.schedulerName is fairbind")

        wait_allowed(lambda: bind(thief, waiting))
        bind(api, foreign)
        nodes([make_node(make_name("n"))])
        operator()
        namespace = pods.split("/")[4]
        create_pods(api, namespace, [make_pod(SMALL) for _ in range(3)])
        wait_for(lambda: count_bound(api, namespace) == 4, describe="the operator to bind all but the other's pod")
        assert "nodeName" not in api.get(foreign["path"])["spec"]

    def test_without_the_policy_they_are_let_through(
        self, thief: Api, foreign: Json, protect: Callable[..., None]
    ) -> None:
        protect(lookUpPods=False)
        wait_allowed(lambda: bind(thief, foreign))


def test_the_danger_is_real(thief: Api, waiting: Json, protect: Callable[..., None]) -> None:
    """Without the policies the same token writes the same fields; RBAC cannot tell them apart."""
    protect(enabled=False)
    body = {"metadata": {"labels": {"app": "b"}}, "status": {"phase": "Succeeded", "podIP": "10.0.0.1"}}

    wait_allowed(lambda: write_status(thief, waiting["path"], body))
    wait_allowed(lambda: bind(thief, waiting, annotations={"a": "b"}))
    changed = write_status(thief, waiting["path"], body)
    assert (changed["metadata"]["labels"], changed["status"]["phase"]) == ({"app": "b"}, "Succeeded")


def test_the_policies_compile_without_a_warning(api: Api, protect: Callable[..., None]) -> None:
    protect(lookUpPods=True)
    check_compiled(api, "fairbind-own-status", "fairbind-own-bindings", "fairbind-own-volumes", "fairbind-own-pods")
