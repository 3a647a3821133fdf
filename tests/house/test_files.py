"""Rules about files that no linter checks, and the linters for what is not Python."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from fairbind import __version__
from house.tree import ROOT, find_files, name_of
from localplane.tools import FRAMEWORKS

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
VAGUE = re.compile(r"(^|_)(data|helpers?|info|managers?|misc|utils?)(_|$)")
SHELL = re.compile(rb"^#!.*\b(sh|bash|dash)\b")
# The command `fairbind operator`, Kubernetes' word for its selectors, and what Python itself asks for.
NAMED_ON_PURPOSE = {"__main__.py", "cli/operator.py", "cluster/objects/selectors.py"}
# The methods of a Protocol need no words of their own, and a number beside its meaning needs no name.
MOST_CHANGES = 25
"""Lines of one part of a version in the changelog."""
SELF_EVIDENT = {": D102", ": PLR2004"}
SUPPRESSION = re.compile(
    r"#\s*(noqa|type: ignore)(?P<code>\s*:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*|\[[a-z, -]+\])?(?P<reason>.*)"
)
TOOLS = Path(sys.executable).parent


def find_python(*folders: str) -> list[Path]:
    return find_files(*(f"{folder}/*.py" for folder in folders))


def run_tool(*command: str | Path) -> str:
    """Run a linter and return what it complains about; empty when it is content."""
    outcome = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if outcome.returncode == 0 else outcome.stdout + outcome.stderr


def test_shell_scripts_are_sound() -> None:
    scripts = [path for path in find_files("*") if SHELL.match(path.read_bytes()[:80])]

    assert not scripts or run_tool(TOOLS / "shellcheck", "--norc", *scripts) == ""


def test_scripts_that_name_an_interpreter_can_be_run() -> None:
    scripts = [path for path in find_files("*") if path.read_bytes().startswith(b"#!")]

    assert [name_of(path) for path in scripts if not path.stat().st_mode & 0o100] == []


def test_yaml_is_sound() -> None:
    files = [path for path in find_files("*.yaml", "*.yml") if "/templates/" not in name_of(path)]

    assert files
    assert run_tool(TOOLS / "yamllint", "--strict", "-c", ROOT / "tests" / "house" / "yamllint.yaml", *files) == ""


def test_dockerfile_is_sound(tmp_path: Path) -> None:
    bad = tmp_path / "Dockerfile"
    bad.write_text("FROM python:latest\nRUN cd /src && pip install fairbind\n", encoding="utf-8")

    assert run_tool(TOOLS / "hadolint", "--no-color", ROOT / "deploy" / "Dockerfile") == ""
    assert "DL3007" in run_tool(TOOLS / "hadolint", "--no-color", bad)


def test_files_are_short() -> None:
    lengths = {name_of(path): len(path.read_bytes().splitlines()) for path in find_python("operator", "deploy")}

    assert {name: length for name, length in lengths.items() if length > MAX_FILE_LINES} == {}


def test_functions_are_short() -> None:
    lengths = {
        f"{name_of(path)}:{node.lineno} {node.name}": count_lines(node)
        for path in find_python("operator", "deploy")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert {name: length for name, length in lengths.items() if length > MAX_FUNCTION_LINES} == {}


def count_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function without its docstring."""
    start, body = function.lineno, function.body
    told = body[0].end_lineno or start if ast.get_docstring(function) is not None else start
    return (function.end_lineno or start) - told


def test_names_say_what_is_in_a_file() -> None:
    assert [name_of(path) for path in find_files("*.py") if VAGUE.search(path.stem)] == []


def test_no_module_of_the_package_is_named_like_one_of_the_standard_library() -> None:
    modules = [path for path in find_python("operator") if path.stem in sys.stdlib_module_names]

    assert {path.relative_to(ROOT / "operator/fairbind").as_posix() for path in modules} <= NAMED_ON_PURPOSE
    assert not (ROOT / "operator" / "__init__.py").exists()  # it would shadow the standard library's operator


