"""`kubectl fairbind`, run by kubectl itself: as an administrator, and with the token of a namespace's administrator."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2e.members import bind_role
from e2e.objects import SCHEDULER_NAME, make_name
from e2e.waiting import wait_for
from e2e.workloads import count_bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.api import Api
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeTenant, StartOperator

    Run = Callable[..., subprocess.CompletedProcess[str]]

WITHOUT_OPERATOR = {"operator": {"enabled": False}}
PROGRAMS = Path(sys.executable).parent
CORES, WANTED = 12, 20


@pytest.fixture
def shown(cluster: Cluster) -> Iterator[None]:
    """Members may see their share."""
    cluster.install_chart({**WITHOUT_OPERATOR, "tenantView": {"enabled": True}})
    yield
    cluster.install_chart(WITHOUT_OPERATOR)


@pytest.fixture
def run(cluster: Cluster) -> Run:
    """Run kubectl with a kubeconfig; it finds the plugin on the PATH."""

    def run(*words: str, kubeconfig: Path = cluster.kubeconfig) -> subprocess.CompletedProcess[str]:
        call = [str(cluster.tools.path("kubectl")), *words]
        environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
        return subprocess.run(call, env=environment, capture_output=True, text=True, timeout=300, check=False)

    return run


def make_job(namespace: str) -> dict[str, object]:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    spec = {
        "schedulerName": SCHEDULER_NAME,
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "busybox", "resources": resources}],
    }
    template = {"metadata": {"annotations": {"fairbind.io/run-seconds": "100000"}}, "spec": spec}
    job = {"parallelism": WANTED, "completions": WANTED, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": namespace}, "spec": job}


def test_kubectl_finds_the_plugin(run: Run) -> None:
    found = run("plugin", "list")

    assert str(PROGRAMS / "kubectl-fairbind") in found.stdout
    assert run("fairbind", "--version").stdout.startswith("kubectl fairbind ")


@pytest.mark.usefixtures("node", "shown")
def test_a_member_and_an_administrator_see_why_a_job_waits(
    cluster: Cluster,
    api: Api,
    run: Run,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    operator: StartOperator,
) -> None:
    home, other, stray = namespace(), namespace(), namespace()
    member = make_name("member")
    api.post(f"/api/v1/namespaces/{home}/serviceaccounts", {"metadata": {"name": member}})
    bind_role(api, home, "admin", home, member)
    token = cluster.service_account_kubeconfig(home, member)
    tenant(home, namespaces=[home])
    rich = tenant(make_name("rich"), namespaces=[other])
    for place in (home, other, stray):
        api.post(f"/apis/batch/v1/namespaces/{place}/jobs", make_job(place))
    operator("--tenant-view=own")
    places = (home, other, stray)
    wait_for(lambda: sum(count_bound(api, each) for each in places) == CORES, describe="a full node")

    def is_reported() -> bool:
        answer = run("fairbind", "top", "-n", home, kubeconfig=token)
        return answer.returncode == 0 and f" {WANTED - CORES // 3} " in answer.stdout

    wait_for(is_reported, describe="the member to see its share", timeout=120.0)
    wait_for(lambda: "looked at" not in run("fairbind", "why", "-n", home, kubeconfig=token).stdout, describe="reasons")

    user = f"system:serviceaccount:{home}:{member}"
    seen = run("fairbind", "top", "-n", home, kubeconfig=token).stdout
    assert f"Not seen: tenants: forbidden for user {user}; shown is what namespace {home}'s ShareReport says." in seen
    assert other not in seen
    own = run("fairbind", "why", "job/train", "-n", home, kubeconfig=token)
    assert own.returncode == 0, own.stderr
    assert f"job/train in namespace {home}, tenant {home}: 20 pods; 4 run, 16 wait." in own.stdout
    assert "0 of 1 nodes can take it:\n    1  Insufficient cpu\n" in own.stdout
    assert "You can     wait until pods end, or request less" in own.stdout
    assert "before yours, whose weighted share is " in own.stdout
    assert f"Not seen: tenants: forbidden for user {user}" in own.stdout
    refused = run("fairbind", "audit", kubeconfig=token)
    assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1)
    assert "forbidden" in refused.stderr

    whole = run("fairbind", "top").stdout
    assert [name for name in (home, rich, f"ns/{stray} *") if name not in whole] == []
    why = run("fairbind", "why", "job/train", "-n", home)
    assert why.returncode == 0, why.stderr
    assert "16 pods wait: train-" in why.stdout
    assert "Would help  for all 16 to start now: " in why.stdout
    assert "Not seen" not in why.stdout
    as_member = run("fairbind", "why", "job/train", "-n", home, "--as", user)
    assert f"Not seen: tenants: forbidden for user {user}" in as_member.stdout
    assert run("fairbind", "audit", "-o", "json").returncode == 0
    assert run("fairbind", "what-if", "--policy", "tsf", "-o", "json").returncode == 0
