"""The chart's admission policies on a real API server: pods that cannot skip fairbind, labels that stay as they are.

Whoever tries is a real member of a tenant. Policies act a moment after they were made, so each test first waits until
one of its refusals comes; that what is not refused is let through would prove nothing before that.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from e2e.members import RBAC, bind_role, check_refused, joined, try_pod, wait_allowed, wait_refused
from e2e.objects import SCHEDULER_NAME, make_name, make_pod
from e2e.operators import NAMESPACE
from e2e.waiting import wait_for
from e2e.workloads import SMALL, find_bound, list_pods
from localplane.nodes import make_node
from localplane.plane import PlaneError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, StartOperator

WITHOUT_OPERATOR = {"operator": {"enabled": False}}
ENFORCED = {"fairbind.io/enforce": "true"}
TEAM = "example.com/team"
DEFAULT = "default-scheduler"


def serves_mutating_policies(api: Api) -> bool:
    """Tell whether the cluster has them; before Kubernetes 1.36 it may not."""
    versions = {found["version"] for found in api.get("/apis/admissionregistration.k8s.io")["versions"]}
    return any(
        resource["kind"] == "MutatingAdmissionPolicy"
        for version in versions & {"v1", "v1beta1"}
        for resource in api.get(f"/apis/admissionregistration.k8s.io/{version}")["resources"]
    )


@pytest.fixture(scope="module")
def admission(cluster: Cluster) -> Iterator[Callable[..., None]]:
    """A function that has the chart installed with these values under `admission`; without any after the module."""
    installed: list[Json] = [{}]

    def install(**values: Any) -> None:
        if installed[-1] != values:
            cluster.install_chart({**WITHOUT_OPERATOR, "admission": values})
            installed.append(values)

    yield install
    install()


@pytest.fixture
def enforced(namespace: MakeNamespace) -> str:
    """A namespace with the label that the chart's policies look for by default."""
    return namespace(labels=ENFORCED)


@pytest.fixture
def member(cluster: Cluster, enforced: str) -> Iterator[Api]:
    """An administrator of that namespace."""
    with joined(cluster, enforced) as member:
        yield member


def make_workload(kind: str, pod: Json) -> tuple[str, Json]:
    """Return the path of a kind of workload below its namespace, and one of that kind that makes such pods."""
    labels = {"app": make_name("app")}
    template = {"metadata": {"labels": labels}, "spec": pod["spec"]}
    spec: Json = {"template": template}
    if kind == "Job":
        template["spec"] = {**pod["spec"], "restartPolicy": "Never"}
        group, plural = "batch", "jobs"
    else:
        spec["selector"] = {"matchLabels": labels}
        group, plural = "apps", f"{kind.lower()}s"
    body = {"apiVersion": f"{group}/v1", "kind": kind, "metadata": {"name": labels["app"]}, "spec": spec}
    return f"/apis/{group}/v1/namespaces/{{}}/{plural}", body


def wait_for_complaint(api: Api, namespace: str, *words: str) -> None:
    """Wait until a controller says in an event that it could not make a pod, in these words."""

    def is_there() -> bool:
        events = api.items(f"/api/v1/namespaces/{namespace}/events")
        notes = [event["message"] for event in events if event["reason"] == "FailedCreate"]
        return any(all(word in note for word in words) for note in notes)

    wait_for(is_there, describe=f"an event FailedCreate in {namespace} that says {words}")


