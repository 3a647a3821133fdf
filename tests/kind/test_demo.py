"""``make demo CLUSTER=kind``, kept, judged by its words, by what is in its cluster and by what its Prometheus saw.

One run serves all of this file. Dashboard and alerts are tried on the real series of that run.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from demo.prometheus import QUESTIONS, RULES, Prometheus
from demo.runs import REMOVAL_SECONDS, Demo, find_containers, make_folder, read_shares
from e2e.waiting import wait_for
from fairbind.model.overview import compute_jain_index
from kind.traces import tracing
from kindcluster.cluster import TOOLS, Cluster
from kindcluster.images import Image
from localplane.client import ApiClient
from localplane.tools import ensure_tools

pytestmark = pytest.mark.nightly
DURATION_SECONDS = 30
DEMO_LIMIT_SECONDS = 1800.0
SETTLING_SECONDS = 600.0
"""The kept cluster goes on until all is as it should be: how soon says more about the machine than about fairbind."""
TOP = ("analytics", "research", "vision", "web")
"""The tenants without a parent."""
TENANTS = ("analytics", "research", "search", "shop", "vision", "web")
ANSWERS = (r"[\w/-]+ \d+\.\d{3}(, [\w/-]+ \d+\.\d{3})*", r"\d+\.\d{3}", r"\d+\.\d{3} s")
"""How the answers to `QUESTIONS` are told."""
BOUND = 'sum(max_over_time(fairbind_bindings_total{result="bound"}[1h]))'
DASHBOARD = Path(__file__).parents[2] / "deploy" / "dashboard" / "fairbind.json"
VARIABLES = {"$cluster": "", "$job": ".*", "$tenant": ".*", "$resource": "cpu", "$__rate_interval": "20s"}
REFUSALS = ("OutOf", "NodeAffinity", "UnexpectedAdmissionError", "NodePorts", "TaintToleration")
"""How a kubelet's reasons begin when it takes no pod that a scheduler sent it."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A demo that has ended and left its cluster. started: when. prometheus: the one that it left running."""

    started: float
    text: str
    api: ApiClient
    prometheus: Prometheus


@pytest.fixture(scope="module")
def kept(
    request: pytest.FixtureRequest,
    images: list[Image],
    tmp_path_factory: pytest.TempPathFactory,
    say: Callable[[str], None],
) -> Iterator[Kept]:
    """One run with KEEP; afterwards it is ended, and nothing may be left of it."""
    del images  # built beforehand, so that the demo's time is its own
    tools = ensure_tools([*TOOLS, "prometheus"], say)
    with make_folder(tmp_path_factory.mktemp("demo")) as folder:
        started = time.time()
        demo = Demo(folder, "--cluster", "kind", "--keep", "--duration", str(DURATION_SECONDS))
        assert demo.finish(DEMO_LIMIT_SECONDS) == 0, demo.text
        kubeconfig = Path(find(r"export KUBECONFIG='?([^']+?)'?$", demo.text))
        url = find(r"curl '(http://127\.0\.0\.1:\d+)/", demo.text)
        pid = int(find(r"kill (\d+) ", demo.text))
        name = find(r"removes the cluster (\S+)", demo.text)
        cluster = Cluster(name, tools, folder=kubeconfig.parent, report=say, stays=True)
        with tracing(request, cluster), ApiClient.from_kubeconfig(kubeconfig) as api, ApiClient(url) as client:
            yield Kept(started, demo.text, api, Prometheus(client))
        assert find_containers(name)
        os.kill(pid, signal.SIGTERM)
        demo.check_nothing_left(REMOVAL_SECONDS)
        assert find_containers(name) == []


