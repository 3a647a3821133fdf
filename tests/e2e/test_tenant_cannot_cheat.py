"""What people of a tenant try in order to get more than its share, with the rights that they ordinarily have.

Each is the administrator of its own namespaces and nothing else (`members`). First what the API server refuses them,
then what they may do and what it brings them: nothing. docs/security.md says which further rights do bring something;
those are in `test_tenant_loopholes`.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from e2e.checks import View, check_metrics
from e2e.members import FORBIDDEN, RBAC, check_refused, find_refusal, make_binding
from e2e.objects import IMAGE, POLICIES, SCHEDULER_NAME, TENANTS, make_name, make_pod, make_tenant
from e2e.operators import NAMESPACE
from e2e.waiting import wait_for
from e2e.workloads import SMALL, count_bound, create_pods, find_bound, find_condition, list_pods, wait_full

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from e2e.api import Api, Json
    from e2e.conftest import MakeTenant, StartOperator

CORE, GROUPS = "/api/v1", "/apis"


def make_administrative_attempts(member: Api, mine: str, theirs: str, tenant: str) -> dict[str, Callable[[], object]]:
    """Return what changes who has which share, by name."""
    own, other = f"{CORE}/namespaces/{mine}", f"{CORE}/namespaces/{theirs}"
    quota = {"metadata": {"name": make_name("quota")}, "spec": {"hard": {"pods": "1"}}}
    policy = {"apiVersion": "fairbind.io/v1alpha1", "kind": "SchedulingPolicy", "metadata": {"name": "default"}}
    return {
        "make a tenant": lambda: member.post(TENANTS, make_tenant(make_name("mine"), namespaces=[mine], weight=1000)),
        "raise a weight": lambda: member.patch(f"{TENANTS}/{tenant}", {"spec": {"weight": 1000}}),
        "claim a namespace": lambda: member.patch(f"{TENANTS}/{tenant}", {"spec": {"namespaces": [mine, theirs]}}),
        "write a tenant's status": lambda: member.patch(
            f"{TENANTS}/{tenant}/status", {"status": {"fairShare": "1.000"}}
        ),
        "delete a tenant": lambda: member.delete(f"{TENANTS}/{tenant}"),
        "delete all tenants": lambda: member.delete(TENANTS),
        "change the policy": lambda: member.patch(f"{POLICIES}/default", {"spec": {"policy": "fifo"}}),
        "replace the policy": lambda: member.put(f"{POLICIES}/default", {**policy, "spec": {"policy": "fifo"}}),
        "delete the policy": lambda: member.delete(f"{POLICIES}/default"),
        "add a policy": lambda: member.post(POLICIES, {**policy, "metadata": {"name": make_name("mine")}}),
        "label its namespace": lambda: member.patch(own, {"metadata": {"labels": {"team": "rich"}}}),
        "label its namespace by its status": lambda: member.patch(
            f"{own}/status", {"metadata": {"labels": {"team": "rich"}}}
        ),
        "label another namespace": lambda: member.patch(other, {"metadata": {"labels": {"team": "mine"}}}),
        "delete another namespace": lambda: member.delete(other),
        "make a namespace": lambda: member.post(f"{CORE}/namespaces", {"metadata": {"name": make_name("more")}}),
        "lift its quota": lambda: member.post(f"{own}/resourcequotas", quota),
        "make a priority class": lambda: member.post(
            f"{GROUPS}/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": make_name("top")}, "value": 1}
        ),
        "change a CRD": lambda: member.patch(
            f"{GROUPS}/apiextensions.k8s.io/v1/customresourcedefinitions/tenants.fairbind.io", {"spec": {}}
        ),
        "drop an admission policy": lambda: member.delete(
            f"{GROUPS}/admissionregistration.k8s.io/v1/validatingadmissionpolicies/fairbind-pods"
        ),
        "add a webhook": lambda: member.post(
            f"{GROUPS}/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", {"metadata": {"name": "mine"}}
        ),
        "change priority and fairness": lambda: member.patch(
            f"{GROUPS}/flowcontrol.apiserver.k8s.io/v1/flowschemas/fairbind", {"spec": {"matchingPrecedence": 9000}}
        ),
    }


def make_scheduling_attempts(
    member: Api, mine: str, theirs: str, pods: Mapping[str, str]
) -> dict[str, Callable[[], object]]:
    """Return what only a scheduler, or another tenant, or the operator may do, by name. pods: a pod's name in each."""
    own, other = f"{CORE}/namespaces/{mine}", f"{CORE}/namespaces/{theirs}"
    bound = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pods[mine]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "any"},
    }
    ready = {"status": {"conditions": [{"type": "PodScheduled", "status": "True"}]}}
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    leases = f"{GROUPS}/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
    return {
        "bind a pod": lambda: member.post(f"{own}/pods/{pods[mine]}/binding", bound),
        "bind a pod the old way": lambda: member.post(f"{own}/bindings", bound),
        "bind another's pod": lambda: member.post(f"{other}/pods/{pods[theirs]}/binding", bound),
        "write a pod's status": lambda: member.patch(f"{own}/pods/{pods[mine]}/status", ready),
        "nominate a node": lambda: member.patch(
            f"{own}/pods/{pods[mine]}/status", {"status": {"nominatedNodeName": "any"}}
        ),
        "see another's pods": lambda: member.get(f"{other}/pods"),
        "delete another's pod": lambda: member.delete(f"{other}/pods/{pods[theirs]}"),
        "evict another's pod": lambda: member.post(
            f"{other}/pods/{pods[theirs]}/eviction", {"metadata": {"name": pods[theirs]}}
        ),
        "make pods elsewhere": lambda: member.post(f"{other}/pods", make_pod(SMALL)),
        "label a node": lambda: member.patch(f"{CORE}/nodes/any", {"metadata": {"labels": {"mine": "true"}}}),
        "cordon a node": lambda: member.patch(f"{CORE}/nodes/any", {"spec": {"unschedulable": True}}),
        "enlarge a node": lambda: member.patch(f"{CORE}/nodes/any/status", {"status": {"allocatable": {"cpu": "999"}}}),
        "be the operator": lambda: member.post(f"{CORE}/namespaces/{NAMESPACE}/serviceaccounts/fairbind/token", token),
        "stop the operator": lambda: member.patch(
            f"{GROUPS}/apps/v1/namespaces/{NAMESPACE}/deployments/fairbind", {"spec": {"replicas": 0}}
        ),
        "run beside the operator": lambda: member.post(f"{CORE}/namespaces/{NAMESPACE}/pods", make_pod(SMALL)),
        "take the lease": lambda: member.patch(f"{leases}/fairbind", {"spec": {"holderIdentity": "me"}}),
        "delete the lease": lambda: member.delete(f"{leases}/fairbind"),
    }


