"""How many bindings of a namespace may be under way when they fail or take long."""

from __future__ import annotations

import random
from math import inf

from fairbind.cluster.loop.bind_limits import (
    FAILURES_IN_A_ROW,
    FEWEST_OF_OTHERS,
    FIRST_BACKOFF_SECONDS,
    MAX_BACKOFF_SECONDS,
    MAX_STALLED,
    MAX_STALLED_IN_NAMESPACE,
    MAX_STALLED_OF_TENANT,
    PLACES_WHEN_SLOW,
    PROBES,
    RECENT,
    RELEASED_AT_ONCE,
    BindLimits,
)


def make_failing(count: int = FAILURES_IN_A_ROW) -> BindLimits:
    """A namespace whose last bindings all failed and ended."""
    limits = BindLimits()
    for n in range(count):
        assert limits.begin(f"f{n}", "bad", "bad", 0.0)
    for n in range(count):
        assert limits.end(f"f{n}", 0.0, failed=True)
    return limits


def begin(limits: BindLimits, count: int, namespace: str = "bad", now: float = 0.0) -> list[str]:
    """Return which of so many pods were backed off."""
    return [f"p{n}" for n in range(count) if not limits.begin(f"p{n}", namespace, namespace, now)]


def test_what_does_not_fail_is_not_limited() -> None:
    limits = make_failing(FAILURES_IN_A_ROW - 1)
    assert begin(limits, 1_000) == []
    assert limits.find_next_release() == inf


def test_a_namespace_that_fails_has_few_bindings_and_others_as_many_as_ever() -> None:
    limits = make_failing()
    assert begin(limits, 10) == [f"p{n}" for n in range(PROBES, 10)]
    assert all(limits.begin(f"o{n}", "other", "other", 0.0) for n in range(1_000))


def test_users_of_a_tenant_have_the_places_of_their_namespace_together() -> None:
    """A pod's user is a label, and who fails must not get more by another one."""
    limits = make_failing()
    begun = [n for n in range(10) if limits.begin(f"p{n}", f"u{n}@bad", "bad", 0.0)]
    assert begun == list(range(PROBES))
    assert not limits.begin_all([("x", "v@bad", "bad"), ("y", "w@bad", "bad")], 0.0)
    assert limits.find_refused() == {"bad"}


def test_a_success_ends_the_limit_and_returns_what_was_withheld_in_order() -> None:
    limits = make_failing()
    backed_off = begin(limits, 600)
    assert limits.release(0.5) == []
    assert limits.end("p0", 0.6, bound=True)
    assert limits.find_next_release() == 0.6
    released: list[str] = []
    now = 0.6
    while limits.find_next_release() < inf:
        now = max(now, limits.find_next_release())
        group = limits.release(now)
        assert len(group) <= 256
        released += group
    assert released == backed_off
    assert now < 1.0
    assert begin(limits, 50, now=now) == []


def test_slow_bindings_are_no_successes_also_where_so_many_stall_that_some_keep_their_place() -> None:
    limits = BindLimits()
    uids = [f"s{n}" for n in range(MAX_STALLED_OF_TENANT + 50)]
    for uid in uids:
        assert limits.begin(uid, "bad", "bad", 0.0)
    assert sum(limits.stall(uid, failed=False) for uid in uids) == MAX_STALLED_OF_TENANT
    for uid in uids:
        limits.end(uid, 2.0, bound=True)
    assert len(begin(limits, 100, now=2.0)) == 100 - PLACES_WHEN_SLOW


def test_while_it_fails_a_few_return_after_ever_longer_holds() -> None:
    limits = make_failing()
    begin(limits, 100)
    for n in range(PROBES):
        limits.end(f"p{n}", 0.0, failed=True)
    at, pauses = 0.0, []
    for _ in range(6):
        pauses.append(limits.find_next_release() - at)
        at = limits.find_next_release()
        group = limits.release(at)
        assert len(group) == PROBES
        for uid in group:
            assert limits.begin(uid, "bad", "bad", at)
            limits.end(uid, at, failed=True)
    assert pauses == [FIRST_BACKOFF_SECONDS, 1.0, 2.0, 4.0, MAX_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS]


def test_withheld_pods_that_are_gone_do_not_stand_in_the_way_of_the_others() -> None:
    limits = make_failing()
    begin(limits, 10_000)
    for n in range(PROBES):
        limits.end(f"p{n}", 0.0, failed=True)
    now = 0.0
    while limits.find_next_release() < inf:  # nothing of what returns begins
        now = limits.find_next_release()
        limits.release(now)
    assert now < 300.0


