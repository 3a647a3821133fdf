"""The admission policies of gate mode on a real API server: who gets the gate and who may open it.

Attempts are dry runs where they can be: refused or let through all the same, they change nothing for the next one.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from e2e.members import check_compiled, check_refused, joined, try_pod, wait_allowed, wait_refused
from e2e.objects import make_name, make_pod
from e2e.test_admission import DEFAULT, ENFORCED, WITHOUT_OPERATOR, serves_mutating_policies
from e2e.test_constraint_budget import make_constrained
from e2e.waiting import wait_for
from e2e.workloads import SMALL, list_pods
from fairbind.cluster.objects.facts import HOSTNAME
from fairbind.cluster.other_schedulers.opening import make_opening
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes

BOUND = {"fairbind.io/mode": "bind"}
GATE = {"name": "fairbind.io/turn"}
OTHER = {"name": "example.com/other"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
POLICIES = ("fairbind-gate", "fairbind-gate-removal", "fairbind-own-gate")


@pytest.fixture(scope="module", autouse=True)
def gate_mode(cluster: Cluster, api: Api) -> Iterator[None]:
    """The chart in gate mode, and as it was after the module."""
    if not serves_mutating_policies(api):
        pytest.skip("the cluster serves no MutatingAdmissionPolicy")
    cluster.install_chart({**WITHOUT_OPERATOR, "mode": "gate", "admission": {"assign": {"enabled": True}}})
    yield
    cluster.install_chart(WITHOUT_OPERATOR)


@pytest.fixture
def enforced(api: Api, namespace: MakeNamespace) -> str:
    """A namespace in which pods get the gate, and none does without it, from now on."""
    name = namespace(labels=ENFORCED)
    wait_for(lambda: find_gates(try_pod(api, name, make_default())) == [GATE], describe="the gate to be added")
    # another kind of policy, of which the API server learns by itself
    wait_refused(lambda: try_pod(api, name, make_pod(SMALL, scheduler_name="my-own")), "fairbind-gate")
    return name


@pytest.fixture
def member(cluster: Cluster, enforced: str) -> Iterator[Api]:
    """An administrator of that namespace."""
    with joined(cluster, enforced) as member:
        yield member


@pytest.fixture
def operator(cluster: Cluster) -> Iterator[Api]:
    """A client with the identity of the operator."""
    client = cluster.connect_as(cluster.operator_kubeconfig())
    yield client
    client.close()


def make_default(**spec: Any) -> Json:
    """Return a pod for the scheduler whose pods take turns."""
    return make_pod(SMALL, scheduler_name=DEFAULT, **spec)


def find_gates(pod: Json) -> list[Json]:
    """Return a pod's scheduling gates."""
    return list(pod["spec"].get("schedulingGates", []))


def make_gated(api: Api, namespace: str, **spec: Any) -> str:
    """Make a pod that waits behind the gate and return its path."""
    pod = make_default(**spec)
    pod["metadata"]["labels"] = {"app": "a"}
    made = api.post(f"/api/v1/namespaces/{namespace}/pods", pod)
    return f"/api/v1/namespaces/{namespace}/pods/{made['metadata']['name']}"


