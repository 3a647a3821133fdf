"""When a demo ends: in time on a usual machine, later on a slow one, but not never."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from demo import workload
from demo.observe import Sample
from demo.play import LONGEST_DELAY_SECONDS, Play

if TYPE_CHECKING:
    from demo.stage import Stage

DURATION_SECONDS = 24.0
JUDGED: dict[str, Any] = {"envy": {"history": 0}, "share_error": 0.0}


class SmallStage:
    """A stage on which nothing happens."""

    api = None
    cast = workload.CAST

    def read_metrics(self) -> str:
        return ""


def is_over(
    at_seconds: float, monkeypatch: pytest.MonkeyPatch, *, arrived: float | None, policy: str = "drfh", **seen: Any
) -> bool:
    """Tell whether a run is over then. arrived: when the late tenant came. seen: in the last sample."""
    play = Play(cast("Stage", SmallStage()), duration_seconds=DURATION_SECONDS, policy=policy)
    monkeypatch.setattr(play, "clock", lambda: at_seconds)
    play._arrived_seconds = arrived
    play.samples.append(Sample(at_seconds, (), (), bound=0, jain_index=1.0, **{**JUDGED, **seen}))
    return play._is_over()


@pytest.mark.parametrize(("arrived", "over_at"), [(8.0, 24.0), (12.0, 24.0), (20.0, 32.0), (None, 144.0)])
def test_a_tenant_that_comes_late_stays_for_half_of_the_time(
    arrived: float | None, over_at: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_over(over_at - 0.1, monkeypatch, arrived=arrived)
    assert is_over(over_at, monkeypatch, arrived=arrived)


@pytest.mark.parametrize(("policy", "waits"), [("drfh", True), ("fifo", False)])
def test_what_is_fair_is_waited_for_where_somebody_computes_it(
    policy: str, *, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_over(30.0, monkeypatch, arrived=8.0, policy=policy, share_error=None) is not waits


def test_the_audit_is_waited_for_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    end = DURATION_SECONDS + LONGEST_DELAY_SECONDS
    assert not is_over(end - 0.1, monkeypatch, arrived=8.0, envy={})
    assert is_over(end, monkeypatch, arrived=8.0, envy={})
