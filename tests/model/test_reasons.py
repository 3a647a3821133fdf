"""Reasons are values: each kind has its answers, and they are counted, compared and sent to another process."""

from __future__ import annotations

import pickle
from itertools import product

import pytest

from fairbind.model import Rejection, RejectionKind, Rejections
from fairbind.model.overview import PENDING_REASON_OF, PENDING_REASONS, find_pending_reason
from rejections import CORDONED, PORT_CONFLICT, lack, taint, unsupported

ONE_MORE_SERVER_COULD_HELP = {
    RejectionKind.INSUFFICIENT: True,
    RejectionKind.PORT_CONFLICT: True,
    RejectionKind.TAINT: True,
    RejectionKind.SELECTOR: True,
    RejectionKind.ANTI_AFFINITY: True,
    RejectionKind.OWN_ANTI_AFFINITY: True,
    RejectionKind.AFFINITY: True,
    RejectionKind.SPREAD: True,
    RejectionKind.VOLUME_AFFINITY: True,
    RejectionKind.VOLUME_ZONE: True,
    RejectionKind.VOLUME_LIMIT: True,
    RejectionKind.VOLUME_DRIVER: True,
    RejectionKind.VOLUME_BINDING: True,
    RejectionKind.VOLUME_SPACE: True,
    RejectionKind.FEATURE: True,
    RejectionKind.OUTSIDE: True,
    RejectionKind.CORDONED: True,
    RejectionKind.NOT_READY: True,
    RejectionKind.REFUSED: True,
    RejectionKind.UNCLAIMED: False,
    RejectionKind.CLAIM: False,
    RejectionKind.VOLUME_IN_USE: False,
    RejectionKind.NOT_SUPPORTED: False,
    RejectionKind.UNREADABLE: False,
    RejectionKind.AT_LIMIT: False,
    RejectionKind.KEPT_BACK: True,
    RejectionKind.GANG_INCOMPLETE: False,
    RejectionKind.LATER: False,
}
COUNTS_AS = {
    RejectionKind.INSUFFICIENT: "insufficient",
    RejectionKind.PORT_CONFLICT: "insufficient",
    RejectionKind.TAINT: "ineligible",
    RejectionKind.SELECTOR: "ineligible",
    RejectionKind.ANTI_AFFINITY: "ineligible",
    RejectionKind.OWN_ANTI_AFFINITY: "ineligible",
    RejectionKind.AFFINITY: "ineligible",
    RejectionKind.SPREAD: "ineligible",
    RejectionKind.VOLUME_AFFINITY: "ineligible",
    RejectionKind.VOLUME_ZONE: "ineligible",
    RejectionKind.VOLUME_LIMIT: "insufficient",
    RejectionKind.VOLUME_DRIVER: "ineligible",
    RejectionKind.VOLUME_BINDING: "ineligible",
    RejectionKind.VOLUME_SPACE: "insufficient",
    RejectionKind.FEATURE: "ineligible",
    RejectionKind.OUTSIDE: "ineligible",
    RejectionKind.CORDONED: "ineligible",
    RejectionKind.NOT_READY: "ineligible",
    RejectionKind.REFUSED: "ineligible",
    RejectionKind.UNCLAIMED: "ineligible",
    RejectionKind.CLAIM: "ineligible",
    RejectionKind.VOLUME_IN_USE: "ineligible",
    RejectionKind.NOT_SUPPORTED: "unsupported",
    RejectionKind.UNREADABLE: "unsupported",
    RejectionKind.AT_LIMIT: "at_limit",
    RejectionKind.KEPT_BACK: "insufficient",
    RejectionKind.GANG_INCOMPLETE: "ineligible",
    RejectionKind.LATER: "queued",
}


def test_each_kind_says_whether_one_more_server_could_help() -> None:
    assert {kind: kind.one_more_server_could_help for kind in RejectionKind} == ONE_MORE_SERVER_COULD_HELP


def test_each_kind_counts_as_one_of_the_reasons_that_are_shown() -> None:
    assert PENDING_REASON_OF == COUNTS_AS
    assert PENDING_REASON_OF.keys() == set(RejectionKind)
    assert set(PENDING_REASON_OF.values()) < set(PENDING_REASONS)


@pytest.mark.parametrize(
    ("rejections", "reason"),
    [
        ((), "ineligible"),  # there is no server at all
        (((CORDONED, 3), (taint("gpu"), 1)), "ineligible"),
        (((CORDONED, 9), (lack("cpu"), 1)), "insufficient"),
        (((PORT_CONFLICT, 1), (taint("gpu"), 9)), "insufficient"),
    ],
)
def test_where_any_server_only_lacks_room_tasks_wait_for_room(rejections: Rejections, reason: str) -> None:
    assert find_pending_reason(rejections) == reason


def test_rejections_are_equal_by_kind_and_subject_and_sort_by_both() -> None:
    several = [lack("cpu"), lack("memory"), taint("cpu"), unsupported("cpu"), Rejection(RejectionKind.TAINT)]
    for (n, one), (m, other) in product(enumerate(several), repeat=2):
        assert (one == other) == (n == m)
    assert len({*several, lack("cpu")}) == len(several)
    assert sorted(several) == sorted(several, key=lambda rejection: (rejection.kind.value, rejection.subject))


def test_rejections_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        lack("cpu").subject = "memory"  # type: ignore[misc]


def test_a_rejection_that_went_to_another_process_is_the_same() -> None:
    """Snapshots are sent to the process that solves."""
    sent = pickle.loads(pickle.dumps(taint("gpu: true")))

    assert sent == taint("gpu: true")
    assert sent.kind is RejectionKind.TAINT
    assert {sent: 1} == {taint("gpu: true"): 1}
