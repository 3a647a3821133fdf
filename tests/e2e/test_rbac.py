"""What the operator's ServiceAccount may do, and above all what it may not: asked of the API server, and tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from e2e.objects import POLICIES, TENANTS, make_name, make_pod
from e2e.waiting import wait_for
from localplane.client import ApiClient, ApiError

if TYPE_CHECKING:
    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeTenant

HOME = "fairbind-system"
ACCOUNT = f"system:serviceaccount:{HOME}:fairbind"
GROUPS = ["system:serviceaccounts", f"system:serviceaccounts:{HOME}", "system:authenticated"]
FAIRBIND = "fairbind.io"
RBAC = "rbac.authorization.k8s.io"
STORAGE = "storage.k8s.io"
WATCHED = ("pods", "nodes", "namespaces", "persistentvolumeclaims", "persistentvolumes")
DEVICES = "resource.k8s.io"
WATCHED_DEVICES = ("resourceclaims", "deviceclasses", "resourceslices")
POD_GROUPS = ("scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh")
WATCHED_STORAGE = ("storageclasses", "csinodes", "csidrivers", "csistoragecapacities", "volumeattachments")

# verb, API group, resource (with its subresource), namespace ("": the cluster), name
Question = tuple[str, str, str, str, str]

ALLOWED: list[Question] = [
    ("get", "", "pods", "any", "a"),
    *((verb, "", resource, "", "") for resource in WATCHED for verb in ("list", "watch")),
    *((verb, STORAGE, resource, "", "") for resource in WATCHED_STORAGE for verb in ("list", "watch")),
    *((verb, DEVICES, resource, "", "") for resource in WATCHED_DEVICES for verb in ("list", "watch")),
    *((verb, group, "podgroups", "", "") for group in POD_GROUPS for verb in ("list", "watch")),
    ("patch", "scheduling.k8s.io", "podgroups/status", "any", "a"),
    *((verb, "batch", "jobs", "", "") for verb in ("list", "watch")),
    *((verb, "", "resourcequotas", "", "") for verb in ("list", "watch")),
    ("create", "", "pods/binding", "any", "a"),
    ("patch", "", "pods/status", "any", "a"),
    ("create", "events.k8s.io", "events", "any", ""),
    ("patch", "events.k8s.io", "events", "any", "a"),
    *((verb, FAIRBIND, kind, "", "") for kind in ("tenants", "schedulingpolicies") for verb in ("list", "watch")),
    *((verb, "", "persistentvolumes", "", "a") for verb in ("get", "patch")),
    *((verb, "", "persistentvolumeclaims", "any", "a") for verb in ("get", "patch")),
    ("patch", FAIRBIND, "tenants/status", "", "a"),
    ("patch", FAIRBIND, "schedulingpolicies/status", "", "a"),
    ("create", "coordination.k8s.io", "leases", HOME, ""),
    ("get", "coordination.k8s.io", "leases", HOME, "fairbind"),
    ("update", "coordination.k8s.io", "leases", HOME, "fairbind"),
    ("list", "coordination.k8s.io", "leases", "", ""),
    ("create", "authorization.k8s.io", "subjectaccessreviews", "", ""),
]

DENIED: list[Question] = [
    ("get", "", "nodes", "", "a"),
    ("get", "", "namespaces", "", "a"),
    ("get", FAIRBIND, "tenants", "", "a"),
    ("get", FAIRBIND, "schedulingpolicies", "", "a"),
    ("get", "", "secrets", HOME, "a"),
    ("list", "", "secrets", "", ""),
    ("watch", "", "secrets", "any", ""),
    ("get", "", "configmaps", HOME, "a"),
    ("list", "", "configmaps", "", ""),
    ("create", "", "pods", "any", ""),
    ("update", "", "pods", "any", "a"),
    ("patch", "", "pods", "any", "a"),
    ("delete", "", "pods", "any", "a"),
    ("deletecollection", "", "pods", "any", ""),
    ("create", "", "pods/eviction", "any", "a"),
    ("create", "", "pods/exec", "any", "a"),
    ("get", "", "pods/exec", "any", "a"),
    ("create", "", "pods/attach", "any", "a"),
    ("create", "", "pods/portforward", "any", "a"),
    ("get", "", "pods/log", "any", "a"),
    ("patch", "", "pods/ephemeralcontainers", "any", "a"),
    ("patch", "", "pods/resize", "any", "a"),
    ("update", "", "pods/status", "any", "a"),
    ("create", "", "nodes", "", ""),
    ("update", "", "nodes", "", "a"),
    ("patch", "", "nodes", "", "a"),
    ("delete", "", "nodes", "", "a"),
    ("patch", "", "nodes/status", "", "a"),
    ("get", "", "nodes/proxy", "", "a"),
    ("create", "", "namespaces", "", ""),
    ("patch", "", "namespaces", "", "a"),
    ("delete", "", "namespaces", "", "a"),
    ("create", "", "serviceaccounts/token", HOME, "fairbind"),
    ("create", "", "serviceaccounts", HOME, ""),
    ("impersonate", "", "users", "", "admin"),
    ("impersonate", "", "serviceaccounts", "kube-system", "default"),
    ("create", "", "events", "any", ""),
    ("list", "", "events", "", ""),
    ("delete", "events.k8s.io", "events", "any", "a"),
    ("list", "events.k8s.io", "events", "", ""),
    ("create", "", "persistentvolumeclaims", "any", ""),
    ("delete", "", "persistentvolumeclaims", "any", "a"),
    ("patch", "", "persistentvolumeclaims/status", "any", "a"),
    ("delete", "", "persistentvolumes", "", "a"),
    ("get", STORAGE, "csinodes", "", "a"),
    ("get", DEVICES, "resourceclaims", "any", "a"),
    ("create", DEVICES, "resourceclaims", "any", ""),
    ("patch", DEVICES, "resourceclaims/status", "any", "a"),
    ("create", STORAGE, "volumeattachments", "", ""),
    ("patch", STORAGE, "storageclasses", "", "a"),
    ("create", FAIRBIND, "tenants", "", ""),
    ("update", FAIRBIND, "tenants", "", "a"),
    ("patch", FAIRBIND, "tenants", "", "a"),
    ("delete", FAIRBIND, "tenants", "", "a"),
    ("update", FAIRBIND, "tenants/status", "", "a"),
    *((verb, FAIRBIND, "sharereports", "any", "fairbind") for verb in ("get", "list", "create", "patch", "delete")),
    ("create", FAIRBIND, "schedulingpolicies", "", ""),
    ("patch", FAIRBIND, "schedulingpolicies", "", "default"),
    ("delete", FAIRBIND, "schedulingpolicies", "", "default"),
    ("get", "coordination.k8s.io", "leases", HOME, "another"),
    ("update", "coordination.k8s.io", "leases", HOME, "another"),
    ("delete", "coordination.k8s.io", "leases", HOME, "fairbind"),
    ("patch", "coordination.k8s.io", "leases", HOME, "fairbind"),
    ("watch", "coordination.k8s.io", "leases", HOME, ""),
    ("get", "coordination.k8s.io", "leases", "kube-system", "fairbind"),
    ("create", "coordination.k8s.io", "leases", "kube-system", ""),
    ("update", "coordination.k8s.io", "leases", "kube-node-lease", "a"),
    ("list", "apiextensions.k8s.io", "customresourcedefinitions", "", ""),
    ("create", "apiextensions.k8s.io", "customresourcedefinitions", "", ""),
    ("patch", "apiextensions.k8s.io", "customresourcedefinitions", "", "tenants.fairbind.io"),
    ("delete", "apiextensions.k8s.io", "customresourcedefinitions", "", "tenants.fairbind.io"),
    ("create", RBAC, "clusterroles", "", ""),
    ("update", RBAC, "clusterroles", "", "fairbind"),
    ("escalate", RBAC, "clusterroles", "", "fairbind"),
    ("bind", RBAC, "clusterroles", "", "cluster-admin"),
    ("create", RBAC, "clusterrolebindings", "", ""),
    ("create", RBAC, "rolebindings", HOME, ""),
    ("create", "admissionregistration.k8s.io", "validatingwebhookconfigurations", "", ""),
    ("create", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", ""),
    ("create", "admissionregistration.k8s.io", "mutatingadmissionpolicies", "", ""),
    ("create", "certificates.k8s.io", "certificatesigningrequests", "", ""),
    ("update", "flowcontrol.apiserver.k8s.io", "flowschemas", "", "fairbind"),
    ("create", "apps", "deployments", HOME, ""),
    ("patch", "apps", "deployments", HOME, "fairbind"),
    ("create", "batch", "jobs", "any", ""),
    ("create", "authentication.k8s.io", "tokenreviews", "", ""),
]


def is_allowed(api: Api, question: Question, user: str = ACCOUNT, groups: list[str] | None = None) -> bool:
    """Ask the API server whether somebody may do something."""
    verb, group, resource, namespace, name = question
    kind, _, subresource = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": kind, "namespace": namespace, "name": name}
    review = api.post(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user,
                "groups": GROUPS if groups is None else groups,
                "resourceAttributes": {**attributes, "subresource": subresource},
            },
        },
    )
    return bool(review["status"]["allowed"])


def name_question(question: Question) -> str:
    verb, group, resource, namespace, name = question
    return "-".join(part for part in (verb, resource, group, namespace, name) if part)


@pytest.mark.parametrize("question", ALLOWED, ids=name_question)
def test_operator_may(api: Api, question: Question) -> None:
    # The authorizer's own caches follow a fresh installation a moment later.
    wait_for(lambda: is_allowed(api, question), describe=f"{name_question(question)} to be allowed")


@pytest.mark.parametrize("question", DENIED, ids=name_question)
def test_operator_may_not(api: Api, question: Question) -> None:
    assert not is_allowed(api, question)


def test_the_tables_leave_out_no_rule(api: Api) -> None:
    """Every right of the chart's roles is in the table of what is needed: none came in unseen."""
    granted = set()
    for path in (f"/apis/{RBAC}/v1/clusterroles/fairbind", f"/apis/{RBAC}/v1/namespaces/{HOME}/roles/fairbind"):
        for rule in api.get(path)["rules"]:
            assert "*" not in {*rule["verbs"], *rule["resources"], *rule["apiGroups"]}
            granted |= {
                (verb, group, resource)
                for verb in rule["verbs"]
                for group in rule["apiGroups"]
                for resource in rule["resources"]
            }
    tested = {(verb, group, resource) for verb, group, resource, _, _ in ALLOWED}

    assert granted == tested


