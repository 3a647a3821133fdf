"""How the operator begins, waits for what is missing, and ends."""

from __future__ import annotations

import datetime as dt
import os
import re
import signal
from typing import TYPE_CHECKING

import pytest
import yaml

from e2e.checks import check_cluster, check_given_back
from e2e.objects import POLICIES, TENANTS, make_name, make_pod, make_tenant
from e2e.operators import LEASE, NAMESPACE
from e2e.stalls import Stalls
from e2e.waiting import wait_for
from e2e.workloads import (
    SMALL,
    count_bindings,
    count_bound,
    create_object,
    create_pods,
    find_waiting,
    make_mixed_pods,
)
from localplane.ports import find_free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, StartOperator
    from e2e.operators import Operator

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STOP_SECONDS = 10.0


def strip(item: Json) -> Json:
    """Return an object as it could be created again."""
    meta = {key: item["metadata"][key] for key in ("name", "labels", "annotations") if key in item["metadata"]}
    return {key: part for key, part in item.items() if key != "status"} | {"metadata": meta}


def measure_end(operator: Operator) -> float:
    """Return the seconds from the signal to the end, as the operator's log has them."""
    lines = operator.read_log(10_000).splitlines()
    begun, ended = (
        dt.datetime.fromisoformat(f"2000-01-01T{next(line for line in lines if words in line)[:12]}+00:00")
        for words in ("SIGTERM: finishing", "cli.operator: stopped")
    )
    return (ended - begun).total_seconds() % dt.timedelta(days=1).total_seconds()


