"""Prometheus' promtool, which checks the alert rules, their tests and the operator's metrics.

It is built once from the pinned module deploy/alerts/go into the cache of the local control plane's programs, without
the service discoveries of clouds, which are most of it.

    PYTHONPATH=deploy/local python deploy/promtool.py    build it if need be and print where it is
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import subprocess
import sys
from pathlib import Path

from localplane.failures import ToolError, explain_failure
from localplane.toolchain import ensure_go
from localplane.tools import find_cache, print_line

MODULE = Path(__file__).resolve().parent / "alerts" / "go"
FLAGS = ("-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-tags=remove_all_sd")
GO = (1, 26)


def ensure_promtool() -> Path:
    """Return the path of promtool; build it first when it is not in the cache (two minutes on two cores).

    Raises ToolError with one line that says what is missing.
    """
    cache = find_cache()
    program = cache / "tools" / _compute_digest() / "bin" / "promtool"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        with (cache / "promtool.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not program.exists():  # somebody else may have built it meanwhile
                print_line("building promtool, about two minutes on 2 cores")
                _build(ensure_go(GO, cache, print_line), program)
    return program


def _build(go: Path, program: Path) -> None:
    partial = program.with_name(".promtool.partial")
    package = "github.com/prometheus/prometheus/cmd/promtool"
    settings = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local", "GOWORK": "off"}
    path = f"{go.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    result = subprocess.run(
        [str(go), "build", *FLAGS, "-o", str(partial), package],
        cwd=MODULE,
        env={**os.environ, **settings, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        raise ToolError(explain_failure("building promtool", result.stdout + result.stderr))
    partial.rename(program)


def _compute_digest() -> str:
    """Return a name for all that decides the program's content."""
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum"):
        digest.update((MODULE / name).read_bytes())
    digest.update("\0".join([*FLAGS, sys.platform, platform.machine()]).encode())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    try:
        print_line(str(ensure_promtool()))
    except ToolError as failure:
        sys.exit(str(failure))
