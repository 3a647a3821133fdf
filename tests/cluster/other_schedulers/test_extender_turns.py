"""Turns of extender mode: one pod each, passed on among equals only, and never under a binding."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fairbind.cluster.other_schedulers.extender_turns import DELAY_SECONDS, PASS_SECONDS, ExtenderTurns, Turn

UIDS = ("p0", "p1", "p2", "p3", "p4")
KINDS = {"p0": "small", "p1": "small", "p2": "small", "p3": "large", "p4": None}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("give", "told", "ask", "sent", "bind", "end", "wait", "end all")), st.sampled_from(UIDS)
    ),
    max_size=40,
)


def make_turn(uid: str = "p0", tenant: str = "t", *, is_given: bool = True) -> Turn:
    return Turn(tenant, f"node-of-{uid}", likeness=KINDS[uid], is_given=is_given)


def test_a_turn_passes_to_a_pod_like_its_own_that_asks_first() -> None:
    turns = ExtenderTurns()
    turns.give("p0", make_turn())
    assert turns.pass_on("p3", "large", 0.0) is None
    assert turns.pass_on("p4", None, 0.0) is None
    assert turns.pass_on("p1", "small", 0.0) == "p0"
    found = turns.find("p1")
    assert turns.find("p0") is None
    assert found is not None
    assert found.node == "node-of-p0", "the room that was decided goes with it"


def test_a_pod_that_was_told_yes_keeps_its_turn_for_a_while() -> None:
    turns = ExtenderTurns()
    turns.give("p0", make_turn())
    turns.note_told("p0", 10.0)
    assert turns.pass_on("p1", "small", 10.0 + DELAY_SECONDS / 2) is None
    assert turns.pass_on("p1", "small", 10.0 + DELAY_SECONDS) == "p0"


def test_pods_that_are_not_placed_do_not_pass_a_turn_on_for_ever() -> None:
    turns = ExtenderTurns()
    turns.give("p0", make_turn())
    holder, asker, now = "p0", "p1", 100.0
    while now < 200.0 and turns.pass_on(asker, "small", now) == holder:
        turns.note_told(asker, now)
        holder, asker, now = asker, holder, now + DELAY_SECONDS
    assert now == 100.0 + PASS_SECONDS
    turns.end(holder)
    turns.give(holder, make_turn())
    assert turns.pass_on(asker, "small", now) == holder, "the next turn is another one"


def test_a_turn_of_which_the_other_scheduler_is_being_told_stays() -> None:
    turns = ExtenderTurns()
    turns.give("p0", make_turn(is_given=False))
    assert turns.pass_on("p1", "small", 10.0) is None
    assert turns.end_all() == []


def test_who_comes_before_is_another_tenant_with_a_turn() -> None:
    turns = ExtenderTurns()
    assert turns.find_who_comes_before("t") is None
    turns.give("p0", make_turn(tenant="t"))
    assert turns.find_who_comes_before("t") is None
    assert turns.has_turns("t")
    turns.give("p1", make_turn("p1", "z"))
    turns.give("p2", make_turn("p2", "b"))
    assert turns.find_who_comes_before("t") == "b"
    turns.end("p2")
    assert turns.find_who_comes_before("t") == "z"


class Machine:
    """The books under any events. nodes: the rooms that were decided and not given back. binding: what must stay."""

    def __init__(self) -> None:
        self.turns = ExtenderTurns()
        self.now = 0.0
        self.nodes: Counter[str] = Counter()
        self.binding: dict[str, Turn] = {}

    def find_all(self) -> dict[str, Turn]:
        return {uid: turn for uid in UIDS if (turn := self.turns.find(uid)) is not None}

    def step(self, what: str, uid: str) -> None:
        turn = self.turns.find(uid)
        if what == "wait":
            self.now += DELAY_SECONDS / 2
        elif what == "end all":
            ended = [found.node for found in self.find_all().values() if not found.is_fixed]
            self.turns.end_all()
            self.nodes.subtract(ended)
        elif turn is not None:
            self.change(what, uid, turn)
        elif what == "give":
            self.turns.give(uid, make_turn(uid, is_given=False))
            self.nodes[f"node-of-{uid}"] += 1
        elif what == "ask":
            self.ask(uid)

    def change(self, what: str, uid: str, turn: Turn) -> None:
        match what:
            case "sent":
                turn.is_given = True
            case "told":
                self.turns.note_told(uid, self.now)
            case "bind":
                turn.is_binding, self.binding[uid] = True, turn
            case "end":
                assert self.turns.end(uid) is turn
                self.binding.pop(uid, None)
                self.nodes[turn.node] -= 1

    def ask(self, uid: str) -> None:
        before = self.find_all()
        other = self.turns.pass_on(uid, KINDS[uid], self.now)
        if other is not None:
            lost = before[other]
            assert not lost.is_fixed
            assert KINDS[other] == KINDS[uid]
            assert self.now >= lost.told_at + DELAY_SECONDS


@given(STEPS)
def test_no_order_of_events_makes_two_turns_of_one_or_takes_one_from_a_binding(steps: list[tuple[str, str]]) -> None:
    machine = Machine()
    for what, uid in steps:
        machine.step(what, uid)
        found = machine.find_all()
        assert machine.binding.items() <= found.items()
        assert Counter(turn.node for turn in found.values()) == +machine.nodes
        assert len(machine.turns) == len(found)
        assert machine.turns.has_turns("t") == bool(found)
