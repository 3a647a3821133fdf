"""Starting, stopping and breaking control planes."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from local.waiting import is_alive, wait_for
from localplane import detached
from localplane import plane as module
from localplane.client import ApiClient, ApiError
from localplane.folders import PlaneFolder
from localplane.plane import ControlPlane, PlaneError
from localplane.ports import find_free_ports
from localplane.tools import DEFAULT, Tools

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCE = Path(module.__file__).parents[1]
PODS = "/api/v1/namespaces/default/pods"


@pytest.mark.nightly
def test_a_path_with_blanks_and_a_port_that_somebody_took(tools: Tools, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        choices = [[find_free_ports(1)[0], taken, taken], [taken, *find_free_ports(2)], find_free_ports(3)]

        def find_ports(count: int) -> Sequence[int]:
            assert count == 3
            return choices.pop(0)

        folder = tmp_path / "a path with blanks"
        with ControlPlane(tools, folder, find_ports=find_ports) as plane:
            assert choices == []
            assert plane.client.get("/readyz") == "ok"
            assert plane.directory == folder
            plane.add_nodes(6)
            plane.wait_nodes_ready()
            assert len(plane.run_kubectl(["get", "nodes", "--no-headers"]).splitlines()) == 6
    assert list(folder.glob("etcd")) == []


def test_two_planes_know_nothing_of_each_other_and_leave_nothing(tools: Tools) -> None:
    with ControlPlane(tools) as one, ControlPlane(tools) as other:
        one.add_nodes(2)
        one.wait_nodes_ready()

        assert one.server != other.server
        assert other.client.items("/api/v1/nodes") == []
        # the certificates of one are nothing to the other
        with ApiClient.from_kubeconfig(one.kubeconfig) as client:
            client.server = other.server
            with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
                client.get("/readyz")

        pids, folder = one.running(), one.directory
        assert set(pids) == {"etcd", "kube-apiserver", "kube-controller-manager", "kwok"}
        one.stop()
        one.stop()  # once more does no harm
        assert not any(is_alive(pid) for pid in pids.values())
        assert not folder.exists()
        assert other.client.get("/readyz") == "ok"


PARENT = """
    import sys, time
    sys.path.insert(0, {source!r})
    from localplane.plane import ControlPlane
    from localplane.tools import ensure_tools
    plane = ControlPlane(ensure_tools())
    plane.start()
    print(plane.directory, *plane.running().values(), flush=True)
    time.sleep(1000)
"""


@pytest.mark.usefixtures("tools")
def test_components_die_when_the_parent_is_killed() -> None:
    program = textwrap.dedent(PARENT.format(source=str(SOURCE)))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        folder, *pids = parent.stdout.readline().split()
        assert len(pids) == 4
        parent.kill()
        parent.wait()
    wait_for(lambda: not any(is_alive(int(pid)) for pid in pids), "the components to die")

    os.utime(folder, (0, 0))  # long ago: the next plane clears it away
    PlaneFolder.make(None).remove(keep_logs=False)
    assert not Path(folder).exists()


def test_parts_can_be_broken_and_mended(tools: Tools) -> None:
    with ControlPlane(tools) as plane:
        before = plane.client.get(PODS)["metadata"]["resourceVersion"]
        plane.stop_component("kwok", kill=True)
        with pytest.raises(PlaneError, match="kwok is not running"):
            plane.pid("kwok")
        plane.start_component("kwok")

        server, pid = plane.server, plane.pid("kube-apiserver")
        plane.restart_component("kube-apiserver")
        assert plane.server == server
        assert plane.pid("kube-apiserver") != pid

        plane.compact()
        with pytest.raises(ApiError) as caught:
            list(plane.client.watch(PODS, resourceVersion=before, timeout_seconds=5))
        assert caught.value.status == 410

        plane.restart_component("etcd", kill=True)
        wait_for(lambda: plane.client.get("/readyz") == "ok", "the API server to find etcd again")
        plane.add_nodes(3)
        plane.wait_nodes_ready()


def test_a_part_that_does_not_come_up_shows_the_end_of_its_log(tools: Tools, tmp_path: Path) -> None:
    broken = tmp_path / "bin"
    broken.mkdir()
    for name in DEFAULT:
        (broken / name).symlink_to(tools.path(name))
    (broken / "kube-apiserver").unlink()
    (broken / "kube-apiserver").write_text("#!/bin/sh\necho 'my last words' >&2\nexit 7\n")
    (broken / "kube-apiserver").chmod(0o755)
    plane = ControlPlane(Tools(dict.fromkeys(tools.folders, broken)), tmp_path / "plane")
    with pytest.raises(PlaneError, match=r"(?s)kube-apiserver ended with exit status 7.*my last words"):
        plane.start()

    assert plane.running() == {}
    assert "my last words" in plane.logs("kube-apiserver").read_text()


def run_localplane(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "localplane", f"--folder={folder}", *arguments],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.usefixtures("tools")
def test_a_detached_plane_lives_until_it_is_told_or_killed(tmp_path: Path) -> None:
    folder = tmp_path / "a clone"
    home = detached.Home(folder)
    try:
        assert run_localplane(folder, "status").returncode == 1
        up = run_localplane(folder, "up", "--nodes=3")
        assert up.returncode == 0, up.stderr
        kubeconfig = run_localplane(folder, "kubeconfig").stdout.rstrip("\n")
        assert Path(kubeconfig).is_file()
        more = run_localplane(folder, "up", "--nodes=5")
        assert "making 2 fake nodes" in more.stdout
        assert "nodes: 5 of 5 ready" in run_localplane(folder, "status").stdout

        state = detached.find_state(home)
        assert state is not None
        os.kill(state.pid, signal.SIGKILL)
        wait_for(lambda: not is_alive(state.pid), "the supervisor to die")
        dead = run_localplane(folder, "kubeconfig")
        assert (dead.returncode, dead.stdout) == (1, "")
        assert dead.stderr.count("\n") == 1

        assert run_localplane(folder, "up", "--nodes=1").returncode == 0
        assert "nodes: 1 of 1 ready" in run_localplane(folder, "status").stdout
    finally:
        down = run_localplane(folder, "down")
    assert down.stdout == "stopped\n"
    assert not home.plane.exists()
    assert run_localplane(folder, "down").stdout == "no control plane runs for this clone\n"
