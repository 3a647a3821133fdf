"""The layers are enforced, not just drawn: the contracts hold, and each of them notices the import that it forbids."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LAYERS = "Layers: dependencies point inward"
INNER = "The inner packages do no I/O, read no clock, draw no randomness and log nothing"
CLUSTER = "The cluster's state does no I/O, reads no clock, draws no randomness and logs nothing"
CLUSTER_LAYERS = "Layers of the cluster: what is, then what follows, then the rules of those who ask"
CYCLE = "Layers of a cycle: servers, then the order of tasks, then why they wait"
DECIDING = "Layers of deciding: a cycle and the exact fair shares stand on the policies"
SPEAKING = "Layers of what speaks to the API: the operator stands on the writers, all on the client"
FAIRNESS = "Fairness: properties ask solve, which asks mechanisms, which ask solvers, which know problems"
SOLVERS = "Fairness: solver families are independent, but PS-DSF may start from a market"
KOPF = "kopf appears only in kube.operator.custom_resources"
AUDIT = "The audit does without what runs the operator"
METRICS = "Only web serves metrics"
SIMULATOR = "What-if and simulator read no clock, open no connection and draw no randomness but from their seed"
CONTRACTS = (
    LAYERS, CLUSTER_LAYERS, CYCLE, DECIDING, SPEAKING, FAIRNESS, SOLVERS, INNER, CLUSTER, SIMULATOR, KOPF, AUDIT,
    METRICS,
)  # fmt: skip

FORBIDDEN = [
    ("scheduling/probe.py", "import time", INNER),
    ("scheduling/probe.py", "from random import random", INNER),
    ("scheduling/probe.py", "import kubernetes", INNER),
    ("model/probe.py", "import logging", INNER),
    ("model/probe.py", "from pathlib import Path", INNER),
    ("model/probe.py", "import fairbind.scheduling", LAYERS),
    ("scheduling/probe.py", "from fairbind import kube", LAYERS),
    ("kube/operator/probe.py", "import fairbind.web", LAYERS),
    ("web/probe.py", "from fairbind.kube.operator import probe", LAYERS),
    ("kube/operator/probe.py", "def late() -> None:\n    import fairbind.cli", LAYERS),
    ("cluster/probe.py", "from fairbind import kube", LAYERS),
    ("scheduling/probe.py", "from fairbind import cluster", LAYERS),
    ("cluster/cache/probe.py", "import aiohttp", CLUSTER),
    ("cluster/probe.py", "import asyncio", CLUSTER),
    ("cluster/objects/probe.py", "import logging", CLUSTER),
    ("cluster/filters/probe.py", "import kopf", CLUSTER),
    ("cluster/tenancy/probe.py", "from time import monotonic", CLUSTER),
    ("cluster/cache/probe.py", "import random", CLUSTER),
    ("cluster/cache/probe.py", "import socket", CLUSTER),
    ("cluster/objects/probe.py", "import fairbind.cluster.cache.cache", CLUSTER_LAYERS),
    ("cluster/filters/probe.py", "import fairbind.cluster.tenancy.tenants", CLUSTER_LAYERS),
    ("cluster/state/probe.py", "import fairbind.cluster.classes.task_queue", CLUSTER_LAYERS),
    ("cluster/classes/probe.py", "import fairbind.cluster.cache.queries", CLUSTER_LAYERS),
    ("cluster/other_schedulers/probe.py", "import fairbind.cluster.loop.pacing", CLUSTER_LAYERS),
    ("scheduling/cycle/servers/probe.py", "import fairbind.scheduling.cycle.order.filling", CYCLE),
    ("scheduling/cycle/order/probe.py", "import fairbind.scheduling.cycle.waits.store", CYCLE),
    ("what_if/probe.py", "import fairbind.simulator.driver", LAYERS),
    ("what_if/probe.py", "import time", SIMULATOR),
    ("scheduling/policies/probe.py", "import fairbind.scheduling.cycle.cycle", DECIDING),
    ("scheduling/cycle/probe.py", "import fairbind.scheduling.fair_shares.audit", DECIDING),
    ("kube/client/probe.py", "import fairbind.kube.writers.binder", SPEAKING),
    ("kube/writers/probe.py", "import fairbind.kube.operator.loop", SPEAKING),
    ("cli/audit.py", "import fairbind.kube.operator.custom_resources", AUDIT),
    ("kube/operator/probe.py", "import kopf", KOPF),
    ("fairness/problems/probe.py", "import fairbind.fairness.solvers.warm", FAIRNESS),
    ("fairness/solvers/market/probe.py", "from fairbind.fairness.mechanisms.registry import MECHANISMS", FAIRNESS),
    ("fairness/mechanisms/probe.py", "from fairbind.fairness import solve", FAIRNESS),
    ("fairness/solve.py", "import fairbind.fairness.properties", FAIRNESS),
    ("fairness/solvers/market/probe.py", "import fairbind.fairness.solvers.psdsf.server_filling", SOLVERS),
    ("fairness/solvers/maxmin/probe.py", "import fairbind.fairness.solvers.psdsf.server_filling", SOLVERS),
    ("fairness/solvers/psdsf/probe.py", "import fairbind.fairness.solvers.maxmin.lexicographic", SOLVERS),
    ("fairness/solvers/market/probe.py", "import fairbind.fairness.solvers.maxmin.lexicographic", SOLVERS),
    ("simulator/probe.py", "import fairbind.kube.client.api", LAYERS),
    ("simulator/probe.py", "from random import random", SIMULATOR),
    ("simulator/probe.py", "import time", SIMULATOR),
    ("web/probe.py", "from kopf import on", KOPF),
    ("kube/operator/probe.py", "import prometheus_client", METRICS),
]


@pytest.fixture
def copied_source(tmp_path: Path) -> Path:
    """A source root that a test may spoil."""
    source = tmp_path / "operator"
    shutil.copytree(ROOT / "operator" / "fairbind", source / "fairbind", ignore=shutil.ignore_patterns("__pycache__"))
    (source / "fairbind" / "kube" / "operator" / "probe.py").touch()
    return source


def check_contracts(source: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter over a source root with the project's own contracts."""
    program = (
        "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(sys.argv[1], no_cache=True))"
    )
    return subprocess.run(
        [sys.executable, "-c", program, str(ROOT / "pyproject.toml")],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(source), "COLUMNS": "400"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_each_contract_is_broken_once() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]

    assert sorted(contract["name"] for contract in settings["contracts"]) == sorted(CONTRACTS)
    assert {contract for _, _, contract in FORBIDDEN} == set(CONTRACTS)