class TestForbid:
    """Pods that would skip fairbind are refused."""

    @pytest.fixture(autouse=True)
    def policy(self, admission: Callable[..., None], member: Api, enforced: str) -> None:
        admission(forbid={"enabled": True})
        wait_refused(lambda: try_pod(member, enforced, make_pod(SMALL, scheduler_name=DEFAULT)))

    def test_another_scheduler_is_refused_by_name(self, member: Api, enforced: str) -> None:
        for name in (DEFAULT, "kube-scheduler", "Fairbind", "fairbind2", "fair", "fairbind "):
            attempt = functools.partial(try_pod, member, enforced, make_pod(SMALL, scheduler_name=name))
            check_refused(attempt, "fairbind-pods", f"must be fairbind, not {name.strip()}", what=repr(name))

    def test_no_scheduler_at_all_is_the_default_one(self, member: Api, enforced: str) -> None:
        pod = make_pod(SMALL)
        del pod["spec"]["schedulerName"]

        check_refused(lambda: try_pod(member, enforced, pod), "spec.schedulerName must be fairbind", DEFAULT)

    def test_a_node_of_ones_own_choice_is_refused(self, member: Api, enforced: str) -> None:
        pod = make_pod(SMALL, nodeName="node-1")
        check_refused(lambda: try_pod(member, enforced, pod), "fairbind-pods", "spec.nodeName must be empty", "node-1")
        pod = make_pod(SMALL, nodeName="node-1", scheduler_name=DEFAULT)
        check_refused(lambda: try_pod(member, enforced, pod), "fairbind-pods")

    def test_it_cannot_be_had_later_either(self, member: Api, enforced: str) -> None:
        path = f"/api/v1/namespaces/{enforced}/pods"
        name = member.post(path, make_pod(SMALL))["metadata"]["name"]
        for change in ({"nodeName": "node-1"}, {"schedulerName": DEFAULT}, {"priority": 5}):
            attempt = functools.partial(member.patch, f"{path}/{name}", {"spec": change})
            check_refused(attempt, status=422, what=str(change))

    def test_administrators_of_the_cluster_are_held_to_it_too(self, api: Api, enforced: str) -> None:
        check_refused(lambda: try_pod(api, enforced, make_pod(SMALL, scheduler_name=DEFAULT)), "fairbind-pods")

    @pytest.mark.parametrize("kind", ["ReplicaSet", "DaemonSet", "Job"])
    def test_controllers_cannot_do_it_for_somebody(
        self, member: Api, nodes: MakeNodes, enforced: str, kind: str
    ) -> None:
        nodes([make_node(make_name("n"))])  # without one, a DaemonSet makes no pods
        path, body = make_workload(kind, make_pod(SMALL, scheduler_name=DEFAULT))
        member.post(path.format(enforced), body)

        wait_for_complaint(member, enforced, "spec.schedulerName must be fairbind")
        assert list_pods(member, enforced) == []

    def test_what_is_for_fairbind_runs(
        self, api: Api, member: Api, nodes: MakeNodes, enforced: str, operator: StartOperator
    ) -> None:
        (node,) = nodes([make_node(make_name("n"))])
        for kind in ("ReplicaSet", "DaemonSet", "Job"):
            path, body = make_workload(kind, make_pod(SMALL))
            member.post(path.format(enforced), body)
        operator()

        wait_for(lambda: len(find_bound(api, enforced)) == 3, describe="the pods of three controllers to be bound")
        assert {pod["spec"]["nodeName"] for pod in find_bound(api, enforced)} == {node}

    def test_other_namespaces_are_left_alone(self, cluster: Cluster, api: Api, namespace: MakeNamespace) -> None:
        free = namespace()
        with joined(cluster, free) as other:
            try_pod(other, free, make_pod(SMALL, scheduler_name=DEFAULT))
            try_pod(other, free, make_pod(SMALL, scheduler_name=DEFAULT, nodeName="node-1"))
        try_pod(api, "kube-system", make_pod(SMALL, scheduler_name=DEFAULT))

    def test_the_system_and_the_operator_start_whatever_the_labels_say(
        self, api: Api, member: Api, enforced: str
    ) -> None:
        pod = make_pod(SMALL, scheduler_name=DEFAULT)
        for system in ("kube-system", "kube-public", NAMESPACE):
            path = f"/api/v1/namespaces/{system}"
            account = f"{path}/serviceaccounts/default"
            wait_for(functools.partial(api.exists, account), describe="its service account")
            api.patch(path, {"metadata": {"labels": ENFORCED}})
            try:
                try_pod(api, system, pod)
                check_refused(lambda: try_pod(member, enforced, pod))
            finally:
                api.patch(path, {"metadata": {"labels": dict.fromkeys(ENFORCED)}})

    @pytest.mark.local_plane
    def test_a_kubelet_may_announce_static_pods(
        self, cluster: Cluster, api: Api, nodes: MakeNodes, enforced: str
    ) -> None:
        assert cluster.plane is not None
        (node,) = nodes([make_node(make_name("n"))])
        owner = {"apiVersion": "v1", "kind": "Node", "name": node, "controller": True}
        pod = make_pod(SMALL, scheduler_name=DEFAULT, nodeName=node)
        pod["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "1"}
        pod["metadata"]["ownerReferences"] = [{**owner, "uid": api.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]}]
        kubeconfig = cluster.plane.certificate_kubeconfig(f"system:node:{node}", ["system:nodes"])
        kubelet = cluster.connect_as(kubeconfig)
        try:
            wait_allowed(lambda: try_pod(kubelet, enforced, pod))
            del pod["metadata"]["annotations"]
            check_refused(lambda: try_pod(kubelet, enforced, pod), "mirror")
        finally:
            kubelet.close()