def make_escalating_attempts(member: Api, mine: str) -> dict[str, Callable[[], object]]:
    """Return how an administrator of a namespace, who may make roles and bind them, would give itself more."""
    roles, bindings = (f"{GROUPS}/{RBAC}/v1/namespaces/{mine}/{kind}" for kind in ("roles", "rolebindings"))

    def make_role(group: str, resource: str, verb: str) -> Callable[[], object]:
        rule = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
        return lambda: member.post(roles, {"metadata": {"name": make_name("role")}, "rules": [rule]})

    def bind(role: str) -> Callable[[], object]:
        return lambda: member.post(bindings, make_binding(role, mine, "default"))

    binding = {"metadata": {"name": make_name("mine")}, "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole"}}
    return {
        "a role that binds pods": make_role("", "pods/binding", "create"),
        "a role that binds pods the old way": make_role("", "bindings", "create"),
        "a role that writes pods' status": make_role("", "pods/status", "patch"),
        "a role that labels namespaces": make_role("", "namespaces", "patch"),
        "a role with everything": make_role("*", "*", "*"),
        "the scheduler's role": bind("system:kube-scheduler"),
        "the operator's role": bind("fairbind"),
        "the cluster administrator's role": bind("cluster-admin"),
        "a role in the whole cluster": lambda: member.post(
            f"{GROUPS}/{RBAC}/v1/clusterrolebindings",
            {**binding, "roleRef": {**binding["roleRef"], "name": "admin"}},
        ),
    }


