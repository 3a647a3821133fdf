from __future__ import annotations

from dataclasses import replace

import pytest

from fairbind.cluster.messages import (
    MAX_CHARACTERS,
    compute_condition_reason,
    compute_gist,
    compute_signature,
    format_unschedulable,
    word_rejection,
)
from fairbind.model import FairnessReason, GroupWait, Precedence, Rejection, RejectionKind
from kube.writers.waiting import make_tasks, make_wait
from rejections import NOT_READY, PORT_CONFLICT, UNCLAIMED, UNREADABLE, lack, taint, unsupported

TASKS = make_tasks(1)
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
WORDS = {
    RejectionKind.INSUFFICIENT: "Insufficient {a}",
    RejectionKind.PORT_CONFLICT: "node(s) didn't have free ports for the requested pod ports",
    RejectionKind.TAINT: "node(s) had untolerated taint {{a}}",
    RejectionKind.SELECTOR: "node(s) didn't match Pod's node affinity/selector",
    RejectionKind.ANTI_AFFINITY: "node(s) didn't satisfy existing pods anti-affinity rules",
    RejectionKind.OWN_ANTI_AFFINITY: "node(s) didn't match pod anti-affinity rules",
    RejectionKind.AFFINITY: "node(s) didn't match pod affinity rules",
    RejectionKind.SPREAD: "node(s) didn't match pod topology spread constraints{a}",
    RejectionKind.VOLUME_AFFINITY: "node(s) didn't match PersistentVolume's node affinity",
    RejectionKind.VOLUME_ZONE: "node(s) had no available volume zone",
    RejectionKind.VOLUME_LIMIT: "node(s) exceed max volume count",
    RejectionKind.VOLUME_DRIVER: "{a} CSI driver is not installed on the node",
    RejectionKind.VOLUME_BINDING: "node(s) didn't find available persistent volumes to bind",
    RejectionKind.VOLUME_SPACE: "node(s) did not have enough free storage",
    RejectionKind.FEATURE: "node(s) didn't match Pod's required features",
    RejectionKind.OUTSIDE: "node(s) didn't match the scheduler's node selector",
    RejectionKind.CORDONED: "node(s) were unschedulable",
    RejectionKind.NOT_READY: "node(s) were not ready",
    RejectionKind.REFUSED: "node(s) refused such pods a moment ago",
    RejectionKind.UNCLAIMED: "a namespace that no Tenant claims",
    RejectionKind.CLAIM: "{a}",
    RejectionKind.VOLUME_IN_USE: IN_USE,
    RejectionKind.NOT_SUPPORTED: "{a}",
    RejectionKind.UNREADABLE: "unreadable fields",
    RejectionKind.AT_LIMIT: "node(s) at the limit for {a}",
    RejectionKind.KEPT_BACK: "node(s) had only {a}",
    RejectionKind.GANG_INCOMPLETE: "{a}",
    RejectionKind.LATER: "other pods of its tenant, with too many different constraints or requests, come first",
}


def test_each_kind_has_its_words() -> None:
    assert {kind: word_rejection(Rejection(kind, "{a}")) for kind in RejectionKind} == WORDS


def test_only_a_wait_that_one_more_node_could_end_gives_the_reason_that_autoscalers_look_for() -> None:
    waits = [make_wait(TASKS, (lack("cpu"), 1)), make_wait(TASKS)]
    assert [compute_condition_reason(wait) for wait in waits] == ["Unschedulable"] * 2


@pytest.mark.parametrize("kind", [kind for kind in RejectionKind if not kind.one_more_server_could_help])
def test_a_wait_that_no_node_could_end_has_a_reason_of_its_own(kind: RejectionKind) -> None:
    reason = compute_condition_reason(make_wait(TASKS, blocked=Rejection(kind)))

    assert reason.isalpha()
    assert reason != "Unschedulable"


@pytest.mark.parametrize(
    ("rejections", "nodes", "message"),
    [
        (
            [(lack("cpu"), 12), (taint("gpu: true"), 48)],
            60,
            "0/60 nodes are available: 12 Insufficient cpu, 48 node(s) had untolerated taint(s).",
        ),
        # sorted as texts, the count included: so it is done by kube-scheduler
        (
            [(lack("cpu"), 3), (lack("memory"), 12)],
            15,
            "0/15 nodes are available: 12 Insufficient memory, 3 Insufficient cpu.",
        ),
        ([(lack("pods"), 2)], 2, "0/2 nodes are available: 2 Too many pods."),
        (
            [(PORT_CONFLICT, 1)],
            1,
            "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
        ),
        ([], 4, "0/4 nodes are available."),
        ([], 0, "no nodes available to schedule pods"),
    ],
)
def test_the_words_are_those_of_kube_scheduler(
    rejections: list[tuple[Rejection, int]], nodes: int, message: str
) -> None:
    assert format_unschedulable(make_wait(TASKS, *rejections), nodes) == message


