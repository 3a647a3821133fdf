"""Who runs which tests when several workers share them.

A test that starts programs waits most of its time, so two workers can run such tests on two cores: one with the kind
cluster, the other with a local control plane of its own. A third one makes all of them slow, and some fail. Workers
that only compute run beside them and give way (tests/conftest.py).
"""

from __future__ import annotations

import os

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]  # it has no types

KIND, E2E = "tests/kind/", "tests/e2e/"
NOT_ON_THE_CLUSTER = ("tests/kind/test_demo", "tests/kind/test_image")
"""Tests on kind that need the engine but not the one cluster: beside those that do, one after the other."""
PROGRAMMES = ("tests/adversary/test_adversary", "tests/faults/test_faults", "tests/differential/")
START_PROGRAMS = (KIND, *PROGRAMMES, *NOT_ON_THE_CLUSTER, E2E, "tests/local/", "tests/demo/")
"""Slowest first: one test that takes minutes must not be the last one."""
PACKAGES = ("model", "fairness", "scheduling", "cluster", "simulator", "importing", "kube", "web", "cli")
"""Whose branches are counted, by tests in folders of the same names."""
COMPUTE = ("tests/model/", "tests/fairness/", "tests/scheduling/")
"""Nothing is set up for a whole file there, and some files take a third of a minute: workers share them by function."""


def rank(test: str) -> int:
    """Return a test's place in the order in which tests are begun, by its node id."""
    places = [n for n, start in enumerate(START_PROGRAMS) if test.startswith(start)]
    return max(places, default=len(START_PROGRAMS))


def covers(test: str) -> bool:
    """Whether branches that a test takes are counted, by its node id."""
    return test.startswith(tuple(f"tests/{package}/" for package in PACKAGES))


class Sharing(LoadScopeScheduling):  # type: ignore[misc]  # the same
    """Which tests belong to one worker: a file's or a function's, and all that need one and the same cluster.

    There is one kind cluster, and one that is given by FAIRBIND_KUBECONFIG.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        shared = {KIND, E2E} if "FAIRBIND_KUBECONFIG" in os.environ else {KIND}
        if file.startswith(NOT_ON_THE_CLUSTER):
            return file
        if file.startswith(COMPUTE):
            return nodeid.partition("[")[0]
        return next((folder for folder in shared if file.startswith(folder)), file)
