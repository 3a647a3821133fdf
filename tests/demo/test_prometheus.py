"""The Prometheus beside the demo on kind: its configuration, and how its answers are told."""

from __future__ import annotations

import base64
import json
import math
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

from demo.prometheus import (
    QUESTIONS,
    RULES,
    WIDTH,
    Answer,
    Question,
    Service,
    format_answers,
    format_rules,
    make_config,
    write_credentials,
)

PARTS = {
    "certificate-authority-data": b"authority",
    "client-certificate-data": b"certificate",
    "client-key-data": b"key",
}
ENCODED = {name: base64.b64encode(content).decode() for name, content in PARTS.items()}
KUBECONFIG = {
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:4567", **ENCODED}}],
    "users": [{"name": "u", "user": ENCODED}],
}
SERVICE = Service("fairbind-system", "fairbind", Path("kubeconfig"))


def test_credentials_are_for_nobody_else(tmp_path: Path) -> None:
    credentials = write_credentials(tmp_path, KUBECONFIG)
    assert credentials.authority.read_bytes() == b"authority"
    assert credentials.certificate.read_bytes() == b"certificate"
    assert credentials.key.read_bytes() == b"key"
    assert stat.S_IMODE(credentials.key.stat().st_mode) == 0o600


def test_the_configuration_is_one_that_prometheus_takes(promtool: Path, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(KUBECONFIG), encoding="utf-8")
    service = Service("fairbind-system", "fairbind", kubeconfig)
    config = make_config(service, "https://127.0.0.1:4567", write_credentials(tmp_path, KUBECONFIG))
    path = tmp_path / "prometheus.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    outcome = subprocess.run([promtool, "check", "config", path], capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    rules = [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]
    assert f"{len(rules)} rules found" in outcome.stdout


def test_targets_are_found_behind_the_service_and_reached_through_the_api_server(tmp_path: Path) -> None:
    [scrape] = make_config(SERVICE, "https://127.0.0.1:4567", write_credentials(tmp_path, KUBECONFIG))["scrape_configs"]
    [discovery] = scrape["kubernetes_sd_configs"]
    assert discovery["role"] == "endpointslice"
    assert discovery["selectors"][0]["label"] == "kubernetes.io/service-name=fairbind"
    rules = scrape["relabel_configs"]
    assert rules[-1] == {"replacement": "127.0.0.1:4567", "target_label": "__address__"}
    labels = [rule.get("target_label") for rule in rules]
    assert labels.index("instance") < labels.index("__address__"), "a replica's own address tells it from the other"
    assert {"namespace", "pod", "service", "endpoint"} <= set(labels), "as a ServiceMonitor labels them"


def test_answers_are_told_in_narrow_lines() -> None:
    for question in QUESTIONS:
        many = [Answer({question.label: f"tenant-{number}"}, 0.25) for number in range(4)]
        answers = many if question.label else many[:1]
        lines = format_answers(question, answers)
        assert max(map(len, lines)) <= WIDTH, lines
        assert "".join("".join(lines[1:-1]).split()) == "".join(question.query.split())
        assert lines[-1].count("0.250") == len(answers)


def test_what_is_not_a_number_is_no_answer() -> None:
    [*_, last] = format_answers(Question("How long?", "time", unit=" s"), [Answer({}, math.nan)])
    assert last == "    = nothing"


def make_rule(name: str, *, health: str = "ok", state: str = "inactive", error: str = "") -> dict[str, str]:
    return {"name": name, "health": health, "state": state, "lastError": error}


@pytest.mark.parametrize(
    ("rules", "line"),
    [
        ([make_rule("A"), make_rule("B")], "  2 alert rules, all evaluated; firing: none"),
        (
            [make_rule("A", state="pending"), make_rule("B", state="firing")],
            "  2 alert rules, all evaluated; firing: B",
        ),
        (
            [make_rule("A", health="err", error="no such")],
            "  1 alert rules, cannot be evaluated: A: no such; firing: none",
        ),
        ([make_rule("A", health="unknown")], "  1 alert rules, cannot be evaluated: A: unknown; firing: none"),
    ],
)
def test_alerts_are_told(rules: list[dict[str, str]], line: str) -> None:
    assert format_rules(rules) == [line]
