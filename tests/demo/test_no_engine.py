"""The demo on kind where there is no Docker engine: one line that says so, exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from demo.runs import PROGRAM


@pytest.mark.parametrize("is_kept", [False, True])
def test_no_engine_is_said_in_one_line(tmp_path: Path, *, is_kept: bool) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n", encoding="utf-8")
    docker.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "CLUSTER": "kind"}
    result = subprocess.run(
        [sys.executable, str(PROGRAM), *(["--keep"] if is_kept else [])],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    assert line.startswith("make demo: no Docker engine answers: start Docker")
    assert "Cannot connect to the Docker daemon" in line
