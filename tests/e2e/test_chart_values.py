"""The values that users of other charts expect: names, labels, image, pods, more of everything, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from e2e.rendering import HOME, Json, Render, find
from localplane.plane import CHART, PlaneError

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.clusters import Cluster

DIGEST = "sha256:" + "0123456789abcdef" * 4
MONITORING = ("serviceMonitor", "prometheusRule", "dashboards")
POD_VALUES: Json = {
    "commonLabels": {"team": "platform"},
    "image": {"registry": "registry.example.com:5000", "repository": "mirror/fairbind", "digest": DIGEST},
    "extraArgs": ["--journal", "/journal/cycles"],
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraVolumes": [{"name": "journal", "emptyDir": {"sizeLimit": "1Gi"}}],
    "extraVolumeMounts": [{"name": "journal", "mountPath": "/journal"}],
    "podSecurityContext": {"fsGroup": 65532, "runAsGroup": None},
    "containerSecurityContext": {"privileged": False},
    "livenessProbe": {"periodSeconds": 20},
    "readinessProbe": {"failureThreshold": 9},
    "topologySpreadConstraints": [
        {"maxSkew": 2, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    ],
}


def give(values: Json) -> list[str]:
    """Return values as arguments of helm."""
    return [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]


def find_pod(objects: list[Json], name: str = "fairbind") -> tuple[Json, Json]:
    """Return the operator's pod and its container."""
    pod = find(objects, "Deployment", name)["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    return pod, container


def list_accounts(objects: list[Json]) -> set[str]:
    """Return the ServiceAccounts that rights, priority levels, admission policies and pods are for."""
    subjects = [subject for thing in objects for subject in thing.get("subjects", [])]
    for schema in (thing for thing in objects if thing["kind"] == "FlowSchema"):
        subjects += [subject["serviceAccount"] for rule in schema["spec"]["rules"] for subject in rule["subjects"]]
    policies = [thing for thing in objects if thing["kind"] == "ValidatingAdmissionPolicy"]
    users = [policy["spec"]["matchConditions"][0]["expression"].split(":")[-1].strip("'") for policy in policies]
    pods = [find_pod([thing], thing["metadata"]["name"])[0] for thing in objects if thing["kind"] == "Deployment"]
    return {subject["name"] for subject in subjects} | set(users) | {pod["serviceAccountName"] for pod in pods}


@pytest.mark.parametrize(
    ("release", "values", "name", "label"),
    [
        ("blue", {}, "blue-fairbind", "fairbind"),
        ("fairbind-blue", {}, "fairbind-blue", "fairbind"),
        ("blue", {"nameOverride": "sharing"}, "blue-sharing", "sharing"),
        ("blue", {"fullnameOverride": "sharing"}, "sharing", "fairbind"),
        ("blue", {"nameOverride": "sharing", "fullnameOverride": "scheduler"}, "scheduler", "sharing"),
    ],
)
def test_names_can_be_chosen(helm: Callable[..., str], release: str, values: Json, name: str, label: str) -> None:
    text = helm("template", release, CHART, *give(values | {"rbac.aggregateToView": False}))
    objects = [document for document in yaml.safe_load_all(text) if document]
    selector = {"app.kubernetes.io/name": label, "app.kubernetes.io/instance": release}
    deployment, service = find(objects, "Deployment", name), find(objects, "Service", name)
    test, policy = find(objects, "Pod", f"{name}-test"), find(objects, "NetworkPolicy", name)
    (caller,) = (peer["podSelector"]["matchLabels"] for peer in policy["spec"]["ingress"][0]["from"])

    assert {thing["metadata"]["name"].removeprefix(name).partition("-")[0] for thing in objects} == {"", "default"}
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"] == selector
    assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert caller.items() <= test["metadata"]["labels"].items()
    assert not selector.items() <= test["metadata"]["labels"].items()
    assert list_accounts(objects) == {name}


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({}, "fairbind:0.1.0"),
        ({"tag": "1.2"}, "fairbind:1.2"),
        ({"registry": "example.com/team"}, "example.com/team/fairbind:0.1.0"),
        ({"digest": DIGEST, "tag": "1.2"}, f"fairbind@{DIGEST}"),
        ({"registry": "example.com", "repository": "a/b", "digest": DIGEST}, f"example.com/a/b@{DIGEST}"),
    ],
)
def test_the_image_is_named_by_registry_and_digest(render: Render, image: Json, expected: str) -> None:
    objects = render(*give({"image": image}))

    assert find_pod(objects)[1]["image"] == expected
    assert find(objects, "Pod", "fairbind-test")["spec"]["containers"][0]["image"] == expected