def test_a_stalled_binding_leaves_its_place_once() -> None:
    limits = BindLimits()
    assert limits.begin("a", "ns", "ns", 0.0)
    assert limits.stall("a", failed=False)
    assert not limits.stall("a", failed=True)
    assert not limits.end("a", 1.0, bound=True)
    assert not limits.stall("a", failed=True)  # it is over


def begin_slow(limits: BindLimits, count: int) -> list[str]:
    """Let so many bindings begin, and find that the first one takes long."""
    uids = [f"s{n}" for n in range(count)]
    assert all(limits.begin(uid, "slow", "slow", 0.0) for uid in uids)
    limits.stall("s0", failed=False)
    return uids


def test_a_namespace_with_many_slow_bindings_begins_none() -> None:
    limits = BindLimits()
    for n in range(MAX_STALLED_IN_NAMESPACE):
        assert limits.begin(f"s{n}", "slow", "slow", 0.0)
    for n in range(MAX_STALLED_IN_NAMESPACE):
        assert limits.stall(f"s{n}", failed=False)
    assert not limits.begin("more", "slow", "slow", 0.0)
    assert limits.begin("other", "other", "other", 0.0)
    limits.end("s0", 0.5, bound=True)
    assert limits.release(0.5) == ["more"]


def test_a_slow_namespace_has_few_places_also_when_its_stalled_bindings_have_ended() -> None:
    limits = BindLimits()
    for uid in begin_slow(limits, 1):
        limits.end(uid, 2.0, bound=True)

    assert begin(limits, 100, "slow", now=2.0) == [f"p{n}" for n in range(PLACES_WHEN_SLOW, 100)]
    assert begin(limits, 100, "other", now=2.0) == []


def test_what_a_slow_namespace_has_under_way_beyond_its_places_is_not_sent() -> None:
    limits = BindLimits()
    uids = begin_slow(limits, 100)
    assert limits.may_send("s0"), "it was sent"

    given_up = [uid for uid in uids if not limits.may_send(uid) and limits.end(uid, 1.0)]

    assert given_up == uids[1 : 100 - PLACES_WHEN_SLOW]
    assert limits.may_send("unknown")


def test_a_slow_namespace_gets_a_place_back_with_each_binding_that_ends_in_time() -> None:
    limits = BindLimits()
    for uid in begin_slow(limits, 1):
        limits.end(uid, 2.0, bound=True)  # too late to count
    places = PLACES_WHEN_SLOW
    while places < RELEASED_AT_ONCE:
        begun = [f"p{n}" for n in range(RELEASED_AT_ONCE) if limits.begin(f"p{n}", "slow", "slow", 3.0)]
        assert len(begun) == places
        for uid in begun:
            limits.end(uid, 3.0, bound=True)
        places *= 2

    assert begin(limits, 1_000, "slow", now=4.0) == []


def test_the_places_that_stalled_bindings_leave_are_bounded() -> None:
    limits = BindLimits()
    for n in range(MAX_STALLED + 1):
        assert limits.begin(f"s{n}", f"ns{n}", f"ns{n}", 0.0)
    left = [limits.stall(f"s{n}", failed=False) for n in range(MAX_STALLED + 1)]
    assert left == [True] * MAX_STALLED + [False]
    assert limits.end(f"s{MAX_STALLED}", 1.0, bound=True)  # it kept its place to the end


def test_one_tenant_leaves_the_others_places_for_stalled_bindings_however_many_namespaces_it_has() -> None:
    limits = BindLimits()
    uids = [f"s{n}" for n in range(MAX_STALLED)]
    assert all(limits.begin(uid, "slow", f"slow-{n // 16}", 0.0) for n, uid in enumerate(uids))
    assert sum(limits.stall(uid, failed=False) for uid in uids) == MAX_STALLED_OF_TENANT < MAX_STALLED
    assert not limits.begin("more", "slow", "slow-fresh", 1.0)

    for n in range(FEWEST_OF_OTHERS):
        assert limits.begin(f"o{n}", "other", "other", 1.0)
        assert limits.stall(f"o{n}", failed=False)


def test_a_tenant_with_many_stalled_bindings_sends_none_of_those_that_have_begun() -> None:
    limits = BindLimits()
    assert limits.begin("later", "slow", "slow-fresh", 0.0)
    for n in range(MAX_STALLED_OF_TENANT):
        assert limits.begin(f"s{n}", "slow", f"slow-{n}", 0.0)
        assert limits.may_send("later")
        limits.stall(f"s{n}", failed=False)
    assert not limits.may_send("later")
    limits.end("s0", 1.0)
    assert limits.may_send("later")


