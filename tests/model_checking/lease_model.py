"""The lease and the fence as a state machine: two replicas, one API server, and whatever may happen between them.

A state says what each replica knows, what the server keeps, and what is under way. An action is one step of anybody:
a tick of time; a request begun, carried out, answered, or given up although it may still be carried out; a replica
killed or asked to end; a lease given back, or deleted by hand. Nothing has to happen soon: a replica that does nothing
for a while is a frozen or a slow one, and an answer may stay under way for any time. So the model allows all that
`fairbind.kube.operator.elector` does, at any pace, and more: it has no time limits on calls and no pauses between them.

A leader sends bindings all the time while its fence is open. Each may be carried out by the server at any moment until
`Timing.binding` ticks later. A state is unsafe when two may send, or when one may send while a binding of another can
still be carried out (`find_danger`).

Some steps are left out, because others lead to states in which at least as much may happen. The server carries a read
out in the moment in which it begins: if that took longer, the lease would be held for less. A write whose version is
not the newest any more fails at once, and so does what follows from it. Without `Rules.slow_reads` a read is also
answered at once: what was read late is either what a new read would find, or leads to a write that fails.

Times are ticks. What a replica measures with its own clock can be longer or shorter than what the server measures, so
each replica has its own lengths (`Timing`). Of versions only matters which are equal: `CURRENT`, or older ones.
A replica that has ended is replaced by a new process at once, which may begin as late as it likes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

FREE, DEAD, GIVING = "", "dead", "giving"
"""Holders: nobody since it was given back; one that was killed; one that has ended and is giving it back."""
NAMES = ("a", "b")
ABSENT, CURRENT, OLD, OLDER = -1, 0, 1, 2
"""Versions: of no lease; the newest; two older ones that differ."""
GET, PUT, POST = "GET", "PUT", "POST"
SENT, OK, MISSING = "sent", "ok", "missing"


class Timing(NamedTuple):
    """Lengths in ticks of the server's clock.

    open: for how long after the start of a renewal its sender may send bindings. wait: for how long a replica must have
    seen a version of another's lease before it takes it. binding: how long after it was sent a binding can be carried
    out.
    """

    open: int
    wait: int
    binding: int


@dataclass(frozen=True, slots=True)
class Rules:
    """What the replicas keep to. The defaults are the operator's rules; tests break one of them each.

    timings: one for each replica. slow_reads: whether the answer of a read may take long. restarts: whether replicas
    end or are killed, and new ones come. counts_from_answer: whether a holder counts its time from the answer, not from
    the start. counts_from_zero: whether a lease of another counts as seen long ago when it is seen first.
    has_precondition: whether a write needs the version that was read. drains: whether the lease is given back only
    after the last binding has ended. doubts_missing: whether one whose fence has closed sees a lease that is missing as
    another's that was deleted.
    """

    timings: tuple[Timing, Timing]
    slow_reads: bool = True
    restarts: bool = True
    counts_from_answer: bool = False
    counts_from_zero: bool = False
    has_precondition: bool = True
    drains: bool = True
    doubts_missing: bool = True


class Lease(NamedTuple):
    """The lease as somebody wrote it or read it."""

    holder: str
    version: int = CURRENT


class Call(NamedTuple):
    """A request of an elector and what became of it. The precondition of a PUT is the newest version.

    answer: SENT while the server has not carried it out. found: what a GET read, or what a write wrote.
    """

    method: str
    answer: str = SENT
    found: Lease | None = None


class Late(NamedTuple):
    """A write whose sender does not wait for it any more, and that the server may carry out all the same.

    The precondition of a PUT is the newest version.
    """

    method: str
    writes: str


class Replica(NamedTuple):
    """What one replica knows and has under way. Times count ticks since then, up to the length that matters.

    call: the elector's request. age: since the current attempt began. holds: since the beginning of the last renewal
    that succeeded; None: it does not hold the lease. knows: whether it has the newest version of the lease in hand.
    foreign: the version of another's lease that it saw, or ABSENT; None: none. seen: since it saw that version first.
    threat: for how many ticks more a binding of it can be carried out.
    """

    call: Call | None = None
    age: int = 0
    holds: int | None = None
    knows: bool = False
    foreign: int | None = None
    seen: int = 0
    threat: int = 0
    late: Late | None = None


class State(NamedTuple):
    """Everything. ghost: for how many ticks more a binding of a replica that has ended can be carried out.

    deletions: how often somebody will delete the lease by hand.
    """

    lease: Lease | None
    replicas: tuple[Replica, Replica]
    ghost: int = 0
    deletions: int = 0


class Action(NamedTuple):
    """A step. number: of the replica; -1: of time or of somebody else."""

    name: str
    number: int = -1


TICK, DELETE, GIVE_BACK = Action("tick"), Action("delete the lease"), Action("give the lease back")
MISSED = Call(PUT, MISSING)
NEWLY_STARTED = State(None, (Replica(), Replica()))


def make_led(rules: Rules) -> State:
    """Return the state in which the first replica has just renewed and the second has just seen it."""
    leader = Replica(holds=0, knows=True, threat=rules.timings[0].binding)
    return State(Lease(NAMES[0]), (leader, Replica(foreign=CURRENT)))


def may_bind(replica: Replica, timing: Timing) -> bool:
    """Whether the fence is open."""
    return replica.holds is not None and replica.holds < timing.open


def find_danger(state: State, rules: Rules) -> str | None:
    """Return what is unsafe in a state, or None."""
    first, second = (may_bind(*pair) for pair in zip(state.replicas, rules.timings, strict=True))
    if first and second:
        return "both may bind"
    for number, sends in enumerate((first, second)):
        if sends and (state.replicas[1 - number].threat or state.ghost):
            return f"{NAMES[number]} may bind while a binding of another can still be carried out"
    return None


def find_steps(state: State, rules: Rules) -> Iterator[tuple[Action, State]]:
    """Give everything that may happen next."""
    yield TICK, _tick(state, rules)
    if state.lease is not None and state.deletions:
        yield DELETE, _write(state._replace(deletions=state.deletions - 1), None, rules)
    if state.lease is not None and state.lease.holder == GIVING:
        yield GIVE_BACK, _write(state, FREE, rules)
    for number in (0, 1):
        yield from _find_steps_of(state, number, rules)


def _find_steps_of(state: State, number: int, rules: Rules) -> Iterator[tuple[Action, State]]:
    replica, name = state.replicas[number], NAMES[number]
    if replica.call is None:
        begun = _begin(replica, state.lease)
        if begun.call is not None and begun.call.method == GET and not rules.slow_reads:
            begun = _judge(begun, number, rules)
        yield Action("begin", number), _put(state, number, begun, rules)
        if state.lease is None and replica.holds is not None:  # its version is an old one
            yield Action("write in vain", number), _put(state, number, replica._replace(call=MISSED), rules)
    elif replica.call.answer == SENT:
        after = _carry_out(state, replica.call.method, name, rules)
        answered = after.replicas[number]._replace(call=_find_answer(state.lease, replica.call.method, name))
        yield Action("carry out", number), _put(after, number, answered, rules)
        yield Action("give up", number), _put(state, number, _give_up(replica, name), rules)
    else:
        yield Action("answer", number), _put(state, number, _receive(replica, number, rules), rules)
        yield Action("lose the answer", number), _put(state, number, _give_up(replica, name), rules)
    if replica.late is not None:
        after = _carry_out(state, replica.late.method, replica.late.writes, rules)
        yield Action("carry out late", number), _put(after, number, after.replicas[number]._replace(late=None), rules)
    if rules.restarts:
        yield Action("kill", number), _end(state, number, DEAD, rules)
        if replica.holds is not None:
            yield Action("end", number), _end(state, number, GIVING, rules)


# --- time ---


def _tick(state: State, rules: Rules) -> State:
    first, second = state.replicas
    aged = (_age(first, rules.timings[0]), _age(second, rules.timings[1]))
    return state._replace(replicas=aged, ghost=max(state.ghost - 1, 0))


def _age(replica: Replica, timing: Timing) -> Replica:
    was_open = may_bind(replica, timing)
    aged = replica._replace(
        age=min(replica.age + 1, timing.open),
        holds=None if replica.holds is None else min(replica.holds + 1, timing.open),
        seen=min(replica.seen + 1, timing.wait),
        threat=timing.binding if was_open else max(replica.threat - 1, 0),
    )
    return _simplify(aged, timing)


# --- the server ---


def _carry_out(state: State, method: str, name: str, rules: Rules) -> State:
    """Return the state after the server has taken a write, or has refused it."""
    if (state.lease is None) == (method == POST):
        return _write(state, name, rules)
    return state


def _find_answer(lease: Lease | None, method: str, name: str) -> Call | None:
    """Return the request with its answer; None for a conflict, which says no more than a lost answer."""
    return Call(method, OK, Lease(name)) if (lease is None) == (method == POST) else None


def _write(state: State, holder: str | None, rules: Rules) -> State:
    """Return the state with another lease, or none; all versions that anybody knows are older ones now."""
    first, second = (_make_older(replica, rules) for replica in state.replicas)
    return state._replace(lease=None if holder is None else Lease(holder), replicas=(first, second))


def _make_older(replica: Replica, rules: Rules) -> Replica:
    call, late = replica.call, replica.late
    if call is not None and call.found is not None and call.found.version == CURRENT:
        # It must be told apart from the version that was seen before, if that is another one.
        version = OLDER if replica.foreign == OLD else OLD
        call = call._replace(found=call.found._replace(version=version))
    older = replica._replace(call=call, foreign=OLD if replica.foreign == CURRENT else replica.foreign)
    if not rules.has_precondition:
        return older
    if late is not None and late.method == PUT:
        older = older._replace(late=None)
    if call is not None and call.method == PUT and call.answer == SENT:
        older = older._replace(call=None)
    return older._replace(knows=False)


# --- a replica ---


def _begin(replica: Replica, lease: Lease | None) -> Replica:
    call = Call(PUT) if replica.knows else Call(GET, OK, lease)
    return replica._replace(call=call, age=0)


def _receive(replica: Replica, number: int, rules: Rules) -> Replica:
    """Take an answer."""
    call = replica.call
    assert call is not None
    if call.answer == MISSING:
        return _note_missing(replica, number, rules)._replace(call=None, holds=None, knows=False)
    if call.method == GET:
        return _judge(replica, number, rules)
    assert call.found is not None
    holds = 0 if rules.counts_from_answer else replica.age
    knows = call.found.version == CURRENT or not rules.has_precondition
    return replica._replace(call=None, holds=holds, knows=knows, foreign=None)


def _judge(replica: Replica, number: int, rules: Rules) -> Replica:
    """Take what was read: take the lease, or wait."""
    assert replica.call is not None
    found, wait = replica.call.found, rules.timings[number].wait
    if found is None:
        replica = _note_missing(replica, number, rules)
        if replica.foreign is None or replica.seen >= wait:
            return replica._replace(call=Call(POST))
    else:
        is_ours = found.holder in {FREE, NAMES[number]}
        if not is_ours and replica.foreign != found.version:
            replica = _see(replica, found.version, number, rules)
        if is_ours or replica.seen >= wait:
            is_newest = found.version == CURRENT or not rules.has_precondition
            return replica._replace(call=Call(PUT) if is_newest else None, knows=False)
    return replica._replace(call=None, holds=None, knows=False)


def _note_missing(replica: Replica, number: int, rules: Rules) -> Replica:
    """See a missing lease as one that was deleted, if anybody else may have held it."""
    was_ours = replica.holds is not None and not may_bind(replica, rules.timings[number])
    if replica.foreign not in {None, ABSENT} or (replica.foreign is None and was_ours and rules.doubts_missing):
        return _see(replica, ABSENT, number, rules)
    return replica


def _see(replica: Replica, version: int, number: int, rules: Rules) -> Replica:
    return replica._replace(foreign=version, seen=rules.timings[number].wait if rules.counts_from_zero else 0)


def _give_up(replica: Replica, name: str) -> Replica:
    """Hear nothing of a request: it may have been carried out already, or later, or never."""
    return replica._replace(call=None, knows=False, late=_find_late(replica, name))


def _find_late(replica: Replica, name: str) -> Late | None:
    call = replica.call
    return Late(call.method, name) if call is not None and call.answer == SENT else replica.late


def _end(state: State, number: int, holder: str, rules: Rules) -> State:
    """Return the state with a new process in the place of one that has ended. holder: what became of the old one.

    What the old one sent stays under way, in a name that nobody has any more. Whoever ends in order has waited for its
    bindings, and gives the lease back if it is still its own.
    """
    name, old = NAMES[number], state.replicas[number]
    late = _find_late(old, name)
    if late is not None and late.writes == name:
        late = late._replace(writes=holder)
    first, second = (_rename(replica, name, holder) for replica in state.replicas)
    lease = state.lease
    if lease is not None and lease.holder == name:
        lease = lease._replace(holder=holder)
    threat = 0 if holder == GIVING and rules.drains else old.threat
    after = state._replace(lease=lease, replicas=(first, second), ghost=max(state.ghost, threat))
    return _put(after, number, Replica(late=late), rules)


def _rename(replica: Replica, name: str, holder: str) -> Replica:
    call = replica.call
    if call is None or call.found is None or call.found.holder != name:
        return replica
    return replica._replace(call=call._replace(found=call.found._replace(holder=holder)))


# --- equal states are one state ---


def _put(state: State, number: int, replica: Replica, rules: Rules) -> State:
    first, second = state.replicas
    replica = _simplify(replica, rules.timings[number])
    return state._replace(replicas=(replica, second) if number == 0 else (first, replica))


def _simplify(replica: Replica, timing: Timing) -> Replica:
    """Return an equal replica: what cannot matter any more has one value."""
    call, age, foreign, seen = replica.call, replica.age, replica.foreign, replica.seen
    found = None if call is None else call.found
    if call is None or call.answer == MISSING:
        age = 0
    if call is not None and found is not None and found.version == OLDER and foreign != OLD:
        call = call._replace(found=found._replace(version=OLD))
    if foreign is None or (foreign == OLD and (found is None or found.version != OLD)):
        seen = 0
    threat = timing.binding if may_bind(replica, timing) else replica.threat
    return replica._replace(call=call, age=age, foreign=foreign, seen=seen, threat=threat)
