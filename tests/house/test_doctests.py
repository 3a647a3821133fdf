"""The examples in the docstrings are run: an example that lies is worse than none."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import fairbind

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(fairbind.__path__, "fairbind.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples_to_run() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [test for name in MODULES for test in finder.find(importlib.import_module(name)) if test.examples]

    assert len(found) >= 5
