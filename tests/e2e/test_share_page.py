"""docs/share.md, done as a reader would: its commands, with the rights of a member of one namespace."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from e2e.members import RBAC, bind_role
from e2e.objects import SCHEDULER_NAME, make_name
from e2e.waiting import wait_for
from e2e.workloads import count_bound, find_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.api import Api
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeTenant, StartOperator

PAGE = Path(__file__).parents[2] / "docs" / "share.md"
NAME = "team-a"
WITHOUT_OPERATOR = {"operator": {"enabled": False}}
ROOM, WANTED = 12, 20
REPORTS = "/apis/fairbind.io/v1alpha1/namespaces/{}/sharereports/fairbind"


def find_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def find_commands() -> list[str]:
    """Return what a member types, in the order of the page."""
    return [line[2:] for block in find_blocks("console") for line in block.splitlines() if line.startswith("$ ")]


@pytest.fixture
def home(namespace: MakeNamespace) -> str:
    return namespace()


@pytest.fixture
def identity(cluster: Cluster, api: Api, home: str) -> tuple[str, Path]:
    """A member's ServiceAccount and kubeconfig: `admin` in one namespace, and nothing else."""
    name = make_name("member")
    api.post(f"/api/v1/namespaces/{home}/serviceaccounts", {"metadata": {"name": name}})
    bind_role(api, home, "admin", home, name)
    return name, cluster.service_account_kubeconfig(home, name)


@pytest.fixture
def run(cluster: Cluster, identity: tuple[str, Path], home: str) -> Callable[[str], str]:
    """Run a command of the page as the member; `team-a` is the member's namespace."""

    def run(command: str, *, text: str = "") -> str:
        program, *arguments = shlex.split(command.replace(NAME, home))
        assert program == "kubectl", command
        call = [str(cluster.tools.path("kubectl")), *arguments, f"--kubeconfig={identity[1]}"]
        done = subprocess.run(call, input=text, capture_output=True, text=True, check=False)
        is_no = done.returncode == 1 and done.stdout == "no\n"  # kubectl auth can-i
        assert is_no or done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    return run


@pytest.fixture
def shown(cluster: Cluster) -> Iterator[None]:
    """Members may see their share."""
    cluster.install_chart({**WITHOUT_OPERATOR, "tenantView": {"enabled": True}})
    yield
    cluster.install_chart(WITHOUT_OPERATOR)


@pytest.mark.usefixtures("node", "shown")
def test_a_member_can_run_what_the_page_says(
    cluster: Cluster,
    api: Api,
    home: str,
    identity: tuple[str, Path],
    run: Callable[..., str],
    namespace: MakeNamespace,
    tenant: MakeTenant,
    operator: StartOperator,
) -> None:
    [manifest] = find_blocks("yaml")
    other = namespace()
    tenant(home, namespaces=[home])
    tenant(make_name("other"), namespaces=[other])
    job = yaml.safe_load(manifest)
    job["spec"]["template"]["metadata"] = {"annotations": {"fairbind.io/run-seconds": "100000"}}  # kwok ends no pod
    manifest = yaml.safe_dump(job)
    wait_for(
        lambda: run(f"kubectl --namespace {NAME} auth can-i create jobs") == "yes\n", describe="the member's rights"
    )
    run(f"kubectl --namespace {NAME} apply -f -", text=manifest)
    cluster.kubectl("create", "--namespace", other, "-f", str(write_manifest(identity[1].parent, manifest)))
    operator("--tenant-view=own")
    wait_for(lambda: count_bound(api, home) + count_bound(api, other) == ROOM, describe="a full node")
    wait_for(lambda: has_reasons(api, home), describe="reasons on all waiting pods")
    wait_for(lambda: has_report(api, home), describe="a report about all of them")

    shown = {command: run(command) for command in find_commands()}

    schedulers, waiting, messages, reasons, shares, order, refused = shown.values()
    assert schedulers.splitlines()[0].split() == ["NAME", "SCHEDULER", "NODE"]
    assert schedulers.count(SCHEDULER_NAME) == WANTED
    assert waiting.count("Pending") == WANTED - count_bound(api, home)
    assert all(line.startswith("0/1 nodes are available: 1 Insufficient cpu.") for line in messages.splitlines())
    assert {line.split()[1] for line in reasons.splitlines()[1:]} == {"Unschedulable"}
    held = count_bound(api, home)
    assert shares.splitlines()[0].split() == ["NAME", "SHARE", "FAIR", "SHARE", "RUNNING", "PENDING", "BEFORE", "AGE"]
    row = shares.splitlines()[1].split()
    assert (row[0], row[3], row[4]) == ("fairbind", str(held), str(WANTED - held))
    (line,) = order.splitlines()
    assert line.startswith(f"1. {WANTED - held} pods such as train-")
    assert "0/1 nodes are available: 1 Insufficient cpu." in line
    assert refused == "no\n"


def test_an_administrator_can_show_a_member_its_own_tenant_and_no_other(
    cluster: Cluster, home: str, identity: tuple[str, Path], run: Callable[..., str], tenant: MakeTenant
) -> None:
    commands, [look] = (block.splitlines() for block in find_blocks("sh"))
    tenant(home, namespaces=[home])
    other = tenant(make_name("other"), namespaces=[make_name("gone")])
    user = f"system:serviceaccount:{home}:{identity[0]}"
    try:
        for command in commands:
            as_user = command.replace("--group=team-a", f"--user={user}").replace(NAME, home)
            cluster.kubectl(*shlex.split(as_user)[1:])

        wait_for(lambda: home in run(look), describe="the member to see its tenant")
        with pytest.raises(AssertionError, match="forbidden"):
            run(look.replace(NAME, other))
    finally:
        for kind in ("clusterrolebinding", "clusterrole"):
            cluster.kubectl("delete", f"{kind}.{RBAC}", f"see-{home}", "--ignore-not-found")


def write_manifest(folder: Path, manifest: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(manifest, encoding="utf-8")
    return path


def has_report(api: Api, namespace: str) -> bool:
    """Whether the report is about the pods of now."""
    path = REPORTS.format(namespace)
    status = api.get(path)["status"] if api.exists(path) else {}
    return status.get("running") == count_bound(api, namespace) and "fairShare" in status and bool(status["waiting"])


def has_reasons(api: Api, namespace: str) -> bool:
    """Whether every waiting pod says why: one of each class is written first, the others follow."""
    pods = find_waiting(api, namespace)
    conditions = [condition for pod in pods for condition in pod.get("status", {}).get("conditions", [])]
    return len(pods) > 0 and len([one for one in conditions if one["type"] == "PodScheduled"]) == len(pods)
