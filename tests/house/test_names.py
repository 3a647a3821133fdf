"""One word names one thing: names that mean something else in the field, or meant several things here, stay away."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from house.tree import find_files, name_of

CODE = "operator/fairbind/*.py", "deploy/tools/*.py"
PACKAGE = "operator/fairbind/*.py"
OLD_NAMES = {
    "Account": "TenantUsage, Progress",
    "Backlog": "PodMessages",
    "Draws": "RandomChoices",
    "EXACT": "a tolerance named by what it bounds",
    "Kind": "ResourceType, HeldKind, WantedKind, PodKind",
    "LEAST": "a tolerance named by what it bounds",
    "Memory": "UnschedulableCache",
    "Mirror": "ClusterCache",
    "NEAR": "a tolerance named by what it bounds",
    "OPTIMALITY": "OPTIMALITY_GAP",
    "Pool": "LevelPools",
    "Pools": "LevelPools",
    "ROUNDING": "SUMMATION_ERROR",
    "RisingMemory": "WarmBasis",
    "Told": "Announced",
    "compute_account": "compute_progress",
    "survey": "list_once",
}
"""By name, without the underscores around it: what is said instead."""
OLD_WORDS = {
    "anew": "again",
    "claimer": "owner",
    "claimers": "owners",
    "mend": "fix",
    "mending": "refinement",
    "mirror": "cache",
    "mirrored": "cached",
    "polishing": "refinement",
    "settle": "flush, resolve, conclude",
    "settled": "flushed, resolved, converged",
    "settling": "active set",
    "unsettled": "unresolved",
}
"""By a word of a name: what is said instead."""
OLD_MODULES = frozenset(
    {"backlog", "catalogue", "central", "claims", "demand", "exact", "lines", "memory", "mending", "mirror", "notices"}
    | {"polishing", "probes", "responding", "rising", "settling", "survey", "traces", "trading", "written"}
)
DEFINED_ONCE = {"PodRecord", "TOLERANCE", "compute_sort_key", "split_task_name"}
KNOWN = {
    ("operator/fairbind/cluster/classes/window.py", "_Kind"),
    ("operator/fairbind/kube/client/credentials.py", "_load_anew"),
    ("operator/fairbind/kube/client/errors.py", "anew"),
}
"""Names and words of a file that may stay."""
SMALL = 2e-3
"""A constant of a solver or a mechanism that is no larger bounds an error."""


def find_names(code: str) -> Iterator[str]:
    """Return all names in code, those of keywords, attributes and imports too."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.alias(name=name, asname=other):
                yield from {name.rpartition(".")[2], other or name.rpartition(".")[2]}


def find_definitions(code: str) -> Iterator[str]:
    """Return what a module defines: its functions, classes and constants."""
    for node in ast.parse(code).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield name


MAYBE = re.compile(rf"(?:{'|'.join([*OLD_NAMES, *OLD_WORDS, *map(str.capitalize, OLD_WORDS)])})(?![a-z])")


def find_old(code: str) -> dict[str, str]:
    """Return the old names in code, and what is said instead."""
    found = {}
    for name in set(find_names(code)) if MAYBE.search(code) else ():
        bare = name.strip("_")
        words = re.findall(r"[A-Z]?[a-z]+", bare)
        old = [OLD_WORDS[word] for word in map(str.lower, words) if word in OLD_WORDS]
        if bare in OLD_NAMES or old:
            found[name] = OLD_NAMES.get(bare) or old[0]
    return found


def find_tolerances(code: str) -> set[str]:
    """Return the constants of a module that are too small to be anything else."""
    found = set()
    for node in ast.parse(code).body:
        match node:
            case ast.Assign(targets=[*targets], value=ast.expr() as value) if any(map(_is_small, ast.walk(value))):
                found |= {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
    return found


def _is_small(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, float) and 0 < node.value <= SMALL


def test_old_names_are_found() -> None:
    code = (
        "from a.mirror import survey as list_once\n"
        "class _Told(Kind): pass\n"
        "def is_settled(memory, *, claimers=()): return self._unsettled.memory\n"
        "NEAR_STEPS = lines(written=POOLS)\n"
    )

    assert set(find_old(code)) == {"survey", "_Told", "Kind", "is_settled", "claimers", "_unsettled"}
    assert find_tolerances(
        "A = 1e-4  # a\nB, C = 1e-13, 1\nD = 0.5\nE = F / 10\n\ndef g() -> float:\n    return 1e-9\n"
    ) == {
        "A",
        "B",
        "C",
    }


def test_old_names_stay_away() -> None:
    found = {
        (name_of(path), name): new
        for path in find_files(*CODE)
        for name, new in find_old(path.read_text(encoding="utf-8")).items()
    }

    assert {name: new for name, new in found.items() if name not in KNOWN} == {}


def test_old_words_stay_out_of_docstrings_and_comments() -> None:
    words = re.compile(rf"\b(?:{'|'.join(OLD_WORDS)})\b", re.IGNORECASE)
    found = {
        (name_of(path), word.lower())
        for path in find_files(PACKAGE)
        for word in words.findall(path.read_text(encoding="utf-8"))
    }

    assert found - KNOWN == set()


def test_modules_have_no_old_names() -> None:
    assert [name_of(path) for path in find_files(PACKAGE) if path.stem in OLD_MODULES] == []


def test_what_was_there_several_times_is_defined_once() -> None:
    defined = Counter(
        name for path in find_files(PACKAGE) for name in find_definitions(path.read_text(encoding="utf-8"))
    )

    assert {name: defined[name] for name in DEFINED_ONCE} == dict.fromkeys(DEFINED_ONCE, 1)


def test_tolerances_of_solvers_and_mechanisms_are_in_one_module_each() -> None:
    patterns = (f"operator/fairbind/fairness/{part}/*.py" for part in ("solvers", "mechanisms"))
    files = [path for path in find_files(*patterns) if path.name != "tolerances.py"]

    assert files
    found = {name_of(path): find_tolerances(path.read_text(encoding="utf-8")) for path in files}
    assert {path: names for path, names in found.items() if names} == {}
