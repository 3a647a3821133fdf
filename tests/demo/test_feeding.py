from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from demo import workload
from demo.fakes import BUSY, SILENT, Api, Clock
from demo.feeding import PATIENCE_SECONDS, Feeder, Patience, create_object
from demo.servers import DemoError
from localplane.client import ApiError

if TYPE_CHECKING:
    from localplane.client import ApiClient

TENANT = workload.make_tenant(workload.WEB)


@pytest.fixture
def api() -> Api:
    return Api()


def create(api: Api) -> None:
    create_object(cast("ApiClient", api), TENANT)


def test_an_attempt_that_took_long_is_not_many_that_failed() -> None:
    clock = Clock()
    patience = Patience(clock=clock)

    def fail_slowly() -> None:
        clock.now += 2 * PATIENCE_SECONDS
        raise SILENT

    assert not patience.attempt(fail_slowly)
    assert not patience.attempt(fail_slowly)
    with pytest.raises(type(SILENT)):
        patience.attempt(fail_slowly)


def test_success_is_the_end_of_troubles() -> None:
    clock = Clock()
    patience = Patience(clock=clock)

    def fail() -> None:
        raise BUSY

    assert not patience.attempt(fail)
    clock.now += PATIENCE_SECONDS
    assert patience.attempt(lambda: None)
    assert not patience.attempt(fail)


def test_a_fault_of_our_own_is_no_trouble_to_bear() -> None:
    with pytest.raises(ZeroDivisionError):
        Patience().attempt(lambda: 1 // 0)


def test_what_is_there_already_counts_as_made(api: Api) -> None:
    create(api)
    create(api)
    assert api.made == ["web"]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_is_refused_is_named(status: int, api: Api) -> None:
    api.troubles = {"web": ApiError(status, "Because", "of this")}
    with pytest.raises(DemoError, match=f"^Tenant web is refused: {status} Because: of this$"):
        create(api)


@pytest.mark.parametrize("status", [409, 429, 500, 503, 504])
def test_what_may_be_taken_later_is_no_refusal(status: int, api: Api) -> None:
    api.troubles = {"web": ApiError(status, "Because", "of this")}
    with pytest.raises(ApiError, match="of this"):
        create(api)


def test_nothing_new_is_asked_for_while_something_is_left(api: Api) -> None:
    feeder = Feeder(cast("ApiClient", api))
    api.troubles = {"web": BUSY}
    with pytest.raises(ApiError):
        feeder.feed(lambda: [TENANT, workload.make_tenant(workload.VISION)])
    assert api.made == ["vision"]
    api.recover()
    feeder.feed(lambda: pytest.fail("something is left"))
    assert api.made == ["vision", "web"]
    feeder.feed(list)
    assert api.asked == ["web"]