def find(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    assert match is not None, f"no {pattern!r} in:\n{text}"
    return match[1]


# --- what it says ---


def test_it_says_what_it_sees(kept: Kept) -> None:
    assert "\x1b" not in kept.text, "a pipe gets plain lines"
    assert "Traceback" not in kept.text
    lines = [line for line in kept.text.splitlines() if line.endswith(" pods/s") and "used:" in line]
    assert len(lines) >= 4
    assert "research" not in lines[0], "the fourth tenant comes later"
    assert "research" in lines[-1]
    shares = read_shares(kept.text)
    assert {name: row[0] for name, row in shares.items()} == {"analytics": 1, "web": 2, "vision": 3, "research": 2}
    assert 0.3 < float(find(r"that can use every node: ([\d.]+)", kept.text)) <= 1.0
    assert find(r"(\d+) pods bound", kept.text)  # by the present leader: all leaders' are in Prometheus
    assert "of 8 A100 (the limit is 1)" in " ".join(kept.text.split())
    assert "make demo CLUSTER=kind" in kept.text


def test_it_tells_the_answers_to_three_questions(kept: Kept) -> None:
    """They are told as soon as the time is up, when a slow machine may have none yet: `test_the_answers_come`."""
    assert "Prometheus scraped 2 of 2 operators behind the Service" in kept.text
    answers = [line.removeprefix("    = ") for line in kept.text.splitlines() if line.startswith("    = ")]
    assert len(answers) == len(QUESTIONS) == 3
    for question, answer, shape in zip(QUESTIONS, answers, ANSWERS, strict=True):
        assert f"  {question.text}\n" in kept.text
        assert re.fullmatch(f"{shape}|nothing", answer), answer
    assert "all evaluated; firing: none" in kept.text


# --- what its tenants come to ---


def find_by_tenant(kept: Kept, query: str) -> dict[str, float]:
    """Return what a query gives now for each tenant."""
    return {answer.labels["tenant"]: answer.value for answer in kept.prometheus.ask(query)}


def find_values(kept: Kept, query: str) -> list[float]:
    """Return what a query gives now, whatever its labels: nothing while what was scraped is too old."""
    return [answer.value for answer in kept.prometheus.ask(query)]


def test_pods_of_every_tenant_run(kept: Kept) -> None:
    query = "max by (tenant) (fairbind_tenant_running_pods)"

    def do_all_run() -> bool:
        running = find_by_tenant(kept, query)
        return all(running.get(tenant, 0.0) > 0.0 for tenant in TENANTS if tenant != "web")  # its children have them

    wait_for(do_all_run, SETTLING_SECONDS, lambda: f"pods of all: {find_by_tenant(kept, query)}", pause=1.0)
    enough = "more than 25 bound pods"
    wait_for(lambda: any(bound > 25 for bound in find_values(kept, BOUND)), SETTLING_SECONDS, enough, pause=1.0)


def test_shares_are_equal_once_pods_have_ended(kept: Kept) -> None:
    query = QUESTIONS[0].query

    def are_equal() -> bool:
        share = find_by_tenant(kept, query)
        assert share.keys() >= set(TOP)
        return compute_jain_index((share["analytics"], share["web"], share["research"])) > 0.97

    wait_for(are_equal, SETTLING_SECONDS, lambda: f"equal shares: {find_by_tenant(kept, query)}", pause=1.0)


def test_the_answers_come(kept: Kept) -> None:
    """The time is asked for over the whole run: once nothing more is bound there is none of the last minute."""
    shares, error, seconds = (question.query for question in QUESTIONS)

    def are_known() -> bool:
        share = find_by_tenant(kept, shares)
        assert all(0.0 < share.get(tenant, 0.0) <= 1.0 for tenant in TOP), share
        [distance] = find_values(kept, error) or [math.nan]
        assert 0.0 <= distance < 0.5
        series = kept.prometheus.ask_range(seconds, time.time() - kept.started)
        return any(0.0 < value < math.inf for values in series for value in values)

    wait_for(are_known, SETTLING_SECONDS, "answers to the three questions", pause=1.0)


# --- what is in the cluster ---


def test_pods_of_jobs_and_a_deployment_really_run_and_no_kubelet_refused_one(kept: Kept) -> None:
    assert len(kept.api.items("/api/v1/nodes")) == 4
    tenants = kept.api.items("/apis/fairbind.io/v1alpha1/tenants")
    assert sorted(tenant["metadata"]["name"] for tenant in tenants) == list(TENANTS)
    pods = kept.api.items("/api/v1/pods", labelSelector="demo.fairbind.io/kind")
    owners = {owner["kind"] for pod in pods for owner in pod["metadata"]["ownerReferences"]}
    assert owners == {"Job", "ReplicaSet"}
    assert [pod for pod in pods if pod["status"].get("reason", "").startswith(REFUSALS)] == []
    assert {pod["spec"]["schedulerName"] for pod in pods} == {"fairbind"}
    wait_for(
        lambda: count_running(kept.api) >= 10,
        SETTLING_SECONDS,
        lambda: f"10 containers: {count_running(kept.api)} run",
        pause=1.0,
    )


def count_running(api: ApiClient) -> int:
    """Return how many of the tenants' containers run and have never failed."""
    pods = api.items("/api/v1/pods", labelSelector="demo.fairbind.io/kind")
    states = [status for pod in pods for status in pod["status"].get("containerStatuses", [])]
    return sum("running" in status["state"] and status["restartCount"] == 0 for status in states)


def test_the_operators_are_the_charts(kept: Kept) -> None:
    path = "/apis/apps/v1/namespaces/fairbind-system/deployments/fairbind"
    assert kept.api.get(path)["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
    wait_for(lambda: kept.api.get(path)["status"].get("readyReplicas") == 2, describe="two ready replicas", pause=0.5)


# --- what Prometheus saw ---


def test_both_replicas_are_targets_under_the_labels_of_a_service_monitor(kept: Kept) -> None:
    targets = kept.prometheus.wait_for_targets(2, SETTLING_SECONDS)
    assert [target["health"] for target in targets] == ["up", "up"]
    labels = [target["labels"] for target in targets]
    assert len({entry["pod"] for entry in labels}) == len({entry["instance"] for entry in labels}) == 2
    common = {(entry["job"], entry["namespace"], entry["service"], entry["endpoint"]) for entry in labels}
    assert common == {("fairbind", "fairbind-system", "fairbind", "metrics")}
    leaders = "sum(fairbind_leader)"
    what = "one leader among what was scraped last"
    wait_for(lambda: find_values(kept, leaders) == [1.0], describe=what, pause=1.0)


def test_alerts_are_evaluated_and_none_fires(kept: Kept) -> None:
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    rules = kept.prometheus.find_rules()
    assert [rule["name"] for rule in rules] == [rule["alert"] for group in groups for rule in group["rules"]]
    assert {(rule["name"], rule["health"], rule.get("lastError", "")) for rule in rules} == {
        (rule["name"], "ok", "") for rule in rules
    }
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []


def read_dashboard() -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return dashboard


def find_dashboard_queries() -> list[tuple[str, str]]:
    """Return each panel's queries as Grafana sends them, with the panel's title."""
    queries = []
    for panel in read_dashboard()["panels"]:
        for target in panel.get("targets", []):
            query = target["expr"]
            for name, value in VARIABLES.items():
                query = query.replace(name, value)
            queries.append((panel["title"], query))
    return queries


@pytest.mark.parametrize(("panel", "query"), find_dashboard_queries())
def test_every_panel_of_the_dashboard_has_series(kept: Kept, panel: str, query: str) -> None:
    assert "$" not in query
    series = kept.prometheus.ask_range(query, seconds=time.time() - kept.started)
    assert series, panel
    assert any(math.isfinite(value) for values in series for value in values), f"{panel}: nothing but NaN"


@pytest.mark.parametrize(
    "variable",
    [
        entry["definition"]
        for entry in read_dashboard()["templating"]["list"]
        if "definition" in entry and entry["name"] != "cluster"  # the demo's Prometheus has one cluster and no label
    ],
)
def test_every_variable_of_the_dashboard_has_values(kept: Kept, variable: str) -> None:
    match = re.fullmatch(r"label_values\((.+), (\w+)\)", variable)
    assert match is not None
    assert kept.prometheus.find_label_values(match[1].replace("$cluster", "").replace("$job", ".*"), match[2])
