"""Following targets: the tenant that lags most, then the class where it lags most; nobody stops and nobody is moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from hypothesis import given

from fairbind.model import Snapshot, Targets, Tenant
from fairbind.scheduling.policies.target_ratios import compute_target_of_weight_one, get_targets
from scheduling.strategies import snapshots
from scheduling.worlds import (
    build_class,
    build_placement,
    build_servers,
    build_snapshot,
    count_by_tenant,
    decide,
    order_of,
    places_of,
    weigh,
)

AXES = ("cpu", "memory")


def aim(
    shares: Mapping[str, Sequence[float]], by_class: Mapping[str, Sequence[float]] | None = None, **class_of: int
) -> Targets:
    """Targets on classes x and y, if any; shares are of CPU and memory."""
    if by_class is None:
        return Targets("drf", AXES, {name: tuple(row) for name, row in shares.items()})
    rows = {name: tuple(row) for name, row in by_class.items()}
    return Targets("drfh", AXES, {name: tuple(row) for name, row in shares.items()}, ("x", "y"), class_of, rows)


def build_one_server(names: str, *tenants: Tenant, free: Sequence[int] = (12, 12), tasks: int = 12) -> Snapshot:
    servers = build_servers({"s": (12, 12)}, free={"s": free})
    placement = build_placement(servers)
    return build_snapshot(servers, [build_class(name, (1, 1), placement, tasks) for name in names], tenants=tenants)


@given(snapshot=snapshots())
def test_without_targets_it_is_best_fit_by_dominant_shares(snapshot: Snapshot) -> None:
    snapshot = replace(snapshot, targets=None)

    assert decide(snapshot, "drfh").bindings == decide(snapshot, "best-fit-drfh").bindings


def test_who_holds_the_least_part_of_its_target_is_next() -> None:
    snapshot = replace(build_one_server("ab"), targets=aim({"a": (0.75, 0.75), "b": (0.25, 0.25)}))

    assert order_of(decide(snapshot, "drf")) == list("abaaabaaabaa")


def test_weights_are_in_the_targets_already() -> None:
    snapshot = build_one_server("ab", weigh("a", 7), weigh("b", 2))
    snapshot = replace(snapshot, targets=aim({"a": (0.5, 0.5), "b": (0.5, 0.5)}))

    assert count_by_tenant(decide(snapshot, "drf")) == {"a": 6, "b": 6}


def test_what_a_tenant_holds_counts_and_is_not_taken_back() -> None:
    snapshot = build_one_server("ab", Tenant("a", allocated_r=(8, 8)), free=(4, 4))
    snapshot = replace(snapshot, targets=aim({"a": (0.5, 0.5), "b": (0.5, 0.5)}))

    assert order_of(decide(snapshot, "drf")) == list("bbbb")


def test_room_beyond_the_targets_goes_on_in_the_order_of_the_ratios() -> None:
    snapshot = replace(build_one_server("ab"), targets=aim({"a": (0.2, 0.2), "b": (0.1, 0.1)}))

    assert count_by_tenant(decide(snapshot, "drf")) == {"a": 8, "b": 4}


def test_who_has_enough_of_one_resource_leaves_it_to_others() -> None:
    """Tenant a shall have a third of the CPU and all memory but a bit; its CPU tasks stop in time."""
    servers = build_servers({"s": (12, 12)})
    placement = build_placement(servers)
    classes = [
        build_class("a", (1, 0), placement, 12),
        build_class("a", (0, 1), placement, 12),
        build_class("b", (1, 0), placement, 12),
    ]
    snapshot = replace(build_snapshot(servers, classes), targets=aim({"a": (0.25, 1.0), "b": (0.75, 0.0)}))

    report = decide(snapshot, "drf")

    by_demand = [bind.task.name.split("/")[0] for bind in report.bindings]
    assert [by_demand.count(name) for name in ("a-1-0", "a-0-1", "b-1-0")] == [3, 12, 9]


def test_a_tenant_goes_where_its_target_is_as_long_as_there_is_room() -> None:
    """Best fit alone would put both on the server that looks like their tasks."""
    servers = build_servers({"k1": (6, 6), "k2": (6, 6)})
    placement = build_placement(servers)
    classes = [build_class("a", (1, 1), placement, 8), build_class("b", (1, 1), placement, 4)]
    targets = aim({"a": (0.5, 0.5), "b": (0.5, 0.5)}, {"a": (0.0, 0.5), "b": (0.5, 0.0)}, k1=0, k2=1)
    snapshot = replace(build_snapshot(servers, classes), targets=targets)

    report = decide(snapshot, "drfh")

    placed = list(zip(order_of(report), places_of(report), strict=True))
    assert sorted(placed[:8]) == [("a", "k2")] * 4 + [("b", "k1")] * 4
    assert placed[8:] == [("a", "k2")] * 2 + [("a", "k1")] * 2


def test_a_share_that_is_held_elsewhere_than_planned_is_a_share() -> None:
    """Tenant a has its half, on the wrong server; binding the difference would give it the other server, too."""
    servers = build_servers({"k1": (6, 6), "k2": (6, 6)}, free={"k1": (0, 0)})
    held = Tenant("a", allocated_r=(6, 6), allocated_by_server={"k1": (6, 6), "gone": (1, 1)})
    classes = [build_class(name, (1, 1), build_placement(servers), 6) for name in "ab"]
    targets = aim({"a": (0.5, 0.5), "b": (0.5, 0.5)}, {"a": (0.0, 0.5), "b": (0.5, 0.0)}, k1=0, k2=1)
    snapshot = replace(build_snapshot(servers, classes, tenants=[held]), targets=targets)

    assert order_of(decide(snapshot, "drfh")) == ["b"] * 6


def test_what_is_held_on_a_class_counts_there() -> None:
    servers = build_servers({"k1": (8, 8), "k2": (8, 8)}, free={"k1": (4, 4)})
    held = Tenant("a", allocated_r=(4, 4), allocated_by_server={"k1": (4, 4)})
    targets = aim({"a": (1.0, 1.0)}, {"a": (0.5, 0.5)}, k1=0, k2=1)
    classes = [build_class("a", (1, 1), build_placement(servers), 6)]
    snapshot = replace(build_snapshot(servers, classes, tenants=[held]), targets=targets)

    assert places_of(decide(snapshot, "drfh")) == ["k2"] * 4 + ["k1", "k2"]


def test_servers_that_have_come_since_are_the_last_choice_but_one() -> None:
    servers = build_servers({"k1": (2, 2), "k2": (2, 2), "new": (2, 2)})
    targets = aim({"a": (1.0, 1.0)}, {"a": (1.0, 0.0)}, k1=0, k2=1)
    snapshot = build_snapshot(servers, [build_class("a", (1, 1), build_placement(servers), 6)])

    places = places_of(decide(replace(snapshot, targets=targets), "drfh"))

    assert places[:2] == ["k1", "k1"]
    assert sorted(places[2:]) == ["k2", "k2", "new", "new"]


def test_a_tenant_that_has_come_since_is_compared_by_its_weight() -> None:
    """The others get a quarter for a weight of 1; c has weight 2, so as if its target was a half."""
    snapshot = build_one_server("abc", weigh("c", 2))
    snapshot = replace(snapshot, targets=aim({"a": (0.25, 0.25), "b": (0.25, 0.25)}))

    assert count_by_tenant(decide(snapshot, "drf")) == {"a": 3, "b": 3, "c": 6}


def test_a_tenant_that_has_come_since_is_compared_with_what_others_get_for_their_weights() -> None:
    """The others get three quarters for weights of 5 and 1, so c's target counts as an eighth: a third of b's."""
    snapshot = build_one_server("abc", weigh("a", 5), weigh("b", 1), weigh("c", 1))
    snapshot = replace(snapshot, targets=aim({"a": (0.375, 0.375), "b": (0.375, 0.375)}))

    assert compute_target_of_weight_one(snapshot, get_targets(snapshot)) == Fraction(1, 8)
    assert count_by_tenant(decide(snapshot, "drf")) == {"a": 5, "b": 5, "c": 2}


def test_a_tenant_that_shall_have_nothing_comes_last_but_comes() -> None:
    snapshot = build_one_server("ab", tasks=7)
    snapshot = replace(snapshot, targets=aim({"a": (0.0, 0.0), "b": (0.5, 0.5)}))

    report = decide(snapshot, "drf")

    assert order_of(report) == [*"bbbbbbb", *"aaaaa"]
    assert report.waits[0].fairness is None


def test_the_reason_tells_the_parts_of_the_targets() -> None:
    snapshot = build_one_server("ab", Tenant("a", allocated_r=(6, 6)), Tenant("b", allocated_r=(6, 6)), free=(0, 0))
    snapshot = replace(snapshot, targets=aim({"a": (0.5, 0.5), "b": (1.0, 1.0)}))

    reason = decide(snapshot, "drf").waits[0].fairness

    assert reason is not None
    assert (reason.share, reason.next_tenant, reason.next_share) == (1.0, "b", 0.5)
    assert reason.measure == "part of its target"
