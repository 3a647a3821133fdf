"""The measurement of single events plays all of them, also in a small cluster."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from perf.events import DAEMON_SET, EVENTS, MANY_OF_ONE, Row, measure, render


@pytest.fixture
def collector() -> Iterator[None]:
    """The garbage collector, as it was when the test has ended."""
    before = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)


@pytest.mark.usefixtures("collector")
def test_every_event_is_measured() -> None:
    rows = list(measure(nodes=12, pods=30))

    assert [row.event for row in rows] == [*(event.name for event in EVENTS), MANY_OF_ONE, DAEMON_SET]
    assert all(row.until_snapshot > 0.0 for row in rows)
    assert all(row.cycle > 0.0 for row in rows)


def test_a_row_has_what_each_number_of_nodes_gave() -> None:
    rows = [Row("x", 5_000, 1.0, 2.4, 7.0), Row("x", 1_000, 0.5, 1.6, 9.0)]

    assert render(rows).splitlines()[2:] == ["| x | 2 | 9 | 3 | 7 |"]
