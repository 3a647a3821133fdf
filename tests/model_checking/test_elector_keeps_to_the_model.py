"""The operator's own elector does what the model does, step by step along random traces: neither can change alone."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kube.operator.simulation import LeaseServer
from model_checking.electors import DrivenElector
from model_checking.lease_model import (
    DEAD,
    DELETE,
    FREE,
    GET,
    GIVE_BACK,
    GIVING,
    NAMES,
    NEWLY_STARTED,
    SENT,
    TICK,
    Action,
    Rules,
    State,
    Timing,
    find_steps,
    may_bind,
)
from seeds import draw_seeds

TICK_SECONDS = 0.5
TIMING = Timing(open=12, wait=20, binding=7)
RULES = Rules((TIMING, TIMING))
RARE = {"kill": 0.03, "end": 0.05, "give up": 0.3, "lose the answer": 0.2, "delete the lease": 0.02, "tick": 1.5}
STEPS = 200


class Walk:
    """One random trace of the model, and the two electors that follow it."""

    def __init__(self, seed: int, rules: Rules) -> None:
        self._random = random.Random(seed)
        self._rules = rules
        self._state = NEWLY_STARTED._replace(deletions=1)
        self._server = LeaseServer()
        self._electors = [DrivenElector(name) for name in NAMES]
        self.done: list[Action] = []

    async def go(self) -> None:
        """Take many steps and compare after each."""
        for _ in range(STEPS):
            steps = dict(find_steps(self._state, self._rules))
            for action in (GIVE_BACK, *(Action("write in vain", number) for number in (0, 1))):
                steps.pop(action, None)  # the elector does this by itself: when it ends, or before it reads
            weights = [RARE.get(action.name, 1.0) for action in steps]
            [action] = self._random.choices(list(steps), weights)
            await self._take(action, steps[action])
            if self._state.lease is not None and self._state.lease.holder == GIVING and action.name == "end":
                self._state = dict(find_steps(self._state, self._rules))[GIVE_BACK]
            self._compare()
        for elector in self._electors:
            await elector.end(None, is_late=False)

    async def _take(self, action: Action, after: State) -> None:
        self.done.append(action)
        before, self._state = self._state, after
        if action == TICK:
            for elector in self._electors:
                elector.seconds += TICK_SECONDS
        elif action == DELETE:
            self._server.lease = None
        else:
            await self._act(action, before)

    async def _act(self, action: Action, before: State) -> None:
        elector, replica = self._electors[action.number], before.replicas[action.number]
        request = elector.request_under_way
        match action.name:
            case "begin":
                call = self._state.replicas[action.number].call
                assert call is not None
                if await elector.begin(call.method, self._server) and replica.holds is not None:
                    self._state = self._follow(before, action.number, "write in vain", "answer", "begin")
                if call.method == GET:
                    assert elector.request_under_way is not None
                    elector.request_under_way.carry_out(self._server)
            case "carry out":
                assert request is not None
                request.carry_out(self._server)
            case "carry out late":
                assert elector.late is not None
                elector.late.carry_out(self._server)
            case "answer":
                await elector.answer()
            case "give up" | "lose the answer":
                await elector.give_up()
            case _:
                is_late = replica.call is not None and replica.call.answer == SENT
                await elector.end(self._server if action.name == "end" else None, is_late=is_late)

    def _compare(self) -> None:
        assert self._name_holder() == (None if self._state.lease is None else self._state.lease.holder)
        for elector, replica, timing in zip(self._electors, self._state.replicas, self._rules.timings, strict=True):
            assert elector.elector.may_bind() == may_bind(replica, timing)
            if replica.call is not None:
                assert elector.request_under_way is not None
                assert elector.request_under_way.method == replica.call.method

    def _follow(self, state: State, number: int, *names: str) -> State:
        for name in names:
            state = dict(find_steps(state, self._rules))[Action(name, number)]
        return state

    def _name_holder(self) -> str | None:
        """Return the holder of the server's lease by the model's name for it."""
        holder = self._server.holder
        if holder is None or holder == FREE:
            return holder
        lease = self._state.lease
        gone = lease.holder if lease is not None and lease.holder in {DEAD, GIVING} else DEAD
        return {elector.identity: elector.name for elector in self._electors}.get(holder, gone)


async def test_the_elector_does_what_the_model_does() -> None:
    taken: set[str] = set()
    for seed in sorted({*range(40), *draw_seeds(40)}):  # the first ones take all kinds of steps
        walk = Walk(seed, RULES)
        await walk.go()
        taken |= {action.name for action in walk.done}
    assert len(taken) == 10, "a kind of step is never taken"


async def find_difference(rules: Rules) -> bool:
    """Say whether the elector does something else than the model with these rules."""
    for seed in range(200):
        try:
            await Walk(seed, rules).go()
        except (AssertionError, KeyError):
            return True
    return False


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(replace(RULES, counts_from_answer=True), id="holds_until counts from the answer"),
        pytest.param(replace(RULES, counts_from_zero=True), id="a foreign lease counts as seen long ago"),
        pytest.param(replace(RULES, has_precondition=False), id="a write needs no version"),
        pytest.param(replace(RULES, doubts_missing=False), id="no doubt about a missing lease"),
        pytest.param(Rules((TIMING._replace(open=13), TIMING)), id="another margin"),
        pytest.param(Rules((TIMING, TIMING._replace(wait=19))), id="another lease"),
    ],
)
async def test_a_model_with_another_rule_is_noticed(rules: Rules) -> None:
    assert await find_difference(rules), "the elector does not differ from a model with another rule"
