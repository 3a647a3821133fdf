"""Turns of extender mode: one pod each, passed on among equals only, and never under a binding."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fairbind.cluster.other_schedulers.permits import DELAY_SECONDS, PASS_SECONDS, Permit, Permits

UIDS = ("p0", "p1", "p2", "p3", "p4")
KINDS = {"p0": "small", "p1": "small", "p2": "small", "p3": "large", "p4": None}
STEPS = st.lists(
    st.tuples(
        st.sampled_from(("give", "told", "ask", "sent", "bind", "end", "wait", "end all")), st.sampled_from(UIDS)
    ),
    max_size=40,
)


def make_permit(uid: str = "p0", tenant: str = "t", *, is_given: bool = True) -> Permit:
    return Permit(tenant, f"node-of-{uid}", likeness=KINDS[uid], is_given=is_given)


def test_a_turn_passes_to_a_pod_like_its_own_that_asks_first() -> None:
    permits = Permits()
    permits.give("p0", make_permit())
    assert permits.pass_on("p3", "large", 0.0) is None
    assert permits.pass_on("p4", None, 0.0) is None
    assert permits.pass_on("p1", "small", 0.0) == "p0"
    found = permits.find("p1")
    assert permits.find("p0") is None
    assert found is not None
    assert found.node == "node-of-p0", "the room that was decided goes with it"


def test_a_pod_that_was_told_yes_keeps_its_turn_for_a_while() -> None:
    permits = Permits()
    permits.give("p0", make_permit())
    permits.note_told("p0", 10.0)
    assert permits.pass_on("p1", "small", 10.0 + DELAY_SECONDS / 2) is None
    assert permits.pass_on("p1", "small", 10.0 + DELAY_SECONDS) == "p0"


def test_pods_that_are_not_placed_do_not_pass_a_turn_on_for_ever() -> None:
    permits = Permits()
    permits.give("p0", make_permit())
    holder, asker, now = "p0", "p1", 100.0
    while now < 200.0 and permits.pass_on(asker, "small", now) == holder:
        permits.note_told(asker, now)
        holder, asker, now = asker, holder, now + DELAY_SECONDS
    assert now == 100.0 + PASS_SECONDS
    permits.end(holder)
    permits.give(holder, make_permit())
    assert permits.pass_on(asker, "small", now) == holder, "the next turn is another one"


def test_a_turn_of_which_the_other_scheduler_is_being_told_stays() -> None:
    permits = Permits()
    permits.give("p0", make_permit(is_given=False))
    assert permits.pass_on("p1", "small", 10.0) is None
    assert permits.end_all() == []


def test_who_comes_before_is_another_tenant_with_a_turn() -> None:
    permits = Permits()
    assert permits.find_who_comes_before("t") is None
    permits.give("p0", make_permit(tenant="t"))
    assert permits.find_who_comes_before("t") is None
    assert permits.has_permits("t")
    permits.give("p1", make_permit("p1", "z"))
    permits.give("p2", make_permit("p2", "b"))
    assert permits.find_who_comes_before("t") == "b"
    permits.end("p2")
    assert permits.find_who_comes_before("t") == "z"


class Machine:
    """The books under any events. nodes: the rooms that were decided and not given back. binding: what must stay."""

    def __init__(self) -> None:
        self.permits = Permits()
        self.now = 0.0
        self.nodes: Counter[str] = Counter()
        self.binding: dict[str, Permit] = {}

    def find_all(self) -> dict[str, Permit]:
        return {uid: permit for uid in UIDS if (permit := self.permits.find(uid)) is not None}

    def step(self, what: str, uid: str) -> None:
        permit = self.permits.find(uid)
        if what == "wait":
            self.now += DELAY_SECONDS / 2
        elif what == "end all":
            ended = [found.node for found in self.find_all().values() if not found.is_fixed]
            self.permits.end_all()
            self.nodes.subtract(ended)
        elif permit is not None:
            self.change(what, uid, permit)
        elif what == "give":
            self.permits.give(uid, make_permit(uid, is_given=False))
            self.nodes[f"node-of-{uid}"] += 1
        elif what == "ask":
            self.ask(uid)

    def change(self, what: str, uid: str, permit: Permit) -> None:
        match what:
            case "sent":
                permit.is_given = True
            case "told":
                self.permits.note_told(uid, self.now)
            case "bind":
                permit.is_binding, self.binding[uid] = True, permit
            case "end":
                assert self.permits.end(uid) is permit
                self.binding.pop(uid, None)
                self.nodes[permit.node] -= 1

    def ask(self, uid: str) -> None:
        before = self.find_all()
        other = self.permits.pass_on(uid, KINDS[uid], self.now)
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
        assert Counter(permit.node for permit in found.values()) == +machine.nodes
        assert len(machine.permits) == len(found)
        assert machine.permits.has_permits("t") == bool(found)