@pytest.fixture
def account(cluster: Cluster) -> Iterator[ApiClient]:
    """The API server as the operator meets it: with a token of its ServiceAccount."""
    with ApiClient.from_kubeconfig(cluster.operator_kubeconfig()) as api:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        who = api.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", review)["status"]["userInfo"]
        # Anonymous requests would be refused as well, and prove nothing.
        assert who["username"] == ACCOUNT
        yield api


@pytest.fixture
def pods(namespace: MakeNamespace) -> str:
    """The path of the pods of a new namespace."""
    return f"/api/v1/namespaces/{namespace()}/pods"


def make_event(pod: str, namespace: str) -> Json:
    return {
        "metadata": {"name": pod, "namespace": namespace},
        "eventTime": "2026-01-02T03:04:05.000000Z",
        "reportingController": "fairbind",
        "reportingInstance": "test",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "type": "Warning",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": namespace},
    }


def test_what_a_scheduler_does_works(account: ApiClient, api: Api, pods: str) -> None:
    pod = api.post(pods, make_pod({"cpu": "1"}))
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    for path in ("/api/v1/pods", "/api/v1/nodes", "/api/v1/namespaces", TENANTS, POLICIES):
        assert account.items(path, limit=1) is not None
    for _ in account.watch("/api/v1/pods", timeout_seconds=1):
        break

    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no nodes"}
    account.patch(f"{pods}/{name}/status", {"status": {"conditions": [waiting]}}, kind="strategic")
    conditions = api.get(f"{pods}/{name}")["status"]["conditions"]
    assert [part["reason"] for part in conditions if part["type"] == "PodScheduled"] == ["Unschedulable"]

    target = {"apiVersion": "v1", "kind": "Node", "name": "nowhere"}
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "uid": pod["metadata"]["uid"]}}
    account.post(f"{pods}/{name}/binding", {**binding, "target": target})
    assert api.get(f"{pods}/{name}")["spec"]["nodeName"] == "nowhere"

    events = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    account.post(events, make_event(name, namespace))
    series = {"series": {"count": 2, "lastObservedTime": "2026-01-02T03:04:06.000000Z"}}
    assert account.patch(f"{events}/{name}", series)["series"]["count"] == 2


