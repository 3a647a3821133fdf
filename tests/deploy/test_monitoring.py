"""Dashboard and alerts ask only for what the operator reports, and promtool is content with all of it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fairbind.model.overview import PENDING_REASONS, AuditCounts, ClusterOverview, TenantOverview
from fairbind.web.metric_specs import METRICS, MetricSpec
from fairbind.web.metrics import (
    BINDING_RESULTS,
    RESTART_REASONS,
    SOLVE_RESULTS,
    WATCHED_RESOURCES,
    Metrics,
)

ALERTS = Path(__file__).parents[2] / "deploy" / "alerts"
DASHBOARD = Path(__file__).parents[2] / "deploy" / "dashboard" / "fairbind.json"
PAGE = Path(__file__).parents[2] / "docs" / "alerts.md"
# What Prometheus itself adds to every series; `cluster` is added by a Prometheus that holds several.
TARGET_LABELS = {"cluster", "job", "namespace", "instance"}
ALERT_LABELS = {"alertname", "alertstate", "severity", "tenant"}
"""Labels of the series ALERTS, by which Prometheus shows what fires."""
LABEL_VALUES = {
    "result": set(BINDING_RESULTS) | set(SOLVE_RESULTS),
    "reason": set(PENDING_REASONS) | set(RESTART_REASONS),
}


def run_promtool(promtool: Path, *arguments: object, stdin: str = "") -> str:
    command = [str(promtool), *(str(argument) for argument in arguments)]
    outcome = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, cwd=ALERTS)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout + outcome.stderr


def compute_series() -> dict[str, MetricSpec]:
    """Return every series' name that a query may use, with the metric that it belongs to."""
    series = {spec.name: spec for spec in METRICS if spec.kind != "histogram"}
    for spec in METRICS:
        if spec.kind == "histogram":
            series |= {f"{spec.name}_{part}": spec for part in ("bucket", "sum", "count")}
    return series


def find_alerts() -> list[dict[str, Any]]:
    rules = yaml.safe_load((ALERTS / "fairbind.rules.yaml").read_text(encoding="utf-8"))
    return [rule for group in rules["groups"] for rule in group["rules"]]


def find_alert_queries() -> list[str]:
    return [rule["expr"] for rule in find_alerts()]


def read_dashboard() -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return dashboard


def find_panels() -> Iterator[dict[str, Any]]:
    for panel in read_dashboard()["panels"]:
        if panel["type"] != "row":
            yield panel


def find_dashboard_queries() -> list[str]:
    variables = [
        variable["definition"] for variable in read_dashboard()["templating"]["list"] if "definition" in variable
    ]
    return [target["expr"] for panel in find_panels() for target in panel["targets"]] + variables


QUERIES = [*find_alert_queries(), *find_dashboard_queries()]


def test_there_are_queries() -> None:
    assert len(find_alert_queries()) >= 5
    assert len(find_dashboard_queries()) >= 15


@pytest.mark.parametrize("query", sorted(set(QUERIES)))
def test_queries_use_metrics_and_labels_that_exist(query: str) -> None:
    series = compute_series()
    names, is_about_alerts = re.findall(r"\bfairbind_\w+", query), "ALERTS{" in query
    assert names or is_about_alerts
    assert [name for name in names if name not in series] == []

    known = {label for name in names for label in series[name].labels} | TARGET_LABELS
    known |= ALERT_LABELS if is_about_alerts else set()
    known |= {"le"} if any(name.endswith("_bucket") for name in names) else set()
    matched = re.findall(r"([a-z_]+)\s*(?:=~|!~|!=|=)\s*\"([^\"]*)\"", query)
    grouped = {label for found in re.findall(r"by \(([^)]*)\)", query) for label in re.split(r",\s*", found)}
    assert ({label for label, _ in matched} | grouped) - known == set()
    for label, pattern in matched:
        if label in LABEL_VALUES:
            assert set(pattern.split("|")) <= LABEL_VALUES[label], query


def test_the_dashboard_shows_every_metric() -> None:
    text = " ".join(find_dashboard_queries())

    assert [spec.name for spec in METRICS if spec.name not in text] == []