def test_a_service_account_that_exists_gets_the_rights(render: Render) -> None:
    given = {"serviceAccount": {"create": False, "name": "ours"}, "metrics.authentication.enabled": True}
    objects = render(*give(given | {"admission.protect.lookUpPods": True}))

    assert [thing for thing in objects if thing["kind"] == "ServiceAccount"] == []
    assert list_accounts(objects) == {"ours"}


def test_a_service_account_of_another_name_is_made(render: Render) -> None:
    account = {"name": "ours", "annotations": {"eks.amazonaws.com/role-arn": "arn"}}
    objects = render(*give({"serviceAccount": account}))

    assert find(objects, "ServiceAccount", "ours")["metadata"]["annotations"] == account["annotations"]
    assert list_accounts(objects) == {"ours"}


def test_no_service_account_at_all_is_refused(render: Render) -> None:
    """Helm's custom would be the namespace's `default`, which any pod there may have."""
    with pytest.raises(PlaneError, match=r"serviceAccount\.create=false needs serviceAccount\.name"):
        render("--set=serviceAccount.create=false")


def test_common_labels_are_on_every_object_and_select_nothing(render: Render) -> None:
    given: Json = {f"{name}.enabled": True for name in (*MONITORING, "metrics.authentication", "admission.forbid")}
    labels = {"team": "platform", "app.kubernetes.io/name": "mine", "release": "common"}
    given |= {"commonLabels": labels, "podLabels": {"release": "pod"}, "prometheusRule.labels": {"release": "prom"}}
    objects = render(*give(given))
    pod = find(objects, "Deployment")["spec"]["template"]["metadata"]["labels"]

    assert len(objects) > 20
    assert [thing["metadata"]["name"] for thing in objects if thing["metadata"]["labels"]["team"] != "platform"] == []
    assert (pod["team"], pod["release"], pod["app.kubernetes.io/name"]) == ("platform", "pod", "fairbind")
    assert find(objects, "PrometheusRule")["metadata"]["labels"]["release"] == "prom"
    assert "team" not in json.dumps(find(objects, "Deployment")["spec"]["selector"])


def test_pods_get_what_is_given_besides_what_they_have(render: Render) -> None:
    plain_pod, plain = find_pod(render())
    pod, container = find_pod(render(*give(POD_VALUES)))
    (spread,) = pod["topologySpreadConstraints"]

    assert container["args"] == plain["args"] + POD_VALUES["extraArgs"]
    assert container["env"] == plain["env"] + POD_VALUES["extraEnv"]
    assert container["volumeMounts"] == plain["volumeMounts"] + POD_VALUES["extraVolumeMounts"]
    assert pod["volumes"] == plain_pod["volumes"] + POD_VALUES["extraVolumes"]
    own = {key: value for key, value in plain_pod["securityContext"].items() if key != "runAsGroup"}
    assert pod["securityContext"] == own | {"fsGroup": 65532}
    assert container["securityContext"] == plain["securityContext"] | {"privileged": False}
    assert container["livenessProbe"] == plain["livenessProbe"] | {"periodSeconds": 20}
    assert container["readinessProbe"] == plain["readinessProbe"] | {"failureThreshold": 9}
    (own_spread,) = plain_pod["topologySpreadConstraints"]
    assert spread == POD_VALUES["topologySpreadConstraints"][0] | {"labelSelector": own_spread["labelSelector"]}


def test_a_spread_constraint_keeps_its_own_selector(render: Render) -> None:
    own = POD_VALUES["topologySpreadConstraints"][0] | {"labelSelector": {"matchLabels": {"a": "b"}}}

    assert find_pod(render(*give({"topologySpreadConstraints": [own]})))[0]["topologySpreadConstraints"] == [own]


def test_the_test_pod_is_as_confined_as_the_operator(render: Render) -> None:
    objects = render(*give(POD_VALUES))
    test = find(objects, "Pod", "fairbind-test")["spec"]
    pod, container = find_pod(objects)

    assert test["securityContext"] == pod["securityContext"]
    assert test["containers"][0]["securityContext"] == container["securityContext"]


