"""docs/break-glass.md, done as somebody on call would: its commands as they stand, with the real kube-scheduler."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from e2e.audit import read_bindings
from e2e.objects import make_name, make_pod
from e2e.operators import LEASE, NAMESPACE, PROGRAM
from e2e.waiting import never, wait_for
from e2e.workloads import count_bound, create_pods, find_bound, list_pods
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.api import Api
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator
    from localplane.plane import ControlPlane

pytestmark = pytest.mark.local_plane

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "break-glass.md"
ALERTS = ROOT / "deploy" / "alerts" / "fairbind.rules.yaml"
ACCOUNT = "break-glass"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
CORES = 12
EARLY_SECONDS = 17.0
"""Longer than a lease that is not renewed any more."""


def find_blocks(heading: str) -> list[str]:
    """Return the commands of a section, block by block."""
    (section,) = re.findall(rf"^## {re.escape(heading)}$(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)


@pytest.fixture
def run(cluster: Cluster) -> Callable[[str], str]:
    """Run commands of the page in a shell, from the repository's folder; return what they print."""
    path = os.pathsep.join([str(cluster.tools.path("kubectl").parent), str(PROGRAM.parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path, "KUBECONFIG": str(cluster.kubeconfig)}

    def run(commands: str) -> str:
        call = ["bash", "-e", "-c", commands]
        done = subprocess.run(call, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{commands}: {done.stderr}"
        return done.stdout

    return run


@pytest.fixture
def whole(cluster: Cluster) -> Iterator[ControlPlane]:
    """The control plane with the whole chart, also its Deployment, whose pods are not run: tests start operators."""
    plane = cluster.plane
    assert plane is not None
    cluster.install_chart({"operator": {"enabled": True}})
    yield plane
    if "kube-scheduler" in plane.running():
        plane.stop_component("kube-scheduler")
    cluster.kubectl("delete", "--ignore-not-found", "-f", str(ROOT / "deploy" / "examples" / "break-glass.yaml"))
    cluster.install_chart({"operator": {"enabled": False}})


@pytest.fixture
def home(nodes: MakeNodes, namespace: MakeNamespace) -> str:
    """A namespace, and a node of twelve cores."""
    nodes([make_node(make_name("n"), allocatable={"cpu": str(CORES), "memory": "64Gi", "pods": "110"})])
    return namespace()


def start_kube_scheduler(cluster: Cluster, plane: ControlPlane, folder: Path) -> None:
    """Run what the applied Deployment runs: its arguments, its configuration and its service account."""
    [container] = plane.client.get(f"{DEPLOYMENTS}/{ACCOUNT}")["spec"]["template"]["spec"]["containers"]
    [program, argument] = container["command"]
    assert program == "kube-scheduler"
    mount = container["volumeMounts"][0]["mountPath"]
    assert argument == f"--config={mount}/config.yaml"
    found = plane.client.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{ACCOUNT}")["data"]["config.yaml"]
    kubeconfig = cluster.service_account_kubeconfig(NAMESPACE, ACCOUNT)
    config = yaml.safe_load(found) | {"clientConnection": {"kubeconfig": str(kubeconfig)}}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    plane.start_component("kube-scheduler", f"--config={path}", "--leader-elect=true")  # the plane's default is false


def find_holder(api: Api) -> str:
    return str(api.get(LEASE)["spec"].get("holderIdentity") or "")


def find_reasons(listed: str, namespace: str) -> list[str]:
    """Return the reasons that the page's first command shows of a namespace's pods."""
    rows = [line.split() for line in listed.splitlines()]
    assert rows[0] == ["NAMESPACE", "POD", "SCHEDULER", "REASON"]
    return [reason for space, _, scheduler, reason in rows[1:] if space == namespace and scheduler == "fairbind"]


def test_kube_scheduler_stands_in_for_fairbind_and_never_do_both_bind(
    cluster: Cluster,
    api: Api,
    whole: ControlPlane,
    home: str,
    policy: Callable[..., None],
    operator: StartOperator,
    run: Callable[[str], str],
    tmp_path: Path,
) -> None:
    into, back = find_blocks("fairbind is down and pods wait")
    pods, lease, audit = find_blocks("Is it fairbind?")[0].splitlines()
    ours, theirs = f"system:serviceaccount:{NAMESPACE}:fairbind", f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    first = operator()
    create_pods(api, home, [make_pod({"cpu": "1"}) for _ in range(2)])
    wait_for(lambda: count_bound(api, home) == 2, describe="fairbind to bind")

    # kube-scheduler comes too early: it waits, also where it would place pods that fairbind does not.
    policy(nodeSelector={"pool": "none"})
    run(f"kubectl apply --filename {ROOT / 'deploy' / 'examples' / 'break-glass.yaml'}")
    start_kube_scheduler(cluster, whole, tmp_path)
    create_pods(api, home, [make_pod({"cpu": "1"}) for _ in range(2)])
    never(lambda: count_bound(api, home) != 2, EARLY_SECONDS, "kube-scheduler binds beside fairbind")
    policy(nodeSelector=None)
    wait_for(lambda: count_bound(api, home) == 4, describe="fairbind to go on")
    whole.stop_component("kube-scheduler")

    leader = find_holder(api)
    first.kill()
    create_pods(api, home, [make_pod({"cpu": "1"}) for _ in range(4)])
    assert find_reasons(run(pods), home) == ["<none>"] * 4, "no scheduler has looked at them"
    assert run(lease).split()[:3] == ["HOLDER", "RENEWED", leader]
    run(audit)
    run(into)
    assert api.get(f"{DEPLOYMENTS}/fairbind")["spec"]["replicas"] == 0
    start_kube_scheduler(cluster, whole, tmp_path)
    wait_for(lambda: count_bound(api, home) == 8, describe="kube-scheduler to bind")
    stand_in = find_holder(api)
    assert stand_in != leader
    assert stand_in in run(into), "doing it twice does no harm"
    assert find_reasons(run(pods), home) == []

    # It evicts nothing, although a pod of priority waits.
    create_pods(api, home, [make_pod({"cpu": str(CORES)}, priorityClassName="system-cluster-critical")])
    wait_for(lambda: find_reasons(run(pods), home) == ["Unschedulable"], describe="kube-scheduler to say why")
    never(lambda: count_bound(api, home) != 8, 3.0, "a pod was evicted")

    # fairbind comes back too early: it waits.
    second = operator()
    create_pods(api, home, [make_pod({"cpu": "1"}) for _ in range(2)])
    wait_for(lambda: count_bound(api, home) == 10, describe="kube-scheduler to go on")
    never(second.is_leader, EARLY_SECONDS, "fairbind leads beside kube-scheduler")
    assert find_holder(api) == stand_in

    run(back)
    whole.stop_component("kube-scheduler")  # as its kubelet does
    assert api.get(f"{DEPLOYMENTS}/fairbind")["spec"]["replicas"] == 2
    assert not api.exists(f"{DEPLOYMENTS}/{ACCOUNT}")
    wait_for(second.is_leader, 60.0, describe="fairbind to lead again")
    create_pods(api, home, [make_pod({"cpu": "1"}) for _ in range(2)])
    wait_for(lambda: count_bound(api, home) == CORES, describe="fairbind to bind again")
    users = [binding.user for binding in read_bindings(whole.audit_log, namespace=home) if binding.is_done]
    assert users == [ours] * 4 + [theirs] * 6 + [ours] * 2


def test_a_wrong_policy_and_a_wrong_weight_go_back_and_running_pods_stay(
    api: Api,
    home: str,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    policy: Callable[..., None],
    operator: StartOperator,
    run: Callable[[str], str],
) -> None:
    [commands] = find_blocks("A policy was wrong")
    other = namespace()
    name = tenant(namespaces=[home], weight=9)
    tenant(namespaces=[other], weight=1)
    policy(policy="fifo")
    started = operator()
    create_pods(api, home, [make_pod({"cpu": "1"}) for _ in range(4)])
    wait_for(lambda: count_bound(api, home) == 4, describe="the wrong policy to place pods")
    before = {pod["metadata"]["uid"] for pod in find_bound(api, home)}

    run(commands.replace("team-a", name))
    wait_for(lambda: started.metrics().value("fairbind_tenant_weight", tenant=name) == 1, describe="the weight")
    log = started.read_log(100_000)
    assert log.index("policy: fifo") < log.index("policy: best-fit-drfh")
    started.freeze()  # all of these are seen at once
    create_pods(api, home, [make_pod({"cpu": "1"}) for _ in range(CORES)])
    create_pods(api, other, [make_pod({"cpu": "1"}) for _ in range(CORES)])
    started.thaw()
    wait_for(lambda: count_bound(api, home) + count_bound(api, other) == CORES, describe="a full node")

    assert (count_bound(api, home), count_bound(api, other)) == (CORES // 2, CORES // 2)
    assert before <= {pod["metadata"]["uid"] for pod in list_pods(api, home) if pod["spec"].get("nodeName")}


def find_first_commands() -> list[str]:
    """Return the first command of each alert, but those that ask kubelets for logs, which fake nodes do not have."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    commands = {rule["annotations"]["command"] for group in groups for rule in group["rules"]}
    placed = {command.replace("{{ $labels.namespace }}", NAMESPACE) for command in commands}
    return sorted(command for command in placed if " logs " not in command)


@pytest.mark.usefixtures("whole")
def test_the_first_commands_of_alerts_can_be_run(operator: StartOperator, run: Callable[[str], str]) -> None:
    operator()
    commands = find_first_commands()
    assert len(commands) > 5
    for command in commands:
        run(command)  # which fails where the command does
