from __future__ import annotations

import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import fairbind
from fairbind.cli import main
from fairbind.cli.cluster_options import find_default_namespace

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: only
contexts: [{name: only, context: {cluster: only, user: only}}]
clusters: [{name: only, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: only, user: {}}]
"""
PROBLEM = {
    "resources": ["cpu"],
    "servers": [{"name": "s", "capacity": {"cpu": 9}}],
    "tenants": [{"name": "a", "demand": {"cpu": 1}}],
}
SLOW_MODULES = ("numpy", "aiohttp", "kopf", "kubernetes", "msgspec", "prometheus_client")

EXTENDER = ["operator", "--mode", "extender", "--extender-tls", "/nowhere"]


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fairbind", *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment},
    )


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fairbind {fairbind.__version__}\n"


def test_the_version_needs_nothing_that_is_slow_to_import() -> None:
    program = (
        "import sys; from fairbind.cli import main; status = main(['--version'])\n"
        f"sys.exit(status or ' '.join(set({SLOW_MODULES!r}) & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_names_every_option_with_its_environment_variable(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operator", "--help"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    options = ("kubeconfig", "namespace", "metrics-address", "scheduler-name", "log-format", "log-level", "journal")
    for option in (*options, "show-taints", "tenant-view"):
        assert f"--{option}" in text
        assert f"FAIRBIND_{option.upper().replace('-', '_')}" in text
    for default in (":8080]", "default: fairbind]", "default: console]", "default: info]", "fairbind-system"):
        assert default in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["operator", "--nonsense"], "--nonsense"),
        (["operators"], "operators"),
        (["operator", "--log-level", "loud"], "loud"),
        (["operator", "--log-format", "xml"], "xml"),
        (["operator", "--metrics-address", "here"], "'here' is not HOST:PORT"),
        (["operator", "--scheduler-name", ""], "--scheduler-name"),
        (["operator", "--mode", "other"], "--mode"),
        (["operator", "--mode", "extender"], "--extender-tls"),
        ([*EXTENDER, "--extender-scheduler-name", "fairbind"], "--extender-scheduler-name and --scheduler-name"),
        ([*EXTENDER, "--extender-service", ""], "--extender-service"),
        ([*EXTENDER, "--extender-service", "s", "--extender-pod-ip", "here"], "--extender-pod-ip"),
        ([*EXTENDER, "--extender-address", "here"], "'here' is not HOST:PORT"),
        (EXTENDER, "/nowhere: tls.crt and tls.key are no usable pair"),
        ([*EXTENDER, "--extender-scheduler-name", "No Such Name"], "--extender-scheduler-name"),
        (["operator", "--mode", "gate", "--gate-scheduler-name", "fairbind"], "--gate-scheduler-name"),
        (["operator", "--mode", "gate", "--max-ungated", "0"], "--max-ungated"),
        (["operator", "--mode", "gate", "--max-scale-up", "-1"], "--max-scale-up"),
        (["operator", "--namespace", "No Such Name"], "--namespace"),
        (["what-if", "cluster.json", "--kubeconfig", "config"], "FILE: must be left out beside --kubeconfig"),
        (["audit", "cluster.json", "--context", "c"], "FILE: must be left out beside --context"),
        (["audit", "--kubeconfig", "/dev/zero"], "kubeconfig /dev/zero: larger than 4 MiB"),
        (
            ["check", "p.json", "--mechanism", "drf", "--allocation", "a.json", "--property", "envy-freeness"],
            "--property must be left out",
        ),
    ],
)
def test_what_cannot_be_meant_is_one_line_and_status_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.fullmatch(r"fairbind: [^\n]+\n", shown.err)
    assert said in shown.err


def test_a_kubeconfig_that_is_not_there_is_one_line_and_status_2() -> None:
    done = run("operator", "--kubeconfig", "/nonexistent/config")
    assert done.returncode == 2
    assert re.fullmatch(r"fairbind: [^\n]*/nonexistent/config: no such file\n", done.stderr)


def test_no_cluster_at_all_says_where_it_was_looked_for() -> None:
    done = run("operator")
    assert done.returncode == 2
    assert "--kubeconfig" in done.stderr
    assert "KUBECONFIG" in done.stderr


def test_a_taken_port_is_one_line_and_status_1(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text(KUBECONFIG)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = run("operator", "--kubeconfig", str(kubeconfig), "--metrics-address", address)
    assert done.returncode == 1
    assert re.fullmatch(rf"fairbind: cannot listen on {address}: [^\n]+\n", done.stderr)


def test_a_traceback_is_shown_only_with_debug(tmp_path: Path) -> None:
    wrong = tmp_path / "config"
    wrong.write_text("just text")
    words = ["operator", "--kubeconfig", str(wrong)]
    assert "Traceback" not in run(*words).stderr
    for debugging in (["--debug", *words], [*words, "--debug"]):
        done = run(*debugging)
        assert done.returncode == 2
        assert "Traceback" in done.stderr
        assert done.stderr.splitlines()[-1].startswith("fairbind: ")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("word", ["--version", "mechanisms"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_does_not_fit_is_no_bug(word: str, unbuffered: str) -> None:
    with Path("/dev/full").open("w", encoding="ascii") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fairbind", word],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=300,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert (done.returncode, done.stderr) == (1, "fairbind: No space left on device\n")


def test_options_come_from_the_environment() -> None:
    done = run("operator", FAIRBIND_KUBECONFIG="/nonexistent/from-environment")
    assert "/nonexistent/from-environment" in done.stderr
    done = run("operator", FAIRBIND_LOG_LEVEL="shout")
    assert "shout" in done.stderr


def test_the_namespace_is_the_pods_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairbind.cli.cluster_options.SERVICE_ACCOUNT_NAMESPACE", tmp_path / "namespace")
    assert find_default_namespace() == "fairbind-system"
    (tmp_path / "namespace").write_text("team-scheduling\n")
    assert find_default_namespace() == "team-scheduling"


def test_no_command_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "operator" in capsys.readouterr().err


LOUD = """
import ctypes, os, sys, highspy

libc = ctypes.CDLL(None)
quiet = highspy.Highs.__init__

def print_first(self):
    os.write(1, b"banner of a library\\n")
    libc.puts(b"banner in a buffer of C")
    quiet(self)

highspy.Highs.__init__ = print_first
sys.argv = ["fairbind", *sys.argv[1:]]
from fairbind.cli import main
sys.exit(main())
"""
"""The command, with a solver that prints through C where it is made."""


def test_standard_output_has_the_answer_alone_whatever_a_library_prints(tmp_path: Path) -> None:
    problem = tmp_path / "problem.json"
    problem.write_text(json.dumps(PROBLEM))
    for words in (["allocate", "--mechanism", "drfh"], ["check", "--mechanism", "drfh"]):
        done = subprocess.run(
            [sys.executable, "-c", LOUD, *words, str(problem), "--output", "json"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)
        assert "banner of a library" in done.stderr
        assert "banner in a buffer of C" in done.stderr


def test_a_command_without_standard_error_answers() -> None:
    command = [sys.executable, "-m", "fairbind", "--version"]
    done = subprocess.run(["sh", "-c", f"{shlex.join(command)} 2>&-"], stdout=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"fairbind {fairbind.__version__}\n")