def test_only_some_priority_classes_can_be_allowed(
    api: Api, admission: Callable[..., None], member: Api, enforced: str
) -> None:
    allowed, other = make_name("allowed"), make_name("other")
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name in (allowed, other):
        api.post(classes, {"metadata": {"name": name}, "value": 1000})
    try:
        admission(forbid={"enabled": True, "priorityClassNames": [allowed]})
        wait_refused(
            lambda: try_pod(member, enforced, make_pod(SMALL, priorityClassName=other)),
            "priority class",
            other,
            allowed,
        )
        check_refused(
            lambda: try_pod(member, enforced, make_pod(SMALL, priorityClassName="system-node-critical")), allowed
        )
        try_pod(member, enforced, make_pod(SMALL, priorityClassName=allowed))
        try_pod(member, enforced, make_pod(SMALL))
    finally:
        for name in (allowed, other):
            api.delete(f"{classes}/{name}")


def test_namespaces_can_be_chosen_by_name(
    cluster: Cluster, admission: Callable[..., None], namespace: MakeNamespace
) -> None:
    """By a label that nobody can change."""
    chosen, other = namespace(), namespace()
    names = {"key": "kubernetes.io/metadata.name", "operator": "In", "values": [chosen]}
    admission(namespaceSelector={"matchExpressions": [names]}, forbid={"enabled": True})
    pod = make_pod(SMALL, scheduler_name=DEFAULT)
    with joined(cluster, chosen, other) as member:
        wait_refused(lambda: try_pod(member, chosen, pod), "fairbind-pods")
        try_pod(member, other, pod)


def test_a_warning_refuses_nothing(
    admission: Callable[..., None], cluster: Cluster, member: Api, enforced: str
) -> None:
    pod = make_pod(SMALL, scheduler_name=DEFAULT)
    admission(forbid={"enabled": True})
    wait_refused(lambda: try_pod(member, enforced, pod))

    admission(forbid={"enabled": True, "actions": ["Warn", "Audit"]})
    wait_allowed(lambda: try_pod(member, enforced, pod))
    file = Path(cluster.folder.name) / "warned.json"
    file.write_text(json.dumps(pod), encoding="utf-8")
    kubectl = ["--namespace", enforced, "create", "--dry-run=server", f"--filename={file}", "--warnings-as-errors"]
    with pytest.raises(PlaneError, match=r"spec\.schedulerName must be fairbind"):
        cluster.kubectl(*kubectl)


AFFINITY = [{"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}]
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": AFFINITY}
SPREAD = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"a": "b"}}}
CLAIM_TEMPLATE = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
NOT_HONOURED: dict[str, Json] = {
    "disk": {"volumes": [{"name": "v", "gcePersistentDisk": {"pdName": "d"}}]},
    "resource claim": {"resourceClaims": [{"name": "r", "resourceClaimName": "c"}]},
}
HONOURED: dict[str, Json] = {
    "nothing": {},
    "pod affinity": {"affinity": {"podAffinity": REQUIRED}},
    "pod anti-affinity": {"affinity": {"podAntiAffinity": REQUIRED}},
    "spread": {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "DoNotSchedule"}]},
    "soft spread": {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]},
    "soft affinity": {
        "affinity": {
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": AFFINITY[0]}]
            }
        }
    },
    "claim": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    "ephemeral volume": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": CLAIM_TEMPLATE}}]},
    "plain volume": {"volumes": [{"name": "v", "emptyDir": {}}]},
}


def test_a_pod_that_fairbind_does_not_honour_keeps_the_default_scheduler(
    api: Api, admission: Callable[..., None], member: Api, enforced: str
) -> None:
    if not serves_mutating_policies(api):
        pytest.skip("this cluster serves no MutatingAdmissionPolicy")
    admission(assign={"enabled": True})

    def find_scheduler(spec: Json) -> str:
        made = try_pod(member, enforced, make_pod(SMALL, scheduler_name=DEFAULT, **spec))
        return str(made["spec"]["schedulerName"])

    wait_for(lambda: find_scheduler({}) == SCHEDULER_NAME, describe="the policy to act")
    # a policy that an earlier test had installed refuses for a moment after it was deleted
    wait_allowed(lambda: try_pod(member, enforced, make_pod(SMALL, scheduler_name=DEFAULT, **NOT_HONOURED["disk"])))
    found = {name: find_scheduler(spec) for name, spec in (HONOURED | NOT_HONOURED).items()}
    assert found == dict.fromkeys(HONOURED, SCHEDULER_NAME) | dict.fromkeys(NOT_HONOURED, DEFAULT)


