"""Two groups of two tenants on three nodes: after any interleaving of a few troubles none is torn, and all goes on.

Each state is judged: no node is overcommitted, no pod is bound twice. So is each end: a group that has begun stands, if
its pods exist and all groups that have begun fit; one that stood and lost a pod stands again in its own places; nobody
waits beside capacity that is free for the whole minimum, and who waits says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from fairbind.cluster.state import groups
from fairbind.cluster.state.group_members import Group, Member, Stage, Standing
from fairbind.cluster.state.groups import Groups
from fairbind.cluster.state.kept_places import KeptPlaces
from model_checking.group_search import describe, search
from model_checking.group_server import GroupSpec, Server, Setting

NATIVE, OTHER = GroupSpec("a", minimum=2, pods=3, is_native=True), GroupSpec("b", minimum=2, pods=2, is_native=False)
ROOMY = Setting((1, 1, 2), (NATIVE, OTHER))
"""Both minima fit, and the pod above the one waits for capacity that comes free."""
TIGHT = Setting((1, 1, 1), (NATIVE._replace(pods=2), OTHER))
"""One of them fits, and a single pod of the other would, too."""
UNEQUAL = Setting((3,), (NATIVE._replace(pods=2, cores=(2, 1)), OTHER._replace(cores=(2, 1))))
"""One of them fits, and what comes free of it is reserved for both pods of the other."""

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("setting", "troubles"),
    [
        pytest.param(ROOMY, 2, id="roomy", marks=pytest.mark.nightly),
        pytest.param(TIGHT, 2, id="tight"),
        pytest.param(UNEQUAL, 2, id="unequal"),
        pytest.param(TIGHT, 3, id="tight and deep", marks=pytest.mark.nightly),
        pytest.param(UNEQUAL, 3, id="unequal and deep", marks=pytest.mark.nightly),
    ],
)
def test_no_group_is_torn_and_all_goes_on(setting: Setting, troubles: int) -> None:
    found = search(setting, troubles)
    assert found.complaint is None, f"{found.complaint}: {describe(found.path)}"
    assert found.states > 1000


def forget_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "find_standing", lambda *_: Standing())


def keep_no_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeptPlaces, "keep", lambda *_, **__: None)


def keep_no_places_of_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Groups, "_keep_failed", lambda *_: None)


def use_places_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    def use(self: Groups, group: Group, uid: str, member: Member) -> None:
        if member.stage is Stage.BOUND:
            self.kept.use(group.key, uid, member.node, is_over=True)

    monkeypatch.setattr(Groups, "_note_placed", use)


def count_no_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Group, "finish", lambda self, uid, _role: self.finished.add(uid))


def forget_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new leader takes groups of which some are bound for new ones."""
    has_begun = Group.has_begun
    monkeypatch.setattr(
        Group, "has_begun", lambda self, minimum, kept: self.past.stood > 0 and has_begun(self, minimum, kept)
    )


def overlook_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node is full when something is bound to it."""
    monkeypatch.setattr(Server, "count_free", lambda _self, _node: -1)


@pytest.mark.parametrize(
    ("break_it", "setting", "words"),
    [
        pytest.param(forget_minimum, TIGHT, "torn", id="minimum not checked"),
        pytest.param(keep_no_places, ROOMY, "torn", id="replacement without its place"),
        pytest.param(keep_no_places_of_failed, TIGHT, "torn", id="failed binding without its place"),
        pytest.param(use_places_too_early, TIGHT, "torn", id="another's place used"),
        pytest.param(count_no_finished, TIGHT, "no progress", id="finished not counted"),
        pytest.param(forget_begun, TIGHT, "torn", id="new leader forgets"),
        pytest.param(overlook_capacity, TIGHT, "overcommitted", id="judge of capacity"),
    ],
)
def test_what_is_broken_is_found(
    break_it: Callable[[pytest.MonkeyPatch], None], setting: Setting, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    found = search(setting, 2)
    assert words in (found.complaint or "nothing is found"), describe(found.path)
