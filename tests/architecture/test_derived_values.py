"""What follows from other state is declared (`fairbind.derived`), and not kept by rules of its own.

Kept by hand is what these names give away: what a value was made of (`_valid_for`, `_made_for`), a count of changes
(`version += 1`), a set of what is out of date (`_stale`, `_changed`), a place in a list of changes (`_seen`, `_cursor`)
and a key that is an object's `id`. KNOWN lists what there is; it only gets shorter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import derived_values
from house.tree import ROOT, find_files

PACKAGES = ("cluster", "scheduling")
MOST_DECLARED = 20
KNOWN: dict[str, list[str]] = {
    "cluster/classes/window_groups.py": ["Group.is_stale"],
    "cluster/filters/anti_affinity.py": ["id"],
    "cluster/filters/simplified.py": ["id"],
    "cluster/loop/rounds.py": ["Rounds.has_changed"],
    "scheduling/cycle/servers/arrangements.py": ["Arrangement._gains_seen"],
    "scheduling/cycle/servers/shapes.py": [
        "PinnedShape._gains_seen",
        "PinnedShape._openings_seen",
        "Shape._cursor",
        "Shape._gains_seen",
        "Shape._openings_seen",
    ],
    "scheduling/cycle/servers/topology.py": ["DomainFilter.openings"],
    "scheduling/policies/levels.py": ["Progress.version"],
}
MADE_OF = re.compile(r"(valid|made|known|detailed)_(for|of)$|_for$")
COUNT = re.compile(r"(version|versions|changes|revision|openings)$")
STALE = re.compile(r"stale|changed")
CURSOR = re.compile(r"_seen$|cursor$")


def find_by_hand(tree: ast.AST) -> list[str]:
    """Return what is kept by hand, by class and attribute."""
    return sorted(
        {
            f"{owner.name}.{name}"
            for owner in ast.walk(tree)
            if isinstance(owner, ast.ClassDef)
            for name in _find_in_class(owner)
        }
        | {"id" for node in ast.walk(tree) if _is_key(node)}
    )


def _find_in_class(owner: ast.ClassDef) -> Iterator[str]:
    for node in ast.walk(owner):
        if isinstance(node, ast.AugAssign) and (name := _name_own(node.target)) and COUNT.search(name):
            yield name
        name = _name_own(node) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) else ""
        if any(pattern.search(name) for pattern in (MADE_OF, STALE, CURSOR)):
            yield name


def _name_own(node: ast.expr) -> str:
    """Return the name of an attribute of `self`, also where one of its parts is meant."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.attr if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self" else ""


def _is_key(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "id"


def test_nothing_more_is_kept_by_hand() -> None:
    found = {
        path.relative_to(ROOT / "operator" / "fairbind").as_posix(): by_hand
        for path in find_files(*(f"operator/fairbind/{package}/**/*.py" for package in PACKAGES))
        if (by_hand := find_by_hand(ast.parse(path.read_text(encoding="utf-8"))))
    }

    assert found == KNOWN


def test_what_is_kept_by_hand_is_found() -> None:
    source = """
class Memory:
    def ask(self, base):
        if self._valid_for != self.other.version:
            self._valid_for = self.other.version
        self.version += 1
        self._slot_versions["a"] += 1
        self._stale_nodes.clear()
        self._is_list_changed = True
        self._cursor = 1
        return self._known[id(base)]
"""
    assert find_by_hand(ast.parse(source)) == [
        "Memory._cursor",
        "Memory._is_list_changed",
        "Memory._slot_versions",
        "Memory._valid_for",
        "Memory.version",
        "id",
    ]


def test_few_values_are_declared_and_each_says_what_it_is() -> None:
    declared = derived_values.find_declarations(ROOT)

    assert 0 < len(declared) <= MOST_DECLARED
    assert all(each.about for each in declared)
