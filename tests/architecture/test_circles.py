"""No module imports itself by way of others, not even late or for types only."""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from house.tree import ROOT, find_files

SOURCE = ROOT / "operator"


def read_imports(paths: list[Path]) -> dict[str, set[str]]:
    """Return for each module of the package which of them it imports, wherever the import stands."""
    names = {path: ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__") for path in paths}
    modules = set(names.values())
    return {name: find_imports(path, modules) - {name} for path, name in names.items()}


def find_imports(path: Path, modules: set[str]) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= members & modules or {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules


def find_circle(imports: dict[str, set[str]]) -> list[str]:
    """Return modules that import each other in this order, or nothing."""
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


def test_no_module_imports_itself_by_way_of_others() -> None:
    imports = read_imports(find_files("operator/**/*.py"))

    assert len(imports) > 400
    assert find_circle(imports) == []


@pytest.mark.parametrize("circle", [{"a": {"b"}, "b": {"a"}}, {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": set()}])
def test_a_circle_is_found(circle: dict[str, set[str]]) -> None:
    assert set(find_circle(circle)) == set(circle) - {"d"}
