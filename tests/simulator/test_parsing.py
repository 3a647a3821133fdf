from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from fairbind.cli.mechanisms.schema import compute_schema
from fairbind.cli.mechanisms.yaml_text import read_yaml
from fairbind.model import InvalidProblemError
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.scenario import SetTenant
from simulator.scenarios import Json, make_entry, make_scenario

NAN = float("nan")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def make_spread(**changed: Any) -> Json:
    return {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **changed}


def require_node(expression: Json) -> Json:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}}


GOOD: Json = {
    "name": "late-tenant",
    "seed": 7,
    "horizon": 3600,
    "cluster": [
        {
            "shape": "big",
            "count": 3,
            "capacity": {"cpu": 32, "memory": "128Gi", "pods": 110},
            "labels": {"disk": "ssd"},
            "taints": [{"key": "gpu", "effect": "NoSchedule"}],
        },
        {"shape": "small", "capacity": {"cpu": "500m"}},
    ],
    "tenants": [{"name": "a", "weight": 2, "namespaces": ["a-more"]}, {"name": "b", "resourceWeights": {"cpu": "0.5"}}],
    "workload": [
        {
            "tenant": "a",
            "name": "train",
            "tasks": 40,
            "arrival": {"at": 0},
            "duration": 60,
            "pod": {
                "requests": {"cpu": 1, "memory": "4Gi"},
                "nodeSelector": {"disk": "ssd"},
                "priority": 10,
                "tolerations": [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 5}],
                "topologySpreadConstraints": [make_spread(labelSelector={"matchLabels": {"a": "b"}})],
                "affinity": require_node({"key": "size", "operator": "Gt", "values": ["5"]}),
            },
        },
        make_entry("x", arrival={"every": 5, "at": 10}, duration={"exponential": 60}, tasks=None),
        make_entry("x", arrival={"poisson": 0.2}, duration={"uniform": [10, 20]}, tasks=None, namespace="a-more"),
        make_entry("y", arrival={"times": [1, 2.5]}, duration={"lognormal": {"median": 60, "sigma": 1}}, tasks=None),
        make_entry("z", duration="forever", tenant="b"),
        make_entry("gang", tasks=8, gang={"min": 3, "size": 4, "topology": {"required": "disk"}}),
    ],
    "events": [
        {"at": 600, "addNodes": {"shape": "big", "count": 2}},
        {"at": 700, "removeNodes": ["big-4"]},
        {"at": 700, "cordon": ["big-1"]},
        {"at": 800, "uncordon": ["big-1"]},
        {"at": 800, "tenant": {"name": "a", "weight": 3}},
        {"at": 850, "removeTenant": "a"},
        {"at": 900, "autoscaler": {"shape": "big", "max": 20, "delay": 60}},
        {"at": 950, "cordon": ["big-17"]},
    ],
    "policies": ["best-fit-drfh", "ps-dsf"],
    "measureEvery": 10,
}

