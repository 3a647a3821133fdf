"""The chart with the real helm: what it renders, refuses, installs, upgrades and leaves behind."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

import chart
from e2e.clusters import Cluster
from e2e.objects import POLICIES, TENANTS, make_tenant
from e2e.rendering import HOME, Render, find, list_kinds
from e2e.waiting import wait_for
from localplane.client import ApiError
from localplane.plane import CHART, ControlPlane, PlaneError, are_crds_served

if TYPE_CHECKING:
    from e2e.api import Api, Json
    from localplane.tools import Tools

ROOT = CHART.parents[1]
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
OWN_CRDS = len(list((ROOT / "crds").glob("*.yaml")))
EVERYTHING = tuple(f"--set={name}.enabled=true" for name in ("serviceMonitor", "prometheusRule", "dashboards"))
DEAD_NODE = [
    {
        "key": f"node.kubernetes.io/{taint}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 30,
    }
    for taint in ("not-ready", "unreachable")
]
ALWAYS = {
    ("ServiceAccount", "fairbind"),
    ("ClusterRole", "fairbind"),
    ("ClusterRole", "fairbind-view"),
    ("ClusterRoleBinding", "fairbind"),
    ("Role", "fairbind"),
    ("RoleBinding", "fairbind"),
    ("SchedulingPolicy", "default"),
    ("PriorityLevelConfiguration", "fairbind"),
    ("FlowSchema", "fairbind"),
    ("FlowSchema", "fairbind-leader-election"),
    ("ValidatingAdmissionPolicy", "fairbind-own-status"),
    ("ValidatingAdmissionPolicyBinding", "fairbind-own-status"),
    ("ValidatingAdmissionPolicy", "fairbind-own-bindings"),
    ("ValidatingAdmissionPolicyBinding", "fairbind-own-bindings"),
    ("ValidatingAdmissionPolicy", "fairbind-own-volumes"),
    ("ValidatingAdmissionPolicyBinding", "fairbind-own-volumes"),
}
OPERATOR = {
    ("Deployment", "fairbind"),
    ("Service", "fairbind"),
    ("PodDisruptionBudget", "fairbind"),
    ("ResourceQuota", "fairbind"),
    ("NetworkPolicy", "fairbind"),
    ("Pod", "fairbind-test"),
}


class TestRendering:
    """What needs no cluster."""

    @pytest.mark.parametrize("arguments", [(), EVERYTHING, ("--set=operator.enabled=false",)], ids=str)
    def test_lint_finds_nothing(self, helm: Callable[..., str], arguments: tuple[str, ...]) -> None:
        assert "0 chart(s) failed" in helm("lint", "--strict", CHART, *arguments)

    def test_everything_that_is_needed_is_there(self, render: Render) -> None:
        assert list_kinds(render()) == ALWAYS | OPERATOR

    def test_without_the_operator_everything_else_is_there(self, render: Render) -> None:
        assert list_kinds(render("--set=operator.enabled=false")) == ALWAYS

    @pytest.mark.parametrize(
        ("value", "missing"),
        [
            ("policy.create", {("SchedulingPolicy", "default")}),
            ("podDisruptionBudget.enabled", {("PodDisruptionBudget", "fairbind")}),
            ("networkPolicy.enabled", {("NetworkPolicy", "fairbind")}),
            ("admission.protect.enabled", {thing for thing in ALWAYS if "Admission" in thing[0]}),
            ("rbac.aggregateToView", {("ClusterRole", "fairbind-view")}),
            (
                "flowSchema.enabled",
                {thing for thing in ALWAYS if thing[0] in {"FlowSchema", "PriorityLevelConfiguration"}},
            ),
        ],
    )
    def test_parts_can_be_left_out(self, render: Render, value: str, missing: set[tuple[str, str]]) -> None:
        assert list_kinds(render(f"--set={value}=false")) == (ALWAYS | OPERATOR) - missing

    @pytest.mark.parametrize(
        ("argument", "path"),
        [
            ("policy.name=drx", "/policy/name"),
            ("policy.serverClassTolerance=0.9", "/policy/serverClassTolerance"),
            ("policy.serverClassTolerance=a little", "/policy/serverClassTolerance"),
            ("policy.serverClassTolerance=1", "/policy/serverClassTolerance"),
            ("policy.alphaPfVds.alpha=much", "/policy/alphaPfVds/alpha"),
            ("policy.dynamicDrf.expectedTenants=0", "/policy/dynamicDrf/expectedTenants"),
            ("policy.twoChoicesDrfh.sead=1", "'/policy/twoChoicesDrfh'"),
            ("policy.alpha=2", "'/policy'"),
            ("policy.unclaimedNamespaces=nobody", "/policy/unclaimedNamespaces"),
            ("policy.nmae=fifo", "'/policy'"),
            ("tenantView.enabled=maybe", "/tenantView/enabled"),
            ("tenantView.show=true", "'/tenantView'"),
            ("groups.undo=maybe", "/groups/undo"),
            ("replicaCount=two", "/replicaCount"),
            ("replicaCount=-1", "/replicaCount"),
            ("operator.enabled=maybe", "/operator/enabled"),
            ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
            ("image.repository=", "/image/repository"),
            ("log.format=xml", "/log/format"),
            ("log.level=loud", "/log/level"),
            ("schedulerName=Not_A_Name", "/schedulerName"),
            ("resources.request.cpu=1", "'/resources'"),
            ("resources.requests.cpu=lots", "/resources/requests/cpu"),
            ("flowSchema.nominalConcurrencyShares=0", "/flowSchema/nominalConcurrencyShares"),
            ("serviceMonitor.interval=often", "/serviceMonitor/interval"),
            ("nodeFailureTolerationSeconds=-1", "/nodeFailureTolerationSeconds"),
            ("dashboards.namespace=Not_A_Name", "/dashboards/namespace"),
            ("replicas=3", "replicas"),
        ],
    )
    def test_wrong_values_are_refused_by_path(self, render: Render, argument: str, path: str) -> None:
        with pytest.raises(PlaneError) as refusal:
            render(f"--set={argument}")

        assert path in str(refusal.value)

    def test_the_operator_is_confined(self, render: Render) -> None:
        pod = find(render(), "Deployment")["spec"]["template"]["spec"]
        (container,) = pod["containers"]

        assert pod["serviceAccountName"] == "fairbind"
        assert pod["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        place = {"port": "metrics", "scheme": "HTTPS"}
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", **place}
        assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", **place}
        assert {"requests", "limits"} == set(container["resources"])

    def test_the_operator_takes_its_arguments(self, render: Render) -> None:
        (container,) = find(render(), "Deployment")["spec"]["template"]["spec"]["containers"]
        program = Path(sys.executable).parent / "fairbind"
        command, *arguments = container["args"]
        shown = subprocess.run([program, command, "--help"], capture_output=True, text=True, check=True).stdout

        options = [argument for argument in arguments if argument.startswith("--")]
        place = ["--namespace", "--metrics-address", "--scheduler-name", "--kept-place-seconds"]
        assert options == [*place, "--log-format", "--log-level", "--metrics-tls"]
        assert [option for option in options if f"{option} " not in shown] == []

    def test_values_reach_the_operator(self, render: Render) -> None:
        values = {
            "replicaCount": 3,
            "schedulerName": "fair",
            "image": {"repository": "example.com/fairbind", "tag": "1.2.3", "pullPolicy": "Always"},
            "imagePullSecrets": [{"name": "pull"}],
            "log": {"level": "debug", "format": "console"},
            "resources": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "2Gi"}},
            "nodeSelector": {"pool": "system"},
            "tolerations": [{"operator": "Exists"}],
            "topologySpread": {"enabled": False},
            "priorityClassName": "",
        }
        spec = find(render(*[f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]), "Deployment")
        pod = spec["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        arguments = dict(zip(container["args"][1::2], container["args"][2::2], strict=True))

        assert spec["spec"]["replicas"] == 3
        assert arguments["--scheduler-name"] == "fair"
        assert (arguments["--log-level"], arguments["--log-format"]) == ("debug", "console")
        assert (container["image"], container["imagePullPolicy"]) == ("example.com/fairbind:1.2.3", "Always")
        assert container["resources"] == values["resources"]
        assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "pool": "system"}
        assert pod["tolerations"] == [*DEAD_NODE, {"operator": "Exists"}]
        assert pod["imagePullSecrets"] == values["imagePullSecrets"]
        assert not {"topologySpreadConstraints", "affinity", "priorityClassName"} & set(pod)

    def test_taints_are_shown_on_request(self, render: Render) -> None:
        def list_arguments(*values: str) -> list[str]:
            deployment = find(render(*values), "Deployment")
            (container,) = deployment["spec"]["template"]["spec"]["containers"]
            return list(container["args"])

        assert "--show-taints" not in list_arguments()
        assert "--show-taints" in list_arguments("--set=showTaints=true")

    def test_jobs_of_volcano_get_their_pods_on_request(self, render: Render) -> None:
        def find_patched(objects: list[Json]) -> list[Json]:
            rules = find(objects, "ClusterRole")["rules"]
            return [rule for rule in rules if "patch" in rule["verbs"] and "scheduling.volcano.sh" in rule["apiGroups"]]

        objects, without = render("--set=groups.volcanoInqueue=true"), render()
        (rule,) = find_patched(objects)
        assert rule["resources"] == ["podgroups", "podgroups/status"]
        assert find_patched(without) == []
        assert "--volcano-inqueue" in str(find(objects, "Deployment"))
        assert "--volcano-inqueue" not in str(find(without, "Deployment"))

    @pytest.mark.parametrize(
        ("values", "argument"), [((), "own"), (("--set=tenantView.showOthers=true",), "all")], ids=str
    )
    def test_members_see_their_share_on_request(self, render: Render, values: tuple[str, ...], argument: str) -> None:
        objects, without = render("--set=tenantView.enabled=true", *values), render(*values)
        rights = [rule for rule in find(objects, "ClusterRole")["rules"] if "sharereports" in rule["resources"]]
        reading = find(objects, "ClusterRole", "fairbind-tenant-view")
        deployment = find(objects, "Deployment")
        (container,) = deployment["spec"]["template"]["spec"]["containers"]

        assert sorted(verb for rule in rights for verb in rule["verbs"]) == ["create", "delete", "list", "patch"]
        assert reading["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
        assert reading["rules"] == [
            {"apiGroups": ["fairbind.io"], "resources": ["sharereports"], "verbs": ["get", "list", "watch"]}
        ]
        assert container["args"][container["args"].index("--tenant-view") + 1] == argument
        assert "sharereports" not in str([thing for thing in without if thing["kind"] != "CustomResourceDefinition"])
        assert "--tenant-view" not in str(find(without, "Deployment"))

    def test_the_right_to_evict_comes_with_undoing(self, render: Render) -> None:
        objects, without = render("--set=groups.undo=true"), render()
        rights = [rule for rule in find(objects, "ClusterRole")["rules"] if "pods/eviction" in rule["resources"]]

        assert rights == [{"apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"]}]
        assert "--undo-groups" in str(find(objects, "Deployment"))
        assert find(objects, "ValidatingAdmissionPolicy", "fairbind-own-evictions")
        assert "pods/eviction" not in str(without)
        assert "undo-groups" not in str(without)

    def test_who_reads_reports_can_be_left_to_the_administrator(self, render: Render) -> None:
        objects = render("--set=tenantView.enabled=true", "--set=rbac.aggregateToView=false")
        assert "aggregate-to" not in str(find(objects, "ClusterRole", "fairbind-tenant-view"))

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ({}, DEAD_NODE),
            ({"nodeFailureTolerationSeconds": None}, None),
            ({"nodeFailureTolerationSeconds": 0}, [toleration | {"tolerationSeconds": 0} for toleration in DEAD_NODE]),
            (
                {"tolerations": [{"key": "node.kubernetes.io/unreachable", "operator": "Exists"}]},
                [DEAD_NODE[0], {"key": "node.kubernetes.io/unreachable", "operator": "Exists"}],
            ),
        ],
        ids=str,
    )
    def test_an_operator_leaves_a_dead_node_soon(
        self, render: Render, values: Json, expected: list[Json] | None
    ) -> None:
        given = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
        pod = find(render(*given), "Deployment")["spec"]["template"]["spec"]

        assert pod.get("tolerations") == expected

    def test_operators_prefer_different_nodes_also_where_none_has_a_zone(self, render: Render) -> None:
        """kube-scheduler ignores a node for spreading when it lacks the label of any one constraint."""
        pod = find(render(), "Deployment")["spec"]["template"]["spec"]
        (spread,) = pod["topologySpreadConstraints"]
        (apart,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        own: Json = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}
        given = find(render(f"--set-json=affinity={json.dumps(own)}"), "Deployment")["spec"]["template"]["spec"]

        assert spread["topologyKey"] == "kubernetes.io/hostname"
        assert apart["podAffinityTerm"]["topologyKey"] == "topology.kubernetes.io/zone"
        assert spread["labelSelector"] == apart["podAffinityTerm"]["labelSelector"]
        assert given["affinity"] == own

    def test_values_reach_the_policy(self, render: Render) -> None:
        values = {
            "name": "ps-dsf",
            "serverClassTolerance": "0",
            "unclaimedNamespaces": "refuse",
            "fairnessResources": ["cpu"],
            "nodeSelector": {"pool": "shared"},
            "guided": False,
            "fit": "cosine",
            "reservations": {"mode": "Off", "maxSeconds": 60, "most": "5%"},
        }
        policy = find(render(f"--set-json=policy={json.dumps(values)}"), "SchedulingPolicy", "default")

        assert policy["spec"] == {"policy": values.pop("name"), **values}

    @pytest.mark.parametrize(
        ("name", "field", "given", "written"),
        [
            ("alpha-pf-vds", "alphaPfVds", {"alpha": 0.5}, {"alpha": "0.5"}),
            ("alpha-pf-vds", "alphaPfVds", {"alpha": "500m"}, {"alpha": "500m"}),
            ("dynamic-drf", "dynamicDrf", {"expectedTenants": 40_000}, {"expectedTenants": 40_000}),
            ("two-choices-drfh", "twoChoicesDrfh", {"seed": 12_345_678}, {"seed": 12_345_678}),
        ],
    )
    def test_parameters_reach_the_policy_that_they_belong_to(
        self, render: Render, name: str, field: str, given: Json, written: Json
    ) -> None:
        values = json.dumps({"name": name, "serverClassTolerance": 0.05, field: given})
        policy = find(render(f"--set-json=policy={values}"), "SchedulingPolicy", "default")

        assert policy["spec"][field] == written
        assert policy["spec"]["serverClassTolerance"] == "0.05"

    def test_monitoring_is_optional(self, render: Render) -> None:
        objects = render(*EVERYTHING, "--set=prometheusRule.labels.release=prom", "--set=serviceMonitor.interval=30s")
        rules = yaml.safe_load((ROOT / "deploy" / "alerts" / "fairbind.rules.yaml").read_text(encoding="utf-8"))
        service, monitor = find(objects, "Service"), find(objects, "ServiceMonitor")

        assert find(objects, "PrometheusRule")["spec"] == rules
        assert find(objects, "PrometheusRule")["metadata"]["labels"]["release"] == "prom"
        https = {"scheme": "https", "tlsConfig": {"insecureSkipVerify": True}}
        page = {"port": "metrics", "path": "/metrics", "interval": "30s", "honorLabels": True}
        assert monitor["spec"]["endpoints"] == [{**page, **https}]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert [port["name"] for port in service["spec"]["ports"]] == ["metrics"]

    def test_grafana_finds_the_dashboard(self, render: Render) -> None:
        given = {"labels": {"dashboards": "yes"}, "annotations": {"grafana_folder": "Fair"}, "namespace": "monitoring"}
        moved = [f"--set-json=dashboards.{name}={json.dumps(value)}" for name, value in given.items()]
        dashboard = json.loads((ROOT / "deploy" / "dashboard" / "fairbind.json").read_text(encoding="utf-8"))

        made = find(render(*EVERYTHING), "ConfigMap", "fairbind-dashboard")
        other = find(render(*EVERYTHING, *moved), "ConfigMap", "fairbind-dashboard")

        assert (made["metadata"]["namespace"], made["metadata"]["labels"]["grafana_dashboard"]) == (HOME, "1")
        assert json.loads(made["data"]["fairbind.json"]) == dashboard
        assert other["metadata"]["namespace"] == "monitoring"
        assert other["metadata"]["labels"]["dashboards"] == "yes"
        assert other["metadata"]["annotations"] == given["annotations"]

    def test_crds_are_hooks_of_an_upgrade_by_helm_only(self, render: Render) -> None:
        def crds(*arguments: str) -> list[Json]:
            return [thing for thing in render(*arguments) if thing["kind"] == "CustomResourceDefinition"]

        assert crds() == []  # whoever renders with `helm template` takes --include-crds
        plain = crds("--include-crds")
        assert [crd["metadata"].get("annotations", {}) for crd in plain] == [{}] * OWN_CRDS
        hooks = crds("--is-upgrade")
        assert {crd["metadata"]["annotations"]["helm.sh/hook"] for crd in hooks} == {"pre-upgrade"}
        assert [crd["spec"] for crd in hooks] == [crd["spec"] for crd in plain]
        assert crds("--is-upgrade", "--set=crds.upgrade=false") == []
        for own in (crds("--set=crds.keep=false"), crds("--set=crds.keep=false", "--is-upgrade")):
            assert own == plain  # objects of the release like all others

    def test_another_release_name_shows_in_all_names(self, helm: Callable[..., str]) -> None:
        text = helm("template", "blue", CHART, "--namespace=elsewhere")
        objects = [document for document in yaml.safe_load_all(text) if document]
        names = {thing["metadata"]["name"] for thing in objects}
        subjects = [subject for thing in objects for subject in thing.get("subjects", [])]

        assert names == {
            "blue-fairbind",
            "blue-fairbind-view",
            "blue-fairbind-leader-election",
            "blue-fairbind-own-bindings",
            "blue-fairbind-own-status",
            "blue-fairbind-own-volumes",
            "blue-fairbind-test",
            "default",
        }
        assert {(subject["name"], subject["namespace"]) for subject in subjects} == {("blue-fairbind", "elsewhere")}

    def test_what_follows_from_the_chart_is_up_to_date(self, tools: Tools) -> None:
        outputs = chart.compute_outputs(ROOT, tools.path("helm"))

        assert chart.find_differences(outputs) == []


def test_a_changed_template_is_noticed(tools: Tools, tmp_path: Path) -> None:
    for part in (
        "charts",
        "crds",
        "deploy/alerts",
        "deploy/dashboard",
        "deploy/examples",
        "deploy/kustomize",
        "docs/reference",
        "operator",
    ):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "deploy" / "publishing.toml", tmp_path / "deploy")
    template = tmp_path / "charts" / "fairbind" / "templates" / "rbac.yaml"
    text = template.read_text(encoding="utf-8")
    assert "verbs: [get, update]" in text
    template.write_text(text.replace("verbs: [get, update]", "verbs: [get]"), encoding="utf-8")

    differing = chart.find_differences(chart.compute_outputs(tmp_path, tools.path("helm")))

    assert differing == [tmp_path / "deploy" / "kustomize" / "base" / "fairbind.yaml"]


@pytest.fixture(scope="module")
def plane_without_chart(tools: Tools) -> Iterator[Cluster]:
    """A control plane of these tests alone: they take away what all others build on."""
    with ControlPlane(tools) as plane, Cluster.connect(plane.kubeconfig, tools, plane) as cluster:
        yield cluster


@pytest.fixture
def fresh(plane_without_chart: Cluster) -> Iterator[Cluster]:
    """A cluster on which fairbind never was, as far as anybody can tell."""
    yield plane_without_chart
    with contextlib.suppress(PlaneError):
        plane_without_chart.helm("uninstall", "fairbind", f"--namespace={HOME}", "--ignore-not-found")
    remove_crds(plane_without_chart.api)


def remove_crds(api: Api) -> None:
    for name in ("tenants", "schedulingpolicies", "sharereports"):
        with contextlib.suppress(ApiError):
            api.delete(f"{CRDS}/{name}.fairbind.io")
    wait_for(lambda: not api.items(CRDS), describe="the CRDs to go")


def install(cluster: Cluster, *arguments: str, source: Path = CHART) -> str:
    """Install the chart (without the operator, unless told otherwise), as the README says."""
    place = [f"--namespace={HOME}", "--create-namespace", "--set=operator.enabled=false"]
    notes = cluster.helm("install", "fairbind", str(source), *place, *arguments)
    wait_for(lambda: are_crds_served(cluster.api), describe="the CRDs to be served")
    return notes


def upgrade(cluster: Cluster, *arguments: str, source: Path = CHART) -> str:
    return cluster.helm("upgrade", "fairbind", str(source), f"-n={HOME}", "--reset-then-reuse-values", *arguments)


def make_changed_chart(folder: Path) -> Path:
    """Return a copy of the chart in which Tenants have one more field and one more column."""
    changed = folder / "fairbind"
    shutil.copytree(CHART, changed)
    file = changed / "crds" / "tenants.yaml"
    crd = yaml.safe_load(file.read_text(encoding="utf-8"))
    (version,) = crd["spec"]["versions"]
    version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["motto"] = {"type": "string"}
    version["additionalPrinterColumns"].append({"name": "Motto", "type": "string", "jsonPath": ".spec.motto"})
    file.write_text(yaml.safe_dump(crd), encoding="utf-8")
    return changed


@pytest.mark.local_plane
class TestLifecycle:
    """On a cluster of its own: install, upgrade, roll back, uninstall."""

    def test_one_command_installs_all(self, fresh: Cluster) -> None:
        notes = install(fresh)

        assert fresh.api.get(f"{POLICIES}/default")["spec"]["policy"] == "best-fit-drfh"
        assert fresh.api.items(TENANTS) == []
        assert "kind: Tenant" in notes
        assert "operator.enabled is false" in notes
        assert fresh.api.exists(f"/api/v1/namespaces/{HOME}/serviceaccounts/fairbind")
        assert fresh.api.items(f"/apis/apps/v1/namespaces/{HOME}/deployments") == []

    def test_operators_are_admitted_where_pods_are_restricted(self, fresh: Cluster) -> None:
        """The strictest of the Pod Security Standards holds in the namespace, and the pods are made all the same."""
        strict = {"pod-security.kubernetes.io/enforce": "restricted"}
        if not fresh.api.exists(f"/api/v1/namespaces/{HOME}"):
            fresh.api.post("/api/v1/namespaces", {"metadata": {"name": HOME}})
        fresh.api.patch(f"/api/v1/namespaces/{HOME}", {"metadata": {"labels": strict}})

        install(fresh, "--set=operator.enabled=true")

        pods = f"/api/v1/namespaces/{HOME}/pods"
        wait_for(lambda: len(fresh.api.items(pods)) == 2, describe="two operators' pods")
        for pod in fresh.api.items(pods):
            assert pod["spec"]["serviceAccountName"] == "fairbind"
            assert pod["spec"]["priorityClassName"] == "system-cluster-critical"
            assert pod["spec"]["tolerations"] == DEAD_NODE  # the API server adds none of its own, of 300 s
        budget = fresh.api.get(f"/apis/policy/v1/namespaces/{HOME}/poddisruptionbudgets/fairbind")
        assert budget["spec"]["maxUnavailable"] == 1
        assert fresh.api.get(f"/api/v1/namespaces/{HOME}/services/fairbind")["spec"]["ports"][0]["port"] == 8080

    def test_an_upgrade_changes_crds_and_keeps_tenants(self, fresh: Cluster, tmp_path: Path) -> None:
        install(fresh)
        fresh.api.post(TENANTS, make_tenant("before", weight="500m"))

        upgrade(fresh, source=make_changed_chart(tmp_path))

        wait_for(lambda: are_crds_served(fresh.api), describe="the CRDs to be served")
        assert fresh.api.get(f"{TENANTS}/before")["spec"]["weight"] == "500m"
        wait_for(
            lambda: fresh.api.patch(f"{TENANTS}/before", {"spec": {"motto": "more"}})["spec"].get("motto") == "more",
            describe="the API server to know the new field",
        )
        assert "MOTTO" in fresh.kubectl("get", "tenants")

        upgrade(fresh)  # and back again
        wait_for(lambda: "MOTTO" not in fresh.kubectl("get", "tenants"), describe="the column to go")
        assert fresh.api.get(f"{TENANTS}/before")["spec"]["weight"] == "500m"

    def test_an_upgrade_can_leave_the_crds_alone(self, fresh: Cluster, tmp_path: Path) -> None:
        install(fresh)
        generation = fresh.api.get(f"{CRDS}/tenants.fairbind.io")["metadata"]["generation"]

        notes = upgrade(fresh, "--set=crds.upgrade=false", source=make_changed_chart(tmp_path))

        assert fresh.api.get(f"{CRDS}/tenants.fairbind.io")["metadata"]["generation"] == generation
        assert "--field-manager=helm" in notes
        # what the note says works, and does not stand in the way of helm later
        fresh.kubectl(
            "apply",
            "--server-side",
            "--force-conflicts",
            "--field-manager=helm",
            f"--filename={tmp_path}/fairbind/crds",
        )
        assert fresh.api.get(f"{CRDS}/tenants.fairbind.io")["metadata"]["generation"] == generation + 1
        upgrade(fresh, "--set=crds.upgrade=true")
        assert fresh.api.get(f"{CRDS}/tenants.fairbind.io")["metadata"]["generation"] == generation + 2

    def test_an_upgrade_changes_the_policy_and_a_rollback_changes_it_back(self, fresh: Cluster) -> None:
        install(fresh)

        upgrade(fresh, "--set=policy.name=ps-dsf", "--set=policy.serverClassTolerance=0.1")
        spec = {
            "policy": "ps-dsf",
            "serverClassTolerance": "0.1",
            "unclaimedNamespaces": "tenant",
            "guided": True,
            "fit": "dominant-resource",
            "reservations": {"mode": "On", "maxSeconds": 600, "most": "10%"},
        }
        assert fresh.api.get(f"{POLICIES}/default")["spec"] == spec

        fresh.helm("rollback", "fairbind", "1", f"--namespace={HOME}")
        assert fresh.api.get(f"{POLICIES}/default")["spec"] == {
            **spec,
            "policy": "best-fit-drfh",
            "serverClassTolerance": "0.02",
        }

    def test_a_policy_that_was_edited_by_hand_is_not_overwritten_silently(self, fresh: Cluster) -> None:
        install(fresh)
        fresh.kubectl("patch", "schedulingpolicy", "default", "--type=merge", '--patch={"spec":{"policy":"fifo"}}')

        with pytest.raises(PlaneError, match=r"conflict.*\.spec\.policy"):
            upgrade(fresh, "--set=policy.name=ps-dsf")
        assert fresh.api.get(f"{POLICIES}/default")["spec"]["policy"] == "fifo"

        upgrade(fresh, "--set=policy.name=ps-dsf", "--force-conflicts")
        assert fresh.api.get(f"{POLICIES}/default")["spec"]["policy"] == "ps-dsf"

    def test_an_upgrade_about_something_else_keeps_what_was_edited_by_hand(self, fresh: Cluster) -> None:
        tenants = '--set-json=tenants=[{"name":"team-a","weight":0.5}]'
        install(fresh, tenants)
        edit = ("--type=merge", '--patch={"spec":{"policy":"fifo"}}')
        fresh.kubectl("patch", "schedulingpolicy", "default", *edit)
        fresh.kubectl("patch", "tenants.fairbind.io", "team-a", "--type=merge", '--patch={"spec":{"weight":3}}')

        for level in ("debug", "info"):  # also once the release has taken the edit over
            upgrade(fresh, tenants, f"--set=log.level={level}")
            assert fresh.api.get(f"{POLICIES}/default")["spec"]["policy"] == "fifo"
            assert fresh.api.get(f"{TENANTS}/team-a")["spec"]["weight"] == 3
        with pytest.raises(PlaneError, match=r"conflict.*\.spec\.policy"):  # values that contradict an edit
            upgrade(fresh, tenants, "--set=policy.name=ps-dsf")

    def test_a_wrong_value_changes_nothing(self, fresh: Cluster) -> None:
        install(fresh)

        with pytest.raises(PlaneError, match="/policy/name"):
            upgrade(fresh, "--set=policy.name=unfair")

        assert fresh.api.get(f"{POLICIES}/default")["spec"]["policy"] == "best-fit-drfh"
        assert '"revision":"1"' in fresh.helm("list", f"--namespace={HOME}", "--output=json")

    def test_an_uninstall_leaves_crds_and_tenants_and_nothing_else(self, fresh: Cluster) -> None:
        install(fresh, "--set=operator.enabled=true")
        fresh.api.post(TENANTS, make_tenant("mine", weight=2))
        manifest = fresh.helm("get", "manifest", "fairbind", f"--namespace={HOME}")
        assert len(list(yaml.safe_load_all(manifest))) > 10

        fresh.helm("uninstall", "fairbind", f"--namespace={HOME}", "--wait")

        assert fresh.api.get(f"{TENANTS}/mine")["spec"]["weight"] == 2
        assert len(fresh.api.items(CRDS)) == OWN_CRDS
        assert fresh.api.items(POLICIES) == []
        for path in (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
            "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
            "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
            f"/apis/rbac.authorization.k8s.io/v1/namespaces/{HOME}/roles",
            f"/apis/rbac.authorization.k8s.io/v1/namespaces/{HOME}/rolebindings",
            f"/apis/policy/v1/namespaces/{HOME}/poddisruptionbudgets",
            f"/apis/apps/v1/namespaces/{HOME}/deployments",
            f"/api/v1/namespaces/{HOME}/services",
            f"/api/v1/namespaces/{HOME}/serviceaccounts",
        ):
            left = [thing["metadata"]["name"] for thing in fresh.api.items(path)]
            assert [name for name in left if name.startswith("fairbind")] == [], path

        install(fresh)  # and it comes back to the tenants that stayed
        assert [thing["metadata"]["name"] for thing in fresh.api.items(TENANTS)] == ["mine"]
        assert fresh.api.exists(f"{POLICIES}/default")

    def test_a_rollback_to_before_the_crds_were_its_own_deletes_them(self, fresh: Cluster) -> None:
        """As docs/install.md warns; an upgrade back does not."""
        install(fresh)
        upgrade(fresh, "--set=crds.keep=false", "--take-ownership")
        assert len(fresh.api.items(CRDS)) == OWN_CRDS

        fresh.helm("rollback", "fairbind", "1", f"--namespace={HOME}")

        wait_for(lambda: fresh.api.items(CRDS) == [], describe="the CRDs to go")

    def test_a_second_release_finds_its_policy_taken(self, fresh: Cluster) -> None:
        """Two would fight for one cluster; helm says so instead."""
        install(fresh)

        with pytest.raises(PlaneError, match="default"):
            fresh.helm("install", "second", str(CHART), "--namespace=default", "--set=operator.enabled=false")

    def test_kustomize_installs_the_same(self, fresh: Cluster) -> None:
        base = ROOT / "deploy" / "kustomize" / "base"
        printed = fresh.kubectl("apply", "--server-side", f"--kustomize={base}")
        try:
            wait_for(lambda: are_crds_served(fresh.api), describe="the CRDs to be served")
            assert "deployment.apps/fairbind serverside-applied" in printed
            fresh.kubectl("apply", f"--filename={ROOT / 'deploy' / 'examples' / 'policy.yaml'}")
            assert fresh.api.get(f"{POLICIES}/default")["spec"]["policy"] == "ps-dsf"
            pods = f"/api/v1/namespaces/{HOME}/pods"
            wait_for(lambda: len(fresh.api.items(pods)) >= 2, describe="two operators' pods")
        finally:
            objects = [
                document
                for document in yaml.safe_load_all((base / "fairbind.yaml").read_text(encoding="utf-8"))
                if document["kind"] != "Namespace"
            ]
            for document in objects:
                kind, name = document["kind"].lower(), document["metadata"]["name"]
                fresh.kubectl("delete", kind, name, f"--namespace={HOME}", "--ignore-not-found")

    def test_the_kustomize_base_keeps_its_own_namespace(self, fresh: Cluster) -> None:
        rendered = fresh.kubectl("kustomize", str(ROOT / "deploy" / "kustomize" / "base"))
        namespaces = {
            document["metadata"]["namespace"]
            for document in yaml.safe_load_all(rendered)
            if "namespace" in document["metadata"]
        }

        assert namespaces == {HOME}
