"""Pods whose constraints exceed the operator's budget are refused by the chart's policy on a real API server."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from e2e.conftest import remove
from e2e.members import check_compiled, check_refused, try_pod, wait_allowed, wait_refused
from e2e.objects import make_pod
from e2e.workloads import SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api, Json
    from e2e.clusters import Cluster

ON = {"operator": {"enabled": False}, "admission": {"constraintBudget": {"enabled": True}}}
OFF = {"operator": {"enabled": False}}


def make_expression(values: int = 1, number: int = 0) -> Json:
    return {"key": f"k{number}", "operator": "NotIn", "values": [f"v{value}" for value in range(values)]}


def require(*terms: Json) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def prefer(*terms: Json) -> Json:
    wishes = [{"weight": 1, "preference": term} for term in terms]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}


def make_terms(count: int, *, expressions: int = 1, values: int = 1) -> list[Json]:
    return [{"matchExpressions": [make_expression(values, n) for n in range(expressions)]} for _ in range(count)]


def make_field(name: str) -> Json:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}


def make_constrained(count: int, what: str) -> Json:
    """Return a pod with so many of what a message calls so."""
    pod = make_pod(SMALL)
    spec = pod["spec"]
    match what:
        case "node selector labels":
            spec["nodeSelector"] = {f"l{n}": "" for n in range(count)}
        case "tolerations":  # the API server adds two
            spec["tolerations"] = [{"key": f"t{n}", "operator": "Exists"} for n in range(count - 2)]
        case "labels":
            pod["metadata"]["labels"] = {f"l{n}": "" for n in range(count)}
        case "node affinity terms":
            spec["affinity"] = require(*make_terms(count - 1))
            spec["affinity"]["nodeAffinity"] |= prefer(*make_terms(1))["nodeAffinity"]
        case "node affinity expressions":
            spec["affinity"] = require(*make_terms(1, expressions=count - 1), make_field("n"))
        case "node affinity values":
            spec["affinity"] = require(*make_terms(1, values=count - 1), make_field("n"))
        case "terms about other pods":
            term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
            required = "requiredDuringSchedulingIgnoredDuringExecution"
            spec["affinity"] = {"podAffinity": {required: [term] * (count - 2)}, "podAntiAffinity": {required: [term]}}
            spec["topologySpreadConstraints"] = [{**term, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]
        case _:
            ports = [{"containerPort": 1 + n, "hostPort": 1 + n} for n in range(count)]
            spec["containers"][0]["ports"] = [*ports, {"containerPort": 9999}]
    return pod


@pytest.fixture(scope="class")
def constrained(cluster: Cluster) -> Iterator[None]:
    """The policy is there and acts."""
    cluster.install_chart(ON)
    wait_refused(lambda: try_pod(cluster.api, "default", make_constrained(65, "tolerations")), "fairbind-constraints")
    yield
    cluster.install_chart(OFF)


LIMITS = [
    (64, "node selector labels"),
    (64, "tolerations"),
    (256, "labels"),
    (64, "node affinity terms"),
    (128, "node affinity expressions"),
    (512, "node affinity values"),
    (128, "host ports"),
    (32, "terms about other pods"),
]


@pytest.mark.usefixtures("constrained")
class TestBudget:
    """What is counted is what the operator counts."""

    @pytest.mark.parametrize(("limit", "what"), LIMITS, ids=[what for _, what in LIMITS])
    def test_a_pod_is_refused_above_a_limit_and_let_in_at_it(self, api: Api, limit: int, what: str) -> None:
        try_pod(api, "default", make_constrained(limit, what))
        check_refused(
            functools.partial(try_pod, api, "default", make_constrained(limit + 1, what)),
            f"the pod has more than {limit} {what}",
        )

    def test_the_largest_pods_are_refused_too(self, api: Api) -> None:
        """What an object has room for: no count costs the API server more than it allows a policy."""
        fields = require(*(make_field(f"node-{n}") for n in range(15_000)))
        values = require(*make_terms(1, values=120_000))
        for affinity, said in ((fields, "64 node affinity terms"), (values, "512 node affinity values")):
            attempt = functools.partial(try_pod, api, "default", make_pod(SMALL, affinity=affinity))
            check_refused(attempt, f"the pod has more than {said}")

    def test_the_policy_compiles_without_a_warning(self, api: Api) -> None:
        check_compiled(api, "fairbind-constraints")

    def test_pods_of_other_schedulers_are_left_alone(self, api: Api) -> None:
        pod = make_constrained(65, "tolerations")
        pod["spec"]["schedulerName"] = "default-scheduler"
        try_pod(api, "default", pod)

    def test_system_namespaces_are_left_alone(self, api: Api) -> None:
        try_pod(api, "kube-system", make_constrained(65, "tolerations"))

    def test_it_cannot_be_had_later_either(self, api: Api) -> None:
        made = api.post("/api/v1/namespaces/default/pods", make_constrained(64, "tolerations"))
        path = f"/api/v1/namespaces/default/pods/{made['metadata']['name']}"
        try:
            more = [*made["spec"]["tolerations"], {"key": "one-more", "operator": "Exists"}]
            attempt = functools.partial(api.patch, path, {"spec": {"tolerations": more}})
            check_refused(attempt, "the pod has more than 64 tolerations")
        finally:
            remove(api, path)


def test_a_pod_that_is_there_already_can_be_changed_otherwise(api: Api, cluster: Cluster) -> None:
    wait_allowed(lambda: try_pod(api, "default", make_constrained(65, "tolerations")))
    made = api.post("/api/v1/namespaces/default/pods", make_constrained(65, "tolerations"))
    path = f"/api/v1/namespaces/default/pods/{made['metadata']['name']}"
    cluster.install_chart(ON)
    try:
        wait_refused(lambda: try_pod(api, "default", make_constrained(65, "tolerations")))
        api.patch(path, {"metadata": {"labels": {"a": "b"}}})
    finally:
        remove(api, path)
        cluster.install_chart(OFF)
