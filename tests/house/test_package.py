"""What a user installs: the wheel from a plain ``pip install .``, with what the release's lock names and nothing else.

The environments of development have more; here a dependency that only they provide is missed.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fairbind import __version__
from fairbind.what_if.snapshot_file import format_snapshot
from house.test_locks import RUNTIME, read_lock
from house.tree import ROOT, find_files
from simulator.scenarios import make_entry, make_scenario
from what_if.snapshots import make_two_tenants

IMPORT_EVERYTHING = """
import importlib, pkgutil, fairbind
for module in pkgutil.walk_packages(fairbind.__path__, "fairbind."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(fairbind.__file__)
"""


def run(*command: str | Path) -> str:
    outcome = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, cwd="/")
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy: a build leaves traces where it is done."""
    folder = tmp_path_factory.mktemp("package")
    traces = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "operator", folder / "source" / "operator", ignore=traces)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    options = ["--disable-pip-version-check", "--quiet", "--no-build-isolation", "--no-deps", "--no-index"]
    run(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", folder, folder / "source")
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel and the release's dependencies, linked to from where they are."""
    home = tmp_path_factory.mktemp("installed") / "an environment"
    run(sys.executable, "-m", "venv", "--without-pip", home)
    [packages] = home.glob("lib/python*/site-packages")
    for name in find_wanted():
        link_distribution(importlib.metadata.distribution(name), packages)
    pip: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "--python",
        home / "bin" / "python",
    ]
    run(*pip, "install", "--no-deps", "--no-index", wheel)
    return home / "bin"


def find_wanted() -> set[str]:
    """Return what the release's lock names for this interpreter and system."""
    every = [(pin.name, pin.requirement.marker) for pin in read_lock(RUNTIME)]
    return {name for name, marker in every if marker is None or marker.evaluate()}


def link_distribution(distribution: importlib.metadata.Distribution, packages: Path) -> None:
    files = [file for file in distribution.files or () if file.parts[0] != ".."]
    assert files, distribution.name
    for top in {file.parts[0] for file in files} - {"__pycache__"}:
        if not (packages / top).exists():
            (packages / top).symlink_to(Path(str(distribution.locate_file(top))))


def test_the_wheel_holds_the_package_and_its_licence_alone(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    source = ROOT / "operator"
    own = {
        path.relative_to(source).as_posix() for path in source.glob("fairbind/**/*") if path.suffix in {".py", ".typed"}
    }
    described = {name for name in names if name.startswith(f"fairbind-{__version__}.dist-info/")}

    assert set(names) - described == own
    assert "fairbind/py.typed" in own
    assert any(name.endswith("/LICENSE") for name in described)


@pytest.mark.slow
def test_an_installed_release_has_all_that_it_imports(programs: Path) -> None:
    place = run(programs / "python", "-I", "-c", IMPORT_EVERYTHING)

    assert place.startswith(str(programs.parent))


def test_an_installed_release_has_the_command(programs: Path) -> None:
    assert run(programs / "fairbind", "--version") == f"fairbind {__version__}\n"
    assert "--metrics-address" in run(programs / "fairbind", "operator", "--help")


def test_an_installed_release_answers_without_a_cluster(programs: Path, tmp_path: Path) -> None:
    """With what `pip install fairbind` brings alone: neither an extra nor a cluster is needed to ask."""
    asked, cluster, scenario = (tmp_path / name for name in ("problem.json", "cluster.json", "scenario.json"))
    shutil.copy(ROOT / "docs" / "mechanisms" / "examples" / "drf.json", asked)
    cluster.write_text(format_snapshot(make_two_tenants()), encoding="utf-8")
    scenario.write_text(json.dumps(make_scenario(make_entry(tasks=3), tenants="a", horizon=60)), encoding="utf-8")
    program = programs / "fairbind"

    assert "dominant share" in run(program, "allocate", asked, "--mechanism", "drf", "--output", "table")
    assert run(program, "advise", cluster).startswith("Recommended: best-fit-drfh")
    assert "best-fit-drfh" in run(program, "simulate", scenario, "--policy", "best-fit-drfh", "--out", tmp_path / "out")
    assert "<svg" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_the_environment_is_no_larger_than_the_lock(programs: Path) -> None:
    """Otherwise the tests above could not fail."""
    program = "import importlib.metadata as m; print('\\n'.join(d.name for d in m.distributions()))"
    there = run(programs / "python", "-I", "-c", program).split()

    assert {canonicalize_name(name) for name in there} == {*find_wanted(), "fairbind"}


@pytest.mark.slow
def test_everything_imported_is_declared() -> None:
    """A dependency of a dependency may go away; what we import ourselves is ours to name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["plot"], *extras["simulate"], *extras["distributed"]]
    declared = {canonicalize_name(Requirement(text).name) for text in wanted}
    owners = importlib.metadata.packages_distributions()
    imported = {name for path in find_files("operator/*.py") for name in find_imports(path.read_text(encoding="utf-8"))}
    foreign = imported - sys.stdlib_module_names - {"fairbind"}

    assert foreign
    assert {name for name in foreign if declared.isdisjoint(map(canonicalize_name, owners.get(name, [name])))} == set()


def find_imports(text: str) -> set[str]:
    """Return the top-level packages that a module imports, wherever in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return {re.split(r"\.", name)[0] for name in found}