def test_administration_and_scheduling_are_for_others(
    member: Api, api: Api, mine: str, theirs: str, tenant: MakeTenant
) -> None:
    """Everything here is answered by 403, nothing by an error about the request itself."""
    name = tenant(namespaces=[mine])
    pods = {where: api.post(f"{CORE}/namespaces/{where}/pods", make_pod(SMALL)) for where in (mine, theirs)}
    names = {where: pod["metadata"]["name"] for where, pod in pods.items()}
    member.patch(f"{CORE}/namespaces/{mine}/pods/{names[mine]}", {"metadata": {"labels": {"it": "may"}}})
    attempts = {
        **make_administrative_attempts(member, mine, theirs, name),
        **make_scheduling_attempts(member, mine, theirs, names),
        **make_escalating_attempts(member, mine),
    }

    assert len(attempts) >= 40
    refusals = {what: find_refusal(attempt) for what, attempt in attempts.items()}
    let_through = {what: str(found) for what, found in refusals.items() if found is None or found.status != FORBIDDEN}
    assert let_through == {}


def test_rights_in_a_namespace_show_no_tenants(member: Api) -> None:
    """The chart adds the right to view them to `admin`; by a RoleBinding one has it in a namespace, where none are."""
    for path in (TENANTS, POLICIES, f"{POLICIES}/default"):
        check_refused(functools.partial(member.get, path), what=path)
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"verb": "list", "group": "fairbind.io", "resource": "tenants"}},
    }
    assert not member.post(f"{GROUPS}/authorization.k8s.io/v1/selfsubjectaccessreviews", review)["status"]["allowed"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"priority": 2_000_000_000}, "priority"),
        ({"preemptionPolicy": "Always", "priority": 1}, "priority"),
        ({"priorityClassName": "there-is-none"}, "priority"),
        ({"overhead": {"cpu": "-1"}}, "overhead"),
        ({"overhead": {"cpu": "1m"}}, "overhead"),
        ({"nodeName": "not a name!"}, "nodeName"),
    ],
    ids=str,
)
def test_fields_that_would_pretend_something_are_refused(member: Api, mine: str, change: Json, said: str) -> None:
    refusal = find_refusal(lambda: member.post(f"{CORE}/namespaces/{mine}/pods", make_pod(SMALL, **change)))

    assert refusal is not None
    assert refusal.status in {403, 422}
    assert said.lower() in str(refusal).lower()


def make_pretenders(victim: str, uid: str) -> list[Json]:
    """Return pods that pretend to be another's, to be older, to be first, or to be something else."""
    claims = {
        "fairbind.io/tenant": victim,
        "tenant": victim,
        "namespace": victim,
        "kueue.x-k8s.io/queue-name": victim,
        "scheduling.k8s.io/group-name": victim,
        "app.kubernetes.io/name": "fairbind",
    }
    labelled, annotated, aged, owned, named = (make_pod(SMALL) for _ in range(5))
    labelled["metadata"]["labels"] = claims
    annotated["metadata"]["annotations"] = {**claims, "scheduler.alpha.kubernetes.io/critical-pod": ""}
    aged["metadata"] |= {"creationTimestamp": "2001-01-01T00:00:00Z", "uid": "00000000-0000-0000-0000-000000000000"}
    owner = {"apiVersion": "fairbind.io/v1alpha1", "kind": "Tenant", "name": victim, "uid": uid}
    owned["metadata"]["ownerReferences"] = [owner]
    named["metadata"]["name"] = f"{victim}-{make_name('pod')}"
    return [labelled, annotated, aged, owned, named, make_pod(SMALL, priorityClassName="system-node-critical")]


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("policy_name", ["best-fit-drfh", "ps-dsf"])
def test_what_a_pod_says_of_itself_does_not_change_whose_it_is_nor_when_its_turn_comes(
    api: Api,
    member: Api,
    mine: str,
    theirs: str,
    tenant: MakeTenant,
    policy: Callable[..., None],
    operator: StartOperator,
    policy_name: str,
) -> None:
    policy(policy=policy_name)
    victim = tenant(namespaces=[theirs])
    cheater = tenant(namespaces=[mine])
    pretenders = make_pretenders(victim, api.get(f"{TENANTS}/{victim}")["metadata"]["uid"])
    made = [member.post(f"{CORE}/namespaces/{mine}/pods", pod) for pod in pretenders]
    assert {pod["metadata"]["uid"] for pod in made}.isdisjoint({"00000000-0000-0000-0000-000000000000"})
    assert all(pod["metadata"]["creationTimestamp"] > "2026" for pod in made)
    create_pods(member, mine, [make_pod(SMALL, priorityClassName="system-cluster-critical") for _ in range(18)])
    create_pods(api, theirs, [make_pod(SMALL) for _ in range(12)])
    running = operator()

    assert wait_full(api, 12, mine, theirs) == (6, 6)
    check_metrics(api, running, [mine, theirs])
    metrics = running.metrics()
    for name in (victim, cheater):
        assert metrics.value("fairbind_tenant_dominant_share", tenant=name) == pytest.approx(0.5)
        assert metrics.value("fairbind_tenant_allocated", tenant=name, resource="cpu") == 6.0


