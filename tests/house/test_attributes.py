"""No class keeps more than fifteen attributes of its own, but for those that are known to, which only get fewer."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from house.tree import find_files

MOST = 15
KNOWN = {
    "Simulation": 27,
    "Recorder": 23,
    "Draft": 23,
    "Volumes": 22,
    "Shape": 20,
    "Elector": 22,
    "SchedulingLoop": 21,
    "Reflector": 21,
    "Binder": 21,
    "SnapshotBuilder": 19,
    "AttachLimits": 20,
}


def count_attributes(definition: ast.ClassDef) -> int:
    """Return how many attributes the methods of a class set."""
    return len(
        {
            node.attr
            for node in ast.walk(definition)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Store)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        }
    )


def find_classes() -> Iterator[ast.ClassDef]:
    for path in find_files("operator/**/*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                yield node


def test_no_class_has_more_attributes_than_it_may() -> None:
    counts = [(definition.name, count_attributes(definition)) for definition in find_classes()]

    assert {name: count for name, count in counts if count > MOST} == KNOWN
