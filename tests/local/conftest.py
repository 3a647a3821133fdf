"""Fixtures for the tests of the local control plane itself: nothing of fairbind runs here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from localplane.plane import ControlPlane
from localplane.tools import DEFAULT, ensure_tools

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localplane.tools import Tools


@pytest.fixture(scope="session")
def tools() -> Tools:
    """All programs that a plane may need."""
    return ensure_tools((*DEFAULT, "kube-scheduler", "kubectl"))


@pytest.fixture(scope="module")
def plane(tools: Tools) -> Iterator[ControlPlane]:
    """A plane for the tests of one file that leave it as it was, with kube-scheduler."""
    with ControlPlane(tools, scheduler=True) as plane:
        yield plane