class TestAssign:
    """Pods that name no scheduler get ours."""

    @pytest.fixture(autouse=True)
    def policy(self, api: Api, admission: Callable[..., None], member: Api, enforced: str) -> None:
        if not serves_mutating_policies(api):
            pytest.skip("this cluster serves no MutatingAdmissionPolicy")
        admission(assign={"enabled": True}, forbid={"enabled": True})
        pod = make_pod(SMALL, scheduler_name=DEFAULT)
        wait_for(  # not merely let through, which it also is before either policy acts
            lambda: try_pod(member, enforced, pod)["spec"]["schedulerName"] == SCHEDULER_NAME,
            describe="the pod to be ours",
        )
        wait_refused(lambda: try_pod(member, enforced, make_pod(SMALL, scheduler_name="other")))

    def test_a_pod_that_names_none_is_ours(self, member: Api, enforced: str) -> None:
        pod = make_pod(SMALL)
        del pod["spec"]["schedulerName"]

        assert try_pod(member, enforced, pod)["spec"]["schedulerName"] == SCHEDULER_NAME

    def test_nothing_else_of_the_pod_is_changed(self, api: Api, member: Api, enforced: str) -> None:
        """Also with what an apply configuration could not express: a variable twice, a port twice."""
        pod = make_pod(SMALL, scheduler_name=DEFAULT)
        (container,) = pod["spec"]["containers"]
        container["env"] = [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]
        container["ports"] = [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "UDP"}]
        ours = try_pod(member, enforced, pod)
        plain = try_pod(api, "default", pod)

        assert ours["spec"].pop("schedulerName") == SCHEDULER_NAME
        assert plain["spec"].pop("schedulerName") == DEFAULT
        assert ours["spec"] == plain["spec"]

    def test_one_that_names_another_is_not_taken_over_but_refused(self, member: Api, enforced: str) -> None:
        check_refused(lambda: try_pod(member, enforced, make_pod(SMALL, scheduler_name="other")), "other")

    def test_one_that_fairbind_does_not_honour_is_refused_with_what_to_do(self, member: Api, enforced: str) -> None:
        pod = make_pod(SMALL, scheduler_name=DEFAULT, **NOT_HONOURED["disk"])
        check_refused(lambda: try_pod(member, enforced, pod), "does not honour all that this pod carries")

    def test_a_node_of_ones_own_choice_is_still_refused(self, member: Api, enforced: str) -> None:
        check_refused(lambda: try_pod(member, enforced, make_pod(SMALL, scheduler_name=DEFAULT, nodeName="node-1")))

    def test_other_namespaces_are_left_alone(self, api: Api, namespace: MakeNamespace) -> None:
        for free in (namespace(), "kube-system", "default"):
            pod = try_pod(api, free, make_pod(SMALL, scheduler_name=DEFAULT))
            assert pod["spec"]["schedulerName"] == DEFAULT

    def test_users_need_not_know_of_fairbind(
        self, api: Api, member: Api, nodes: MakeNodes, enforced: str, operator: StartOperator
    ) -> None:
        (node,) = nodes([make_node(make_name("n"))])
        for kind in ("ReplicaSet", "DaemonSet", "Job"):
            path, body = make_workload(kind, make_pod(SMALL))
            del body["spec"]["template"]["spec"]["schedulerName"]
            member.post(path.format(enforced), body)
        operator()

        wait_for(lambda: len(find_bound(api, enforced)) == 3, describe="the pods of three controllers to be bound")
        bound = find_bound(api, enforced)
        assert {(pod["spec"]["nodeName"], pod["spec"]["schedulerName"]) for pod in bound} == {(node, SCHEDULER_NAME)}


