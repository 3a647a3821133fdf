"""A Prometheus that looks on: it finds the operators behind the chart's Service, scrapes them and evaluates the alerts.

It is a plain process on this machine, where pods have no addresses. So it asks the API server which pods stand behind
the Service (its EndpointSlices, which is also how a ServiceMonitor finds them) and fetches each one's page through the
API server's proxy. Every replica is a target of its own: to be sent to one of them by chance, as a client of the
Service is, would mix their counters.

The series have the labels that a ServiceMonitor gives them, so that alerts and dashboard are tried as they are used.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from demo.servers import POLL_SECONDS, DemoError, Server, start_server
from localplane.client import ApiClient

Json = dict[str, Any]

RULES = Path(__file__).resolve().parents[2] / "alerts" / "fairbind.rules.yaml"
PORT_NAME = "metrics"
SCRAPE_SECONDS = 5
"""Not more often: on a busy machine a page through the API server can take a second or two."""
TARGETS_TIMEOUT_SECONDS = 300.0
GRACE_SECONDS = 120.0
"""How long it may take until every operator has answered again after a scrape that was too slow."""
WIDTH = 80


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked at the end. label: by which the series of the answer are told apart, if there are several."""

    text: str
    query: str
    label: str = ""
    unit: str = ""


QUESTIONS = (
    Question(
        "Who holds what, by its weight?",
        "max by (tenant) (fairbind_tenant_weighted_dominant_share) unless on (tenant) fairbind_tenant_parent_info",
        label="tenant",
    ),
    Question("What does the worst of those who wait lack to its fair share?", "max(fairbind_fairness_share_error)"),
    Question(
        "Within which time were 99 % of the pods of the last minute bound?",
        "histogram_quantile(0.99, sum by (le) (rate(fairbind_pod_scheduling_duration_seconds_bucket[1m])))",
        unit=" s",
    ),
)


@dataclass(frozen=True, slots=True)
class Service:
    """The Service to look behind, and a kubeconfig of an administrator (with certificates) of its cluster."""

    namespace: str
    name: str
    kubeconfig: Path


@dataclass(frozen=True, slots=True)
class Credentials:
    """Files that a Prometheus reads: the API server's authority, and whom it takes us for."""

    authority: Path
    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Answer:
    """One series of an answer. value: NaN where Prometheus says so."""

    labels: Mapping[str, str]
    value: float


class Prometheus:
    """What a running Prometheus says. client: speaks to it."""

    def __init__(self, client: ApiClient) -> None:
        self.client = client

    def ask(self, query: str) -> list[Answer]:
        """Return what a query gives now; raise ApiError when Prometheus refuses it."""
        result = self._get("/api/v1/query", query=query)["result"]
        return [Answer(series["metric"], float(series["value"][1])) for series in result]

    def ask_range(self, query: str, seconds: float, step_seconds: float = 1.0) -> list[list[float]]:
        """Return what a query gave over the last seconds: the values of each series."""
        end = time.time()
        span = {"start": end - seconds, "end": end, "step": step_seconds}
        result = self._get("/api/v1/query_range", query=query, **span)["result"]
        return [[float(value) for _, value in series["values"]] for series in result]

    def find_label_values(self, series: str, label: str) -> list[str]:
        """Return the values that a label of these series has."""
        values: list[str] = self._get(f"/api/v1/label/{label}/values", **{"match[]": series})
        return values

    def find_targets(self) -> list[Json]:
        """Return what it scrapes, with the health and the labels of each."""
        targets: list[Json] = self._get("/api/v1/targets", state="active")["activeTargets"]
        return targets

    def find_rules(self) -> list[Json]:
        """Return its alert rules, with the health and the state of each."""
        groups: list[Json] = self._get("/api/v1/rules")["groups"]
        return [rule for group in groups for rule in group["rules"]]

    def wait_for_targets(self, count: int, limit_seconds: float = TARGETS_TIMEOUT_SECONDS) -> list[Json]:
        """Wait until so many operators were up when they were scraped last, or time is up; return what it scrapes."""
        deadline = time.monotonic() + limit_seconds
        while True:
            targets = self.find_targets()
            if count_up(targets) >= count or time.monotonic() > deadline:
                return targets
            time.sleep(10 * POLL_SECONDS)

    def _get(self, path: str, **query: object) -> Any:
        return self.client.get(path, **query)["data"]


def count_up(targets: Sequence[Json]) -> int:
    """Return how many targets answered when they were scraped last."""
    return sum(target["health"] == "up" for target in targets)


def check_up(targets: Sequence[Json], count: int) -> None:
    """Raise DemoError with what Prometheus says of its targets unless so many answered."""
    if count_up(targets) < count:
        words = [f"{target['scrapeUrl']}: {target['health']} {target['lastError']}" for target in targets]
        found = "\n".join(words) or "nothing behind the Service"
        raise DemoError(f"Prometheus should scrape {count} operators and has found {found}")


