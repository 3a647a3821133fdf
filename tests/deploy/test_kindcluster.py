"""The driver of kind clusters without an engine: programs stand in for kind and docker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.conftest import StandIns
from kindcluster import engine, standing
from kindcluster.cluster import LOCAL_PACKAGES, Cluster
from kindcluster.commands import ROOT, KindError, run_command
from kindcluster.images import Image
from local.waiting import wait_for

NOWHERE = "unix:///nonexistent/docker.sock"


def list_kind(programs: StandIns) -> list[str]:
    return [call.split(" --")[0] for call in programs.calls() if call.startswith("kind ")]


def test_a_cluster_is_removed_after_its_use(programs: StandIns) -> None:
    with Cluster("mine", programs.tools, report=lambda _: None) as cluster:
        assert list_kind(programs) == ["kind create cluster"]
        folder = cluster.folder

    assert list_kind(programs) == ["kind create cluster", "kind delete cluster"]
    assert not folder.exists()
    assert all("--name=mine" in call for call in programs.calls() if call.startswith("kind "))


@pytest.mark.parametrize("failing", ["create cluster", "wait --for=condition=Ready"])
def test_a_cluster_that_does_not_start_is_removed(
    programs: StandIns, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    monkeypatch.setenv("FAILING", failing)
    cluster = Cluster("mine", programs.tools, report=lambda _: None)
    cluster.removal_pause_seconds = 0.1

    with pytest.raises(KindError, match="it did not work"):
        cluster.start()

    assert list_kind(programs)[-1] == "kind delete cluster"
    assert not cluster.folder.exists()


def test_a_failure_inside_removes_it_too(programs: StandIns) -> None:
    with pytest.raises(ZeroDivisionError), Cluster("mine", programs.tools, report=lambda _: None):
        _ = 1 // 0

    assert list_kind(programs)[-1] == "kind delete cluster"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("slow", ["create cluster", "none"])
def test_a_maker_that_is_killed_leaves_nothing(
    programs: StandIns, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, slow: str
) -> None:
    """Also while kind still makes the cluster: first that ends, then the cluster is removed."""
    monkeypatch.setenv("SLOW", slow)
    program = (
        "import sys, time, pathlib; from kindcluster.cluster import Cluster; from localplane.tools import Tools\n"
        "folder = pathlib.Path(sys.argv[1])\n"
        "tools = Tools(dict.fromkeys(('kind', 'cluster', 'kubernetes'), folder))\n"
        "cluster = Cluster('mine', tools, folder=folder / 'home')\n"
        "cluster.is_temporary, cluster.removal_pause_seconds = True, 0.1\n"
        "with cluster: print('started', flush=True); time.sleep(1000)\n"
    )
    path = os.pathsep.join(map(str, LOCAL_PACKAGES))
    command = [sys.executable, "-c", program, str(programs.folder)]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as maker:
        awaited = "kind create cluster" if slow != "none" else "kubectl wait"
        wait_for(lambda: any(call.startswith(awaited) for call in programs.calls()), awaited)
        maker.send_signal(number)
    wait_for(lambda: "kind delete cluster" in list_kind(programs), "the cluster to be removed")
    wait_for(lambda: not (programs.folder / "home").exists(), "the folder to be removed")


def test_a_node_that_does_not_stop_is_thawed_and_stopped_once_more(
    programs: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAILING", "stop -t")
    cluster = Cluster("mine", programs.tools, report=lambda _: None)

    with pytest.raises(KindError, match="it did not work"):
        cluster.stop_node("mine-worker")

    stop = "docker stop -t 0 mine-worker"
    assert programs.calls() == [stop, "docker inspect --format={{.Id}} mine-worker", stop]
    cluster.delete()


@pytest.mark.parametrize("before", ["172.18.0.3", "172.18.0.30", "172.18.0.2"])
def test_a_started_nodes_kubelet_knows_the_address_that_it_has_now(
    programs: StandIns, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    monkeypatch.setenv("ANSWER", "172.18.0.3")
    monkeypatch.setenv("FLAGS", f'KUBELET_KUBEADM_ARGS="--node-ip={before} --node-labels=a=b"')
    cluster = Cluster("mine", programs.tools, report=lambda _: None)

    cluster.start_node("mine-worker")

    asked = "docker exec mine-worker systemctl show --property=Version"
    calls = programs.calls()
    changes = [call for call in calls if call.startswith("docker exec mine-worker s") and call != asked]
    assert calls[:2] == ["docker start mine-worker", asked]
    flags = "/var/lib/kubelet/kubeadm-flags.env"
    told = [
        f"docker exec mine-worker sed --in-place s/--node-ip=[0-9.]*/--node-ip=172.18.0.3/ {flags}",
        "docker exec mine-worker systemctl restart kubelet",
    ]
    assert changes == ([] if before == "172.18.0.3" else told)
    assert calls[-1].startswith("kubectl wait --for=condition=Ready node/mine-worker ")
    cluster.delete()


def test_images_are_loaded_together_and_named_each(programs: StandIns) -> None:
    cluster = Cluster("mine", programs.tools, report=lambda _: None)

    cluster.load_images([Image("ours-1:2", "ours:2"), Image("theirs:1", "theirs:1")], nodes=["b", "a"])
    cluster.delete()

    loading, naming_a, naming_b, _ = programs.calls()
    assert loading == "kind load docker-image ours-1:2 theirs:1 --name=mine --nodes=a,b"
    for node, naming in (("a", naming_a), ("b", naming_b)):
        assert naming.startswith(f"docker exec {node} ctr ")
        assert naming.endswith("--force docker.io/library/ours-1:2 docker.io/library/ours:2")


def test_nodes_are_asked_for_until_there_are_some_and_forgotten_with_the_cluster(
    programs: StandIns, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster("mine", programs.tools, report=lambda _: None)
    assert cluster.nodes() == []
    monkeypatch.setenv("ANSWER", "mine-worker mine-control-plane")

    for _ in range(2):
        assert cluster.nodes() == ["mine-control-plane", "mine-worker"]
        assert cluster.workers() == ["mine-worker"]
    cluster.delete()
    monkeypatch.setenv("ANSWER", "mine-worker2")
    assert cluster.nodes() == ["mine-worker2"]

    assert list_kind(programs) == [*["kind get nodes"] * 2, "kind delete cluster", "kind get nodes"]


def test_clusters_of_two_folders_do_not_meet(tmp_path: Path) -> None:
    assert standing.compute_name(tmp_path / "a") != standing.compute_name(tmp_path / "b")
    assert standing.compute_name(tmp_path / "a") == standing.compute_name(tmp_path / "a")


def test_no_docker_at_all_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert (engine.find_engine_fault() or "").startswith("no Docker engine: there is no `docker` in PATH")
    with pytest.raises(engine.NoEngineError):
        engine.check_engine()


@pytest.mark.parametrize("target", ["kind-up", "kind-down", "kind-kubeconfig", "image"])
def test_make_says_in_one_line_that_no_engine_answers(target: str) -> None:
    environment = {**os.environ, "DOCKER_HOST": NOWHERE}
    outcome = subprocess.run(
        ["make", "-s", target], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    lines = [line for line in outcome.stderr.splitlines() if not line.startswith("make:")]

    assert outcome.returncode == 2
    assert len(lines) == 1
    assert lines[0].startswith("no Docker engine")
    assert outcome.stdout == ""


def run_without_engine(**variables: str) -> subprocess.CompletedProcess[str]:
    """Run some tests on kind where no engine answers."""
    words = ["-p", "no:cacheprovider", "-p", "no:randomly", "--no-cov", "tests/kind/test_only_scheduler.py"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    environment.pop("FAIRBIND_ENGINE", None)
    return subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        cwd=ROOT, env={**environment, "DOCKER_HOST": NOWHERE, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_where_an_engine_is_promised_no_test_on_kind_may_be_skipped() -> None:
    outcome = run_without_engine(FAIRBIND_ENGINE="promised")
    closing = outcome.stdout.strip().splitlines()[-1]

    assert outcome.returncode == 1
    assert "skipped although FAIRBIND_ENGINE=promised" in outcome.stdout
    assert " error" in closing
    assert "skipped" not in closing
    assert "passed" not in closing


def test_without_an_engine_the_tests_on_kind_count_as_skipped_and_the_end_says_so() -> None:
    outcome = run_without_engine()
    note, closing = outcome.stdout.strip().splitlines()[-2:]

    assert note.startswith("NOT RUN: ")
    assert "tests on kind: no Docker engine" in note
    assert " skipped in " in closing
    assert "passed" not in closing
    assert "failed" not in closing


def test_a_command_that_fails_shows_its_last_words() -> None:
    with pytest.raises(KindError, match=r"sh -c .* failed: two$"):
        run_command(["sh", "-c", "echo one; echo two >&2; exit 3"])
    with pytest.raises(KindError, match="did not end within"):
        run_command(["sleep", "100"], timeout_seconds=0.1)
    with pytest.raises(KindError, match="cannot be started"):
        run_command(["/nonexistent/program"])


@pytest.mark.parametrize(("limit", "is_short"), [("128\n", True), ("255\n", True), ("256\n", False), ("", False)])
def test_too_few_inotify_instances_are_said_before_a_second_cluster_fails(
    tmp_path: Path, limit: str, *, is_short: bool
) -> None:
    file = tmp_path / "max_user_instances"
    file.write_text(limit, encoding="utf-8")

    shortage = engine.find_inotify_shortage(file)

    assert (shortage is not None) == is_short
    assert shortage is None or "sysctl -w fs.inotify.max_user_instances=1024" in shortage


def test_no_such_limit_is_no_shortage(tmp_path: Path) -> None:
    assert engine.find_inotify_shortage(tmp_path / "none") is None
