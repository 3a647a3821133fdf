"""What no import tells: the pure packages take no time, no dice and no file from modules that they may use."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from house.tree import find_files, name_of

PURE = tuple(f"operator/fairbind/{package}/*.py" for package in ("model", "fairness", "scheduling", "cluster"))
FORBIDDEN_CALLS = frozenset({"__import__", "breakpoint", "exec", "eval", "input", "open", "print"})
CLOCKS = frozenset({"now", "today", "utcnow"})
"""Of `datetime` and `date`; a pure function may read a time that is written somewhere."""
NUMPY_FILES = frozenset({"fromfile", "genfromtxt", "load", "loadtxt", "memmap", "save", "savetxt", "savez"})


def find_impure(code: str) -> Iterator[tuple[int, str]]:
    """Return lines and names of what reads a clock, draws, or opens a file. A generator that is passed in may draw."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in FORBIDDEN_CALLS:
                yield node.lineno, name
            case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr=name) if name in NUMPY_FILES:
                yield node.lineno, f"numpy.{name}"
            case ast.Attribute(value=ast.Attribute(attr="random"), attr=name) if name != "Generator":
                yield node.lineno, f"numpy.random.{name}"
            case ast.Attribute(value=ast.Name(id="datetime" | "date" | "dt"), attr=name) if name in CLOCKS:
                yield node.lineno, name
            case ast.Attribute(value=ast.Attribute(attr="datetime" | "date"), attr=name) if name in CLOCKS:
                yield node.lineno, name
            case ast.Import(names=names) if any(each.name.startswith("numpy.random") for each in names):
                yield node.lineno, "numpy.random"
            case ast.ImportFrom(module="numpy.random"):
                yield node.lineno, "numpy.random"
            case ast.ImportFrom(module="numpy", names=names) if any(each.name == "random" for each in names):
                yield node.lineno, "numpy.random"


def test_what_is_impure_is_found() -> None:
    code = """
import datetime as dt
import numpy.random
from numpy import random
from numpy.random import default_rng
a = dt.datetime.now(dt.UTC), datetime.today(), dt.date.today()
b = np.random.default_rng(0).random(3), np.load("x")
with open("x") as file:
    print(file.read())
c = dt.datetime.fromisoformat(text).timestamp(), choices.random(), api.load(x), self.open(), now()
def d(generator: np.random.Generator) -> float: return generator.random()
"""
    found = sorted(find_impure(code))

    assert [line for line, _ in found] == [3, 4, 5, 6, 6, 6, 7, 7, 8, 9]


def test_the_pure_packages_are_pure() -> None:
    files = find_files(*PURE)
    found = [
        (name_of(path), line, name) for path in files for line, name in find_impure(path.read_text(encoding="utf-8"))
    ]

    assert len({name_of(path).split("/")[2] for path in files}) == len(PURE)
    assert found == []
