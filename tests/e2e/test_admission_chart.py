"""What the chart renders of admission policies, NetworkPolicy and authenticated metrics, what it refuses and says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import yaml

from e2e.operators import NAMESPACE
from localplane.plane import CHART, PlaneError, run_tool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from e2e.api import Api
    from localplane.client import Json
    from localplane.tools import Tools

    Render = Callable[..., list[Json]]

MUTATING = "admissionregistration.k8s.io/{}/MutatingAdmissionPolicy"
POLICY = "ValidatingAdmissionPolicy"
OWN = ("status", "bindings", "volumes")


@pytest.fixture
def render(tools: Tools, tmp_path: Path) -> Render:
    """Return the objects that the chart renders with these further arguments of helm."""

    def render(*arguments: str) -> list[Json]:
        place = ["template", "fairbind", str(CHART), f"--namespace={NAMESPACE}"]
        text = run_tool(tools, "helm", [*place, *arguments], tmp_path)
        return [document for document in yaml.safe_load_all(text) if document]

    return render


def test_by_default_only_the_operator_itself_is_confined(render: Render) -> None:
    found = {(thing["kind"], thing["metadata"]["name"]) for thing in render("--api-versions", MUTATING.format("v1"))}

    assert {thing for thing in found if "Admission" in thing[0] or thing[0] == "NetworkPolicy"} == {
        ("NetworkPolicy", "fairbind"),
        *((f"ValidatingAdmissionPolicy{part}", f"fairbind-own-{what}") for part in ("", "Binding") for what in OWN),
    }


def test_whose_token_is_held_to_it_follows_the_release(render: Render) -> None:
    names = ("--set=schedulerName=fair", "--set=schedulerNames={volcano,fair}")
    objects = render("--set=admission.protect.lookUpPods=true", *names)
    policies = {thing["metadata"]["name"]: thing["spec"] for thing in objects if thing["kind"] == POLICY}

    assert policies.keys() == {f"fairbind-own-{what}" for what in (*OWN, "pods")}
    for policy in policies.values():
        (condition,) = policy["matchConditions"]
        assert condition["expression"] == f"request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:fairbind'"
        assert policy["failurePolicy"] == "Fail"
    for what in ("status", "pods"):
        assert 'in ["fair","volcano"]' in policies[f"fairbind-own-{what}"]["validations"][0]["expression"]
    (deployment,) = (thing for thing in objects if thing["kind"] == "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    typed = [arguments[place + 1] for place, word in enumerate(arguments) if word == "--scheduler-name"]
    assert typed == ["fair", "volcano", "fair"]


def test_in_extender_mode_pods_of_the_schedulers_that_ask_may_be_bound_too(render: Render) -> None:
    extender = {"tlsSecretName": "certificates", "schedulerNames": ["one", "two"], "ignorable": True}
    values = ["--set=mode=extender", f"--set-json=extender={json.dumps(extender)}"]
    objects = render(*values, "--set=admission.protect.lookUpPods=true")
    (policy,) = (
        thing["spec"]
        for thing in objects
        if thing["metadata"]["name"] == "fairbind-own-pods" and "validations" in thing["spec"]
    )

    (validation,) = policy["validations"]
    assert validation["expression"].endswith('params.spec.schedulerName in ["fairbind","one","two"]')
    assert validation["message"].endswith("fairbind or one or two")


@pytest.mark.parametrize(
    ("served", "version"), [(["v1"], "v1"), (["v1beta1"], "v1beta1"), (["v1", "v1beta1"], "v1")], ids=str
)
def test_the_newest_version_that_is_served_is_taken(render: Render, served: list[str], version: str) -> None:
    versions = [f"--api-versions={MUTATING.format(one)}" for one in served]
    objects = render("--set=admission.assign.enabled=true", *versions)

    found = {thing["apiVersion"] for thing in objects if thing["kind"].startswith("MutatingAdmission")}
    assert found == {f"admissionregistration.k8s.io/{version}"}


def test_where_it_is_not_served_helm_says_what_to_do(render: Render) -> None:
    with pytest.raises(PlaneError, match=r"serves no MutatingAdmissionPolicy.*admission\.forbid\.enabled"):
        render("--set=admission.assign.enabled=true")


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"namespaceSelector": {"matchLabels": {}}}, "/admission/namespaceSelector/matchLabels"),
        ({"namespaceSelector": {"labels": {}}}, "/admission/namespaceSelector"),
        ({"forbid": {"actions": ["Refuse"]}}, "/admission/forbid/actions"),
        ({"forbid": {"actions": []}}, "/admission/forbid/actions"),
        ({"forbid": {"priorityClassNames": ["a'b"]}}, "/admission/forbid/priorityClassNames"),
        ({"protectedLabels": ["a'b"]}, "/admission/protectedLabels"),
        ({"protectedLabels": "team"}, "/admission/protectedLabels"),
        ({"mutate": {"enabled": True}}, "/admission"),
        ({"protect": True}, "/admission/protect"),
        ({"constraintBudget": {"nodeTerms": 1}}, "/admission/constraintBudget"),
        ({"protect": {"lookupPods": True}}, "/admission/protect"),
    ],
    ids=str,
)
def test_wrong_values_are_refused_by_path(render: Render, values: Json, path: str) -> None:
    with pytest.raises(PlaneError) as refusal:
        render(f"--set-json=admission={json.dumps(values)}")

    assert path in str(refusal.value)


def test_names_follow_the_release_and_its_own_namespace_is_exempt(render: Render) -> None:
    values = {"forbid": {"enabled": True}, "protectedLabels": ["team"], "protect": {"enabled": False}}
    objects = render(f"--set-json=admission={json.dumps(values)}", "--set=schedulerName=fair")
    policies = [thing for thing in objects if thing["kind"] == POLICY]
    bindings = [thing for thing in objects if thing["kind"] == f"{POLICY}Binding"]
    conditions = [condition["expression"] for condition in policies[0]["spec"]["matchConditions"]]

    assert [policy["metadata"]["name"] for policy in policies] == ["fairbind-pods", "fairbind-namespaces"]
    assert [binding["spec"]["policyName"] for binding in bindings] == ["fairbind-pods", "fairbind-namespaces"]
    assert NAMESPACE in conditions[0]
    assert policies[0]["spec"]["validations"][0]["expression"].endswith('schedulerName in ["fair"]')


def test_a_network_policy_closes_the_port_but_for_those_who_are_named(render: Render, api: Api) -> None:
    """Judged by what it says, by whom its selectors and its port mean, and by the API server: kwok has no network."""
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    closed = {thing["kind"]: thing for thing in render()}
    opened = {thing["kind"]: thing for thing in render(f"--set-json=networkPolicy.metricsFrom={json.dumps([peer])}")}

    spec = closed["NetworkPolicy"]["spec"]
    own = {"app.kubernetes.io/name": "fairbind-test", "app.kubernetes.io/instance": "fairbind"}
    helm_test = {"podSelector": {"matchLabels": own}}
    ports = [{"port": "metrics", "protocol": "TCP"}]
    assert spec["ingress"] == [{"from": [helm_test], "ports": ports}]
    assert spec["policyTypes"] == ["Ingress"]
    assert opened["NetworkPolicy"]["spec"]["ingress"] == [{"from": [helm_test, peer], "ports": ports}]
    template = closed["Deployment"]["spec"]["template"]
    pods = {"app.kubernetes.io/name": "fairbind", "app.kubernetes.io/instance": "fairbind"}
    assert spec["podSelector"]["matchLabels"] == pods
    assert pods.items() <= template["metadata"]["labels"].items()
    assert own.items() <= closed["Pod"]["metadata"]["labels"].items()
    (container,) = template["spec"]["containers"]
    assert {"name": "metrics", "containerPort": 8080, "protocol": "TCP"} in container["ports"]
    for policy in (closed["NetworkPolicy"], opened["NetworkPolicy"]):
        path = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies"
        assert api.post(path, policy, dryRun="All", fieldValidation="Strict")["spec"] == policy["spec"]


def test_authenticated_metrics_need_tls(render: Render) -> None:
    with pytest.raises(PlaneError, match=r"needs metrics\.tls\.enabled"):
        render("--set=metrics.authentication.enabled=true", "--set=metrics.tls.enabled=false")


def find_endpoint(objects: list[Json]) -> Json:
    (monitor,) = (thing for thing in objects if thing["kind"] == "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]
    return {key: value for key, value in endpoint.items() if key not in {"port", "path", "interval"}}


def find_operator(objects: list[Json]) -> Json:
    (deployment,) = (thing for thing in objects if thing["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(container)


MONITOR = "--set=serviceMonitor.enabled=true"
AUTHENTICATED = "--set=metrics.authentication.enabled=true"
TOKEN_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/token"


def test_authentication_of_readers_is_one_value(render: Render) -> None:
    objects = render(AUTHENTICATED, MONITOR)
    container = find_operator(objects)

    assert container["args"][-3:] == ["--metrics-tls", "self-signed", "--metrics-authentication"]
    assert [mount["name"] for mount in container["volumeMounts"]] == ["tmp"]
    unverified = {"scheme": "https", "tlsConfig": {"insecureSkipVerify": True}}
    assert find_endpoint(objects) == {"honorLabels": True, **unverified, "bearerTokenFile": TOKEN_FILE}


def test_an_audience_of_its_own_wants_a_token_of_its_own(render: Render) -> None:
    audiences = '--set-json=metrics.authentication.audiences=["fairbind","metrics"]'
    objects = render(AUTHENTICATED, MONITOR, audiences)

    audiences_given = ["--metrics-audience", "fairbind", "--metrics-audience", "metrics"]
    assert find_operator(objects)["args"][-5:] == ["--metrics-authentication", *audiences_given]
    assert "bearerTokenFile" not in find_endpoint(objects)


def test_what_is_said_of_the_endpoint_wins(render: Render) -> None:
    own = {"tlsConfig": {"ca": {"secret": {"name": "ca", "key": "ca.crt"}}}, "authorization": {"credentials": {}}}
    objects = render(AUTHENTICATED, MONITOR, f"--set-json=serviceMonitor.endpoint={json.dumps(own)}")

    assert find_endpoint(objects) == {"honorLabels": True, "scheme": "https", **own}


def test_https_can_be_left_out(render: Render) -> None:
    objects = render(MONITOR, "--set=metrics.tls.enabled=false", "--set=metrics.tls.secretName=ignored")
    container = find_operator(objects)

    assert "--metrics-tls" not in container["args"]
    assert "scheme" not in container["livenessProbe"]["httpGet"]
    assert [mount["name"] for mount in container["volumeMounts"]] == ["tmp"]
    assert find_endpoint(objects) == {"honorLabels": True}


def test_authenticated_metrics_reach_operator_probes_and_monitor(render: Render) -> None:
    objects = render(
        "--set=metrics.authentication.enabled=true",
        "--set=metrics.tls.secretName=fairbind-tls",
        "--set=serviceMonitor.enabled=true",
        '--set-json=serviceMonitor.endpoint={"authorization":{"credentials":{"name":"prometheus","key":"token"}}}',
    )
    found = {(thing["kind"], thing["metadata"]["name"]): thing for thing in objects}
    pod = found["Deployment", "fairbind"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (endpoint,) = found["ServiceMonitor", "fairbind"]["spec"]["endpoints"]

    assert container["args"][-3:] == ["--metrics-tls", "/etc/fairbind/tls", "--metrics-authentication"]
    assert {"name": "tls", "mountPath": "/etc/fairbind/tls", "readOnly": True} in container["volumeMounts"]
    assert {"name": "tls", "secret": {"secretName": "fairbind-tls"}} in pod["volumes"]
    assert container["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert container["readinessProbe"]["httpGet"]["scheme"] == "HTTPS"
    assert endpoint["scheme"] == "https"
    (probe,) = found["Pod", "fairbind-test"]["spec"]["containers"]
    assert probe["command"][-1] == f"https://fairbind.{NAMESPACE}:8080/readyz"
    assert endpoint["authorization"]["credentials"]["name"] == "prometheus"
    role = found["ClusterRole", "fairbind-metrics-authentication"]
    granted = {
        (group, resource) for rule in role["rules"] for group in rule["apiGroups"] for resource in rule["resources"]
    }
    assert granted == {
        ("authentication.k8s.io", "tokenreviews"),
        ("authorization.k8s.io", "subjectaccessreviews"),
    }
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"create"}


@pytest.mark.parametrize(("keep", "said"), [("true", "keeps the CRDs"), ("false", "removes the CRDs")])
def test_the_notes_say_what_an_uninstall_does_with_the_crds(tools: Tools, tmp_path: Path, keep: str, said: str) -> None:
    """Where they belong to the release, an upgrade brings them too, so nobody has to apply them."""
    place = ["install", "fairbind", str(CHART), f"--namespace={NAMESPACE}", "--dry-run=client"]
    values = ["--set=crds.upgrade=false", f"--set=crds.keep={keep}"]
    notes = run_tool(tools, "helm", [*place, *values], tmp_path).partition("\nNOTES:\n")[2]

    assert f"uninstall {said}" in notes
    assert ("kubectl apply --server-side" in notes) == (keep == "true")


SERVED = f"--api-versions={MUTATING.format('v1')}"


def test_in_gate_mode_the_operator_is_told_so_and_confined(render: Render) -> None:
    numbers = ("gate.maxUngated=7", "gate.ungatedTimeoutSeconds=5", "gate.maxScaleUp=3", "gate.placement=node")
    objects = render("--set=mode=gate", "--set=gate.schedulerName=other", *(f"--set={n}" for n in numbers), SERVED)

    (deployment,) = (thing for thing in objects if thing["kind"] == "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    first = arguments.index("--mode")
    wanted = ["gate", "--gate-scheduler-name", "other", "--max-ungated", "7", "--ungated-timeout", "5"]
    wanted += ["--max-scale-up", "3", "--gate-placement", "node"]
    assert arguments[first + 1 : first + 12] == wanted
    assert {thing["metadata"]["name"] for thing in objects if thing["kind"] == POLICY} >= {
        "fairbind-gate",
        "fairbind-gate-removal",
        "fairbind-own-gate",
    }


def test_in_gate_mode_a_label_says_in_which_namespaces_fairbind_binds(render: Render) -> None:
    """Whatever else chooses namespaces; in bind mode the label means nothing."""
    selector = {"matchExpressions": [{"key": "team", "operator": "Exists"}]}
    values = {"namespaceSelector": selector, "assign": {"enabled": True}, "forbid": {"enabled": True}}

    def find_selectors(mode: str) -> dict[str, Json]:
        objects = render(f"--set=mode={mode}", f"--set-json=admission={json.dumps(values)}", SERVED)
        bindings = (thing for thing in objects if thing["kind"].endswith("PolicyBinding"))
        return {
            f"{thing['kind'].removesuffix('AdmissionPolicyBinding')} {thing['spec']['policyName']}": thing["spec"][
                "matchResources"
            ]["namespaceSelector"]
            for thing in bindings
            if "matchResources" in thing["spec"]
        }

    def choose(operator: str) -> Json:
        mode = {"key": "fairbind.io/mode", "operator": operator, "values": ["bind"]}
        return {"matchExpressions": [*selector["matchExpressions"], mode]}

    assert find_selectors("gate") == {
        "Mutating fairbind-gate": choose("NotIn"),
        "Validating fairbind-gate": selector,
        "Mutating fairbind-pods": choose("In"),
        "Validating fairbind-pods": choose("In"),
    }
    assert find_selectors("bind") == {"Mutating fairbind-pods": selector, "Validating fairbind-pods": selector}


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (("admission.protect.enabled=false",), "only admission.protect.enabled confines"),
        (("gate.schedulerName=fairbind",), "must be another scheduler"),
        (("gate.maxUngated=0",), "/gate/maxUngated"),
        (("mode=other",), "/mode"),
    ],
    ids=str,
)
def test_gate_mode_refuses_what_would_not_work(render: Render, values: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(PlaneError) as refusal:
        render("--set=mode=gate", *(f"--set={value}" for value in values), SERVED)

    assert complaint in str(refusal.value)


EXTENDER = (
    "--set=mode=extender",
    "--set=extender.tlsSecretName=pair",
    "--set=extender.operatorSchedulerName=system-scheduler",
)


def test_in_extender_mode_the_operator_is_told_so(render: Render) -> None:
    values = ("schedulerNames={one,two}", "clientNames={me}", "maxTurns=7", "turnTimeoutSeconds=5")
    objects = render(*EXTENDER, *(f"--set=extender.{value}" for value in values))

    (deployment,) = (thing for thing in objects if thing["kind"] == "Deployment")
    arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    first, last = arguments.index("--mode"), arguments.index("--log-format")
    assert arguments[first:last] == [
        *("--mode", "extender", "--extender-scheduler-name", "one", "--extender-scheduler-name", "two"),
        *("--extender-address", ":8443", "--extender-tls", "/etc/fairbind/extender", "--extender-client-name", "me"),
        *("--extender-service", "fairbind-extender", "--max-turns", "7", "--turn-timeout", "5"),
    ]
    added = {(thing["kind"], thing["metadata"]["name"]) for thing in objects}
    added -= {(thing["kind"], thing["metadata"]["name"]) for thing in render()}
    assert added == {(kind, "fairbind-extender") for kind in ("Service", "Role", "RoleBinding", "ConfigMap")}


def test_the_example_of_a_configuration_is_the_charts(render: Render) -> None:
    (found,) = (thing for thing in render(*EXTENDER) if thing["kind"] == "ConfigMap")
    example = (CHART.parents[1] / "deploy" / "examples" / "kube-scheduler.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(found["data"]["config.yaml"]) == yaml.safe_load(example)


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        (("admission.protect.enabled=false",), "only admission.protect.enabled confines"),
        (("extender.schedulerNames={default-scheduler,fairbind}",), "must name other schedulers"),
        (("extender.tlsSecretName=",), "needs extender.tlsSecretName"),
        (("extender.operatorSchedulerName=",), "extender.ignorable=false: once all operators are gone"),
        (("extender.operatorSchedulerName=default-scheduler",), "a scheduler that does not ask fairbind"),
        (("extender.httpTimeout=soon",), "/extender/httpTimeout"),
        (("extender.clientNames={}",), "/extender/clientNames"),
    ],
    ids=str,
)
def test_extender_mode_refuses_what_would_not_work(render: Render, values: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(PlaneError) as refusal:
        render(*EXTENDER, *(f"--set={value}" for value in values))

    assert complaint in str(refusal.value)


class TestBothReplicasAreGone:
    """In extender mode kube-scheduler asks about the operator's own new pods, and there is none to answer."""

    def test_a_scheduler_that_does_not_ask_places_them(self, render: Render) -> None:
        objects = render(*EXTENDER)
        (deployment,) = (thing for thing in objects if thing["kind"] == "Deployment")
        (configured,) = (thing for thing in objects if thing["kind"] == "ConfigMap")
        configuration = yaml.safe_load(configured["data"]["config.yaml"])

        assert configuration["extenders"][0]["ignorable"] is False
        asking = {profile["schedulerName"] for profile in configuration["profiles"]}
        assert deployment["spec"]["template"]["spec"]["schedulerName"] == "system-scheduler"
        assert "system-scheduler" not in asking

    def test_or_kube_scheduler_goes_on_without_an_answer(self, render: Render) -> None:
        objects = render(*EXTENDER[:2], "--set=extender.ignorable=true")
        (deployment,) = (thing for thing in objects if thing["kind"] == "Deployment")
        (configured,) = (thing for thing in objects if thing["kind"] == "ConfigMap")

        assert yaml.safe_load(configured["data"]["config.yaml"])["extenders"][0]["ignorable"] is True
        assert "schedulerName" not in deployment["spec"]["template"]["spec"]

    def test_otherwise_the_chart_refuses(self, render: Render) -> None:
        with pytest.raises(PlaneError, match=r"extender\.ignorable=false.*extender\.operatorSchedulerName"):
            render(*EXTENDER[:2])
        render(*EXTENDER[:2], "--set=operator.enabled=false")  # its pods are placed elsewhere