def start_prometheus(stack: contextlib.ExitStack, program: Path, folder: Path, service: Service) -> Server:
    """Start Prometheus with its files in a folder; the stack ends it. Raises DemoError with its last words."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    config = folder / "prometheus.json"  # JSON is YAML
    kubeconfig = yaml.safe_load(service.kubeconfig.read_text(encoding="utf-8"))
    credentials = write_credentials(folder, kubeconfig)
    document = make_config(service, kubeconfig["clusters"][0]["cluster"]["server"], credentials)
    config.write_text(json.dumps(document), encoding="utf-8")
    words: list[str | Path] = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'series'}",
        "--storage.tsdb.retention.time=1d",
        "--log.level=warn",
    ]
    return start_server(
        stack,
        "Prometheus",
        lambda address: [*words, f"--web.listen-address={address}"],
        folder / "prometheus.log",
        readiness="/-/ready",
    )


def write_credentials(folder: Path, kubeconfig: Json) -> Credentials:
    """Write what is inside a kubeconfig into files of their own, readable by this user alone."""
    cluster = kubeconfig["clusters"][0]["cluster"]
    user = kubeconfig["users"][0]["user"]
    contents = {
        "ca.crt": cluster["certificate-authority-data"],
        "client.crt": user["client-certificate-data"],
        "client.key": user["client-key-data"],
    }
    paths = []
    for name, encoded in contents.items():
        path = folder / name
        path.touch(mode=0o600)
        path.write_bytes(base64.b64decode(encoded))
        paths.append(path)
    return Credentials(*paths)


def make_config(service: Service, api_server: str, credentials: Credentials) -> Json:
    """Return Prometheus' configuration. api_server: the URL, which must be reachable from here."""
    every = f"{SCRAPE_SECONDS}s"
    discovery = {
        "role": "endpointslice",
        "kubeconfig_file": str(service.kubeconfig),
        "namespaces": {"names": [service.namespace]},
        "selectors": [{"role": "endpointslice", "label": f"kubernetes.io/service-name={service.name}"}],
    }
    return {
        "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {
                "job_name": service.name,
                "scheme": "https",
                "tls_config": {
                    "ca_file": str(credentials.authority),
                    "cert_file": str(credentials.certificate),
                    "key_file": str(credentials.key),
                },
                "kubernetes_sd_configs": [discovery],
                "relabel_configs": _make_relabelling(urlsplit(api_server).netloc),
            }
        ],
    }


def _make_relabelling(api_server: str) -> list[Json]:
    """Return the rules that give a target its labels and lead the way to it. api_server: host and port."""
    meta = "__meta_kubernetes_"

    def copy(source: str, target: str) -> Json:
        return {"source_labels": [source], "target_label": target}

    return [
        {"source_labels": [f"{meta}endpointslice_port_name"], "regex": PORT_NAME, "action": "keep"},
        copy("__address__", "instance"),
        copy(f"{meta}namespace", "namespace"),
        copy(f"{meta}pod_name", "pod"),
        copy(f"{meta}service_name", "service"),
        copy(f"{meta}endpointslice_port_name", "endpoint"),
        {
            "source_labels": [f"{meta}namespace", f"{meta}pod_name", f"{meta}endpointslice_port"],
            "regex": "(.+);(.+);(.+)",
            "replacement": "/api/v1/namespaces/$1/pods/$2:$3/proxy/metrics",
            "target_label": "__metrics_path__",
        },
        {"replacement": api_server, "target_label": "__address__"},
    ]


def format_report(prometheus: Prometheus, service: Service) -> str:
    """Return the answers to `QUESTIONS` and how targets and alerts are, at most `WIDTH` columns wide."""
    targets = prometheus.wait_for_targets(len(prometheus.find_targets()), GRACE_SECONDS)
    lines = [
        f"Prometheus scraped {count_up(targets)} of {len(targets)} operators behind the Service",
        f"{service.namespace}/{service.name} every {SCRAPE_SECONDS} s and says:",
        "",
    ]
    for question in QUESTIONS:
        lines += format_answers(question, prometheus.ask(question.query))
    return "\n".join([*lines, "", *format_rules(prometheus.find_rules())])


def format_answers(question: Question, answers: Sequence[Answer]) -> list[str]:
    """Return a question, its query and the answer in a few lines.

    >>> print(*format_answers(Question("How long?", "time", unit=" s"), [Answer({}, 1.5)]), sep=chr(10))
      How long?
        time
        = 1.500 s
    """
    known = [answer for answer in answers if not math.isnan(answer.value)]
    words = [
        f"{answer.labels[question.label]} {answer.value:.3f}{question.unit}"
        if question.label
        else f"{answer.value:.3f}{question.unit}"
        for answer in sorted(known, key=lambda answer: answer.labels.get(question.label, ""))
    ]
    return [
        f"  {question.text}",
        *textwrap.wrap(
            question.query,
            WIDTH,
            initial_indent="    ",
            subsequent_indent="      ",
            break_long_words=False,
            break_on_hyphens=False,
        ),
        f"    = {', '.join(words) or 'nothing'}",
    ]


def format_rules(rules: Sequence[Json]) -> list[str]:
    """Return how the alert rules are."""
    sick = [f"{rule['name']}: {rule['lastError'] or rule['health']}" for rule in rules if rule["health"] != "ok"]
    firing = [rule["name"] for rule in rules if rule["state"] == "firing"]
    verdict = f"cannot be evaluated: {'; '.join(sick)}" if sick else "all evaluated"
    return [f"  {len(rules)} alert rules, {verdict}; firing: {', '.join(firing) or 'none'}"]