def test_status_of_tenants_and_policies_can_be_written(account: ApiClient, api: Api, tenant: MakeTenant) -> None:
    name = tenant(weight=2)

    account.patch(f"{TENANTS}/{name}/status", {"status": {"pods": {"running": 3}}, "spec": {"weight": 900}})
    account.patch(f"{POLICIES}/default/status", {"status": {"observedGeneration": 1}})

    assert api.get(f"{TENANTS}/{name}")["status"]["pods"] == {"running": 3}
    assert api.get(f"{TENANTS}/{name}")["spec"]["weight"] == 2


def test_its_own_lease_and_no_other(account: ApiClient, api: Api) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases"
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "fairbind"}}
    if not api.exists(f"{leases}/fairbind"):
        account.post(leases, lease)
    found = account.get(f"{leases}/fairbind")
    account.put(f"{leases}/fairbind", found)

    other = api.post(leases, {**lease, "metadata": {"name": make_name("other")}})["metadata"]["name"]
    try:
        for attempt in (lambda: account.get(f"{leases}/{other}"), lambda: account.patch(f"{leases}/{other}", {})):
            assert_forbidden(attempt)
    finally:
        api.delete(f"{leases}/{other}")
    assert_forbidden(lambda: account.post("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", lease))


def assert_forbidden(attempt: Callable[[], Any]) -> None:
    """Do something that must be answered by 403, not by an error about the request itself."""
    with pytest.raises(ApiError) as refusal:
        attempt()
    assert refusal.value.status == 403, refusal.value


