"""Histories of a cluster, told to the mirror, are decided, explained and shown as on the day of the recording."""

from __future__ import annotations

from collections import Counter

import pytest

from cluster.recorded.histories import MIRRORED
from scheduling.recorded.recording import check_block, read_recorded

pytestmark = pytest.mark.slow

# Texts and the number of cycles, pods or tenants at least, in a tenth of the histories, of which they are said.
PROMISED = {
    "bind ": 150,
    " above ": 200,
    "conflicting claims=": 20,
    "complete=False": 5,
    "Insufficient cpu=": 500,
    "Insufficient pods=": 50,
    "Insufficient gpu.io/x=": 50,
    "Insufficient absent.io/y=": 20,
    "anti-affinity rules=": 50,
    "untolerated taint": 200,
    "node affinity/selector=": 100,
    "were unschedulable=": 100,
    "match pod anti-affinity rules=": 50,
    "topology spread constraints=": 5,
    "blocked=unreadable": 5,
    "gated=": 20,
    "may=False": 1,
    "room=False": 1,
    "gpu.io/x counts=": 100,
    "counts=(False, True": 20,
    "fair=0.25": 20,
    "ns/kube-system": 20,
}


@pytest.mark.parametrize("start", MIRRORED.blocks)
def test_histories_are_decided_as_recorded(start: int) -> None:
    check_block(MIRRORED, start)


def test_the_histories_have_in_them_what_they_promise() -> None:
    found: Counter[str] = Counter()
    for number in range(0, MIRRORED.count, 10):
        for line in "\n".join(MIRRORED.play(number)).splitlines():
            found.update(text for text in PROMISED if text in line)

    assert {text: found[text] for text, least in PROMISED.items() if found[text] < least} == {}


def test_no_two_histories_are_decided_alike() -> None:
    assert len(set(read_recorded(MIRRORED))) == MIRRORED.count