def test_more_objects_may_use_templates(render: Render) -> None:
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "{{ .Release.Name }}-more"}}
    text = 'apiVersion: v1\nkind: Secret\nmetadata:\n  name: {{ include "fairbind.fullname" . }}-text\n'
    objects = render(*give({"extraObjects": [config, text]}))

    assert find(objects, "ConfigMap", "fairbind-more")["apiVersion"] == "v1"
    assert find(objects, "Secret", "fairbind-text")["apiVersion"] == "v1"


def test_a_service_monitor_takes_the_usual_options(render: Render) -> None:
    cluster = [{"targetLabel": "cluster", "replacement": "north"}]
    drop = [{"sourceLabels": ["__name__"], "regex": "python_.*", "action": "drop"}]
    given = {"enabled": True, "interval": "1m", "scrapeTimeout": "20s", "labels": {"release": "prom"}}
    relabelings = {"relabelings": cluster, "metricRelabelings": drop}
    monitor = find(render(*give({"serviceMonitor": given | relabelings})), "ServiceMonitor")
    other = find(render(*give({"serviceMonitor": given | {"endpoint": {"interval": "2m"}}})), "ServiceMonitor")

    assert monitor["metadata"]["labels"]["release"] == "prom"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint.items() >= {"port": "metrics", "interval": "1m", "scrapeTimeout": "20s", **relabelings}.items()
    assert other["spec"]["endpoints"][0]["interval"] == "2m"
    assert "relabelings" not in other["spec"]["endpoints"][0]


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"nameOverride": "Not_A_Name"}, "/nameOverride"),
        ({"fullnameOverride": "a" * 53}, "/fullnameOverride"),
        ({"commonLabels": {"a": 1}}, "/commonLabels"),
        ({"image.digest": "sha256:abc"}, "/image/digest"),
        ({"image.registry": "two words"}, "/image/registry"),
        ({"image.registry": "example.com/"}, "/image/registry"),
        ({"image.registy": "example.com"}, "/image"),
        ({"serviceAccount.name": "Ours"}, "/serviceAccount/name"),
        ({"serviceAccount.automount": True}, "/serviceAccount"),
        ({"extraArgs": "--journal"}, "/extraArgs"),
        ({"extraEnv": [{"value": "1"}]}, "/extraEnv/0"),
        ({"extraVolumes": [{"emptyDir": {}}]}, "/extraVolumes/0"),
        ({"extraVolumeMounts": [{"name": "a", "mountpath": "/a"}]}, "/extraVolumeMounts/0"),
        ({"extraObjects": [{"kind": "ConfigMap"}]}, "/extraObjects/0"),
        ({"podSecurityContext": {"runAsRoot": True}}, "/podSecurityContext"),
        ({"containerSecurityContext": {"capabilities": {"drops": ["ALL"]}}}, "/containerSecurityContext/capabilities"),
        ({"livenessProbe": {"periodSeconds": 0}}, "/livenessProbe/periodSeconds"),
        ({"readinessProbe": {"exec": {}}}, "/readinessProbe"),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "/topologySpreadConstraints/0"),
        ({"serviceMonitor.scrapeTimeout": "soon"}, "/serviceMonitor/scrapeTimeout"),
        ({"serviceMonitor.relabelings": [{"target": "a"}]}, "/serviceMonitor/relabelings/0"),
        ({"policy.alphaPfVds": {"alpha": 2}}, "/policy/alphaPfVds"),
        ({"policy": {"name": "alpha-pf-vds", "dynamicDrf": {"expectedTenants": 2}}}, "/policy/dynamicDrf"),
        ({"policy": {"name": "dynamic-drf", "twoChoicesDrfh": {"seed": 2}}}, "/policy/twoChoicesDrfh"),
        ({"tenants": [{"weight": 2}]}, "/tenants/0"),
        ({"tenants": [{"name": "a", "weight": 0}]}, "/tenants/0/weight"),
        ({"strategy": {"type": "Sudden"}}, "/strategy/type"),
        ({"dnsPolicy": "None!"}, "/dnsPolicy"),
    ],
)
def test_wrong_values_are_refused_by_path(render: Render, value: Json, path: str) -> None:
    with pytest.raises(PlaneError) as refusal:
        render(*give(value))

    assert path in str(refusal.value)


