"""Run the unit tests on the newest versions that pyproject.toml allows, and on the oldest: ``make ranges``.

The locks say what every change is tested with; an installation by name takes what the ranges allow. Two environments of
their own, in build/ranges, have what a user could have today: the newest version of everything on the newest Python
here, and the oldest version of every direct dependency on the oldest Python that the project allows. A lower bound that
the resolver cannot give, because another dependency wants more, is an error: it promises what cannot be installed.

What only the tests need has no range; it is as new as the rest allows, in both.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
FOLDER = ROOT / "build" / "ranges"
PRODUCT = ("plot", "simulate", "distributed")
"""Extras that users install; `dev` is what the tests add."""
LEFT_OUT = ("e2e", "local", "kind", "demo", "perf")
MARKER = "not needs_tools and not nightly"
NEWER = range(20, 10, -1)
"""Minor versions of Python 3 that are looked for, the newest first."""


class RangeError(RuntimeError):
    """An environment cannot be made, or a range says more than is true; the message is for the terminal."""


@dataclass(frozen=True, slots=True)
class Side:
    """One end of the ranges. resolution: as uv names it."""

    name: str
    resolution: str


NEWEST, OLDEST = Side("newest", "highest"), Side("oldest", "lowest-direct")


def main(arguments: Sequence[str] | None = None) -> int:
    """Test both sides, or one; return the exit status."""
    parser = argparse.ArgumentParser(prog="make ranges", description=__doc__)
    parser.add_argument("--only", choices=[NEWEST.name, OLDEST.name], help="one side alone")
    parser.add_argument("--newest", metavar="PYTHON", help="the newest Python; otherwise the newest in PATH")
    parser.add_argument("--oldest", metavar="PYTHON", help="the oldest Python; otherwise the oldest allowed, from PATH")
    parser.add_argument("--bounds", action="store_true", help="say whether the lower bounds are true, and test nothing")
    parser.add_argument("pytest", nargs="*", help="arguments for pytest instead of all unit tests")
    options = parser.parse_args(arguments)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    interpreters = {NEWEST: options.newest, OLDEST: options.oldest}
    failed = []
    for side in (NEWEST, OLDEST):
        if options.only in {None, side.name} and not (options.bounds and side == NEWEST):
            try:
                python = find_python(side, interpreters[side], project["requires-python"])
                lock = resolve(side, python, project)
                passes = options.bounds or is_passing(side, install(side, python, lock), options.pytest)
            except RangeError as error:
                print(f"{side.name}: {error}", file=sys.stderr, flush=True)
                passes = False
            failed += [] if passes else [side.name]
    print(f"ranges that failed: {' and '.join(failed)}" if failed else "ranges: all that was tried passed", flush=True)
    return 1 if failed else 0


def find_python(side: Side, given: str | None, allowed: str) -> str:
    """Return the interpreter of a side; RangeError where there is none. allowed: the project's `requires-python`.

    A name in PATH may be a shim that only fails, so each is run.
    """
    least = find_least_python(allowed)
    minors = [least] if side == OLDEST else [minor for minor in NEWER if minor >= least]
    for name in [given] if given else [f"python3.{minor}" for minor in minors]:
        done = _run([name, "-c", "import sys; print(sys.executable)"])
        if done is not None and done.returncode == 0:
            return done.stdout.strip()
    wanted = given or f"python3.{minors[-1]}"
    raise RangeError(f"{wanted} does not run here: name one with make ranges {side.name.upper()}=/path/to/python3")


def find_least_python(allowed: str) -> int:
    """Return the minor version of the oldest Python 3 that is allowed.

    >>> find_least_python(">=3.11")
    11
    """
    match = re.fullmatch(r">=3\.(\d+)", allowed)
    if match is None:
        raise RangeError(f"requires-python is {allowed!r}, not one lower bound such as '>=3.11'")
    return int(match[1])


def resolve(side: Side, python: str, project: Mapping[str, object]) -> Path:
    """Write which versions of the product's dependencies this side has; return the file.

    Raises RangeError where a lower bound is not what the oldest side gets.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    lock = FOLDER / f"{side.name}.txt"
    extras = [f"--extra={name}" for name in PRODUCT]
    words = [
        "pip",
        "compile",
        "--quiet",
        "--no-header",
        "--no-annotate",
        "--upgrade",
        f"--resolution={side.resolution}",
    ]
    _call_uv([*words, f"--python={python}", *extras, f"--output-file={lock}", str(ROOT / "pyproject.toml")])
    if side == OLDEST:
        untrue = find_untrue_bounds(find_direct(project), read_versions(lock.read_text(encoding="utf-8")))
        if untrue:
            raise RangeError(f"pyproject.toml allows what the other dependencies do not: {'; '.join(untrue)}")
    return lock


