"""When a demo ends: in time on a usual machine, later on a slow one, but not never; and what it bears meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import pytest

from demo import workload
from demo.fakes import BUSY, SILENT, Api, Clock
from demo.feeding import PATIENCE_SECONDS
from demo.observe import Sample
from demo.play import ARRIVAL_FRACTION, LONGEST_DELAY_SECONDS, Play
from demo.servers import DemoError
from demo.workload import CAST, DemoTenant, PodStream
from localplane.client import ApiError

if TYPE_CHECKING:
    from demo.stage import Stage

DURATION_SECONDS = 24.0
JUDGED: dict[str, Any] = {"envy": {"history": 0}, "share_error": 0.0}


class SmallStage:
    """A stage on which nothing happens but what is asked of its API server. trouble: of whoever reads metrics."""

    cast = workload.CAST
    nodes = 6

    def __init__(self) -> None:
        self.api = Api()
        self.stream = PodStream(DURATION_SECONDS, self.nodes)
        self.trouble: Exception | None = None

    def check_operator(self) -> None:
        """It runs."""

    def read_metrics(self) -> str:
        if self.trouble is not None:
            raise self.trouble
        return ""

    def read_operator_log(self) -> str:
        return "last words"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stage() -> SmallStage:
    return SmallStage()


@pytest.fixture
def play(stage: SmallStage, clock: Clock) -> Play:
    """A run that has begun and has seen something."""
    run = make_play(stage, clock)
    assert run.look()
    return run


def make_play(stage: SmallStage, clock: Clock, policy: str = "drfh") -> Play:
    return Play(cast("Stage", stage), duration_seconds=DURATION_SECONDS, policy=policy, clock=clock)


def is_over(
    at_seconds: float,
    *,
    arrived: float | None,
    policy: str = "drfh",
    seen_seconds: float | None = None,
    **seen: Any,
) -> bool:
    """Tell whether a run is over then. arrived: when the late tenant came. seen: in the last sample, of that time."""
    clock = Clock()
    play = make_play(SmallStage(), clock, policy)
    clock.now = at_seconds
    play._arrived_seconds = arrived
    seen_at = at_seconds if seen_seconds is None else seen_seconds
    play.samples.append(Sample(seen_at, (), (), bound=0, jain_index=1.0, **{**JUDGED, **seen}))
    return play._is_over()


@pytest.mark.parametrize(("arrived", "over_at"), [(8.0, 24.0), (12.0, 24.0), (20.0, 32.0), (None, 144.0)])
def test_a_tenant_that_comes_late_stays_for_half_of_the_time(arrived: float | None, over_at: float) -> None:
    assert not is_over(over_at - 0.1, arrived=arrived)
    assert is_over(over_at, arrived=arrived)


def test_what_counts_is_how_long_that_tenant_was_seen() -> None:
    assert not is_over(40.0, arrived=8.0, seen_seconds=7.0)  # one look has taken half a minute
    assert is_over(40.0, arrived=8.0, seen_seconds=20.0)


@pytest.mark.parametrize(("policy", "waits"), [("drfh", True), ("fifo", False)])
def test_what_is_fair_is_waited_for_where_somebody_computes_it(policy: str, *, waits: bool) -> None:
    assert is_over(30.0, arrived=8.0, policy=policy, share_error=None) is not waits


def test_the_audit_is_waited_for_but_not_for_ever() -> None:
    end = DURATION_SECONDS + LONGEST_DELAY_SECONDS
    assert not is_over(end - 0.1, arrived=8.0, envy={})
    assert is_over(end, arrived=8.0, envy={})


# --- a moment's trouble ---


@pytest.mark.parametrize("trouble", [BUSY, SILENT, ApiError(404, "NotFound", "a replica that is gone")])
def test_many_looks_in_vain_are_borne_but_not_for_long(
    trouble: Exception, play: Play, stage: SmallStage, clock: Clock
) -> None:
    stage.trouble = trouble
    for second in range(int(PATIENCE_SECONDS)):
        clock.now = second
        assert not play.look()
    clock.now = PATIENCE_SECONDS
    with pytest.raises(DemoError, match=r"^nothing can be seen any more: .*\nlast words$"):
        play.look()


def test_silences_do_not_add_up(play: Play, stage: SmallStage, clock: Clock) -> None:
    for _ in range(3):
        stage.trouble = BUSY
        assert not play.look()
        clock.now += PATIENCE_SECONDS - 1
        assert not play.look()
        stage.trouble = None
        assert play.look()


@pytest.mark.parametrize("trouble", [BUSY, SILENT])
def test_what_a_feed_could_not_make_is_made_at_the_next_one(trouble: Exception, play: Play, stage: SmallStage) -> None:
    wanted = make_names(CAST.first)
    failing = wanted[2:5]
    stage.api.troubles = dict.fromkeys(failing, trouble)
    play.feed()
    assert sorted(stage.api.asked) == sorted(wanted)
    assert sorted(stage.api.made) == sorted(set(wanted) - set(failing))

    stage.api.recover()
    play.feed()
    assert sorted(stage.api.asked) == sorted(failing), "the same, and no others"
    assert sorted(stage.api.made) == sorted(wanted)
    stage.api.recover()
    play.feed()
    assert set(stage.api.asked).isdisjoint(wanted), "then what is missing now"


def test_feeds_that_fail_for_long_end_it(play: Play, stage: SmallStage, clock: Clock) -> None:
    stage.api.troubles = dict.fromkeys(make_names(CAST.first), BUSY)
    for second in range(int(PATIENCE_SECONDS)):
        clock.now = second
        play.feed()
    clock.now = PATIENCE_SECONDS
    with pytest.raises(DemoError, match=r"^nothing can be made any more: 503 .*$"):
        play.feed()


def test_a_refusal_ends_it_at_once(play: Play, stage: SmallStage) -> None:
    name = make_names(CAST.first)[0]
    stage.api.troubles = {name: ApiError(403, "Forbidden", "there is a quota")}
    with pytest.raises(DemoError, match=f"^Pod {name} is refused: 403 Forbidden: there is a quota$"):
        play.feed()


def test_the_late_tenant_comes_once_though_its_arrival_fails_at_first(
    play: Play, stage: SmallStage, clock: Clock
) -> None:
    late = CAST.late
    clock.now = DURATION_SECONDS * ARRIVAL_FRACTION
    first_pod = make_names([late], workload.LATE_FILL)[0]
    stage.api.troubles = {late.name: BUSY, first_pod: BUSY}
    play.feed()
    assert stage.api.made == [late.namespace], "its Tenant was not to be had"
    play.feed()
    assert play._present == CAST.first

    del stage.api.troubles[late.name]
    play.feed()
    assert play._present == CAST.tenants
    assert find_arrival(play) is None, "not all of it is there"
    stage.api.recover()
    clock.now += 5
    play.feed()
    assert find_arrival(play) == clock.now
    assert stage.api.asked == [first_pod]
    pods = make_names([late], workload.LATE_FILL)
    assert sorted(stage.api.made) == sorted([late.namespace, late.name, *pods])


def find_arrival(play: Play) -> float | None:
    """Return when the late tenant came, with all that it came with."""
    return play._arrived_seconds


def make_names(tenants: Sequence[DemoTenant], fill: int | None = None) -> list[str]:
    """Return the names of a new stream's first pods: those that are missing, or those that tenants come with."""
    stream = SmallStage().stream
    bodies = [
        body
        for tenant in tenants
        for body in (stream.make_missing(tenant, {}) if fill is None else stream.make_first(tenant, fill))
    ]
    return [body["metadata"]["name"] for body in bodies]