BAD: list[tuple[str, Any, str]] = [
    ("horzon", 5, "horzon: is no field here; did you mean horizon?"),
    ("horizon", -1, "horizon: must be a number from 1e-09 to 1e+09, not -1"),
    ("horizon", 0, "horizon: must be a number from 1e-09 to 1e+09, not 0"),
    ("horizon", NAN, "horizon: must be a number from 1e-09 to 1e+09, not NaN"),
    ("seed", 1.5, "seed: must be a whole number from 0"),
    ("seed", True, "seed: must be a whole number from 0"),
    ("name", "", 'name: must be text of printable characters, not ""'),
    ("measureEvery", 0, "measureEvery: must be a number from 1e-09"),
    ("measureEvery", 1e-9, "measureEvery: must leave at most 10000000 measurements up to the horizon"),
    ("policies.0", "ps-dfs", 'policies[0]: "ps-dfs" is no policy; did you mean ps-dsf?'),
    ("policies.0", "ps-dsf", 'policies[1]: must differ from all others, but "ps-dsf" is there already'),
    ("slots", 0, "slots: must be a whole number from 1"),
    ("policies", [], "policies: must have at least one entry, not []"),
    ("cluster", [], "cluster: must have at least one entry, not []"),
    ("cluster.0.capacity.cpu", 0, "cluster[0].capacity.cpu: must be a quantity above 0, not 0"),
    ("cluster.0.capacity.cpu", "much", 'cluster[0].capacity.cpu: must be a quantity above 0, not "much"'),
    ("cluster.0.capacity.cpu", NAN, "cluster[0].capacity.cpu: must be a quantity above 0, not NaN"),
    ("cluster.0.capacity.cpu", True, "cluster[0].capacity.cpu: must be a quantity above 0, not true"),
    ("cluster.0.capacity.cpu", 1e18, "cluster[0].capacity.cpu: must be a smaller quantity"),
    ("cluster.0.capacity", {}, "cluster[0].capacity: must have more than 0 of at least one resource, not {}"),
    ("cluster.0.count", -1, "cluster[0].count: must be a whole number from 0"),
    ("cluster.1.shape", "big", 'cluster[1].shape: must differ from all others, but "big" is cluster[0].shape already'),
    ("cluster.0.labels.disk", 1, "cluster[0].labels.disk: must be text (put it in quotes), not 1"),
    ("cluster.0.taints.0.effect", "Never", "cluster[0].taints[0].effect: must be one of NoSchedule"),
    ("cluster.0.taints", "x", "cluster[0].taints: must be a list"),
    ("knownRunTimes", "yes", "knownRunTimes must be true or false"),
    ("workload.5.gang.min", 5, "workload[5].gang.min: must be at most gang.size, 4, not 5"),
    ("workload.5.gang.min", 0, "workload[5].gang.min: must be a whole number from 1"),
    ("workload.5.gang.size", "4", "workload[5].gang.size: must be a whole number from 1"),
    ("workload.5.gang.topology", {}, "workload[5].gang.topology"),
    ("workload.5.gang.topology.required", 5, "workload[5].gang.topology.required: must be text"),
    (
        "tenants.0.weight",
        0,
        "tenants[0].weight: must be a number or a quantity from 0.001 to 1000, such as 0.5 or 500m, not 0",
    ),
    ("tenants.1.name", "a", 'tenants[1].name: must differ from all others, but "a" is tenants[0].name already'),
    ("tenants.1.namespaces", ["a-more"], 'tenants[1].namespaces: must differ from all others, but "a-more"'),
    ("tenants.1.name", "a b", "tenants[1].name: must be a name of at most 100 letters"),
    ("tenants.1.parent", "c", 'tenants[1].parent: "c" is no tenant then'),
    ("tenants.1.parent", "b", "tenants[1].parent: must be the name of another Tenant, not 'b'"),
    ("tenants.1.priority", 1001, "tenants[1].priority: must be a whole number from -1000 to 1000, not 1001"),
    ("tenants.1.guarantee", [{}], "tenants[1].guarantee[0].resources: must map resources to quantities, not None"),
    ("tenants.1.lending", "no", "tenants[1].lending: must be Always or Never, not 'no'"),
    ("tenants.1.minRuntimeSeconds", -1, "tenants[1].minRuntimeSeconds: must be a whole number from 0"),
    ("tenants.1.users", {}, "tenants[1].users: must have the field label"),
    ("events.4.tenant.parent", "c", 'events[4].tenant.parent: "c" is no tenant then'),
    ("tenants.1", "b", 'tenants[1]: must be an object with name, not "b"'),
    ("workload.0.tenant", "aa", 'workload[0].tenant: "aa" is no tenant here; did you mean a'),
    ("workload.0.duration", -5, "workload[0].duration: must be a number from 1e-09 to 1e+09, not -5"),
    ("workload.0.duration", "ever", "workload[0].duration: must be a number of seconds, forever, or an object with"),
    ("workload.0.duration", {"exponetial": 5}, "exponetial: is no field here; did you mean exponential?"),
    ("workload.0.duration", {}, "workload[0].duration: must have exactly one of exponential, lognormal, uniform"),
    ("workload.0.duration", {"uniform": [5, 1]}, "workload[0].duration.uniform[1]: must be a number from 5"),
    ("workload.0.duration", {"uniform": 5}, "workload[0].duration.uniform: must be a list of two numbers"),
    ("workload.0.duration", {"lognormal": {"median": 1}}, "workload[0].duration.lognormal.sigma: is missing"),
    ("workload.0.tasks", 0, "workload[0].tasks: must be a whole number from 1"),
    ("workload.0.arrival", {"at": -1}, "workload[0].arrival.at: must be a number from 0"),
    ("workload.0.arrival", {"every": 0}, "workload[0].arrival.every: must be a number from 1e-09"),
    ("workload.0.arrival", {"every": 1, "poisson": 1}, "workload[0].arrival: must have at, or one of every, poisson"),
    ("workload.0.arrival", {}, "workload[0].arrival: must have at, or one of every, poisson and times"),
    ("workload.0.arrival", {"times": [1]}, "workload[0].tasks: must be the number of times in arrival.times, 1"),
    ("workload.3.arrival", {"times": [1], "at": 1}, "workload[3].arrival.at: must not stand beside times"),
    ("workload.3.arrival", {"at": 1}, "workload[3].tasks: is missing; only with every or poisson and a horizon"),
    ("workload.1.arrival.every", 1e-6, "workload[1].tasks: is missing, and up to the horizon there would be more"),
    ("workload.2.namespace", "b", 'workload[2].namespace: "b" is no namespace of the tenant; known are a, a-more'),
    ("workload.3.name", "train", 'workload[3].name: must differ from all others, but "a/train" is workload[0].name'),
    ("workload.0.pod.nodeSelctor", {}, "workload[0].pod.nodeSelctor: is no field here; did you mean nodeSelector?"),
    ("workload.0.pod.requests.cpu", -1, "workload[0].pod.requests.cpu: must be a quantity from 0, not -1"),
    ("workload.0.pod.priority", 1.5, "workload[0].pod.priority: must be a whole number"),
    ("workload.0.pod.priority", "high", "workload[0].pod.priority: must be a whole number"),
    ("workload.0.pod.containers", [], "workload[0].pod.requests: must not stand beside containers"),
    ("workload.0.pod.tolerations.0.key", 5, "workload[0].pod.tolerations[0].key: expected `str | null`, got `int`"),
    (
        "workload.0.pod.affinity",
        {"nodeAffinty": {}},
        "workload[0].pod.affinity.nodeAffinty: is no field here; did you mean nodeAffinity?",
    ),
    *(
        (f"workload.0.pod.{where}", value, f"workload[0].pod.{found}")
        for where, value, found in (
            ("tolerations.0.kye", "gpu", "tolerations[0].kye: is no field here; did you mean key?"),
            ("tolerations.0.operator", "Exist", "tolerations[0].operator: must be one of Exists, Equal, Lt, Gt, not"),
            ("tolerations.0.effect", "NoShedule", "tolerations[0].effect: must be one of NoSchedule, "),
            ("topologySpreadConstraints", [make_spread(maxSkew=0)], "topologySpreadConstraints[0].maxSkew: must be a"),
            (
                "topologySpreadConstraints",
                [make_spread(topologyKey="")],
                "topologySpreadConstraints[0].topologyKey: is",
            ),
            (
                "topologySpreadConstraints",
                [make_spread(whenUnsatisfiable="Never")],
                "topologySpreadConstraints[0].whenUnsatisfiable: must be one of DoNotSchedule, ScheduleAnyway",
            ),
            (
                "affinity",
                {"podAffinity": {PREFERRED: [{"weight": 101, "podAffinityTerm": {"topologyKey": "z"}}]}},
                f"affinity.podAffinity.{PREFERRED}[0].weight: must be a whole number from 1 to 100, not 101",
            ),
            *(
                ("affinity", require_node(expression), f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].{found}")
                for expression, found in (
                    ({"key": "a", "operator": "Inn"}, "matchExpressions[0].operator: must be one of In, NotIn, "),
                    ({"key": "a"}, "matchExpressions[0].operator: is missing"),
                    ({"key": "a", "operator": []}, "matchExpressions[0].operator: expected `str`"),
                    ({"key": "a", "operator": "In"}, "matchExpressions[0].values: must have at least one entry"),
                    ({"key": "a", "operator": "Gt", "values": ["x"]}, "matchExpressions[0].values: must be one whole"),
                    ({"key": "a", "operator": "Exists", "values": ["x"]}, "matchExpressions[0].values: must not stand"),
                )
            ),
        )
    ),
    ("workload.0.pod.overhead", {"cpu": "x"}, "workload[0].pod: a field that makes no sense: spec.overhead"),
    ("events", 5, "events: must be a list of events, not 5"),
    ("events.0.at", -1, "events[0].at: must be a number from 0"),
    ("events.0.cordon", ["big-0"], "events[0]: must have exactly one of addNodes"),
    ("events.0.addNodes.shape", "bg", 'events[0].addNodes.shape: "bg" is no shape of the cluster; did you mean big?'),
    ("events.1.removeNodes", ["big-9"], 'events[1].removeNodes[0]: "big-9" is no node then; did you mean big-'),
    ("events.1.removeNodes", ["big-1"], 'events[2].cordon[0]: "big-1" is no node then'),
    ("events.1.at", 500, 'events[1].removeNodes[0]: "big-4" is no node then'),
    ("events.4.tenant.name", "ab", 'events[4].tenant.name: "ab" is no tenant here; did you mean b?'),
    ("events.5.removeTenant", "ab", 'events[5].removeTenant: "ab" is no tenant then; did you mean b?'),
    ("events.6.autoscaler.max", 0, "events[6].autoscaler.max: must be a whole number from 1"),
    ("events.7.cordon", ["small-17"], 'events[7].cordon[0]: "small-17" is no node then'),
]


