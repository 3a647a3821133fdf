"""``fairbind problem``: a live cluster becomes a file that the exact library divides."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pytest
import yaml

from e2e.objects import make_name, make_pod
from e2e.operators import PROGRAM
from e2e.workloads import create_pods
from localplane.nodes import make_node

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant


def run(*words: str) -> str:
    done = subprocess.run([str(PROGRAM), *words], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_cluster_is_divided_by_what_is_written(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, tmp_path: Path
) -> None:
    """The first example of the DRF paper: 9 cores and 18 GiB; tasks of (1, 4) and (3, 1) get 3 and 2."""
    node = {"cpu": "3", "memory": "6Gi", "pods": "110"}
    nodes([make_node(make_name("n"), allocatable=node) for _ in range(3)])
    spaces = [namespace(), namespace()]
    first, second = tenant(namespaces=[spaces[0]]), tenant(namespaces=[spaces[1]], weight="1")
    create_pods(cluster.api, spaces[0], [make_pod({"cpu": "1", "memory": "4Gi"}) for _ in range(9)])
    create_pods(cluster.api, spaces[1], [make_pod({"cpu": "3", "memory": "1Gi"}) for _ in range(3)])

    file = tmp_path / "cluster.yaml"
    file.write_text(run("problem", f"--kubeconfig={cluster.kubeconfig}"), encoding="utf-8")
    document = yaml.safe_load(file.read_text(encoding="utf-8"))

    assert [(server["count"], server["capacity"]["cpu"]) for server in document["servers"]] == [(3, 3.0)]
    demands = {one["name"]: one["demand"] for one in document["tenants"]}
    assert demands == {first: {"cpu": 1.0, "memory": 4.0 * 2**30}, second: {"cpu": 3.0, "memory": 2.0**30}}
    answer = json.loads(run("allocate", str(file), "--mechanism", "drf", "--pool"))
    assert answer["totals"] == pytest.approx({first: 3, second: 2})
    as_json = json.loads(run("problem", f"--kubeconfig={cluster.kubeconfig}", "-o", "json"))
    assert as_json == document
