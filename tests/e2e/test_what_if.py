"""``fairbind what-if --submit`` on a live cluster: the API server completes a pod of each template, and keeps none."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from e2e.objects import make_name
from e2e.test_snapshot import run
from localplane.nodes import make_node

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes

SMALL = {"cpu": "4", "memory": "16Gi", "pods": "110"}


def make_job(space: str, pool: str, count: int, **spec: Any) -> dict[str, Any]:
    """A job whose pods may use the nodes of one pool only, without any request of their own."""
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {"pool": pool},
        "containers": [{"name": "main", "image": "i"}],
        **spec,
    }
    meta = {"name": "j", "namespace": space}
    job = {"parallelism": count, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": job}


def test_a_pod_of_the_manifest_is_completed_by_the_cluster(
    cluster: Cluster, nodes: MakeNodes, namespace: MakeNamespace, tmp_path: Path
) -> None:
    """Four cores, and a LimitRange of three a container: one of four pods starts. With a quota of two cores, none."""
    api, pool, space = cluster.api, make_name("pool"), namespace()
    nodes([make_node(make_name("n"), allocatable=SMALL, labels={"pool": pool})])
    item = {"type": "Container", "defaultRequest": {"cpu": "3"}, "default": {"cpu": "3"}}
    api.post(f"/api/v1/namespaces/{space}/limitranges", {"metadata": {"name": "d"}, "spec": {"limits": [item]}})

    def submit(manifest: dict[str, Any], *words: str) -> dict[str, Any]:
        path = tmp_path / "job.json"
        path.write_text(json.dumps(manifest), encoding="utf-8")
        found: dict[str, Any] = json.loads(run("what-if", *words, "--submit", str(path), "-o", "json"))["submit"]
        return found

    live = f"--kubeconfig={cluster.kubeconfig}"
    found = submit(make_job(space, pool, 4), live)
    assert (found["pods"], found["starting"]) == (4, 1)
    assert found["not_applied"] == ["ResourceQuotas for more than one pod of a template"]
    network = {"hostNetwork": True, "containers": [{"name": "main", "image": "i", "ports": [{"containerPort": 80}]}]}
    network["containers"][0]["resources"] = {"requests": {"cpu": "1"}}  # type: ignore[index]
    assert submit(make_job(space, pool, 2, **network), live)["starting"] == 1
    assert submit(make_job(space, pool, 1, priorityClassName="system-node-critical"), live)["starting"] == 1
    assert api.items(f"/api/v1/namespaces/{space}/pods") == []  # nothing was stored

    file = tmp_path / "cluster.json"
    run("snapshot", live, "--out", str(file))
    found = submit(make_job(space, pool, 4), str(file))
    assert (found["pods"], found["starting"]) == (4, 1)
    assert found["not_applied"] == ["admission webhooks, admission policies and ResourceQuotas"]

    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "2"}}}
    api.post(f"/api/v1/namespaces/{space}/resourcequotas", quota)
    found = submit(make_job(space, pool, 4), live)
    assert (found["pods"], found["starting"], found["wait_seconds"]) == (4, 0, None)
    assert "exceeded quota: q" in found["reason"]