def make_attempts(account: ApiClient, pods: str, pod: str, tenant: str) -> dict[str, Callable[[], object]]:
    """Return what somebody with a stolen token would try first, by name."""
    core, namespace = "/api/v1", pods.rpartition("/")[0]
    roles, webhooks = f"/apis/{RBAC}/v1", "/apis/admissionregistration.k8s.io/v1"
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    admin: Json = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": make_name("admin")},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "fairbind", "namespace": HOME}],
    }
    hook = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": make_name("hook")}}
    return {
        "read all secrets": lambda: account.get(f"{core}/secrets"),
        "read helm's secrets": lambda: account.get(f"{core}/namespaces/{HOME}/secrets"),
        "read config maps": lambda: account.get(f"{core}/namespaces/{HOME}/configmaps"),
        "make a pod": lambda: account.post(pods, make_pod()),
        "change a pod": lambda: account.patch(f"{pods}/{pod}", {"metadata": {"labels": {"a": "b"}}}),
        "replace a pod": lambda: account.put(f"{pods}/{pod}", make_pod(name=pod)),
        "delete a pod": lambda: account.delete(f"{pods}/{pod}"),
        "delete all pods": lambda: account.delete(pods),
        "evict a pod": lambda: account.post(f"{pods}/{pod}/eviction", {"metadata": {"name": pod}}),
        "run a command in a pod": lambda: account.post(f"{pods}/{pod}/exec?command=id", {}),
        "read a pod's log": lambda: account.get(f"{pods}/{pod}/log"),
        "replace a pod's status": lambda: account.put(f"{pods}/{pod}/status", make_pod(name=pod)),
        "make a node": lambda: account.post(f"{core}/nodes", {"metadata": {"name": make_name("node")}}),
        "cordon a node": lambda: account.patch(f"{core}/nodes/any", {"spec": {"unschedulable": True}}),
        "enlarge a node": lambda: account.patch(f"{core}/nodes/any/status", {"status": {"capacity": {"cpu": "99"}}}),
        "make a namespace": lambda: account.post(f"{core}/namespaces", {"metadata": {"name": make_name("ns")}}),
        "relabel a namespace": lambda: account.patch(namespace, {"metadata": {"labels": {"team": "mine"}}}),
        "delete a namespace": lambda: account.delete(namespace),
        "get a token": lambda: account.post(f"{core}/namespaces/kube-system/serviceaccounts/default/token", token),
        "make a tenant": lambda: account.post(TENANTS, {"metadata": {"name": make_name("mine")}}),
        "raise a weight": lambda: account.patch(f"{TENANTS}/{tenant}", {"spec": {"weight": 1000}}),
        "delete a tenant": lambda: account.delete(f"{TENANTS}/{tenant}"),
        "change the policy": lambda: account.patch(f"{POLICIES}/default", {"spec": {"policy": "fifo"}}),
        "become administrator": lambda: account.post(f"{roles}/clusterrolebindings", admin),
        "widen its own role": lambda: account.patch(f"{roles}/clusterroles/fairbind", {"rules": []}),
        "add a webhook": lambda: account.post(f"{webhooks}/mutatingwebhookconfigurations", hook),
        "change a CRD": lambda: account.patch(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/tenants.fairbind.io", {"spec": {}}
        ),
        "take kube-scheduler's lease": lambda: account.patch(
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler", {"spec": {}}
        ),
        "give the lease up": lambda: account.delete(f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/fairbind"),
        "read another's lease": lambda: account.get(
            "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
        ),
    }


def test_a_stolen_token_is_of_little_use(account: ApiClient, api: Api, pods: str, tenant: MakeTenant) -> None:
    pod = api.post(pods, make_pod())["metadata"]["name"]
    attempts = make_attempts(account, pods, pod, tenant())

    assert len(attempts) >= 25
    for what, attempt in attempts.items():
        with pytest.raises(ApiError) as refusal:
            attempt()
        assert refusal.value.status == 403, f"{what}: {refusal.value}"


def test_viewers_of_the_cluster_see_tenants_but_do_not_change_them(api: Api) -> None:
    viewer = make_name("viewer")
    binding: Json = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": viewer},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": viewer}],
    }
    assert not is_allowed(api, ("list", FAIRBIND, "tenants", "", ""), viewer, ["system:authenticated"])
    api.post(f"/apis/{RBAC}/v1/clusterrolebindings", binding)
    try:
        for resource in ("tenants", "schedulingpolicies"):
            wait_for(
                lambda resource=resource: is_allowed(api, ("list", FAIRBIND, resource, "", ""), viewer, []),  # type: ignore[misc]
                describe=f"viewers to see {resource}",
            )
            assert not is_allowed(api, ("update", FAIRBIND, resource, "", "a"), viewer, [])
    finally:
        api.delete(f"/apis/{RBAC}/v1/clusterrolebindings/{viewer}")


