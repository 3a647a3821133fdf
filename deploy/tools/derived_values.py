"""List the derived values that the code declares (`fairbind.derived`): what each is, of what it is made, and where.

A declaration is an assignment to an attribute of a class: `self._name = Derived(self._compute, of=(...))`. What the
value is, the first line of the docstring of its function says.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KINDS = frozenset({"Derived", "Memo", "Table"})


@dataclass(frozen=True, slots=True)
class Declaration:
    """One derived value. module: its path below `operator/fairbind`."""

    module: str
    owner: str
    name: str
    kind: str
    about: str
    of: str


def find_declarations(root: Path) -> list[Declaration]:
    """Return all derived values of the operator's code, by where they are."""
    package = root / "operator" / "fairbind"
    return [
        declaration
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
        for declaration in _find_in_class(path.relative_to(package).as_posix(), node)
    ]


def _find_in_class(module: str, owner: ast.ClassDef) -> Iterator[Declaration]:
    methods = {node.name: node for node in owner.body if isinstance(node, ast.FunctionDef)}
    for node in ast.walk(owner):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Call):
            call = node.value
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            kind = ast.unparse(call.func).split("[")[0]
            if kind in KINDS and isinstance(target, ast.Attribute):
                of = next((_name_inputs(each.value) for each in call.keywords if each.arg == "of"), "")
                about = _find_about(methods, call.args[0])
                yield Declaration(module, owner.name, target.attr, kind, about, of)


def _name_inputs(of: ast.expr) -> str:
    elements = of.elts if isinstance(of, ast.Tuple) else [of]
    return ", ".join(ast.unparse(each).removeprefix("self.").removeprefix("_").replace("._", ".") for each in elements)


def _find_about(methods: dict[str, ast.FunctionDef], compute: ast.expr) -> str:
    if not (isinstance(compute, ast.Attribute) and compute.attr in methods):
        raise ValueError(f"{ast.unparse(compute)} must be a method of the class that declares the value")
    text = ast.get_docstring(methods[compute.attr])
    if text is None:
        raise ValueError(f"{compute.attr} says nothing of what it computes")
    return text.partition("\n")[0].removeprefix("Return ").rstrip(".")


def compute_page(root: Path, made: str) -> str:
    """Return the text of docs/reference/derived-values.md. made: the line that says who writes it."""
    rows = [
        f"| {each.about} | {each.kind} | {each.of or 'its key'} | `{each.module}`: `{each.owner}.{each.name}` |"
        for each in find_declarations(root)
    ]
    lines = [
        "# Derived values",
        "",
        made,
        "",
        "What follows from the operator's state and is kept until what it is made of changes",
        "([how](../development.md#derived-values)).",
        "",
        "| what | kind | of | where |",
        "| --- | --- | --- | --- |",
        *rows,
    ]
    return "\n".join(lines) + "\n"