class TestProtectedLabels:
    """Who may label a namespace may not therefore choose whose it is."""

    PROTECTED: ClassVar = {"protectedLabels": [TEAM, "fairbind.io/enforce"]}

    @pytest.fixture
    def mine(
        self, cluster: Cluster, admission: Callable[..., None], namespace: MakeNamespace
    ) -> Iterator[tuple[Api, str]]:
        """A member who may change its namespace's labels, as some clusters let them, and the namespace."""
        name = namespace(labels={TEAM: "mine", "other": "1"})
        roles = f"/apis/{RBAC}/v1/namespaces/{name}/roles"
        rule = {
            "apiGroups": [""],
            "resources": ["namespaces", "namespaces/status", "namespaces/finalize"],
            "verbs": ["update", "patch"],
        }
        cluster.api.post(roles, {"metadata": {"name": "labels"}, "rules": [rule]})
        with joined(cluster, name) as member:
            user = who_is(member)
            bind_role(cluster.api, name, "labels", *user, kind="Role")
            admission(**self.PROTECTED)
            wait_refused(lambda: relabel(member, name, {TEAM: "yours"}), "fairbind-namespaces", TEAM)
            yield member, name

    def test_the_danger_is_real(self, mine: tuple[Api, str], admission: Callable[..., None]) -> None:
        """Without the policy the same member changes the same label."""
        admission()

        wait_allowed(lambda: relabel(*mine, {TEAM: "yours"}))

    def test_a_protected_label_cannot_be_changed(self, mine: tuple[Api, str]) -> None:
        changes: list[tuple[dict[str, str | None], str]] = [
            ({TEAM: "yours"}, TEAM),
            ({TEAM: None}, TEAM),
            ({TEAM: ""}, TEAM),
            ({"fairbind.io/enforce": "false"}, "fairbind.io/enforce"),
            ({"fairbind.io/enforce": ""}, "fairbind.io/enforce"),
            ({TEAM: "yours", "other": "2"}, TEAM),
        ]
        for labels, said in changes:
            attempt = functools.partial(relabel, *mine, labels)
            check_refused(attempt, "only who may update tenants.fairbind.io", said, what=str(labels))

    def test_nor_by_a_side_door(self, mine: tuple[Api, str]) -> None:
        member, name = mine
        path = f"/api/v1/namespaces/{name}"
        changed = {"metadata": {"labels": {TEAM: "yours"}}}
        check_refused(lambda: member.patch(f"{path}/status", changed), TEAM)
        found = member.get(path)
        found["metadata"]["labels"] = {"other": "1"}
        check_refused(lambda: member.put(path, found), TEAM)
        check_refused(lambda: member.put(f"{path}/finalize", found), TEAM)

    def test_other_labels_can(self, mine: tuple[Api, str], api: Api) -> None:
        member, name = mine

        relabel(member, name, {"other": "2", "more": "3"}, dry=False)
        relabel(member, name, {"other": None, TEAM: "mine"}, dry=False)

        labels = api.get(f"/api/v1/namespaces/{name}")["metadata"]["labels"]
        assert (labels[TEAM], labels["more"], labels.get("other")) == ("mine", "3", None)

    def test_who_may_change_tenants_may_change_them(self, mine: tuple[Api, str], api: Api) -> None:
        _, name = mine

        relabel(api, name, {TEAM: "yours", "fairbind.io/enforce": "true"}, dry=False)
        relabel(api, name, {TEAM: None}, dry=False)

        assert TEAM not in api.get(f"/api/v1/namespaces/{name}")["metadata"]["labels"]

    def test_who_may_make_namespaces_may_not_make_them_somebodys(self, mine: tuple[Api, str], api: Api) -> None:
        member, _ = mine
        home, account = who_is(member)
        maker = make_name("maker")
        roles = f"/apis/{RBAC}/v1"
        rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"]}
        subject = {"kind": "ServiceAccount", "name": account, "namespace": home}
        role = {"apiGroup": RBAC, "kind": "ClusterRole", "name": maker}
        api.post(f"{roles}/clusterroles", {"metadata": {"name": maker}, "rules": [rule]})
        api.post(f"{roles}/clusterrolebindings", {"metadata": {"name": maker}, "roleRef": role, "subjects": [subject]})

        def make(**labels: str) -> Json:
            body = {"metadata": {"name": make_name("made"), "labels": labels}}
            made: Json = member.post("/api/v1/namespaces", body, dryRun="All")
            return made

        try:
            wait_allowed(lambda: make(other="1"))
            check_refused(lambda: make(**{TEAM: "yours"}), "only who may update tenants.fairbind.io", TEAM)
        finally:
            for kind in ("clusterrolebindings", "clusterroles"):
                api.delete(f"{roles}/{kind}/{maker}")

    def test_namespaces_can_still_be_deleted(self, mine: tuple[Api, str], api: Api) -> None:
        """Its controller writes them too."""
        _, name = mine
        api.delete(f"/api/v1/namespaces/{name}")

        wait_for(lambda: not api.exists(f"/api/v1/namespaces/{name}"), describe="the namespace to be gone")


def relabel(api: Api, namespace: str, labels: dict[str, str | None], *, dry: bool = True) -> None:
    """Change labels of a namespace; by default only ask whether that would be let through."""
    api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}}, dryRun="All" if dry else None)


def who_is(member: Api) -> tuple[str, str]:
    """Return namespace and name of the ServiceAccount that a client is, as the API server says."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    user = member.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)["status"]["userInfo"]["username"]
    _, _, home, name = user.split(":")
    return home, name