def test_a_chart_that_this_one_is_part_of_may_leave_it_out(helm: Callable[..., str], tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    shutil.copytree(CHART, parent / "charts" / "fairbind")
    dependency = {"name": "fairbind", "version": "*", "condition": "fairbind.enabled"}
    described = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [dependency]}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(described), encoding="utf-8")

    assert "kind: Deployment" in helm("template", "x", parent, "--set=fairbind.enabled=true")
    assert "kind: Deployment" not in helm("template", "x", parent, "--set=fairbind.enabled=false")


def test_the_deployment_takes_what_others_take(render: Render) -> None:
    given = {
        "deploymentAnnotations": {"reloader": "yes"},
        "strategy": {"type": "Recreate"},
        "revisionHistoryLimit": 0,
        "hostNetwork": True,
        "envFrom": [{"configMapRef": {"name": "proxy"}}],
    }
    usual, other = find(render(), "Deployment"), find(render(*give(given)), "Deployment")

    assert usual["spec"]["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}
    assert usual["spec"]["revisionHistoryLimit"] == 3
    pod = usual["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert not {"hostNetwork", "dnsPolicy", "schedulerName"} & pod.keys()
    assert other["metadata"]["annotations"] == {"reloader": "yes"}
    assert (other["spec"]["strategy"], other["spec"]["revisionHistoryLimit"]) == ({"type": "Recreate"}, 0)
    pod, container = find_pod([other])
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert container["envFrom"] == given["envFrom"]
    assert find_pod(render("--set=dnsPolicy=Default"))[0]["dnsPolicy"] == "Default"


def test_a_quota_lets_pods_have_a_priority_class_of_the_system(render: Render) -> None:
    quota = find(render(), "ResourceQuota")

    assert quota["metadata"]["namespace"] == HOME
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["system-cluster-critical"]}
    assert quota["spec"]["scopeSelector"] == {"matchExpressions": [scope]}
    for values in (
        ("--set=resourceQuota.enabled=false",),
        ("--set=priorityClassName=mine",),
        ("--set=operator.enabled=false",),
        ("--namespace=kube-system",),
    ):
        assert not [thing for thing in render(*values) if thing["kind"] == "ResourceQuota"]


def test_tenants_are_part_of_the_release(render: Render) -> None:
    """Numbers become quantities: the CRD takes no fractions as numbers."""
    tenants = [
        {"name": "team-a", "weight": 0.5, "namespaces": ["a", "b"]},
        {"name": "team-b", "weight": 2, "namespaceSelector": {"matchLabels": {"team": "b"}}},
        {"name": "team-c", "weight": "500m", "resourceWeights": {"cpu": 0.25}},
    ]
    made = {
        thing["metadata"]["name"]: thing["spec"]
        for thing in render(*give({"tenants": tenants}))
        if thing["kind"] == "Tenant"
    }

    assert made == {
        "team-a": {"weight": "0.5", "namespaces": ["a", "b"]},
        "team-b": {"weight": "2", "namespaceSelector": {"matchLabels": {"team": "b"}}},
        "team-c": {"weight": "500m", "resourceWeights": {"cpu": "0.25"}},
    }


def test_the_api_server_takes_what_is_made_of_all_values(
    cluster: Cluster, render: Render, namespace: Callable[..., str], tmp_path: Path
) -> None:
    home = namespace(labels={"pod-security.kubernetes.io/enforce": "restricted"})
    extra: Json = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "more"}}
    given: dict[str, Any] = {"extraObjects": [extra], "policy.create": False, "dashboards.enabled": True}
    given["tenants"] = [{"name": "team-a", "weight": 0.5, "resourceWeights": {"cpu": 0.25}}]
    names = {"nameOverride": "sharing", "fullnameOverride": "sharing", "serviceAccount": {"name": "ours"}}
    objects = render(f"--namespace={home}", *give(POD_VALUES | given | names))
    pod = find(objects, "Deployment", "sharing")["spec"]["template"]
    alone: Json = {"apiVersion": "v1", "kind": "Pod", "spec": pod["spec"] | {"serviceAccountName": "default"}}
    alone["metadata"] = pod["metadata"] | {"name": "alone"}
    file = tmp_path / "objects.yaml"
    file.write_text(yaml.safe_dump_all([*objects, alone]), encoding="utf-8")

    said = cluster.kubectl(
        "apply", "--dry-run=server", "--validate=strict", f"--namespace={home}", f"--filename={file}"
    ).splitlines()

    assert len(said) == len(objects) + 1
    assert [line for line in said if "server dry run" not in line] == []
    assert HOME not in file.read_text(encoding="utf-8")