def make_absurd_pods() -> dict[str, Json]:
    """Return pods that ask for what no machine has, in every way that the API server lets through, by what is odd."""
    containers = [
        {"name": f"c{number}", "image": IMAGE, "resources": {"requests": {"memory": "9223372036854775807"}}}
        for number in range(8)
    ]
    many = [
        {"name": f"c{number}", "image": IMAGE, "resources": {"requests": {"cpu": "1m", "memory": "1"}}}
        for number in range(300)
    ]
    kinds = {f"example.com/thing-{number}": "1" for number in range(200)}
    fat = make_pod(SMALL)
    fat["metadata"]["annotations"] = {"text": "x" * 200_000}
    expressions = [{"key": f"k{number}", "operator": "In", "values": ["a", "b"]} for number in range(300)]
    terms = {"nodeSelectorTerms": [{"matchExpressions": expressions}] * 20}
    required = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return {
        "all the memory that an integer counts": make_pod({"memory": "9223372036854775807"}),
        "more than an integer counts": make_pod({"cpu": "9223372036854775807", "memory": "8Ei"}),
        "an exponent": make_pod({"cpu": "1e15", "memory": "1e18"}),
        "a sum that overflows": make_pod(containers=containers),
        "next to nothing": make_pod({"cpu": "1n", "memory": "1m"}),
        "nothing": make_pod(),
        "zero": make_pod({"cpu": "0", "memory": "0"}),
        "hundreds of containers": make_pod(containers=many),
        "hundreds of resources": make_pod(kinds),
        "a huge annotation": fat,
        "thousands of terms": make_pod(SMALL, affinity=required),
        "every toleration": make_pod({"cpu": "500"}, tolerations=[{"operator": "Exists"}] * 500),
        "huge pages": make_pod({"cpu": "1", "hugepages-2Mi": "4Ei"}),
        "a long selector": make_pod(SMALL, nodeSelector={f"label-{number}": "a" for number in range(500)}),
    }