def test_a_message_names_the_reasons_of_most_nodes_and_counts_the_rest() -> None:
    lacks = [(lack(f"a.io/{n:02}"), 1) for n in range(40)]
    message = format_unschedulable(make_wait(TASKS, *lacks, (lack("cpu"), 7)), 9)
    assert message.startswith("0/9 nodes are available: 1 Insufficient a.io/00, ")
    assert message.endswith(", 1 Insufficient a.io/14, 7 Insufficient cpu and 25 more.")


def test_what_the_pods_own_nodes_lack_is_never_cut_for_the_taints_of_others() -> None:
    taints = [(taint(f"pool: tenant-{n}"), 3) for n in range(20)]
    message = format_unschedulable(make_wait(TASKS, *taints, (lack("cpu"), 1)), 61)
    assert message == "0/61 nodes are available: 1 Insufficient cpu, 60 node(s) had untolerated taint(s)."
    lacks = [(lack(f"a.io/{n:02}"), 1) for n in range(16)]
    mismatch = Rejection(RejectionKind.SELECTOR)
    message = format_unschedulable(make_wait(TASKS, (mismatch, 99), *taints, *lacks), 120)
    assert message.endswith("1 Insufficient a.io/15 and 2 more.")


def test_other_taints_make_no_other_message() -> None:
    one, other = (make_wait(TASKS, (taint(f"pool: {name}"), 2)) for name in "ab")
    assert compute_signature(one) == compute_signature(other)
    assert compute_signature(one, shows_taints=True) != compute_signature(other, shows_taints=True)


def test_taints_have_a_reason_each_where_they_are_to_be_shown() -> None:
    wait = make_wait(TASKS, (taint("gpu: true"), 2), (taint("pool: a"), 3), (lack("cpu"), 1))
    assert format_unschedulable(wait, 6, shows_taints=True) == (
        "0/6 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {gpu: true}, "
        "3 node(s) had untolerated taint {pool: a}."
    )


@pytest.mark.parametrize("count", [1, 2, 64, 5_000])
def test_no_message_is_longer_than_what_an_event_takes(count: int) -> None:
    lacks = [(lack(f"{n:05}{'a' * 240}/{'x' * 63}"), 1) for n in range(count)]
    fairness = FairnessReason(0.3, "t" * 253, 0.1)
    message = format_unschedulable(make_wait(TASKS, *lacks, fairness=fairness), 15_000)
    assert len(message) <= MAX_CHARACTERS
    assert message.endswith("takes the next free capacity.")
    blocked = make_wait(TASKS, blocked=unsupported("it"))
    assert len(format_unschedulable(blocked, 9, blocked_detail="d" * 5_000)) == MAX_CHARACTERS


def test_what_is_reserved_is_told_to_those_who_wait_for_it_and_to_those_who_do_not_get_it() -> None:
    mine = replace(make_wait(TASKS, (lack("cpu"), 1)), reserved_on=2)
    assert format_unschedulable(mine, 1).endswith(" Capacity of 2 node(s) is reserved for it.")
    soon = replace(mine, expected=36_040.0)
    assert format_unschedulable(soon, 1).endswith(
        " Capacity of 2 node(s) is reserved for it, the first expected at 10:00:40 UTC."
    )
    assert compute_signature(soon) == compute_signature(mine)
    of_group = replace(soon, group=GroupWait("g", 2, 0))
    assert format_unschedulable(of_group, 1).endswith(", all of it expected at 10:00:40 UTC.")
    other = make_wait(TASKS, (lack("cpu"), 1), fairness=FairnessReason(0.3, "b", 0.1, reserved_on=3))
    assert format_unschedulable(other, 1).endswith(
        "of b, which takes the next free capacity; free capacity on 3 node(s) is reserved for it."
    )


@pytest.mark.parametrize(
    ("share", "next_share", "shown"),
    [(0.31, 0.12, ("0.31", "0.12")), (0.3101, 0.3099, ("0.3101", "0.3099")), (1.5, 0.0, ("1.50", "0.00"))],
)
def test_the_reason_of_fairness_follows(share: float, next_share: float, shown: tuple[str, str]) -> None:
    wait = make_wait(TASKS, (lack("cpu"), 1), fairness=FairnessReason(share, "b", next_share))
    assert format_unschedulable(wait, 1) == (
        f"0/1 nodes are available: 1 Insufficient cpu. tenant a waits: its weighted share {shown[0]} "
        f"is above {shown[1]} of b, which takes the next free capacity."
    )


