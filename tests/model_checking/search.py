"""An exhaustive search over the states of the model of lease and fence, and the way to a state that must not be."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from model_checking.lease_model import (
    GET,
    GIVE_BACK,
    NAMES,
    TICK,
    Action,
    Rules,
    State,
    find_danger,
    find_steps,
    may_bind,
)


class Step(NamedTuple):
    """An action of a trace and the state that it leads to."""

    action: Action
    state: State


@dataclass(frozen=True, slots=True)
class Search:
    """What a search found. states: how many. danger: what is unsafe, at the end of the trace; None: nothing is."""

    states: int
    danger: str | None
    trace: tuple[Step, ...]
    reached: frozenset[State]


def search(rules: Rules, start: State, *, most: int = 10_000_000) -> Search:
    """Look at every state that can be reached, nearest first, until one is unsafe. Raises when there are too many."""
    came_from: dict[State, tuple[State, Action] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        state = waiting.popleft()
        danger = find_danger(state, rules)
        if danger is not None:
            return Search(len(came_from), danger, _trace_back(came_from, state), frozenset())
        for action, after in find_steps(state, rules):
            if after not in came_from:
                came_from[after] = (state, action)
                waiting.append(after)
        if len(came_from) > most:
            raise OverflowError(f"more than {most} states")
    return Search(len(came_from), None, (), frozenset(came_from))


def _trace_back(came_from: dict[State, tuple[State, Action] | None], state: State) -> tuple[Step, ...]:
    steps: list[Step] = []
    while (before := came_from[state]) is not None:
        steps.append(Step(before[1], state))
        state = before[0]
    return tuple(reversed(steps))


def count_ticks_to_lead(reached: Iterable[State], rules: Rules) -> int:
    """Return after how many ticks somebody leads at the latest, from any of these states, when nothing fails any more.

    Every request is carried out and answered at once, everybody tries again each tick, and nobody ends.
    """
    slowest = 0
    for start in reached:
        state, ticks = _go_on(start, rules), 0
        while not any(map(may_bind, state.replicas, rules.timings)):
            state = _go_on(_take(state, TICK, rules), rules)
            ticks += 1
            if ticks > 10 * rules.timings[0].wait:
                raise OverflowError(f"nobody leads any more: {start}")
        slowest = max(slowest, ticks)
    return slowest


def _go_on(state: State, rules: Rules) -> State:
    """Let everything that is under way come to its end, and everybody make one attempt."""
    for number in range(len(NAMES)):
        state = _finish_call(state, number, rules)
    if any(action == GIVE_BACK for action, _ in find_steps(state, rules)):
        state = _take(state, GIVE_BACK, rules)
    for number, replica in enumerate(state.replicas):
        if not may_bind(replica, rules.timings[number]):
            state = _finish_call(_take(state, Action("begin", number), rules), number, rules)
    return state


def _finish_call(state: State, number: int, rules: Rules) -> State:
    while (call := state.replicas[number].call) is not None:
        is_answered = call.method == GET or call.answer != "sent"
        state = _take(state, Action("answer" if is_answered else "carry out", number), rules)
    return state


def _take(state: State, wanted: Action, rules: Rules) -> State:
    return next(after for action, after in find_steps(state, rules) if action == wanted)


def describe(trace: tuple[Step, ...]) -> str:
    """Return a trace as text: who does what, with the time in ticks."""
    lines, now = [], 0
    for action, _ in trace:
        now += action == TICK
        if action != TICK:
            lines.append(f"{now:3d}  {NAMES[action.number] if action.number >= 0 else ' '}  {action.name}")
    return "\n".join(lines)