MODES = {"bind": (), "gate": ("--set=mode=gate",), "extender": EXTENDER}
ALL_POLICIES = {
    "forbid": {"enabled": True, "priorityClassNames": ["low"]},
    "assign": {"enabled": True},
    "constraintBudget": {"enabled": True},
    "protect": {"enabled": True, "lookUpPods": True},
    "protectedLabels": ["team"],
}


@pytest.mark.parametrize("mode", MODES)
def test_the_api_server_takes_every_policy_in_every_mode(render: Render, api: Api, mode: str) -> None:
    """Written with dryRun, the API server compiles every expression."""
    values = ["--set=fullnameOverride=every", f"--set-json=admission={json.dumps(ALL_POLICIES)}"]
    objects = render(*MODES[mode], *values, SERVED)
    policies = [thing for thing in objects if "AdmissionPolicy" in thing["kind"]]

    found = {thing["metadata"]["name"].removeprefix("every-") for thing in policies}
    everywhere = {"pods", "namespaces", "constraints", *(f"own-{what}" for what in (*OWN, "pods"))}
    gates = {"gate", "gate-removal", "own-gate", "priorities"}
    assert found == everywhere | (gates if mode == "gate" else set())
    for policy in policies:
        group, _, version = policy["apiVersion"].partition("/")
        plural = policy["kind"].lower().removesuffix("y") + "ies" if policy["kind"].endswith("y") else ""
        path = f"/apis/{group}/{version}/{plural or policy['kind'].lower() + 's'}"
        assert api.post(path, policy, dryRun="All", fieldValidation="Strict")["spec"]