def change(document: Json, path: str, value: Any) -> Json:
    """Return the document with another value at a path."""
    changed = copy.deepcopy(document)
    place: Any = changed
    *parents, last = [int(part) if part.isdecimal() else part for part in path.split(".")]
    for part in parents:
        place = place[part]
    place[last] = value
    return changed


@pytest.mark.parametrize(("path", "value", "message"), BAD, ids=[f"{path}={value}"[:50] for path, value, _ in BAD])
def test_what_cannot_be_meant_is_refused_with_its_path(path: str, value: Any, message: str) -> None:
    with pytest.raises(InvalidProblemError, match=re.escape(message)) as caught:
        parse_scenario(change(GOOD, path, value))

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", ["cluster", "tenants", "workload"])
def test_what_must_be_there_is_named(field: str) -> None:
    document = {name: part for name, part in GOOD.items() if name != field}

    message = f"^{field}: is missing; cluster, tenants and workload must be there$"
    with pytest.raises(InvalidProblemError, match=message):
        parse_scenario(document)


def test_a_scenario_must_be_an_object() -> None:
    with pytest.raises(InvalidProblemError, match=r"^scenario: must be an object with .*, not a list$"):
        parse_scenario([GOOD])


def test_without_a_horizon_tasks_must_be_said() -> None:
    document = make_scenario(make_entry(tasks=None, arrival={"every": 5}))

    with pytest.raises(InvalidProblemError, match=r"^workload\[0\]\.tasks: is missing; without it there must be a hor"):
        parse_scenario(document)


