"""On what it ran: the machine, and the versions of all that took part."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from fairbind import __version__
from localplane.tools import MODULES

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("aiohttp", "kopf", "msgspec", "numpy", "uvloop")
PROGRAMS = {
    "Kubernetes": ("kubernetes", "k8s.io/kubernetes"),
    "etcd": ("kubernetes", "go.etcd.io/etcd/server/v3"),
    "kwok": ("cluster", "sigs.k8s.io/kwok"),
}


def describe_machine() -> dict[str, str | int | float]:
    """Return what a reader needs to compare the figures with those of another machine."""
    memory = re.search(r"^MemTotal:\s+(\d+) kB", _read("/proc/meminfo"), re.MULTILINE)
    model = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE)
    return {
        "cpu": model[1] if model else platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory_gib": round(int(memory[1]) / 2**20, 1) if memory else 0.0,
        "system": f"{platform.system()} {platform.release()}",
    }


def describe_versions(programs: Mapping[str, tuple[str, str]] = PROGRAMS) -> dict[str, str]:
    """Return the versions of programs and packages. programs: by name, our module that pins one and its own."""
    versions = {"fairbind": f"{__version__} ({_find_commit()})", "Python": platform.python_version()}
    versions |= {name: importlib.metadata.version(name) for name in PACKAGES}
    for name, (module, path) in programs.items():
        pinned = re.search(rf"^\s*{re.escape(path)} v(\S+)", _read(MODULES / module / "go.mod"), re.MULTILINE)
        versions[name] = pinned[1] if pinned else "unknown"
    return versions


def _find_commit() -> str:
    command = ["git", "-c", f"safe.directory={ROOT}", "describe", "--always", "--dirty"]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return outcome.stdout.strip() or "no commit"


def _read(path: str | Path) -> str:
    return Path(path).read_text(encoding="utf-8")