@pytest.mark.parametrize("query", sorted(set(find_alert_queries())))
def test_alerts_keep_clusters_apart(query: str) -> None:
    groupings = re.findall(r"\b(?:sum|max|min|group|count|avg) (?:by \(([^)]*)\))?", query)
    assert [labels for labels in groupings if "cluster" not in labels.split(", ")] == []
    assert not re.search(r"\b(?:sum|max|min|group|count|avg)\(", query)


@pytest.mark.parametrize("query", sorted(set(find_dashboard_queries())))
def test_the_dashboard_shows_one_cluster_at_a_time(query: str) -> None:
    selectors = re.findall(r"\b(?:fairbind_\w+|ALERTS)({[^}]*})?", query)
    if query != "label_values(fairbind_build_info, cluster)":
        assert [selector for selector in selectors if 'cluster="$cluster"' not in selector] == []


def test_each_alert_links_to_its_section() -> None:
    headings = re.findall(r"^## (\w+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    links = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in find_alerts()}

    page = "https://github.com/fairbind/fairbind/blob/main/docs/alerts.md"
    assert links == {name: f"{page}#{name.lower()}" for name in links}
    assert headings == list(links)


def find_sections() -> dict[str, str]:
    """Return the text of each section of the page, in one line."""
    text = PAGE.read_text(encoding="utf-8")
    parts = re.split(r"^## (\w+)$", text, flags=re.MULTILINE)
    return {name: " ".join(body.split()) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.mark.parametrize("rule", find_alerts(), ids=lambda rule: rule["alert"])
def test_each_alert_says_what_it_costs_and_what_to_do_first_as_its_section_does(rule: dict[str, Any]) -> None:
    annotations, section = rule["annotations"], find_sections()[rule["alert"]]
    placed = {"{{ $labels.namespace }}": "fairbind-system", "{{ $labels.tenant }}": "TENANT"}
    for label, text in (("Impact", "impact"), ("First", "command")):
        said = annotations[text]
        for template, value in placed.items():
            said = said.replace(template, value)
        assert f"**{label}**: {f'`{said}`' if text == 'command' else said}" in section
    assert "**Then**: " in section
    assert annotations["mitigation"]
    for page in re.findall(r"docs/\w[\w-]*\.md", annotations["mitigation"]):
        assert (PAGE.parents[1] / page).exists()


def test_what_judges_fairness_reads_the_share_error_and_not_how_equal_shares_are() -> None:
    """Fair shares are unequal wherever a tenant can use few nodes, so Jain's index is no reason for an alarm."""
    coloured = [panel for panel in find_panels() if "thresholds" in panel["fieldConfig"]["defaults"]]
    shown = [target["expr"] for panel in coloured for target in panel["targets"]]
    for queries in (find_alert_queries(), shown):
        assert not any("jain" in query for query in queries)
        assert sum("fairbind_fairness_share_error" in query for query in queries) == 1


def test_legends_use_labels_that_the_query_leaves() -> None:
    for panel in find_panels():
        for target in panel["targets"]:
            wanted = set(re.findall(r"{{\s*(\w+)\s*}}", target.get("legendFormat", "")))
            grouped = {label for found in re.findall(r"by \(([^)]*)\)", target["expr"]) for label in found.split(", ")}
            if "by (" in target["expr"]:
                assert wanted <= grouped, target["expr"]


def test_panels_have_their_own_place() -> None:
    panels = read_dashboard()["panels"]
    taken: dict[tuple[int, int], str] = {}
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, f"{panel['title']} covers {taken[x, y]}"
                taken[x, y] = panel["title"]
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_what_somebody_on_call_needs_stands_on_top() -> None:
    """The share error, the oldest wait and what fires; then what tenants hold and their fair shares, in one chart."""
    tiles = {panel["title"] for panel in find_panels() if panel["gridPos"]["y"] == 1}
    assert tiles == {"Share error", "Oldest wait", "Firing alerts"}
    charts = [panel for panel in find_panels() if panel["type"] == "timeseries"]
    queries = [target["expr"] for target in charts[0]["targets"]]
    assert [re.findall(r"fairbind_\w+", query) for query in queries] == [
        ["fairbind_tenant_dominant_share"],
        ["fairbind_tenant_fair_share"],
    ]


def test_firing_alerts_are_found_by_their_name() -> None:
    [query] = [query for query in find_dashboard_queries() if "ALERTS{" in query]
    (pattern,) = re.findall(r'alertname=~"([^"]*)"', query)
    assert [rule["alert"] for rule in find_alerts() if not re.fullmatch(pattern, rule["alert"])] == []


def test_every_panel_says_what_it_shows() -> None:
    assert [panel["title"] for panel in find_panels() if not panel.get("description")] == []
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in find_panels())


def test_promtool_accepts_the_rules(promtool: Path) -> None:
    assert "SUCCESS" in run_promtool(promtool, "check", "rules", "--lint=all", "--lint-fatal", "fairbind.rules.yaml")


def test_each_alert_fires_when_it_should_and_only_then(promtool: Path) -> None:
    assert "SUCCESS" in run_promtool(promtool, "test", "rules", "fairbind.tests.yaml")


def test_each_alert_has_a_test_that_it_fires() -> None:
    tests = yaml.safe_load((ALERTS / "fairbind.tests.yaml").read_text(encoding="utf-8"))["tests"]
    rules = yaml.safe_load((ALERTS / "fairbind.rules.yaml").read_text(encoding="utf-8"))
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    fired = {
        found
        for test in tests
        for check in test.get("promql_expr_test", [])
        for found in re.findall(r'alertname="(\w+)", alertstate="firing"', check["expr"])
    }
    silent = {check["alertname"] for check in tests[0]["alert_rule_test"]}

    assert fired == alerts
    assert silent == alerts


def test_promtool_notices_an_alert_that_stays_silent(promtool: Path, tmp_path: Path) -> None:
    """The tests of the alerts can fail: a threshold out of reach is found."""
    rules = (ALERTS / "fairbind.rules.yaml").read_text(encoding="utf-8")
    for name, text in {
        "fairbind.rules.yaml": rules.replace("(fairbind_leader) > 1", "(fairbind_leader) > 5"),
        "fairbind.tests.yaml": (ALERTS / "fairbind.tests.yaml").read_text(encoding="utf-8"),
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    with pytest.raises(AssertionError, match="FairbindTwoLeaders"):
        run_promtool(promtool, "test", "rules", tmp_path / "fairbind.tests.yaml")


def test_promtool_can_parse_the_dashboard(promtool: Path, tmp_path: Path) -> None:
    queries = [query for query in find_dashboard_queries() if not query.startswith("label_values(")]
    rules = [
        {"record": f"panel:query{number}", "expr": query.replace("$__rate_interval", "5m")}
        for number, query in enumerate(queries)
    ]
    file = tmp_path / "dashboard.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")

    assert f"{len(queries)} rules found" in run_promtool(promtool, "check", "rules", file)


def test_promtool_finds_nothing_in_the_metrics(promtool: Path) -> None:
    metrics = Metrics()
    metrics.binding_finished(BINDING_RESULTS[0])
    metrics.pod_scheduled("a", 1.5)
    metrics.cycle_finished(0.01)
    metrics.watch_restarted(WATCHED_RESOURCES[0], RESTART_REASONS[0])
    tenant = TenantOverview(
        name="a",
        weight=2.0,
        dominant_share=0.5,
        dominant_resource="cpu",
        weighted_share=0.25,
        allocated={"cpu": 2.0, "nvidia.com/gpu": 1.0},
        running=3,
        pending={PENDING_REASONS[0]: 4},
        virtual_dominant_shares={"class": 1.5},
        fair_share=0.75,
    )
    metrics.overview_changed(
        ClusterOverview(
            tenants=(tenant,),
            capacity={"cpu": 4.0},
            allocated={"cpu": 2.0},
            server_classes=1,
            jain_index=1.0,
            share_error=0.25,
            audit=AuditCounts({"history": 1}, {"history": 0}),
        )
    )
    metrics.exact_solve_finished(SOLVE_RESULTS[0], 0.5)
    text, _ = metrics.render("text/plain")

    assert b'fairbind_tenant_dominant_share{tenant="a"} 0.5' in text
    assert run_promtool(promtool, "check", "metrics", stdin=text.decode()) == ""