@pytest.mark.usefixtures("node")
def test_absurd_pods_harm_nobody(
    api: Api,
    member: Api,
    mine: str,
    theirs: str,
    tenant: MakeTenant,
    operator: StartOperator,
) -> None:
    victim, cheater = tenant(namespaces=[theirs]), tenant(namespaces=[mine])
    path = f"{CORE}/namespaces/{mine}/pods"
    absurd = make_absurd_pods()
    refused = {what: find_refusal(functools.partial(member.post, path, pod)) for what, pod in absurd.items()}
    assert {what: str(found) for what, found in refused.items() if found} == {}
    for negative in ({"cpu": "-1"}, {"memory": "-1Gi"}):
        check_refused(functools.partial(member.post, path, make_pod(negative)), status=422)
    running = operator()
    create_pods(api, theirs, [make_pod(SMALL) for _ in range(6)])

    wait_for(lambda: count_bound(api, theirs) == 6, describe="the other tenant's pods to be bound")
    small = {"nothing", "zero", "next to nothing", "hundreds of containers", "a huge annotation"}
    expected = {absurd[what]["metadata"]["name"] for what in small}
    wait_for(
        lambda: {pod["metadata"]["name"] for pod in find_bound(api, mine)} == expected,
        describe="those that fit to be bound, and no other",
    )
    assert View.take(api).find_overcommitted() == []
    wait_for(
        lambda: running.metrics().value("fairbind_tenant_dominant_share", tenant=victim) == pytest.approx(0.5),
        describe="the other tenant's share to be shown",
    )
    metrics = running.metrics()
    assert metrics.total("fairbind_cycle_errors_total") == 0.0
    share = metrics.value("fairbind_tenant_dominant_share", tenant=cheater)
    assert share is not None
    assert 0.0 < share <= 0.5
    waiting = len(absurd) - len(expected)
    wait_for(
        lambda: [find_condition(pod).get("status") for pod in list_pods(api, mine)].count("False") == waiting,
        describe="every other one to be told why it waits",
    )


def make_event(namespace: str, regarding: Json, **more: str) -> Json:
    """Return an event as fairbind would write it."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": make_name("event"), "namespace": namespace},
        "eventTime": "2026-01-02T03:04:05.000000Z",
        "reportingController": SCHEDULER_NAME,
        "reportingInstance": "fairbind-0",
        "action": "Binding",
        "reason": "Scheduled",
        "type": "Normal",
        "note": "Successfully assigned",
        "regarding": regarding,
        **more,
    }


@pytest.mark.usefixtures("node")
def test_events_that_look_like_ours_deceive_only_their_own_namespace(
    api: Api,
    member: Api,
    mine: str,
    theirs: str,
    tenant: MakeTenant,
    operator: StartOperator,
) -> None:
    """Members may write events about their own things, whoever these claim to come from. We read none."""
    victim = tenant(namespaces=[theirs])
    events = f"{GROUPS}/events.k8s.io/v1/namespaces/{{}}/events"
    big = member.post(f"{CORE}/namespaces/{mine}/pods", make_pod({"cpu": "64"}))
    pod = {"apiVersion": "v1", "kind": "Pod", "name": big["metadata"]["name"], "namespace": mine}
    member.post(events.format(mine), make_event(mine, {**pod, "uid": big["metadata"]["uid"]}))
    for where in (theirs, "default", NAMESPACE):
        check_refused(functools.partial(member.post, events.format(where), make_event(where, pod)), what=where)
    about = {"apiVersion": "fairbind.io/v1alpha1", "kind": "Tenant", "name": victim}
    check_refused(lambda: member.post(events.format(mine), make_event(mine, about)), status=422)

    running = operator()
    wait_for(
        lambda: find_condition(list_pods(api, mine)[0]).get("reason") == "Unschedulable",
        describe="the pod to be told that it waits, whatever the event says",
    )
    ours = wait_for(
        lambda: [event for event in api.items(events.format(mine)) if event["reason"] == "FailedScheduling"],
        describe="our event about it",
    )
    for event in ours:  # while more of them are to come
        member.delete(f"{events.format(mine)}/{event['metadata']['name']}")
    create_pods(member, mine, [make_pod({"cpu": "65"})])
    create_pods(api, theirs, [make_pod(SMALL)])
    wait_for(lambda: count_bound(api, theirs) == 1, describe="everybody else's pods to be bound as ever")

    def is_announced() -> bool:
        create_pods(api, theirs, [make_pod({"cpu": "1m"})])  # one event may be lost: nobody writes it again
        return any(event["reason"] == "Scheduled" for event in api.items(events.format(theirs)))

    wait_for(is_announced, describe="true events in the other namespace", pause=3.0)
    assert running.metrics().total("fairbind_cycle_errors_total") == 0.0
