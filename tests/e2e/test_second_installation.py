"""Two installations in two namespaces with one scheduler name: the second says so and does not lead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from e2e.objects import make_pod
from e2e.operators import NAMESPACE
from e2e.waiting import never, wait_for
from e2e.workloads import SMALL, count_bound, create_pods

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, StartOperator
    from e2e.operators import Operator

import pytest

BINDINGS = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ACCOUNT = "second"
LOOKS_SECONDS = 6.0
"""A standby looks for the lease about once a second."""


@pytest.fixture
def second_home(api: Api, namespace: MakeNamespace) -> Iterator[str]:
    """A namespace with a service account that has what the chart gives to an operator."""
    name = namespace()
    api.post(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": name}
    reference: Json = {"apiGroup": "rbac.authorization.k8s.io", "name": "fairbind"}
    api.post(
        BINDINGS,
        {"metadata": {"name": name}, "roleRef": reference | {"kind": "ClusterRole"}, "subjects": [subject]},
    )
    role = api.get(f"{RBAC}/namespaces/{NAMESPACE}/roles/fairbind")
    api.post(f"{RBAC}/namespaces/{name}/roles", {"metadata": {"name": "fairbind"}, "rules": role["rules"]})
    api.post(
        f"{RBAC}/namespaces/{name}/rolebindings",
        {"metadata": {"name": "fairbind"}, "roleRef": reference | {"kind": "Role"}, "subjects": [subject]},
    )
    yield name
    api.delete(f"{BINDINGS}/{name}")


def start_second(cluster: Cluster, operator: StartOperator, home: str, *arguments: str) -> Operator:
    kubeconfig = cluster.service_account_kubeconfig(home, ACCOUNT)
    return operator(f"--namespace={home}", *arguments, kubeconfig=kubeconfig, wait=False)


def read_complaint(operator: Operator) -> str:
    text = operator.fetch("/readyz")[1]
    return text if "Uninstall one of the two" in text else ""


def test_the_second_says_so_and_leads_when_the_first_is_gone(
    cluster: Cluster, operator: StartOperator, second_home: str, mine: str, nodes: MakeNodes, api: Api
) -> None:
    nodes(1)
    first = operator()
    wait_for(first.is_leader, describe="the first to lead")
    second = start_second(cluster, operator, second_home)

    words = wait_for(lambda: read_complaint(second), describe="the second to say why it is not ready")
    assert f"in namespace '{NAMESPACE}'" in str(words)
    assert "'fairbind'" in str(words)
    create_pods(api, mine, [make_pod(SMALL) for _ in range(3)])
    wait_for(lambda: count_bound(api, mine) == 3, describe="the first to bind")
    never(second.is_leader, LOOKS_SECONDS, "the second leads beside the first")
    assert first.is_leader()

    first.stop()
    second.wait_ready()
    wait_for(second.is_leader, describe="the second to lead")
    create_pods(api, mine, [make_pod(SMALL)])
    wait_for(lambda: count_bound(api, mine) == 4, describe="the second to bind")


def test_another_scheduler_name_is_no_second_one(cluster: Cluster, operator: StartOperator, second_home: str) -> None:
    first = operator()
    second = start_second(cluster, operator, second_home, "--scheduler-name=other")
    second.wait_ready()
    wait_for(lambda: first.is_leader() and second.is_leader(), describe="both to lead")


def test_a_lease_that_a_tenant_writes_keeps_nobody_from_leading(operator: StartOperator, mine: str, api: Api) -> None:
    annotations = {"fairbind.io/scheduler-name": "fairbind", "fairbind.io/service-account": "default"}
    lease = {
        "metadata": {"name": "fairbind", "annotations": annotations},
        "spec": {"holderIdentity": "thief", "leaseDurationSeconds": 3600},
    }
    api.post(f"/apis/coordination.k8s.io/v1/namespaces/{mine}/leases", lease)
    first = operator()
    wait_for(first.is_leader, describe="it to lead all the same")
