"""The chart's life on a cluster with kubelets: upgrades while pods arrive, rollback, values, rights, uninstall.

Each test leaves the present chart with its defaults behind, the first one with an annotation more. ``packages`` holds
the chart of an earlier version as users have it installed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from e2e.api import Api, ApiError
from e2e.objects import POLICIES, TENANTS, make_name, make_tenant
from e2e.waiting import never, wait_for
from fairbind import __version__
from kind.release import RELEASE, Release
from kind.streams import Stream
from kind.workloads import make_real_pod
from localplane.plane import CHART

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.api import Json
    from e2e.conftest import MakeNamespace, MakeTenant

PREVIOUS = Path(__file__).parent / "packages" / "fairbind-0.0.9.tgz"
PRESENT_IMAGE = f"--set=image.tag={__version__}"  # the previous chart would ask for an image of its own version
ROLES = "/apis/rbac.authorization.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LONGEST_WAIT_SECONDS = 15.0


@pytest.fixture
def changed(fairbind_installed: Release) -> Iterator[Release]:
    """The release, which a test may change; afterwards the chart is installed with its defaults."""
    yield fairbind_installed
    fairbind_installed.install("--force-conflicts")


@pytest.fixture
def present_rights(changed: Release, api: Api) -> Iterator[None]:
    """What the present image may read, also under a chart of before, whose own image would read less."""
    name = make_name("present-rights")
    role = api.get(f"{ROLES}/clusterroles/{RELEASE}")
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    account = {"kind": "ServiceAccount", "name": RELEASE, "namespace": changed.namespace}
    api.post(f"{ROLES}/clusterroles", {"metadata": {"name": name}, "rules": role["rules"]})
    binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [account]}
    api.post(f"{ROLES}/clusterrolebindings", binding)
    yield
    for kind in ("clusterrolebindings", "clusterroles"):
        api.delete(f"{ROLES}/{kind}/{name}")


def get_container(release: Release) -> Json:
    path = f"/apis/apps/v1/namespaces/{release.namespace}/deployments/fairbind"
    container: Json = release.api.get(path)["spec"]["template"]["spec"]["containers"][0]
    return container


def test_a_rolling_upgrade_loses_no_pod_and_pauses_for_seconds(
    fairbind_installed: Release, api: Api, namespace: MakeNamespace
) -> None:
    """All operators are replaced, one after the other, while pods arrive. The annotation stays; nobody minds it."""
    release = fairbind_installed
    before = {pod["metadata"]["uid"] for pod in release.pods()}
    with Stream(api, namespace()) as stream:
        stream.wait_progress()
        release.install("--set=podAnnotations.example\\.com/turn=second")
        wait_for(lambda: before.isdisjoint(pod["metadata"]["uid"] for pod in release.pods()), describe="the old to go")
        stream.wait_progress()

    stream.check(LONGEST_WAIT_SECONDS)


@pytest.mark.usefixtures("present_rights")
@pytest.mark.nightly
def test_the_previous_version_is_upgraded_and_rolled_back_while_pods_arrive(
    changed: Release, api: Api, namespace: MakeNamespace, tenant: MakeTenant
) -> None:
    changed.uninstall()
    remove_crds(api)
    changed.install(PRESENT_IMAGE, chart=PREVIOUS)
    home = namespace()
    mine = tenant(weight=3, namespaces=[home])
    assert "alphaPfVds" not in read_policy_fields(api)  # the chart is an old one indeed

    with Stream(api, home) as stream:
        stream.wait_progress()
        changed.install(keep_values=True)
        assert "alphaPfVds" in read_policy_fields(api)
        stream.wait_progress()
        changed.cluster.helm("rollback", RELEASE, "1", f"--namespace={changed.namespace}", "--wait")
        changed.wait_leader()
        stream.wait_progress()

    stream.check(LONGEST_WAIT_SECONDS)
    listed = json.loads(changed.cluster.helm("list", f"--namespace={changed.namespace}", "--output=json"))
    assert [(entry["name"], entry["chart"], entry["status"]) for entry in listed] == [
        (RELEASE, "fairbind-0.0.9", "deployed")
    ]
    assert api.get(f"{TENANTS}/{mine}")["spec"]["weight"] == 3
    assert "alphaPfVds" in read_policy_fields(api)  # a rollback leaves the CRDs as they are


def read_policy_fields(api: Api) -> set[str]:
    (version,) = api.get(f"{CRDS}/schedulingpolicies.fairbind.io")["spec"]["versions"]
    return set(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])


def remove_crds(api: Api) -> None:
    for name in ("tenants", "schedulingpolicies", "sharereports"):
        if api.exists(f"{CRDS}/{name}.fairbind.io"):
            api.delete(f"{CRDS}/{name}.fairbind.io")
    wait_for(lambda: not list_crds(api), describe="the CRDs to go")


def list_crds(api: Api) -> set[str]:
    names = {crd["metadata"]["name"] for crd in api.items(CRDS)}
    return {name for name in names if name.endswith(".fairbind.io")}


def test_values_act(changed: Release, api: Api, namespace: MakeNamespace) -> None:
    values = {
        "replicaCount": 1,
        "schedulerName": "fair",
        "policy": {"name": "ps-dsf"},
        "log": {"level": "debug", "format": "console"},
        "resources": {"requests": {"cpu": "15m", "memory": "200Mi"}, "limits": {"memory": "900Mi"}},
    }
    changed.install(*[f"--set-json={name}={json.dumps(value)}" for name, value in values.items()])

    wait_for(lambda: len(changed.pods()) == 1, describe="one operator")
    leader = changed.wait_leader()
    assert get_container(changed)["resources"] == values["resources"]
    assert api.get(f"{POLICIES}/default")["spec"]["policy"] == "ps-dsf"
    home = namespace()
    path = f"/api/v1/namespaces/{home}/pods"
    ours, foreign = make_real_pod(scheduler_name="fair"), make_real_pod(scheduler_name="fairbind")
    for pod in (foreign, ours):
        api.post(path, pod)
    name = ours["metadata"]["name"]
    wait_for(lambda: api.get(f"{path}/{name}")["status"]["phase"] == "Running", describe="the pod of `fair` to run")
    never(
        lambda: api.get(f"{path}/{foreign['metadata']['name']}")["spec"].get("nodeName"), 2.0, "nobody's pod is bound"
    )
    log = changed.log(leader, 2000)
    assert "debug" in log.lower()
    assert not log.lstrip().startswith("{")


def test_a_viewer_sees_tenants_and_an_admin_of_a_namespace_cannot_change_them(
    fairbind_installed: Release, namespace: MakeNamespace, tenant: MakeTenant
) -> None:
    home = namespace()
    mine = tenant(namespaces=[home])
    with connect_as(fairbind_installed, home, "viewer") as viewer, connect_as(fairbind_installed, home, "lead") as lead:
        bind_role(fairbind_installed, "viewer", home, "view", "clusterrolebinding")
        bind_role(fairbind_installed, "lead", home, "admin", "rolebinding")
        try:
            wait_for(lambda: viewer.exists(f"{TENANTS}/{mine}"), describe="the viewer's rights")
            assert viewer.get(f"{POLICIES}/default")["spec"]["policy"] == "best-fit-drfh"
            wait_for(lambda: lead.items(f"/api/v1/namespaces/{home}/pods") == [], describe="the admin's rights")
            for who in (viewer, lead):
                check_cannot_change(who, mine)
        finally:
            fairbind_installed.cluster.kubectl("delete", "clusterrolebinding", f"{home}-viewer")


def check_cannot_change(who: Api, name: str) -> None:
    """Check that every way to change a Tenant or the policy is forbidden."""
    attempts: tuple[Callable[[], object], ...] = (
        lambda: who.patch(f"{TENANTS}/{name}", {"spec": {"weight": 1000}}),
        lambda: who.patch(f"{TENANTS}/{name}/status", {"status": {"pods": {"running": 0}}}),
        lambda: who.delete(f"{TENANTS}/{name}"),
        lambda: who.post(TENANTS, make_tenant(make_name("own"), weight=1000)),
        lambda: who.patch(f"{POLICIES}/default", {"spec": {"policy": "fifo"}}),
    )
    for attempt in attempts:
        with pytest.raises(ApiError, match="forbidden") as refusal:
            attempt()
        assert refusal.value.status == 403


def bind_role(release: Release, account: str, home: str, role: str, kind: str) -> None:
    """Bind a ClusterRole to a ServiceAccount: in its namespace (rolebinding) or everywhere (clusterrolebinding)."""
    place = [f"--namespace={home}"] if kind == "rolebinding" else []
    subject = f"--serviceaccount={home}:{account}"
    release.cluster.kubectl("create", kind, f"{home}-{account}", f"--clusterrole={role}", subject, *place)


def connect_as(release: Release, home: str, account: str) -> Api:
    """Make a ServiceAccount and return a client with a token of it."""
    release.cluster.kubectl("create", "serviceaccount", account, f"--namespace={home}")
    token = release.cluster.kubectl("create", "token", account, f"--namespace={home}").strip()
    config = yaml.safe_load(release.cluster.kubeconfig.read_text(encoding="utf-8"))
    config["users"][0]["user"] = {"token": token}
    path = release.cluster.folder / f"{home}-{account}.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return Api.connect(path)


@pytest.mark.nightly
def test_an_uninstall_leaves_crds_and_tenants_and_running_pods(
    changed: Release, api: Api, namespace: MakeNamespace, tenant: MakeTenant
) -> None:
    home = namespace()
    mine = tenant(namespaces=[home], weight=2)
    path = f"/api/v1/namespaces/{home}/pods"
    running, late = make_real_pod({"cpu": "5m"}), make_real_pod({"cpu": "5m"})
    api.post(path, running)
    name = running["metadata"]["name"]
    wait_for(lambda: api.get(f"{path}/{name}")["status"]["phase"] == "Running", describe="a pod to run")

    changed.uninstall()

    assert list_crds(api) == {f"{name}.fairbind.io" for name in ("tenants", "schedulingpolicies", "sharereports")}
    assert api.get(f"{TENANTS}/{mine}")["spec"] == {"namespaces": [home], "weight": 2}
    assert api.get(f"{path}/{name}")["status"]["phase"] == "Running"
    assert find_left(changed) == []
    api.post(path, late)
    late_path = f"{path}/{late['metadata']['name']}"
    never(lambda: api.get(late_path)["spec"].get("nodeName"), 2.0, "somebody binds pods that name fairbind")

    changed.install()  # and what waited is scheduled, for the tenant that stayed
    wait_for(lambda: api.get(late_path)["spec"].get("nodeName"), describe="the pod that waited")
    wait_for(
        lambda: api.get(f"{TENANTS}/{mine}").get("status", {}).get("pods", {}).get("running") == 2,
        describe="the tenant's pods",
    )


def find_left(release: Release) -> list[str]:
    """Return what an uninstall left in the namespace and the cluster that is fairbind's."""
    kinds = "deployments,services,serviceaccounts,roles,rolebindings,poddisruptionbudgets,pods,networkpolicies"
    wide = "clusterroles,clusterrolebindings,flowschemas,prioritylevelconfigurations,schedulingpolicies"
    place = f"--namespace={release.namespace}"
    names = release.cluster.kubectl("get", kinds, place, "--output=name").split()
    names += release.cluster.kubectl("get", wide, "--output=name").split()
    return [name for name in names if "fairbind" in name.partition("/")[2]]


@pytest.mark.nightly
def test_an_uninstall_takes_crds_along_when_it_is_told_to(changed: Release, api: Api, tenant: MakeTenant) -> None:
    mine = tenant()

    changed.install("--set=crds.keep=false", "--take-ownership")
    assert api.exists(f"{TENANTS}/{mine}")
    changed.install()  # a change of mind keeps everything
    assert api.exists(f"{TENANTS}/{mine}")
    changed.install("--set=crds.keep=false", "--take-ownership")
    assert api.exists(f"{TENANTS}/{mine}")
    changed.uninstall()

    wait_for(lambda: list_crds(api) == set(), describe="the CRDs to go")


def test_the_chart_as_a_package_is_what_is_tested(fairbind_installed: Release, tmp_path: Path) -> None:
    """What users take from a repository is a package: the same files, and no more than that."""
    fairbind_installed.cluster.helm("package", str(CHART), f"--destination={tmp_path}")
    (package,) = tmp_path.glob("*.tgz")
    manifest = fairbind_installed.cluster.helm("template", RELEASE, str(package), "--namespace=fairbind-system")

    assert manifest == fairbind_installed.cluster.helm("template", RELEASE, str(CHART), "--namespace=fairbind-system")