def test_sigterm_finishes_what_is_in_flight_and_gives_the_lease_back(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    nodes(40)
    name = namespace()
    create_pods(cluster.api, name, make_mixed_pods(250))
    running = operator()
    wait_for(lambda: count_bindings(running) >= 10, describe="some pods to be bound", pause=0.02)
    running.freeze()
    create_pods(cluster.api, name, make_mixed_pods(300))  # more than are in flight at once
    running.send(signal.SIGTERM)  # takes effect as soon as it is thawed
    with Stalls(lambda: cluster.api.get(LEASE)) as stalls:
        running.thaw()
        assert running.wait_ended() == 0
    assert measure_end(running) <= STOP_SECONDS + stalls.seconds
    check_given_back(cluster.api, running, stalls)
    assert find_waiting(cluster.api, name)  # it did not go on until nothing was left
    operator()
    check_cluster(cluster)


def test_a_second_signal_ends_it_at_once(operator: StartOperator) -> None:
    running = operator()
    wait_for(running.is_leader, describe="it to lead")
    running.freeze()  # until both are there: it might have ended in order before the second one
    running.send(signal.SIGTERM)
    running.send(signal.SIGINT)
    running.thaw()
    assert running.wait_ended() in {128 + signal.SIGTERM, 128 + signal.SIGINT}  # an orderly end would be 0
    assert "ending at once" in running.read_log()


@pytest.mark.nightly
def test_an_api_server_that_does_not_answer_holds_nobody_up(cluster: Cluster, operator: StartOperator) -> None:
    plane = cluster.plane
    if plane is None:
        pytest.skip("needs to freeze the API server")
    running = operator()
    wait_for(running.is_leader, describe="it to lead")
    os.kill(plane.pid("kube-apiserver"), signal.SIGSTOP)
    try:
        wait_for(lambda: running.fetch("/readyz")[0] == 503, 15.0, "readyz to say that nobody answers")
        assert running.fetch("/healthz")[0] == 200
        wait_for(lambda: not running.is_leader(), 15.0, "it to know that it does not lead any more")
        running.send(signal.SIGTERM)
        assert running.wait_ended() == 0
    finally:
        os.kill(plane.pid("kube-apiserver"), signal.SIGCONT)


def test_sigint_is_an_orderly_end_too(operator: StartOperator) -> None:
    running = operator()
    running.send(signal.SIGINT)
    assert running.wait_ended() == 0
    assert "stopped" in running.read_log(1)


def test_an_unusable_kubeconfig_is_one_line_and_status_2(operator: StartOperator, tmp_path: Path) -> None:
    wrong = tmp_path / "kubeconfig"
    wrong.write_text("apiVersion: v1\nkind: Config\ncurrent-context: nowhere\n")
    running = operator(wait=False, kubeconfig=wrong)
    assert running.wait_ended() == 2
    (line,) = [line for line in running.read_log().splitlines() if line.startswith("fairbind: ")]
    assert str(wrong) in line


def test_an_api_server_that_is_not_there_yet_is_waited_for(
    cluster: Cluster, operator: StartOperator, tmp_path: Path
) -> None:
    (port,) = find_free_ports(1)
    settings = yaml.safe_load(cluster.operator_kubeconfig().read_text())
    settings["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(settings))
    running = operator(wait=False, kubeconfig=kubeconfig)

    def names_what_it_waits_for() -> bool:
        status, text = running.fetch("/readyz")
        return status == 503 and "pods: " in text and str(port) in text

    wait_for(names_what_it_waits_for, describe=lambda: f"readyz to say what it waits for: {running.fetch('/readyz')}")
    assert running.fetch("/healthz")[0] == 200
    assert running.metrics().value("fairbind_leader") == 0.0
    assert running.stop() == 0


@pytest.fixture
def stranger(api: Api) -> Iterator[str]:
    """A ServiceAccount in the operator's namespace without any rights; its rights go away after the test."""
    name = make_name("stranger")
    api.post(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": name}})
    yield name
    for kind in ("clusterrolebindings", f"namespaces/{NAMESPACE}/rolebindings"):
        for binding in api.items(f"{RBAC}/{kind}"):
            if binding["metadata"]["name"].startswith(name):
                api.delete(f"{RBAC}/{kind}/{binding['metadata']['name']}")
    api.delete(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{name}")


def grant(api: Api, account: str, role: Json, number: int) -> None:
    """Give an account a role of the chart's."""
    subject = {"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": role["name"]}
    kind = (
        "clusterrolebindings"
        if role["kind"] == "ClusterRole" and not role.get("local")
        else f"namespaces/{NAMESPACE}/rolebindings"
    )
    body = {"metadata": {"name": f"{account}-{number}"}, "subjects": [subject], "roleRef": reference}
    api.post(f"{RBAC}/{kind}", body)


def test_a_forbidden_verb_is_named_and_waited_for(
    cluster: Cluster,
    api: Api,
    stranger: str,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    operator: StartOperator,
) -> None:
    nodes(1)
    name = namespace()
    create_pods(api, name, [make_pod(SMALL)])
    running = operator(wait=False, kubeconfig=cluster.service_account_kubeconfig(NAMESPACE, stranger))
    wait_for(lambda: running.fetch("/readyz")[0] == 503, describe="readyz to say why not")
    wait_for(
        lambda: {"tenants", "forbidden"} <= set(re.findall(r"\w+", running.fetch("/readyz")[1])),
        describe="readyz to name what is forbidden",
    )
    assert running.fetch("/healthz")[0] == 200
    assert count_bound(api, name) == 0
    expected = {
        f'cannot list resource "{resource}"'
        for resource in ("pods", "nodes", "namespaces", "tenants", "schedulingpolicies")
    }
    wait_for(
        lambda: all(words in running.read_log(10_000) for words in expected),
        describe=lambda: f"the log to say {expected}: {running.read_log(100)}",
    )
    number = 0
    for kind in ("clusterrolebindings", f"namespaces/{NAMESPACE}/rolebindings"):
        for binding in api.items(f"{RBAC}/{kind}"):
            subjects = binding.get("subjects") or []
            if any(subject["name"] == "fairbind" and subject.get("namespace") == NAMESPACE for subject in subjects):
                role = binding["roleRef"]
                grant(api, stranger, {**role, "local": kind != "clusterrolebindings"}, number)
                number += 1
    running.wait_ready()
    wait_for(lambda: count_bound(api, name) == 1, describe="the pod to be bound once it is allowed")


def test_a_missing_crd_is_named_and_waited_for(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    nodes(1)
    name = namespace()
    crd = api.get(f"{CRDS}/schedulingpolicies.fairbind.io")
    default = api.get(f"{POLICIES}/default")
    try:
        api.delete(f"{CRDS}/schedulingpolicies.fairbind.io")
        wait_for(lambda: not api.exists(f"{CRDS}/schedulingpolicies.fairbind.io"), describe="the CRD to be gone")
        running = operator(wait=False)
        wait_for(
            lambda: "schedulingpolicies: the CRD is not installed" in running.fetch("/readyz")[1],
            describe=lambda: f"readyz to name the CRD; it says {running.fetch('/readyz')}",
        )
        create_pods(api, name, [make_pod(SMALL)])
        assert "schedulingpolicies.fairbind.io: the CRD is not installed" in running.read_log()
    finally:
        wait_for(lambda: create_object(api, CRDS, strip(crd)), describe="the CRD to be made again")
        wait_for(lambda: create_object(api, POLICIES, strip(default)), describe="the policy to be made again")
    running.wait_ready()
    wait_for(lambda: count_bound(api, name) == 1, describe="the pod to be bound")


def test_a_crd_that_is_made_anew_under_a_running_operator(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, operator: StartOperator
) -> None:
    """Its watch ends in a way that kopf does not survive; the operator does, and goes on to bind meanwhile."""
    nodes(1)
    name = namespace()
    running = operator()
    wait_for(running.is_leader, describe="it to lead")
    path = f"{CRDS}/tenants.fairbind.io"
    crd = api.get(path)
    api.delete(path)
    wait_for(lambda: not api.exists(path), describe="the CRD to be gone")
    create_pods(api, name, [make_pod(SMALL)])
    wait_for(lambda: count_bound(api, name) == 1, describe="a pod to be bound without the CRD")
    wait_for(lambda: create_object(api, CRDS, strip(crd)), describe="the CRD to be made again")
    own = make_name("anew")
    wait_for(lambda: create_object(api, TENANTS, make_tenant(own, namespaces=[name])), describe="a Tenant to be made")
    try:
        wait_for(
            lambda: running.metrics().value("fairbind_tenant_running_pods", tenant=own) == 1.0,
            90.0,
            "the new Tenant to be seen",
        )
        wait_for(running.is_ready, describe="it to be ready again")
    finally:
        api.delete(f"{TENANTS}/{own}")