def test_the_good_scenario_is_read_as_it_is_meant() -> None:
    scenario = parse_scenario(GOOD)

    assert (scenario.name, scenario.seed, scenario.horizon) == ("late-tenant", 7, 3600 * 10**9)
    assert [shape.count for shape in scenario.shapes.values()] == [3, 1]
    assert dict(scenario.shapes["big"].node.allocatable)["memory"] == 128 * 2**30
    assert dict(scenario.shapes["small"].node.allocatable) == {"cpu": 500, "pods": 1_000_000}
    assert scenario.tenants[0].namespaces == {"a", "a-more"}
    assert scenario.workload[2].waiting.namespace == "a-more"
    assert scenario.workload[0].waiting.priority == 10
    change = scenario.events[4].action
    assert isinstance(change, SetTenant)
    assert (float(change.spec.weight), sorted(change.spec.namespaces)) == (3, ["a", "a-more"]), (
        "what is left out stays as it was"
    )


GUARANTEE: Json = {"resources": {"cpu": 2}}


def test_a_tenant_takes_the_keys_of_a_spec_and_an_event_changes_some() -> None:
    """What an event leaves out stays; `null` is the root, and an empty list is no limit."""
    tenants = [
        {"name": "top"},
        {
            "name": "a",
            "parent": "top",
            "priority": 5,
            "guarantee": [GUARANTEE],
            "lending": "Never",
            "limit": [GUARANTEE],
            "minRuntimeSeconds": 60,
            "users": {"label": "user"},
        },
    ]
    events = [
        {"at": 1, "tenant": {"name": "a", "priority": -5}},
        {"at": 2, "tenant": {"name": "a", "parent": None, "limit": [], "lending": "Always"}},
        {"at": 3, "tenant": {"name": "late"}},
        {"at": 4, "tenant": {"name": "a", "parent": "late", "users": None}},
    ]
    scenario = parse_scenario({**make_scenario(make_entry(tenant="a"), events=events), "tenants": tenants})
    specs = [
        scenario.tenants[1],
        *(event.action.spec for event in scenario.events if isinstance(event.action, SetTenant)),
    ]
    a = [spec for spec in specs if spec.name == "a"]

    assert [spec.parent for spec in a] == ["top", "top", None, "late"]
    assert [spec.priority for spec in a] == [5, -5, -5, -5]
    assert [len(spec.limit) for spec in a] == [1, 1, 0, 0]
    assert [spec.lends for spec in a] == [False, False, True, True]
    assert [spec.users_label for spec in a] == ["user", "user", "user", None]
    assert {(len(spec.guarantee), spec.min_runtime_seconds) for spec in a} == {(1, 60)}