def test_a_tenant_whose_bindings_take_as_long_as_those_of_others_begins_more() -> None:
    limits = BindLimits()
    for n in range(MAX_STALLED):
        uid, name = f"s{n}", ("slow", "other")[n % 2]
        assert limits.begin(uid, name, name, 0.0)
    for n in range(MAX_STALLED):
        limits.stall(f"s{n}", failed=False)
    assert limits.begin("more", "slow", "slow-fresh", 1.0)


def try_out(limits: BindLimits, namespace: str, count: int, failed: int) -> None:
    """Let so many bindings of a namespace end, of which the first so many fail once and then take their time."""
    for n in range(count):
        uid = f"{namespace}-{n}"
        assert limits.begin(uid, namespace, namespace, 0.0)
        if n < failed:
            limits.stall(uid, failed=True)
            limits.end(uid, 0.0, failed=True)
        else:
            limits.end(uid, 0.0, bound=True)


def begin_all(limits: BindLimits, namespaces: list[str]) -> dict[str, int]:
    """Return how many bindings of each namespace may begin."""
    return {name: RELEASED_AT_ONCE - len(begin(limits, RELEASED_AT_ONCE, name)) for name in namespaces}


def test_trouble_that_all_namespaces_have_limits_none_of_them() -> None:
    """Equal places for all would put those back that have a right to more."""
    limits, dice = BindLimits(), random.Random(1)
    namespaces = [f"ns{n}" for n in range(5)]
    under_way: list[str] = []
    for n in range(2_000):
        uid, namespace = f"p{n}", dice.choice(namespaces)
        assert limits.begin(uid, namespace, namespace, 0.0), f"{namespace} is limited after {n} attempts"
        under_way.append(uid)
        if dice.random() < 0.8:
            limits.stall(uid, failed=dice.random() < 0.5)
        if len(under_way) > 250:
            ended = under_way.pop(dice.randrange(len(under_way)))
            limits.end(ended, 0.0, bound=True)


def test_a_namespace_that_does_worse_than_others_in_trouble_is_limited() -> None:
    limits = BindLimits()
    for name in ("one", "two"):
        try_out(limits, name, 40, failed=20)
    try_out(limits, "bad", FAILURES_IN_A_ROW, failed=FAILURES_IN_A_ROW)
    assert begin_all(limits, ["one", "two", "bad"]) == {"one": 256, "two": 256, "bad": PROBES}


def test_two_namespaces_that_fail_are_both_limited_as_long_as_a_third_one_does_not() -> None:
    limits = BindLimits()
    try_out(limits, "good", 60, failed=0)
    for name in ("bad", "worse"):
        try_out(limits, name, FAILURES_IN_A_ROW, failed=FAILURES_IN_A_ROW)
    assert begin_all(limits, ["bad", "worse", "good"]) == {"bad": PROBES, "worse": PROBES, "good": 256}


def test_with_too_few_attempts_of_others_to_compare_with_a_namespace_that_fails_is_limited() -> None:
    for others, places in ((FEWEST_OF_OTHERS - 1, PROBES), (FEWEST_OF_OTHERS, RELEASED_AT_ONCE)):
        limits = BindLimits()
        try_out(limits, "other", others, failed=others)
        try_out(limits, "bad", FAILURES_IN_A_ROW, failed=FAILURES_IN_A_ROW)
        assert begin_all(limits, ["bad"]) == {"bad": places}


def test_what_was_long_ago_is_not_compared_with() -> None:
    limits = BindLimits()
    try_out(limits, "good", RECENT, failed=0)
    for n in range(RECENT):
        try_out(limits, f"other{n}", 1, failed=1)
    try_out(limits, "bad", FAILURES_IN_A_ROW, failed=FAILURES_IN_A_ROW)
    assert begin_all(limits, ["bad"]) == {"bad": RELEASED_AT_ONCE}


def test_a_binding_that_awaits_claims_has_no_place_until_they_are_bound() -> None:
    limits = BindLimits()
    assert limits.begin("a", "team", "team", 0.0)
    assert limits.follow_claims("a", awaits=True) == -1
    assert limits.follow_claims("a", awaits=True) == 0
    assert limits.follow_claims("a", awaits=False) == 1
    assert limits.end("a", 1.0, bound=True), "it has its place again"

    assert limits.begin("b", "team", "team", 2.0)
    limits.follow_claims("b", awaits=True)
    assert limits.begin("c", "team", "team", 2.0)
    assert limits.end("c", 3.0, bound=True)
    assert not limits.end("b", 4.0), "it had left its place"
    assert limits.follow_claims("b", awaits=True) == 0