def require_hosts(*hosts: str) -> Json:
    """Return the required node affinity to these host names."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": list(hosts)}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}


def patch_pod(client: Api, path: str, spec: Json, **metadata: Any) -> Any:
    """Try to patch a pod."""
    return client.patch(path, {"metadata": metadata, "spec": spec}, kind="merge", dryRun="All")


def test_the_expressions_are_sound(api: Api) -> None:
    check_compiled(api, *POLICIES)


def test_a_pod_gets_the_gate_once_and_keeps_its_others(member: Api, enforced: str) -> None:
    assert find_gates(try_pod(member, enforced, make_default())) == [GATE]
    assert find_gates(try_pod(member, enforced, make_default(schedulingGates=[OTHER]))) == [OTHER, GATE]
    assert find_gates(try_pod(member, enforced, make_default(schedulingGates=[GATE]))) == [GATE]
    assert find_gates(try_pod(member, enforced, make_pod(SMALL))) == []


@pytest.mark.usefixtures("enforced")
def test_elsewhere_pods_get_none(api: Api, namespace: MakeNamespace) -> None:
    assert find_gates(try_pod(api, namespace(), make_default())) == []
    assert find_gates(try_pod(api, "kube-system", make_default())) == []


def test_where_the_namespace_says_bind_pods_are_for_fairbind_and_get_none(api: Api, namespace: MakeNamespace) -> None:
    """Assignment holds there and nowhere else: in other namespaces it would take pods from the gate."""
    name = namespace(labels=ENFORCED | BOUND)
    wait_for(
        lambda: try_pod(api, name, make_default())["spec"]["schedulerName"] == "fairbind", describe="the assignment"
    )
    assert find_gates(try_pod(api, name, make_default())) == []
    wait_refused(lambda: try_pod(api, name, make_pod(SMALL, scheduler_name="my-own")), "are bound by fairbind")


def test_no_pod_does_without_it(member: Api, api: Api, enforced: str) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "1", "controller": True}
    forged = make_default()
    forged["metadata"]["ownerReferences"] = [owner]
    for client in (member, api):
        assert find_gates(try_pod(client, enforced, forged)) == [GATE], "an owner reference is not believed"
        for pod in (make_default(nodeName="node-1"), make_pod(SMALL, scheduler_name="my-own")):
            attempt = functools.partial(try_pod, client, enforced, pod)
            check_refused(attempt, "fairbind-gate", "fairbind.io/turn")


def test_pods_of_daemon_sets_have_none(api: Api, nodes: MakeNodes, enforced: str) -> None:
    nodes([make_node(make_name("n"))])
    labels = {"app": make_name("app")}
    template = {"metadata": {"labels": labels}, "spec": make_default()["spec"]}
    body = {"metadata": {"name": labels["app"]}, "spec": {"selector": {"matchLabels": labels}, "template": template}}
    api.post(f"/apis/apps/v1/namespaces/{enforced}/daemonsets", body)
    wait_for(lambda: list_pods(api, enforced), describe="a pod of the DaemonSet")

    assert all(find_gates(pod) == [] for pod in list_pods(api, enforced))


def test_a_member_cannot_open_it_and_an_administrator_can(member: Api, api: Api, enforced: str) -> None:
    path = make_gated(member, enforced, schedulingGates=[OTHER])

    wait_refused(lambda: patch_pod(member, path, {"schedulingGates": [OTHER]}), "fairbind-gate-removal")
    attempts: tuple[list[Json] | None, ...] = ([], None)
    for gates in attempts:
        check_refused(functools.partial(patch_pod, member, path, {"schedulingGates": gates}), "fairbind-gate-removal")
    assert find_gates(patch_pod(member, path, {"schedulingGates": [GATE]})) == [GATE], "its own gate is its own affair"
    assert find_gates(patch_pod(api, path, {"schedulingGates": [OTHER]})) == [OTHER]


class TestOperator:
    """What its ServiceAccount may do to pods."""

    @pytest.fixture(autouse=True)
    def policy(self, operator: Api, member: Api, enforced: str) -> None:
        probe = make_gated(member, enforced)
        wait_refused(lambda: patch_pod(operator, probe, {}, labels={"app": "b"}), "fairbind-own-gate")

    WAYS: ClassVar[dict[str, Json]] = {
        "nothing else": {},
        "a label of nodes": {"nodeSelector": {"example.com/class": "a"}},
        "some nodes": {"affinity": {"nodeAffinity": require_hosts("node-1", "node-2")}},
    }

    @pytest.mark.parametrize("way", WAYS)
    def test_it_opens_the_gate_and_narrows(self, operator: Api, member: Api, enforced: str, way: str) -> None:
        path = make_gated(member, enforced)
        wait_allowed(lambda: patch_pod(operator, path, {"schedulingGates": None, **self.WAYS[way]}))
        after = patch_pod(operator, path, {"schedulingGates": None, **self.WAYS[way]})
        assert find_gates(after) == []
        assert self.WAYS[way].items() <= after["spec"].items()

    def test_its_own_patch_opens_and_narrows_the_very_pod_that_was_decided(
        self, operator: Api, member: Api, api: Api, enforced: str
    ) -> None:
        zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
        named = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}
        required = {"nodeSelectorTerms": [zone, named]}
        affinity = {"nodeAffinity": {**self.PREFERENCE, REQUIRED: required}}
        path = make_gated(member, enforced, affinity=affinity)
        pod = api.get(path)
        uid, version = pod["metadata"]["uid"], pod["metadata"]["resourceVersion"]

        for wrong_uid, wrong_version, status in (("other", "1", 409), (uid, "1", 409), ("other", version, 422)):
            body = make_opening(wrong_uid, wrong_version, pod["spec"]["affinity"], ["h1"])
            check_refused(functools.partial(operator.patch, path, body, kind="strategic"), status=status)
        operator.patch(path, make_opening(uid, version, pod["spec"]["affinity"], ["h1", "h2"]), kind="strategic")

        after = api.get(path)
        assert find_gates(after) == []
        host = {"key": HOSTNAME, "operator": "In", "values": ["h1", "h2"]}
        assert after["spec"]["affinity"]["nodeAffinity"] == {
            **self.PREFERENCE,
            REQUIRED: {
                "nodeSelectorTerms": [
                    {"matchExpressions": [*zone["matchExpressions"], host]},
                    {**named, "matchExpressions": [host]},
                ]
            },
        }

    PREFERENCE: ClassVar[Json] = {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}
        ]
    }
    THEFTS: ClassVar[dict[str, tuple[Json, Json]]] = {
        "a label": ({"schedulingGates": None}, {"labels": {"app": "b"}}),
        "an annotation": ({"schedulingGates": None}, {"annotations": {"a": "b"}}),
        "a finalizer": ({"schedulingGates": None}, {"finalizers": ["example.com/hold"]}),
        "narrowing alone": ({"nodeSelector": {"a": "b"}}, {}),
        "a deadline": ({"schedulingGates": None, "activeDeadlineSeconds": 1}, {}),
        "a preference": ({"schedulingGates": None, "affinity": {"nodeAffinity": PREFERENCE}}, {}),
    }

    @pytest.mark.parametrize("what", THEFTS)
    def test_it_may_do_nothing_else(self, operator: Api, member: Api, enforced: str, what: str) -> None:
        path = make_gated(member, enforced)
        spec, metadata = self.THEFTS[what]
        check_refused(lambda: patch_pod(operator, path, spec, **metadata), "fairbind-own-gate", what=what)

    def test_it_may_add_no_toleration(self, operator: Api, member: Api, api: Api, enforced: str) -> None:
        path = make_gated(member, enforced)
        more = [*api.get(path)["spec"]["tolerations"], {"operator": "Exists"}]
        attempt = functools.partial(patch_pod, operator, path, {"schedulingGates": None, "tolerations": more})
        check_refused(attempt, "fairbind-own-gate")

    def test_it_opens_no_gate_of_others_and_no_gate_behind_which_others_are(
        self, operator: Api, member: Api, enforced: str
    ) -> None:
        path = make_gated(member, enforced, schedulingGates=[OTHER])
        for gates in ([OTHER], [GATE], None):
            attempt = functools.partial(patch_pod, operator, path, {"schedulingGates": gates})
            check_refused(attempt, "fairbind-own-gate", what=str(gates))
        check_refused(lambda: patch_pod(operator, path, {"nodeSelector": {"a": "b"}}), "fairbind-own-gate")
        path = make_gated(member, enforced, schedulingGates=[GATE, OTHER])
        check_refused(lambda: patch_pod(operator, path, {"schedulingGates": None}), "fairbind-own-gate")


def test_pods_that_take_turns_have_only_some_priorities_and_keep_to_the_budget(
    cluster: Cluster, api: Api, member: Api, enforced: str, namespace: MakeNamespace
) -> None:
    classes, allowed = "/apis/scheduling.k8s.io/v1/priorityclasses", make_name("allowed")
    api.post(classes, {"metadata": {"name": allowed}, "value": 1000})
    admission = {
        "forbid": {"enabled": True, "priorityClassNames": [allowed]},
        "constraintBudget": {"enabled": True},
    }
    excessive = make_constrained(65, "tolerations")
    excessive["spec"]["schedulerName"] = DEFAULT
    cluster.install_chart({**WITHOUT_OPERATOR, "mode": "gate", "admission": admission})
    try:
        urgent = make_default(priorityClassName="system-node-critical")
        wait_refused(lambda: try_pod(member, enforced, urgent), "fairbind-priorities", "priority class", allowed)
        wait_refused(lambda: try_pod(member, enforced, excessive), "fairbind-constraints", "more than 64 tolerations")
        assert find_gates(try_pod(member, enforced, make_default(priorityClassName=allowed))) == [GATE]
        free = namespace()
        for pod in (urgent, excessive):
            assert find_gates(try_pod(api, free, pod)) == [], "fairbind does not serve it"

        path = make_gated(member, enforced)
        more = [{"key": f"t{n}", "operator": "Exists"} for n in range(65)]
        body = {"tolerations": [*api.get(path)["spec"]["tolerations"], *more]}
        check_refused(lambda: patch_pod(member, path, body), "fairbind-constraints", "more than 64 tolerations")
        assert find_gates(patch_pod(api, path, {"schedulingGates": None, **body})) == [], "its turn has come"
    finally:
        cluster.install_chart({**WITHOUT_OPERATOR, "mode": "gate", "admission": {"assign": {"enabled": True}}})
        api.delete(f"{classes}/{allowed}")


def test_in_bind_mode_the_operator_cannot_patch_pods(cluster: Cluster, operator: Api, api: Api, enforced: str) -> None:
    path = make_gated(api, enforced)
    cluster.install_chart(WITHOUT_OPERATOR)
    try:
        wait_refused(lambda: patch_pod(operator, path, {"schedulingGates": None}), "cannot patch")
    finally:
        cluster.install_chart({**WITHOUT_OPERATOR, "mode": "gate"})
