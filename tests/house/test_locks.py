"""The locks agree with pyproject: every dependency is pinned and hashed, and nothing says where it comes from."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from house.tree import ROOT

RUNTIME = ROOT / "deploy" / "requirements.txt"
EVERYTHING = ROOT / "tests" / "requirements.txt"
SITE = ROOT / "docs" / "requirements.txt"
LOCKS = [RUNTIME, EVERYTHING, SITE]


@dataclass(frozen=True, slots=True)
class Pin:
    """One entry of a lock: the requirement and the hashes of the files that may be installed for it."""

    requirement: Requirement
    hashes: frozenset[str]

    @property
    def name(self) -> str:
        """The canonical name of what is pinned."""
        return canonicalize_name(self.requirement.name)


def read_lock(path: Path) -> list[Pin]:
    """Return the pins of a lock; a name may have several, for one Python and another."""
    lines = [line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines()]
    entries = " ".join(line.replace("\\", "") + ("" if line.endswith("\\") else "\n") for line in lines)
    pins: list[Pin] = []
    for entry in filter(str.strip, entries.splitlines()):
        text, *options = entry.split("--hash=")
        requirement = Requirement(text.strip())
        pins.append(Pin(requirement, frozenset(map(str.strip, options))))
    return pins


def read_project() -> tuple[list[Requirement], list[Requirement], list[Requirement]]:
    """Return pyproject's runtime requirements, those with what development adds, and those of the site."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = settings["project"]
    runtime = [Requirement(text) for text in project["dependencies"]]
    development = [Requirement(text) for text in project["optional-dependencies"]["dev"]]
    return runtime, runtime + development, [Requirement(text) for text in settings["dependency-groups"]["site"]]


@pytest.mark.parametrize(("path", "wanted"), list(zip(LOCKS, read_project(), strict=True)))
def test_every_dependency_is_pinned_within_its_bounds(path: Path, wanted: list[Requirement]) -> None:
    pins = read_lock(path)

    for requirement in wanted:
        versions = [pin.requirement.specifier for pin in pins if pin.name == canonicalize_name(requirement.name)]
        assert versions, f"{requirement} is not pinned"
        for (specifier,) in versions:
            assert specifier.operator == "=="
            assert requirement.specifier.contains(specifier.version, prereleases=True), f"{specifier}: {requirement}"


@pytest.mark.parametrize("path", LOCKS)
def test_every_pin_is_exact_and_hashed(path: Path) -> None:
    for pin in read_lock(path):
        assert [specifier.operator for specifier in pin.requirement.specifier] == ["=="], str(pin.requirement)
        assert pin.hashes, f"{pin.requirement} has no hash"
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in pin.hashes), str(pin.requirement)


def test_tests_run_with_what_is_released() -> None:
    everything = read_lock(EVERYTHING)

    for pin in read_lock(RUNTIME):
        assert [other for other in everything if other == pin] == [pin], pin.name


@pytest.mark.parametrize("path", LOCKS)
def test_no_lock_names_a_registry(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    assert "://" not in text
    assert not re.search(r"^\s*(-i|-f|--index-url|--extra-index-url|--find-links|--trusted-host)\b", text, re.MULTILINE)
