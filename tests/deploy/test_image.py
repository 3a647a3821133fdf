"""The Dockerfile as far as it can be judged without a Docker engine, and the cluster that kind makes."""

from __future__ import annotations

import fnmatch
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import image_tree
from fairbind import __version__

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")


def find_instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments, continued lines joined."""
    lines = [line for line in TEXT.splitlines() if line and not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in joined.splitlines()]


def find_arguments(name: str) -> list[str]:
    return [arguments for instruction, arguments in find_instructions() if instruction == name]


def test_it_is_built_on_the_base_and_keeps_nothing_else_of_it() -> None:
    assert find_arguments("ARG") == ["BASE=python:3.13-slim-trixie", "STAGE_OF=", "REVISION="]
    assert find_arguments("FROM") == ["${BASE} AS build", "scratch"]


def test_any_builder_can_build_it() -> None:
    assert not re.search(r"^# *syntax|--mount|--link|--chmod|<<", TEXT, re.MULTILINE)


def test_nothing_is_installed_without_its_hash() -> None:
    installs = [part for run in find_arguments("RUN") for part in run.split("&&") if " install " in part]

    assert len(installs) == 3
    for install in installs:
        assert "--require-hashes" in install or ("--no-deps" in install and "--no-index" in install), install
    assert "--no-build-isolation" in TEXT
    assert "apt-get" not in TEXT


def test_it_runs_as_nobody_in_particular() -> None:
    after_last_stage = TEXT[TEXT.rindex("\nFROM ") :]

    assert re.search(r"^USER 65532:65532$", after_last_stage, re.MULTILINE)
    assert 'ENTRYPOINT ["fairbind"]' in after_last_stage
    assert "RUN" not in after_last_stage  # nothing can be left behind there


def is_ignored(path: str) -> bool:
    """Tell whether .dockerignore keeps a path out of the build's context; the last line that matches decides."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.strip().removeprefix("!")
        if not pattern or pattern.startswith("#"):
            continue
        plain = pattern.removeprefix("**/")
        is_match = fnmatch.fnmatch(path, pattern) or path.startswith(f"{pattern}/")
        is_match |= pattern.startswith("**/") and any(fnmatch.fnmatch(part, plain) for part in path.split("/"))
        if is_match:
            ignored = not line.startswith("!")
    return ignored


def find_copied() -> list[str]:
    copies = [arguments.split() for arguments in find_arguments("COPY") if "--from" not in arguments]
    return [source for *sources, _ in copies for source in sources]


def test_everything_that_is_copied_is_there_and_sent() -> None:
    copied = find_copied()

    assert "operator" in copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert not is_ignored(source), source
    assert not is_ignored("operator/fairbind/cli/__init__.py")


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".venv/bin/python",
        "deploy/tools/gates.py",
        "tests/e2e/test_crds.py",
        "operator/fairbind/__pycache__/a.pyc",
    ],
)
def test_nothing_else_is_sent(path: str) -> None:
    assert is_ignored(path)


def test_the_example_builds_this_version_and_the_label_names_it() -> None:
    assert f"-t fairbind:{__version__}" in TEXT
    assert f'org.opencontainers.image.version="{__version__}"' in TEXT


def test_kind_makes_three_workers_that_differ() -> None:
    config = yaml.safe_load((ROOT / "kind-config.yaml").read_text(encoding="utf-8"))
    assert [node["role"] for node in config["nodes"]] == ["control-plane", "worker", "worker", "worker"]
    assert {node["image"] for node in config["nodes"]} == {"kindest/node:v1.37.0"}

    shapes, reserved, tainted = set(), set(), 0
    for node in config["nodes"][1:]:
        shapes.add(node["labels"]["fairbind.io/shape"])
        (patch,) = node["kubeadmConfigPatches"]
        registration = yaml.safe_load(patch)["nodeRegistration"]
        (argument,) = registration["kubeletExtraArgs"]
        assert argument["name"] == "system-reserved"
        assert re.fullmatch(r"cpu=\d+m,memory=\d+[MG]i", argument["value"])
        reserved.add(argument["value"])
        tainted += len(registration.get("taints", []))
    assert len(shapes) == len(reserved) == 3
    assert tainted == 1


@pytest.fixture(scope="module")
def in_the_image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the package as the image has it."""
    folder = tmp_path_factory.mktemp("image")
    package = ROOT / "operator" / "fairbind"
    for path in image_tree.find_files(package, image_tree.RESEARCH):
        copy = folder / path.relative_to(package.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run Python there, which finds the package in its own folder first."""
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def test_research_is_left_out_and_nothing_that_the_operator_imports(in_the_image: Path) -> None:
    """Research imports the rest, and the rest no research: what is left imports, all of it."""
    simulator = in_the_image / "fairbind" / "simulator"
    assert not {"baselines", "reproduction", "sweep", "traces"} & {path.name for path in simulator.iterdir()}
    imports = "import fairbind.cli.operator, fairbind.cli.what_if, fairbind.cli.advice, fairbind.cli.snapshots as s"
    assert run(in_the_image, "-c", f"{imports}; print(s.__file__)").stdout.startswith(str(in_the_image))


@pytest.mark.parametrize(
    "words",
    [("simulate", "scenario.yaml"), ("sweep", "sweep.yaml", "--out", "results"), ("reproduce", "drfh")],
    ids=lambda words: words[0],
)
def test_research_in_the_image_says_in_a_sentence_what_is_missing(in_the_image: Path, words: tuple[str, ...]) -> None:
    (in_the_image / "scenario.yaml").write_text("name: a\n", encoding="utf-8")
    (in_the_image / "sweep.yaml").write_text("name: a\n", encoding="utf-8")

    outcome = run(in_the_image, "-m", "fairbind", *words)

    assert outcome.returncode == 1
    assert re.fullmatch(
        r"fairbind: the operator's image has no fairbind\.simulator\.[\w.]+: "
        r"install the wheel for simulations and research \(pip install fairbind\)\n",
        outcome.stderr,
    ), outcome.stderr
