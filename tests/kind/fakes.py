"""Fake nodes beside the real ones: kwok as a process on this machine, which manages only what carries its label.

Fake nodes are no Linux machines (label and taint say so), so the DaemonSets of a real cluster leave them alone. Their
address is the control plane's: a pod network makes a route for every node, and no route may lead nowhere.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from e2e.checks import is_usable
from e2e.waiting import wait_for
from kind.judge import FAKE_LABEL
from localplane import processes
from localplane.client import call_many
from localplane.components import KWOK_STAGES
from localplane.nodes import create_nodes, mixed_nodes
from localplane.tools import ensure_tools

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from e2e.api import Api, Json
    from kindcluster.cluster import Cluster

LINUX = "kubernetes.io/os"
FAKE_TAINT = {"key": "kwok.x-k8s.io/node", "value": "fake", "effect": "NoSchedule"}
FAKE_TOLERATION = {"key": "kwok.x-k8s.io/node", "operator": "Exists", "effect": "NoSchedule"}
READY_SECONDS = 600.0
OPTIONS = """\
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  manageAllNodes: false
  manageNodesWithLabelSelector: {label}=kwok
  cidr: 10.128.0.0/9
  nodeIP: {address}
  podPlayStageParallelism: 8
  nodePlayStageParallelism: 8
  nodeLeaseParallelism: 4
  nodeLeaseDurationSeconds: 120
---
"""


@contextlib.contextmanager
def start_fakes(cluster: Cluster, api: Api, folder: Path, count: int) -> Iterator[list[str]]:
    """Add so many fake nodes of mixed shapes and give their names; they and their kwok go away afterwards."""
    address = find_address(api)
    config, log = folder / "kwok.yaml", folder / "kwok.log"
    stages = KWOK_STAGES.read_text(encoding="utf-8")
    config.write_text(OPTIONS.format(label=FAKE_LABEL, address=address) + stages, encoding="utf-8")
    kwok = ensure_tools(("kwok",)).path("kwok")
    keep_daemons_away(cluster, api)
    nodes = mixed_nodes(count, prefix=folder.name.replace("_", "-"), labels={LINUX: "none"})
    for node in nodes:
        node["spec"]["taints"].append(FAKE_TAINT)
    names = [node["metadata"]["name"] for node in nodes]
    process = processes.spawn([kwok, f"--kubeconfig={cluster.kubeconfig}", f"--config={config}"], log)
    try:
        create_nodes(api, nodes)
        wait_for(lambda: are_usable(api, names), READY_SECONDS, lambda: processes.read_tail(log), pause=0.5)
        yield names
    finally:
        call_many(names, lambda name: api.delete(f"/api/v1/nodes/{name}"))
        processes.terminate(process, 10.0)


def find_address(api: Api) -> str:
    """Return the control plane's address in the nodes' network."""
    (node,) = api.items("/api/v1/nodes", labelSelector="node-role.kubernetes.io/control-plane")
    addresses: list[Json] = node["status"]["addresses"]
    address: str = next(entry["address"] for entry in addresses if entry["type"] == "InternalIP")
    return address


def keep_daemons_away(cluster: Cluster, api: Api) -> None:
    """Let the system's DaemonSets run on Linux nodes only, as most say anyway."""
    for item in api.items("/apis/apps/v1/namespaces/kube-system/daemonsets"):
        spec = item["spec"]["template"]["spec"]
        if LINUX not in (spec.get("nodeSelector") or {}):
            patch = '{"spec":{"template":{"spec":{"nodeSelector":{"kubernetes.io/os":"linux"}}}}}'
            name = item["metadata"]["name"]
            cluster.kubectl("patch", "daemonset", name, "--namespace=kube-system", f"--patch={patch}")
            cluster.kubectl("rollout", "status", f"daemonset/{name}", "--namespace=kube-system", "--timeout=540s")


def are_usable(api: Api, names: list[str]) -> bool:
    """Whether all of these nodes are Ready and have lost the taint of new ones."""
    ready = {
        node["metadata"]["name"]
        for node in api.items("/api/v1/nodes")
        if is_usable(node)
        and not any(taint["key"].startswith("node.kuber") for taint in node["spec"].get("taints") or [])
    }
    missing = set(names) - ready
    assert not missing, f"{len(missing)} are not ready, {sorted(missing)[:3]} for example"
    return True
