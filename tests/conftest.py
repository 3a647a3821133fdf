"""What holds for all tests."""

from __future__ import annotations

import signal

import pytest
from hypothesis import settings

# A run that was started in the background of a script ignores these, and so would every program that a test starts:
# tests that interrupt one would wait for ever.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

# How long an example takes says more about what else runs on the machine than about the code.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which tests belong to one worker when several share them: all on the cluster of a run, else one file's.

    Most tests on a cluster wait and most others compute, so two workers on two cores take little more than half the
    time of one.
    """
    for item in items:
        on_cluster = "bare_cluster" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("cluster" if on_cluster else str(item.path)))