def test_inner_packages_know_no_kubernetes_field() -> None:
    fields = re.compile(r"\b(apiVersion|metadata|nodeName|nodeSelector|schedulerName|creationTimestamp|allocatable)\b")
    modules = find_python("operator/fairbind/model", "operator/fairbind/scheduling")

    assert modules
    assert [name_of(path) for path in modules if fields.search(path.read_text(encoding="utf-8"))] == []


def test_suppressions_name_rule_and_reason() -> None:
    bare = [
        f"{name_of(path)}:{number}: {line.strip()}"
        for path in find_python("operator", "deploy")
        for number, line in find_bare_suppressions(path.read_text(encoding="utf-8"))
    ]

    assert bare == []


def test_bare_suppressions_are_found() -> None:
    text = "a  # noqa\nb  # noqa: E501\nc  # noqa: S101  why not\nd  # noqa: S101\ne  # type: ignore\n"

    assert [number for number, _ in find_bare_suppressions(text)] == [1, 2, 5]


def find_bare_suppressions(text: str) -> list[tuple[int, str]]:
    """Return the lines that suppress a rule without naming it, or one for which the file gives no reason at all."""
    found = [(number, line, SUPPRESSION.search(line)) for number, line in enumerate(text.splitlines(), start=1)]
    codes = [(match["code"] or "", match["reason"].strip(" #-")) for _, _, match in found if match]
    # What mypy's codes say is reason enough: the line beside them shows the rest.
    enough = SELF_EVIDENT | {code for code, reason in codes if reason or code.startswith("[")} - {""}
    return [(number, line) for number, line, match in found if match and match["code"] not in enough]


def test_versions_agree() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.search(r"^## \[?(\d+\.\d+\.\d+)", changelog, re.MULTILINE)

    assert released is not None
    assert released[1] == __version__


def test_the_changelog_has_what_breaks_what_is_new_and_what_was_wrong() -> None:
    """People read it before an upgrade: three parts for each version, none of which is long."""
    versions = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split("\n## ")[1:]

    assert [text.splitlines()[0] for text in versions[:2]] == ["Unreleased", __version__]
    for text in versions:
        parts = [part.splitlines() for part in text.split("\n### ")[1:]]
        assert [part[0] for part in parts] == ["Breaking", "New", "Fixed"]
        assert [part[0] for part in parts if sum(line.startswith("- ") for line in part) > MOST_CHANGES] == []


@pytest.mark.parametrize(
    "module",
    [
        "kubernetes",
        "kubernetes-1.34",
        "cluster",
        "kind",
        "prometheus",
        "workflows",
        "karpenter",
        "volcano",
        *FRAMEWORKS,
    ],
)
def test_programs_are_pinned_by_hash(module: str) -> None:
    folder = ROOT / "deploy" / "tools" / "local" / "go" / module
    text = (folder / "go.mod").read_text(encoding="utf-8")
    replaced = dict(re.findall(r"^\s*(?:replace )?(\S+) => \S+ (v\S+)", text, re.MULTILINE))
    required = re.findall(r"^\s+(\S+) (v\d\S+)", text, re.MULTILINE)
    pins = [f"{path} {replaced.get(path, version)}/go.mod h1:" for path, version in required]
    sums = (folder / "go.sum").read_text(encoding="utf-8")

    assert required
    assert [pin for pin in pins if pin not in sums] == []


def test_package_has_one_licence() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert project["license"] == "Apache-2.0"
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_make_knows_each_variable_that_it_uses() -> None:
    """An unknown one is empty without a word: a target then runs no test, or all of them."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    used = set(re.findall(r"\$\((?:if |call )?([A-Z_]+)\b", text))
    set_here = set(re.findall(r"^(?:define )?([A-Z_]+)(?:\s*[:?]?=|$)", text, re.MULTILINE))
    explained = "\n".join(re.findall(r"## .*|\bmake [A-Z]+=", text))
    asked_for = set(re.findall(r"\b([A-Z]+)=", explained))

    assert used - set_here - asked_for == {"MAKE"}
