"""The examples in the docstrings are run: an example that lies is worse than none."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import fairbind


def has_examples(module: pkgutil.ModuleInfo) -> bool:
    """Tell whether a module's source shows an example, without importing it."""
    spec = module.module_finder.find_spec(module.name, None)
    return spec is not None and spec.origin is not None and ">>> " in Path(spec.origin).read_text(encoding="utf-8")


MODULES = sorted(
    module.name for module in pkgutil.walk_packages(fairbind.__path__, "fairbind.") if has_examples(module)
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_hold(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))

    assert results.failed == 0
    assert results.attempted > 0


def test_there_are_examples_to_run() -> None:
    assert len(MODULES) >= 5