def test_events_come_in_the_order_of_their_times() -> None:
    scenario = parse_scenario(change(GOOD, "events.0.at", 0))

    assert [event.at // 10**9 for event in scenario.events] == [0, 700, 700, 800, 800, 850, 900, 950]


def test_a_tenant_that_only_an_event_brings_may_have_tasks() -> None:
    document = make_scenario(make_entry(tenant="late"), events=[{"at": 5, "tenant": {"name": "late", "weight": 2}}])

    assert parse_scenario(document).workload[0].tenant == "late"


def test_fields_of_real_manifests_that_nobody_reads_are_no_error() -> None:
    affinity: Json = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}
    spread = [{"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1}]
    pod = {"affinity": affinity, "topologySpreadConstraints": spread}

    assert parse_scenario(make_scenario(make_entry(pod=pod))).workload[0].waiting.unsupported is None


def test_the_example_of_the_reference_is_a_scenario() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "scenario.md").read_text(encoding="utf-8")
    example = read_yaml(page.partition("```yaml\n")[2].partition("```")[0])

    assert [entry.name for entry in parse_scenario(example).workload] == ["train", "serve"]


def test_the_schema_takes_what_is_read_and_refuses_what_it_can() -> None:
    schema = json.loads(compute_schema("scenario"))
    validator = jsonschema.Draft202012Validator(schema)

    validator.validate(GOOD)
    refused = [path for path, value, _ in BAD if not validator.is_valid(change(GOOD, path, value))]
    assert {"horzon", "horizon", "workload.0.duration", "events.0.at", "cluster.0.taints.0.effect"} <= set(refused)
    assert (
        len(refused) > sum(".pod." not in path for path, _, _ in BAD) / 2
    )  # what a pod may say is Kubernetes' to know
