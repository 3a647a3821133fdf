"""An operator that lacks one right: it says which and what to do, and goes on when the right is granted."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from e2e.conftest import remove
from e2e.objects import TENANTS, make_name, make_pod
from e2e.operators import LEASE, NAMESPACE
from e2e.waiting import wait_for
from e2e.workloads import SMALL, create_pods, find_condition

if TYPE_CHECKING:
    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator
    from e2e.operators import Operator

RBAC = "/apis/rbac.authorization.k8s.io/v1"
REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
NAMESPACED = f"{RBAC}/namespaces/{NAMESPACE}"
HUGE = {"cpu": "1000"}


@dataclass(frozen=True, slots=True)
class Account:
    """A ServiceAccount with the rules of the chart's roles, which can be taken and given."""

    api: Api
    name: str
    rules: Json

    def take(self, resource: str, verb: str) -> None:
        """Leave out one verb on one resource, and wait until the authorizer knows."""
        wait_for(lambda: self.may(resource, verb), describe=f"{verb} on {resource} to be allowed")
        for path, rules in self.rules.items():
            self.api.patch(path, {"rules": [kept for rule in rules for kept in leave_out(rule, resource, verb)]})
        wait_for(lambda: not self.may(resource, verb), describe=f"{verb} on {resource} to be forbidden")

    def may(self, resource: str, verb: str) -> bool:
        """Ask the API server whether the account has a right; some are only for what is named as the lease is."""
        group = next(
            rule["apiGroups"][0] for rules in self.rules.values() for rule in rules if resource in rule["resources"]
        )
        kind, _, subresource = resource.partition("/")
        what = {"verb": verb, "group": group, "resource": kind, "subresource": subresource}
        who = f"system:serviceaccount:{NAMESPACE}:{self.name}"
        attributes = {**what, "namespace": NAMESPACE, "name": LEASE.rpartition("/")[2]}
        review = self.api.post(REVIEWS, {"spec": {"user": who, "resourceAttributes": attributes}})
        return bool(review["status"]["allowed"])

    def give_back(self) -> None:
        """Grant everything that the chart grants."""
        for path, rules in self.rules.items():
            self.api.patch(path, {"rules": rules})


def leave_out(rule: Json, resource: str, verb: str) -> Iterator[Json]:
    """Split a rule in what it grants on other resources and what else on this one."""
    if resource not in rule["resources"]:
        yield rule
        return
    others = [other for other in rule["resources"] if other != resource]
    verbs = [other for other in rule["verbs"] if other != verb]
    if others:
        yield {**rule, "resources": others}
    if verbs:
        yield {**rule, "resources": [resource], "verbs": verbs}


@pytest.fixture
def account(api: Api) -> Iterator[Account]:
    """A ServiceAccount with the same rights as the chart's."""
    name = make_name("rights")
    subject = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    accounts = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    api.post(accounts, {"metadata": {"name": name}})
    made, rules = [f"{accounts}/{name}"], {}
    for place, kind in ((RBAC, "ClusterRole"), (NAMESPACED, "Role")):
        roles, bindings = f"{place}/{kind.lower()}s", f"{place}/{kind.lower()}bindings"
        rules[f"{roles}/{name}"] = copy.deepcopy(api.get(f"{roles}/fairbind")["rules"])
        api.post(roles, {"metadata": {"name": name}, "rules": rules[f"{roles}/{name}"]})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
        api.post(bindings, {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})
        made += [f"{roles}/{name}", f"{bindings}/{name}"]
    yield Account(api, name, rules)
    for path in made:
        remove(api, path)


def read_readiness(running: Operator) -> str:
    return running.fetch("/readyz")[1]


def read_whole_log(running: Operator) -> str:
    return running.read_log(10_000)


@dataclass(frozen=True, slots=True)
class Lack:
    """A right that is taken, where the operator speaks of it, and with which words."""

    resource: str
    verb: str
    look: Callable[[Operator], str]
    says: tuple[str, ...]


@pytest.mark.parametrize(
    "lack",
    [
        Lack("pods/binding", "create", read_readiness, ("bindings: forbidden", "grants create on pods/binding")),
        Lack("pods/status", "patch", read_whole_log, ('"pods/status"', "grants patch on pods/status")),
        Lack("events", "create", read_whole_log, ('"events"', "create and patch on events.events.k8s.io")),
        Lack("nodes", "list", read_readiness, ("nodes: ", "ClusterRole must grant")),
        *(
            pytest.param(lack, marks=pytest.mark.nightly)
            for lack in (
                Lack("tenants/status", "patch", read_whole_log, ("grants patch on tenants/status",)),
                Lack("leases", "create", read_readiness, ("election: ", "Role must allow")),
                Lack("leases", "get", read_readiness, ("election: ", "Role must allow")),
                Lack("csinodes", "list", read_readiness, ("csinodes: ", "ClusterRole must grant")),
                Lack("tenants", "list", read_readiness, ("tenants: forbidden", "ClusterRole grants")),
            )
        ),
    ],
    ids=lambda lack: f"{lack.verb}-{lack.resource.replace('/', '-')}",
)
def test_a_right_that_is_missing_is_named_and_found_when_it_is_granted(
    lack: Lack,
    account: Account,
    cluster: Cluster,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    operator: StartOperator,
) -> None:
    api = cluster.api
    nodes(2)
    own = namespace()
    declared = tenant(namespaces=[own])
    if (lack.resource, lack.verb) == ("leases", "create"):
        remove(api, LEASE)
    account.take(lack.resource, lack.verb)
    # what it says again and again is a warning once; another trouble may come first
    arguments = ["--log-level=debug"] if lack.look is read_whole_log else []
    kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, account.name)
    running = operator(*arguments, wait=False, kubeconfig=kubeconfig)
    small, huge = create_pods(api, own, [make_pod(SMALL), make_pod(HUGE)])
    wait_for(
        lambda: all(words in lack.look(running) for words in lack.says),
        describe=lambda: f"it to say {lack.says}; readyz: {read_readiness(running)}",
    )
    assert running.is_running
    account.give_back()
    running.wait_ready()
    (later,) = create_pods(api, own, [make_pod(SMALL)])
    for name in (small, later):
        wait_for(lambda name=name: is_bound(api, own, name), describe="the pods to be bound")  # type: ignore[misc]
    wait_for(
        lambda: find_condition(api.get(f"/api/v1/namespaces/{own}/pods/{huge}")),
        describe="the pod that fits nowhere to be told",
    )
    wait_for(lambda: "status" in api.get(f"{TENANTS}/{declared}"), describe="the status of the tenant")
    wait_for(lambda: is_announced(api, own, huge), describe="an event about the pod that fits nowhere")
    assert running.is_running


def is_bound(api: Api, namespace: str, name: str) -> bool:
    """Tell whether a pod has a node."""
    return bool(api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")["spec"].get("nodeName"))


def is_announced(api: Api, namespace: str, name: str) -> bool:
    """Tell whether there is an event about a pod."""
    events = api.items(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")
    return any(event["regarding"]["name"] == name for event in events)