def find_direct(project: Mapping[str, object]) -> list[Requirement]:
    """Return the direct dependencies of the product, with its extras."""
    dependencies, extras = project["dependencies"], project["optional-dependencies"]
    assert isinstance(dependencies, list)
    assert isinstance(extras, dict)
    return [Requirement(text) for text in [*dependencies, *(text for name in PRODUCT for text in extras[name])]]


def read_versions(lock: str) -> dict[str, Version]:
    r"""Return the version of each package of a lock.

    >>> read_versions("PyYAML==6.0.3\nuvloop==0.21.0 ; sys_platform != 'win32'")
    {'pyyaml': <Version('6.0.3')>, 'uvloop': <Version('0.21.0')>}
    """
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;]+)", lock, re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in found}


def find_untrue_bounds(direct: Iterable[Requirement], versions: Mapping[str, Version]) -> list[str]:
    """Return a sentence for each requirement whose lower bound is not the version that the oldest side has."""
    sentences = []
    for requirement in direct:
        version = versions[canonicalize_name(requirement.name)]
        bounds = [Version(each.version) for each in requirement.specifier if each.operator in {">=", "=="}]
        if bounds != [version]:
            sentences.append(f"{requirement.name}{requirement.specifier} should say >={version}")
    return sorted(set(sentences))


def install(side: Side, python: str, lock: Path) -> Path:
    """Make the environment of a side with what the tests need, too; return its Python."""
    print(f"{side.name}: installing into {FOLDER / side.name} for {python}", flush=True)
    made = FOLDER / side.name / "bin" / "python"
    extras = [f"--extra={name}" for name in ("dev", *PRODUCT)]
    _call_uv(["venv", "--quiet", "--clear", f"--python={python}", str(FOLDER / side.name)])
    into = ["pip", "install", "--quiet", f"--python={made}"]
    _call_uv([*into, *extras, f"--constraint={lock}", "--requirement", str(ROOT / "pyproject.toml")])
    _call_uv([*into, "--no-deps", "--editable", str(ROOT)])
    return made


def is_passing(side: Side, python: Path, given: Sequence[str]) -> bool:
    """Run the unit tests of a side, or what is given; tell whether all pass."""
    unit = ["-n", "auto", "-m", MARKER, "tests", *(f"--ignore=tests/{name}" for name in LEFT_OUT)]
    words = [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *(given or unit)]
    passes = subprocess.run(words, cwd=ROOT, check=False).returncode == 0
    print(f"{side.name}: {'ok' if passes else 'FAILED'}", flush=True)
    return passes


def _call_uv(words: Sequence[str]) -> None:
    done = _run([str(BIN / "uv"), *words], UV_PYTHON_DOWNLOADS="never")
    if done is None or done.returncode != 0:
        said = "uv cannot be started" if done is None else (done.stderr or done.stdout).strip()
        raise RangeError(f"uv {' '.join(words[:2])}: {said}")


def _run(words: Sequence[str], **settings: str) -> subprocess.CompletedProcess[str] | None:
    try:
        return subprocess.run(words, cwd=ROOT, env=os.environ | settings, capture_output=True, text=True, check=False)
    except OSError:
        return None


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
