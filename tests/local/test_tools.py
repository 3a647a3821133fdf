"""Building: once for all clones, one at a time, and one line says why it failed. The compiler is a fake."""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from local.waiting import is_alive, wait_for
from localplane import tools as module
from localplane.__main__ import run
from localplane.failures import ToolError, explain_failure
from localplane.tools import FRAMEWORKS, OLDER_KUBERNETES, TOOLS, ensure_tools, find_module_folder, find_pins

FAKE_GO = """#!/bin/sh
test "$1" = env && { echo go1.99.0; exit 0; }
echo "$*" >> "$FAKE_LOG"
case "$FAKE_MODE" in
  slow) sleep 1000 & echo $! > "$FAKE_LOG.compiler"; wait;;
  fail) echo "$FAKE_WORDS" >&2; exit 1;;
esac
test "$1" = mod && { echo '{"Dir": "/sources"}'; exit 0; }
while test "$1" != -o; do shift; done
sleep 0.2
echo "#!/bin/sh" > "$2"
"""


@pytest.fixture
def fake_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler in PATH that writes down what it is asked for, and an empty cache; returns its notes."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "go"
    program.write_text(FAKE_GO)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("FAIRBIND_CACHE", str(tmp_path / "a cache"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "notes"))
    return tmp_path / "notes"


def test_what_is_missing_is_built_once(fake_go: Path) -> None:
    lines: list[str] = []
    built = ensure_tools(["etcd", "kwok"], lines.append)
    again = ensure_tools(["etcd", "kwok"], pytest.fail)

    assert built.path("etcd").exists()
    assert built == again
    assert len(fake_go.read_text().splitlines()) == 2
    assert any("building etcd 1/2, about" in line for line in lines)
    assert any(line.startswith("built kwok in") for line in lines)


def test_two_processes_build_once(fake_go: Path) -> None:
    program = "from localplane.tools import ensure_tools; ensure_tools(['etcd'])"
    environment = {**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[1])}
    started = [subprocess.Popen([sys.executable, "-c", program], env=environment) for _ in range(3)]

    assert [process.wait() for process in started] == [0, 0, 0]
    assert len(fake_go.read_text().splitlines()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_compilers_die_with_whoever_asked_for_the_build(fake_go: Path, number: signal.Signals) -> None:
    noted = fake_go.with_name("notes.compiler")
    environment = {**os.environ, "PYTHONPATH": str(Path(module.__file__).parents[1]), "FAKE_MODE": "slow"}
    command = [sys.executable, "-m", "localplane", "tools"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as asking:
        wait_for(lambda: noted.exists() and noted.read_text().endswith("\n"), "the compiler to run")
        asking.send_signal(number)
    wait_for(lambda: not is_alive(int(noted.read_text())), "the compiler to die")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("dial tcp: lookup proxy.golang.org: no such host", "the network does not answer"),
        ("write /x: no space left on device", "the disk is full"),
        ("verifying module: checksum mismatch", "not what was pinned"),
        ("undefined: x", "building etcd failed: undefined: x"),
    ],
)
def test_failure_is_one_line(fake_go: Path, monkeypatch: pytest.MonkeyPatch, words: str, line: str) -> None:
    monkeypatch.setenv("FAKE_MODE", "fail")
    monkeypatch.setenv("FAKE_WORDS", words)
    with pytest.raises(ToolError) as caught:
        ensure_tools(["etcd"], lambda _: None)

    assert line in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert fake_go.exists()
    monkeypatch.setenv("FAKE_MODE", "")
    assert ensure_tools(["etcd"], lambda _: None).path("etcd").exists()


def test_what_no_test_of_ci_runs_is_built_only_when_it_is_asked_for(fake_go: Path, tmp_path: Path) -> None:
    run(argparse.Namespace(command="tools", kubernetes=None, folder=tmp_path))
    built = set(re.findall(r"/\.(\S+)\.partial", fake_go.read_text()))

    asked = ("scheduling-exam", "karpenter", "vc-scheduler")
    assert set(TOOLS) - built == {*asked, *FRAMEWORKS}
    tools = ensure_tools(asked, lambda _: None)
    assert all(tools.path(name).exists() for name in asked)
    run(argparse.Namespace(command="framework-tools", folder=tmp_path))
    assert set(re.findall(r"/\.(\S+)\.partial", fake_go.read_text())) == set(TOOLS)


def test_the_sources_of_a_pinned_module_are_where_go_keeps_them(fake_go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_module_folder("exam", "k8s.io/kubernetes") == Path("/sources")
    assert fake_go.read_text().splitlines() == ["mod download -json k8s.io/kubernetes"]
    monkeypatch.setenv("FAKE_MODE", "fail")
    monkeypatch.setenv("FAKE_WORDS", "no such host")
    with pytest.raises(ToolError, match=r"downloading k8s\.io/kubernetes"):
        find_module_folder("exam", "k8s.io/kubernetes")


def test_an_older_control_plane_has_its_own_programs_and_the_same_etcd(fake_go: Path) -> None:
    names = ("etcd", "kube-apiserver")
    usual = ensure_tools(names, lambda _: None)
    older = ensure_tools(names, lambda _: None, kubernetes="1.34")

    assert usual.path("etcd") == older.path("etcd")
    assert usual.path("kube-apiserver") != older.path("kube-apiserver")
    built = [line for line in fake_go.read_text().splitlines() if line.endswith("cmd/kube-apiserver")]
    versions = [re.findall(r"version.git(?:Version|Minor)=(\S+)", line) for line in built]
    assert [set(found) for found in versions] == [{"v1.37.0", "37"}, {"v1.34.4", "34"}]


@pytest.mark.usefixtures("fake_go")
def test_a_version_that_is_not_pinned_is_refused_by_name() -> None:
    with pytest.raises(ToolError, match=r"Kubernetes '1\.30' is not pinned; older ones are 1\.34"):
        ensure_tools(["etcd"], pytest.fail, kubernetes="1.30")


def test_unknown_tools_are_refused_by_name() -> None:
    with pytest.raises(ToolError, match="no tool 'etcdd'"):
        ensure_tools(["etcdd"])


@pytest.mark.usefixtures("fake_go")
def test_a_tool_that_was_not_asked_for_says_how_to_build_it() -> None:
    with pytest.raises(ToolError, match="helm has not been built: run `make tools`"):
        ensure_tools([]).path("helm")


@pytest.mark.parametrize("kubernetes", [None, *OLDER_KUBERNETES])
def test_every_tool_is_pinned_in_its_module(kubernetes: str | None) -> None:
    for tool in find_pins(kubernetes).values():
        if tool.package == ".":
            continue  # a program of our own: what it links is pinned there
        wanted = (module.MODULES / tool.module / "go.mod").read_text(encoding="utf-8")
        assert re.search(rf"^(tool |\t){re.escape(tool.package)}$", wanted, re.MULTILINE), tool.name


def test_last_words_stand_for_an_unknown_failure() -> None:
    assert explain_failure("x", "a\nb\n\n") == "x failed: b"
    assert explain_failure("x", "") == "x failed: no output"