def count_dispatched(cluster: Cluster, flow_schema: str, level: str) -> float:
    """Return how many requests the API server has served by this rule at this priority level."""
    prefix = "apiserver_flowcontrol_dispatched_requests_total{"
    labels = (f'flow_schema="{flow_schema}"', f'priority_level="{level}"')
    lines = [line for line in cluster.kubectl("get", "--raw", "/metrics").splitlines() if line.startswith(prefix)]
    return sum(float(line.rpartition(" ")[2]) for line in lines if all(label in line for label in labels))


def test_requests_are_served_at_our_own_priority_level(cluster: Cluster, account: ApiClient) -> None:
    def is_counted() -> bool:
        before = count_dispatched(cluster, "fairbind", "fairbind")
        account.get("/api/v1/nodes", limit=1)
        return count_dispatched(cluster, "fairbind", "fairbind") > before

    wait_for(is_counted, describe="the API server to apply the chart's FlowSchema")


def test_the_lease_is_served_at_the_level_of_leader_elections(cluster: Cluster, account: ApiClient) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/fairbind"

    def is_counted() -> bool:
        before = count_dispatched(cluster, "fairbind-leader-election", "leader-election")
        account.exists(path)
        return count_dispatched(cluster, "fairbind-leader-election", "leader-election") > before

    wait_for(is_counted, describe="the API server to apply the chart's FlowSchema for leases")
