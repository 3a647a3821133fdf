"""Make ``.venv``: the locked dependencies, each checked against its hash, and fairbind itself from this tree.

Runs before anything is installed, so it uses the standard library only. A stamp names everything that decides the
result; when it is still right, nothing is done, in a few milliseconds. An environment that was interrupted, moved with
the clone or made by another Python is made again; one whose lock changed is brought to the lock, extra packages go.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "deploy" / "tools" / "local"))

from localplane import launch  # noqa: E402  found by the line above
from localplane.failures import explain_failure  # noqa: E402  likewise

VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "fairbind-stamp"
LOCK = ROOT / "tests" / "requirements.txt"
PROJECT = ROOT / "pyproject.toml"
VERSION = ROOT / "operator" / "fairbind" / "__init__.py"
UNLOCKED = frozenset({"pip", "fairbind"})  # pip comes with the environment, fairbind is this tree
REPORT_INTERVAL_SECONDS = 15.0


class BootstrapError(RuntimeError):
    """The environment cannot be made; one line says why and what to do."""


def main() -> int:
    """Make the environment if it is not what it should be; return the exit status."""
    wanted = compute_stamp()
    if is_current(wanted):
        return 0
    (ROOT / ".local").mkdir(exist_ok=True)
    with (ROOT / ".local" / "install.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two makes in one clone: the second finds it done
        if is_current(wanted):
            return 0
        try:
            install(wanted)
        except BootstrapError as error:
            report(str(error))
            return 1
        except OSError as error:
            report(explain_failure(f"making {VENV}", str(error), ROOT))
            return 1
    return 0


def install(stamp: str) -> None:
    """Bring the environment to the lock; raise BootstrapError."""
    report("installing the locked dependencies into .venv, about 1 minute")
    started = time.monotonic()
    STAMP.unlink(missing_ok=True)
    if not is_usable():
        python = find_base_python()  # asks the environment, so before that goes
        shutil.rmtree(VENV, ignore_errors=True)
        run("making a virtual environment", [python, "-m", "venv", str(VENV)])
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    run("installing", [*pip, "install", "--no-compile", "--require-hashes", "--no-deps", "--requirement", str(LOCK)])
    extra = sorted(find_installed(pip) - find_locked() - UNLOCKED)
    if extra:
        run("removing what is not locked", [*pip, "uninstall", "--yes", *extra])
    run("installing fairbind", [*pip, "install", "--no-deps", "--no-build-isolation", "--editable", str(ROOT)])
    STAMP.write_text(stamp, encoding="utf-8")
    report(f"installed in {time.monotonic() - started:.0f} s")


def compute_stamp() -> str:
    """Return a digest of everything that the environment depends on: lock, package, version, place, interpreter."""
    digest = hashlib.sha256()
    for part in (LOCK.read_bytes(), VERSION.read_bytes(), compute_packaging(PROJECT.read_text(encoding="utf-8"))):
        digest.update(part)
    digest.update(f"{ROOT}\0{sys.base_prefix}\0{sys.version_info[:2]}".encode())
    return digest.hexdigest()


def compute_packaging(project: str) -> bytes:
    """Return what of a pyproject decides what is installed: not how linters and tests are set up."""
    tables = tomllib.loads(project)
    setuptools = tables.get("tool", {}).get("setuptools", {})
    return json.dumps([tables["build-system"], tables["project"], setuptools], sort_keys=True).encode()


def is_current(stamp: str) -> bool:
    """Tell whether the environment was finished with this stamp."""
    return PYTHON.exists() and STAMP.is_file() and STAMP.read_text(encoding="utf-8") == stamp


def is_usable() -> bool:
    """Tell whether there is an environment of this interpreter whose programs lead back to it."""
    try:
        program = "import json, sys, pip; print(json.dumps([sys.prefix, sys.base_prefix]))"
        result = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=True)
        script = (VENV / "bin" / "pip").read_text(encoding="utf-8")
    except (OSError, subprocess.CalledProcessError):
        return False
    is_ours: bool = json.loads(result.stdout) == [str(VENV), sys.base_prefix]
    return is_ours and str(VENV) in script


def find_base_python() -> str:
    """Return the interpreter outside any environment: the one in use may be the one that is made again."""
    settings = Path(sys.prefix) / "pyvenv.cfg"
    if sys.prefix != sys.base_prefix and settings.exists():
        match = re.search(r"^executable\s*=\s*(.+)$", settings.read_text(encoding="utf-8"), re.MULTILINE)
        if match and Path(match[1]).exists():
            return match[1]
    return sys.executable


def find_locked() -> set[str]:
    """Return the canonical names in the lock."""
    names = re.findall(r"^([A-Za-z0-9._-]+)==", LOCK.read_text(encoding="utf-8"), re.MULTILINE)
    return {compute_canonical_name(name) for name in names}


def find_installed(pip: list[str]) -> set[str]:
    """Return the canonical names of what the environment has."""
    result = subprocess.run([*pip, "list", "--format=json"], capture_output=True, text=True, check=True)
    return {compute_canonical_name(package["name"]) for package in json.loads(result.stdout)}


def report(line: str) -> None:
    """Say something; not on standard output, which belongs to the target that is made."""
    print(line, file=sys.stderr, flush=True)


def compute_canonical_name(name: str) -> str:
    """Return a package's name as indexes compare them."""
    return re.sub(r"[-_.]+", "-", name).lower()


def run(what: str, command: list[str]) -> None:
    """Run a command quietly, saying from time to time that it still runs; raise BootstrapError with its last words.

    command: a Python and its arguments. It ends with this process, so that a killed make leaves no installer behind.
    """
    log = ROOT / ".local" / "install.log"
    started = time.monotonic()
    tied = [command[0], "-I", "-S", launch.__file__, str(os.getpid()), *command]
    with log.open("wb") as output:
        process = subprocess.Popen(tied, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)
        try:
            while True:
                try:
                    process.wait(timeout=REPORT_INTERVAL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    report(f"{what}: {time.monotonic() - started:.0f} s so far")
        except BaseException:
            process.kill()
            process.wait()
            raise
    if process.returncode != 0:
        words = log.read_text(encoding="utf-8", errors="replace")
        if "ensurepip is not available" in words or "No module named venv" in words:
            raise BootstrapError(
                "this Python cannot make virtual environments: install its venv package "
                "(Debian and Ubuntu: apt install python3-venv), or name another with make PYTHON=/path/to/python3"
            )
        raise BootstrapError(f"{explain_failure(what, words, ROOT)}; see {log}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
