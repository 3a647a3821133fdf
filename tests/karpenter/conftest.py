"""A control plane with Karpenter, which has nodes of two kinds to buy, and no nodes at first.

`make exam-karpenter` runs these tests. CI does not collect them, as a program of others is built for them.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from e2e.clusters import Cluster
from e2e.operators import start_operator
from frameworks.conftest import LastingPlane, api, namespace, tenant
from frameworks.emitters import Place, Program
from frameworks.network import list_others, open_loopback
from frameworks.running import install_crds, running
from localplane.tools import DEFAULT, ensure_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    Json = dict[str, Any]

__all__ = ["api", "namespace", "tenant"]
"""The fixtures of the exam of frameworks, on the cluster of this one."""

ASKED = "FAIRBIND_KARPENTER"
collect_ignore = [] if ASKED in os.environ else ["test_karpenter.py"]

GPU = "nvidia.com/gpu"
KINDS = {
    "gpu-8": {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "100Gi", GPU: "8"},
    "cpu-16": {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"},
}
EMPTY_SECONDS = 2
"""After which an empty node is sold."""
POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "pool"},
    "spec": {
        "disruption": {
            "consolidationPolicy": "WhenEmpty",
            "consolidateAfter": f"{EMPTY_SECONDS}s",
            "budgets": [{"nodes": "100%"}],
        },
        "template": {
            "spec": {
                "expireAfter": "Never",
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "fake"},
                "requirements": [
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": sorted(KINDS)},
                ],
            }
        },
    },
}
CLASS = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "fake"}, "spec": {}}


def make_offering(price: float) -> Json:
    requirements = {"karpenter.sh/capacity-type": "on-demand", "topology.kubernetes.io/zone": "zone-a"}
    found = [{"key": key, "operator": "In", "values": [value]} for key, value in requirements.items()]
    return {"Price": price, "Available": True, "Requirements": found}


def start(place: Place) -> tuple[list[str], Json | None]:
    kinds = [
        {
            "name": name,
            "offerings": [make_offering(float(resources["cpu"]))],
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": resources,
        }
        for name, resources in KINDS.items()
    ]
    file = place.folder / "kinds.json"
    file.write_text(json.dumps(kinds), encoding="utf-8")
    return [
        f"--instance-types-file-path={file}",
        f"--metrics-port={place.webhooks}",
        f"--health-probe-port={place.probes}",
        "--disable-leader-election=true",
        "--batch-idle-duration=1s",
        "--batch-max-duration=5s",
    ], None


def set_environment(_place: Place) -> Mapping[str, str]:
    return {"SYSTEM_NAMESPACE": "kube-system"}


KARPENTER = Program(
    "karpenter", "sigs.k8s.io/karpenter", ("pkg/apis/crds", "kwok/apis/crds"), start, settings=set_environment
)


@pytest.fixture(scope="session")
def cluster(say: Callable[[str], None], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster with fairbind, which runs, and Karpenter."""
    others = list_others()
    assert others == [], f"run `make exam-karpenter`: this network has {others} besides its loopback"
    open_loopback()
    tools = ensure_tools([*DEFAULT, "kubectl", KARPENTER.name], say)
    folder = tmp_path_factory.mktemp("karpenter")
    with LastingPlane(tools) as plane, Cluster.connect(plane.kubeconfig, tools, plane) as cluster:
        cluster.install_chart({"operator": {"enabled": False}})
        install_crds(cluster, KARPENTER)
        cluster.api.post("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", CLASS)
        cluster.api.post("/apis/karpenter.sh/v1/nodepools", POOL)
        with running(cluster, folder, KARPENTER):
            operator = start_operator(cluster.operator_kubeconfig(), folder / "fairbind.log", [])
            try:
                operator.wait_ready()
                yield cluster
            finally:
                operator.stop()
                operator.close()
                assert "Traceback" not in operator.read_log(10_000), operator.read_log()