def test_contracts_hold(copied_source: Path) -> None:
    outcome = check_contracts(copied_source)

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    assert all(f"{name} KEPT" in outcome.stdout for name in CONTRACTS)


def test_each_forbidden_import_is_found(copied_source: Path) -> None:
    modules = {}
    for number, (path, line, contract) in enumerate(FORBIDDEN):
        file = copied_source / "fairbind" / path
        spoiled = file.with_stem(f"{file.stem}_{number}") if file.stem == "probe" else file
        with spoiled.open("a", encoding="utf-8") as source:
            source.write(f"\n{line}\n")
        name = ".".join(spoiled.relative_to(copied_source).with_suffix("").parts)
        modules[name, line] = contract

    outcome = check_contracts(copied_source)

    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    found = find_broken(outcome.stdout)
    missed = [case for case, contract in modules.items() if not re.search(rf"{case[0]}\b", found.get(contract, ""))]
    assert missed == [], outcome.stdout


def test_a_new_package_must_be_given_its_layer(copied_source: Path) -> None:
    places = {
        "": LAYERS,
        "cluster": CLUSTER_LAYERS,
        "scheduling/cycle": CYCLE,
        "scheduling": DECIDING,
        "kube": SPEAKING,
        "fairness": FAIRNESS,
        "fairness/solvers": SOLVERS,
    }
    for place in places:
        newcomer = copied_source / "fairbind" / place / "newcomer"
        newcomer.mkdir()
        (newcomer / "__init__.py").touch()

    outcome = check_contracts(copied_source)

    assert outcome.returncode == 1, outcome.stdout + outcome.stderr
    found = find_broken(outcome.stdout)
    names = {
        contract: ".".join(["fairbind", *place.split("/"), "newcomer"]).replace("..", ".")
        for place, contract in places.items()
    }
    assert [name for contract, name in names.items() if name not in found.get(contract, "")] == [], outcome.stdout


def find_broken(output: str) -> dict[str, str]:
    """Return what import-linter says of each broken contract."""
    parts = re.split(r"\n(\S.*)\n-{3,}\n", output.split("Broken contracts", 1)[1])
    return dict(zip(parts[1::2], parts[2::2], strict=True))