@pytest.mark.parametrize(
    ("by", "compared", "shown"),
    [
        (
            Precedence.LEVEL,
            ("one", "two"),
            "the weighted share 0.30 of one is above 0.10 of two and b is next there, so it takes",
        ),
        (Precedence.PRIORITY, None, "b has a higher priority than a, so it takes"),
        (
            Precedence.GUARANTEE,
            ("a", "two"),
            "two comes before a by its guarantee and b is next there, so it takes",
        ),
    ],
)
def test_in_a_tree_the_reason_names_the_siblings_that_were_compared(
    by: Precedence, compared: tuple[str, str] | None, shown: str
) -> None:
    reason = FairnessReason(0.3, "b", 0.1, by=by, compared=compared)
    wait = make_wait(TASKS, (lack("cpu"), 1), fairness=reason)

    assert format_unschedulable(wait, 1).endswith(f"tenant a waits: {shown} the next free capacity.")
    hidden = format_unschedulable(wait, 1, shows_others=False)
    assert "two" not in hidden
    assert " b " not in hidden


def test_shares_that_differ_by_less_than_can_be_shown_are_shown_all_the_same() -> None:
    wait = make_wait(TASKS, (lack("cpu"), 1), fairness=FairnessReason(0.1 + 1e-12, "b", 0.1))
    assert "0.100000 is above 0.100000" in format_unschedulable(wait, 1)


@pytest.mark.parametrize("detail", [None, ""])
def test_a_claim_of_one_pod_at_a_time_that_is_in_use_refuses_all_nodes(detail: str | None) -> None:
    wait = make_wait(TASKS, blocked=Rejection(RejectionKind.VOLUME_IN_USE))
    assert format_unschedulable(wait, 60, blocked_detail=detail) == f"0/60 nodes are available: 60 {IN_USE}."


def test_what_is_not_honoured_is_named_and_the_very_thing_where_it_is_known() -> None:
    wait = make_wait(TASKS, blocked=unsupported("required pod affinity"))
    assert format_unschedulable(wait, 60) == (
        "0/60 nodes are available: pod has required pod affinity, which fairbind does not honour yet."
    )
    detail = "required pod affinity over 'zone'"
    assert detail in format_unschedulable(wait, 60, blocked_detail=detail)
    nonsense = make_wait(TASKS, blocked=UNREADABLE)
    assert format_unschedulable(nonsense, 3, blocked_detail="a field that makes no sense: cpu '1z'") == (
        "0/3 nodes are available: pod has a field that makes no sense: cpu '1z'."
    )
    assert format_unschedulable(make_wait(TASKS, blocked=UNCLAIMED), 3) == (
        "0/3 nodes are available: pod has a namespace that no Tenant claims, which the SchedulingPolicy refuses "
        "(unclaimedNamespaces)."
    )


def test_signatures_ignore_numbers_and_whose_turn_is_next() -> None:
    fairness = FairnessReason(0.3, "b", 0.1)
    first = compute_signature(make_wait(TASKS, (lack("x"), 1), (lack("y"), 2), fairness=fairness))
    assert first == compute_signature(make_wait(TASKS, (lack("y"), 7), (lack("x"), 9)))
    assert first != compute_signature(make_wait(TASKS, (lack("x"), 1)))
    assert first != compute_signature(make_wait(TASKS, (lack("x"), 1), (taint("y"), 2)))
    assert compute_signature(make_wait(TASKS)) != compute_signature(make_wait(TASKS, blocked=UNREADABLE))
    assert compute_signature(make_wait(TASKS, (NOT_READY, 1))) != compute_signature(make_wait(TASKS, blocked=NOT_READY))
    hash(first)


def test_gists_ignore_numbers_their_order_and_fairness() -> None:
    wait = make_wait(TASKS, (lack("cpu"), 3), (lack("memory"), 12), fairness=FairnessReason(1, "b", 0))
    other = make_wait(TASKS, (lack("cpu"), 30), (lack("memory"), 12))
    assert compute_gist(format_unschedulable(wait, 15)) == compute_gist(format_unschedulable(other, 42))
    assert compute_gist(format_unschedulable(wait, 15)) != compute_gist(format_unschedulable(make_wait(TASKS), 15))