def test_in_extender_mode_pods_may_name_the_schedulers_that_ask(render: Render) -> None:
    given = ["--set=admission.forbid.enabled=true", "--set=extender.schedulerNames={one,two}"]
    (policy,) = (
        thing
        for thing in render(*EXTENDER, *given)
        if (thing["kind"], thing["metadata"]["name"]) == (POLICY, "fairbind-pods")
    )

    validation = policy["spec"]["validations"][0]
    assert validation["expression"].endswith('object.spec.schedulerName in ["fairbind","one","two"]')
    assert validation["message"].endswith("must be fairbind or one or two")


def test_in_gate_mode_priorities_are_limited_where_pods_take_turns(render: Render) -> None:
    given = ["--set=admission.forbid.enabled=true", "--set=admission.forbid.priorityClassNames={low,mid}"]
    found = {
        (thing["kind"], thing["metadata"]["name"]): thing["spec"]
        for thing in render("--set=mode=gate", *given, SERVED)
        if thing["metadata"]["name"] == "fairbind-priorities"
    }

    assert found.keys() == {(POLICY, "fairbind-priorities"), (f"{POLICY}Binding", "fairbind-priorities")}
    (validation,) = found[POLICY, "fairbind-priorities"]["validations"]
    assert validation["expression"].endswith('object.spec.priorityClassName in ["low","mid"]')
    selector = found[f"{POLICY}Binding", "fairbind-priorities"]["matchResources"]["namespaceSelector"]
    assert selector["matchExpressions"] == [{"key": "fairbind.io/mode", "operator": "NotIn", "values": ["bind"]}]
    assert not any(thing["metadata"]["name"] == "fairbind-priorities" for thing in render(*given))
