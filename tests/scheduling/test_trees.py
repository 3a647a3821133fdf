"""Trees: at each level the least child is next, as the slow reference says it, whatever the policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from fairbind.cluster.messages import format_unschedulable
from fairbind.model import (
    CycleReport,
    FairnessReason,
    PolicySettings,
    Precedence,
    Rejection,
    RejectionKind,
    Snapshot,
    Tenant,
    UsageBelow,
)
from fairbind.model.hierarchy import FLAT, Guarantee, Hierarchy, InnerTenant, Place
from fairbind.scheduling import CycleState, UnschedulableCache, run_cycle
from fairbind.scheduling.cycle.order.kept_back import KeptFrom
from scheduling.drafts import busy_snapshots
from scheduling.random_trees import add_tree
from scheduling.reference_trees import check_tree_report
from scheduling.rules import build_domains
from scheduling.strategies import POLICY_IDS, snapshots
from scheduling.tree_changes import sum_up
from scheduling.worlds import (
    apply_report,
    build_class,
    build_placement,
    build_servers,
    build_snapshot,
    count_by_tenant,
    decide,
    describe,
    order_of,
)

FAIR = [policy for policy in POLICY_IDS if policy != "fifo"]


@given(snapshot=snapshots().flatmap(add_tree))
@settings(max_examples=8 * settings().max_examples)
def test_every_step_is_what_the_order_says(snapshot: Snapshot) -> None:
    for policy in POLICY_IDS:
        note(policy)

        report = decide(snapshot, policy)

        assert report.complete
        check_tree_report(snapshot, report)


@given(snapshot=snapshots().flatmap(add_tree), policy=st.sampled_from(FAIR))
def test_the_next_cycle_goes_on_where_a_limit_stopped(snapshot: Snapshot, policy: str) -> None:
    """The filling has no memory beyond the snapshot."""
    whole = decide(snapshot, policy)
    half = decide(snapshot, policy, limit=len(whole.bindings) // 2)

    rest = decide(apply_report(snapshot, half), policy)

    assert half.bindings + rest.bindings == whole.bindings


@given(snapshot=snapshots().flatmap(add_tree))
def test_of_the_tree_only_what_is_kept_back_is_about_fifo(snapshot: Snapshot) -> None:
    leaves = {name: replace(place, lends=True) for name, place in snapshot.hierarchy.leaves.items()}
    inner = {
        name: replace(each, place=replace(each.place, lends=True)) for name, each in snapshot.hierarchy.inner.items()
    }
    lending = replace(snapshot, hierarchy=Hierarchy(leaves, inner))

    assert describe(decide(lending, "fifo")) == describe(decide(replace(snapshot, hierarchy=FLAT), "fifo"))


@given(snapshot=snapshots(), policy=st.sampled_from(FAIR))
def test_siblings_of_one_priority_decide_as_without_a_tree(snapshot: Snapshot, policy: str) -> None:
    leaves = {tenant.name: Place(priority=5) for tenant in snapshot.tenants}
    tree = replace(snapshot, hierarchy=Hierarchy(leaves, {}))

    assert describe(decide(tree, policy)) == describe(decide(snapshot, policy))


# --- the three cases: naive hierarchical DRF starves tenants in them (Bhattacharya et al., SoCC 2013) ---


def plant(snapshot: Snapshot, parents: dict[str, str | None]) -> Snapshot:
    """Hang tenants below others; inner ones are those that are no tenants of the snapshot."""
    leaves = {t.name: Place(parents.get(t.name)) for t in snapshot.tenants}
    inner = {
        name: InnerTenant(Tenant(name), Place(parents.get(name)))
        for name in dict.fromkeys(filter(None, parents.values()))
    }
    return sum_up(replace(snapshot, hierarchy=Hierarchy(leaves, inner)))


def count(snapshot: Snapshot, policy: str) -> list[int]:
    return list(count_by_tenant(decide(snapshot, policy)).values())


@pytest.mark.parametrize(
    ("policy", "expected"), [("best-fit-drfh", [5, 5, 5]), ("ps-dsf", [5, 5, 5]), ("tsf", [4, 4, 6])]
)
def test_two_projects_of_a_department_share_its_half(policy: str, expected: list[int]) -> None:
    """Under `tsf` the tasks of both count together, as they do for the exact mechanism."""
    servers = build_servers({"s": (10, 10)})
    demands = {"sci": (1, 1), "eng-dev": (1, 0), "eng-prod": (0, 1)}
    classes = [build_class(name, demand, build_placement(servers), 10) for name, demand in demands.items()]
    snapshot = plant(build_snapshot(servers, classes), {"eng-dev": "eng", "eng-prod": "eng"})

    assert count(snapshot, policy) == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("best-fit-drfh", [10, 10, 10, 15, 15]),
        ("ps-dsf", [10, 10, 10, 15, 15]),
        ("tsf", [12, 12, 6, 15, 15]),  # as the exact mechanism: a level is a sum over all tasks
    ],
)
def test_what_is_used_up_no_longer_counts_for_an_inner_tenant(policy: str, expected: list[int]) -> None:
    servers = build_servers({"s": (30, 30)})
    demands = {"n1": (1, 0), "n2": (1, 0), "n31": (1, 0), "n32": (0, 1), "n4": (0, 1)}
    classes = [build_class(name, demand, build_placement(servers), 30) for name, demand in demands.items()]
    snapshot = plant(build_snapshot(servers, classes), {"n31": "n3", "n32": "n3"})

    assert count(snapshot, policy) == expected


@pytest.mark.parametrize("policy", ["best-fit-drfh", "ps-dsf", "tsf"])
def test_a_sibling_without_further_tasks_starves_nobody_in_the_long_run(policy: str) -> None:
    """Two of three run tasks without end, of 10 steps each; the third has 30 that stay."""
    servers = build_servers({"s": (10, 10)})
    everywhere = build_placement(servers)
    running: list[tuple[int, str]] = []
    held = Counter[str]()
    for step in range(200):
        running = [(end, name) for end, name in running if end > step]
        counts = Counter(name for _, name in running)
        tenants = [
            Tenant("lone", allocated_r=(counts["lone"], 0)),
            Tenant("pair-cpu", allocated_r=(counts["pair-cpu"], 0)),
        ]
        tenants.append(Tenant("pair-mem", allocated_r=(0, 10 if step else 0)))
        free = 10 - len(running), 0 if step else 10
        table = replace(servers, free_kr=np.array([free], dtype=np.int64))
        classes = [build_class(name, (1, 0), everywhere, 20) for name in ("lone", "pair-cpu")]
        classes.append(build_class("pair-mem", (0, 1), everywhere, 30 if not step else 20))
        snapshot = build_snapshot(table, classes, tenants=tenants)
        report = decide(plant(snapshot, {"pair-cpu": "pair", "pair-mem": "pair"}), policy)
        # One after another, so that there is a choice at each step.
        placed = [bind.tenant for bind in report.bindings if bind.tenant != "pair-mem"]
        running += [(step + 1 + (n if not step else 9), name) for n, name in enumerate(placed)]
        if step >= 100:
            held.update(name for _, name in running)

    assert held["lone"] == pytest.approx(500, abs=50)
    assert held["pair-cpu"] == pytest.approx(500, abs=50)


# --- the order of siblings ---


def order(places: dict[str, Place], held: dict[Hashable, int], tasks: int = 4) -> list[str]:
    servers = build_servers({"s": (4, 4)})
    classes = [build_class(name, (1, 0), build_placement(servers), tasks) for name in places]
    snapshot = replace(build_snapshot(servers, classes), hierarchy=Hierarchy(places, {}), held=held)
    return order_of(decide(snapshot))


def promise(name: str, amount: int, *, priority: int = 0, resource: str = "cpu", on: int = 0) -> Place:
    return Place(None, priority, (Guarantee(name, resource, amount, build_domains([on], 1)),))


def test_a_guarantee_comes_before_a_priority() -> None:
    assert order({"a": promise("a", 2), "b": Place(priority=9)}, {}) == ["a", "a", "b", "b"]


def test_within_guarantees_the_part_that_is_used_decides() -> None:
    assert order({"a": promise("a", 4), "b": promise("b", 8)}, {"a": 1}) == ["b", "b", "a", "b"]


def test_of_equal_parts_the_priority_decides() -> None:
    assert order({"a": promise("a", 2), "b": promise("b", 2, priority=1)}, {}) == ["b", "a", "b", "a"]


def test_a_guarantee_of_other_servers_or_resources_is_none() -> None:
    about_others = {"a": promise("a", 9, on=-1), "b": promise("b", 9, resource="memory"), "c": Place(priority=1)}

    assert order(about_others, {}) == ["c"] * 4


def test_a_guarantee_that_the_next_task_would_exceed_is_used() -> None:
    assert order({"a": promise("a", 3), "b": Place(priority=1)}, {"a": 3}) == ["b"] * 4


def test_a_childs_guarantee_counts_up_to_that_of_its_parent() -> None:
    servers = build_servers({"s": (6, 6)})
    classes = [build_class(name, (1, 0), build_placement(servers), 6) for name in ("a", "b")]
    place = replace(promise("a", 5), parent="top")
    inner = {"top": InnerTenant(Tenant("top", allocated_r=(0, 0)), promise("top", 2))}
    tree = Hierarchy({"a": place, "b": Place()}, inner)

    # Two by the guarantee of both; then the levels of `top` and `b`, which has the name that comes first.
    assert order_of(decide(replace(build_snapshot(servers, classes), hierarchy=tree))) == ["a", "a", "b", "b", "b", "a"]


def test_a_wait_tells_which_siblings_were_compared() -> None:
    servers = build_servers({"s": (4, 4)}, free={"s": (0, 0)})
    names = {"a": (2, 0), "b": (1, 0), "c": (1, 0)}
    classes = [build_class(name, (1, 0), build_placement(servers)) for name in names]
    tenants = [Tenant(name, allocated_r=held) for name, held in names.items()]
    snapshot = plant(build_snapshot(servers, classes, tenants=tenants), {"a": "top", "b": "top"})

    reasons = {wait.task_class.tenant: wait.fairness for wait in decide(snapshot).waits}

    # Nothing of cpu is free, and it counts: the question is whose it will be once some is.
    assert reasons["c"] is None
    assert reasons["a"] == FairnessReason(0.75, "c", 0.25, compared=("top", "c"))
    assert reasons["b"] == FairnessReason(0.75, "c", 0.25, compared=("top", "c"))


def test_a_wait_tells_of_priorities_and_guarantees() -> None:
    servers = build_servers({"s": (4, 4)}, free={"s": (0, 0)})
    classes = [build_class(name, (1, 0), build_placement(servers)) for name in "abc"]
    places = {"a": Place(), "b": Place(priority=1), "c": promise("c", 1)}
    snapshot = replace(build_snapshot(servers, classes), hierarchy=Hierarchy(places, {}))

    reasons = {wait.task_class.tenant: wait.fairness for wait in decide(snapshot).waits}

    assert [(each and (each.next_tenant, each.by)) for each in reasons.values()] == [
        ("c", Precedence.GUARANTEE),
        ("c", Precedence.GUARANTEE),
        None,
    ]
    without = replace(snapshot, hierarchy=Hierarchy({"a": Place(), "b": Place(priority=1)}, {}))
    (reason, *_) = [wait.fairness for wait in decide(without).waits]
    assert reason is not None
    assert (reason.next_tenant, reason.by) == ("b", Precedence.PRIORITY)


# --- kept back ---


def keep(name: str, amount: int, *, on: int = 0, parent: str | None = None) -> Place:
    return replace(promise(name, amount, on=on), parent=parent, lends=False)


def decide_kept(places: dict[str, Place], held: dict[Hashable, int], policy: str = "best-fit-drfh") -> CycleReport:
    """Only `a` has tasks, of a cpu each; the others hold what their guarantees say that is used."""
    servers = build_servers({"s": (8, 8)})
    classes = [build_class("a", (1, 0), build_placement(servers), 8)]
    tenants = [Tenant(name) for name in places]
    tree = Hierarchy({**places, "a": places.get("a", Place())}, {})
    return decide(replace(build_snapshot(servers, classes, tenants=tenants), hierarchy=tree, held=held), policy)


@pytest.mark.parametrize("policy", ["best-fit-drfh", "ps-dsf", "fifo"])
def test_what_is_not_lent_stays_free_as_far_as_it_is_unused(policy: str) -> None:
    report = decide_kept({"b": keep("b", 4), "c": keep("c", 2)}, {"b": 1}, policy)

    assert len(report.bindings) == 8 - 3 - 2
    [wait] = report.waits
    assert wait.rejections == ((Rejection(RejectionKind.KEPT_BACK, "cpu that is kept for b, c"), 1),)
    assert wait.at_limit is None, "another server would help"
    assert UsageBelow(KeptFrom(0, "cpu", None), 0) in wait.until
    assert wait.is_ended_by_capacity
    assert format_unschedulable(wait, 1).endswith(": 1 node(s) had only cpu that is kept for b, c.")


def test_what_is_kept_is_the_tenants_own_and_that_of_lent_guarantees_is_not() -> None:
    assert len(decide_kept({"a": keep("a", 4)}, {}).bindings) == 8
    assert len(decide_kept({"b": promise("b", 4)}, {}).bindings) == 8
    assert len(decide_kept({"b": keep("b", 4, on=-1)}, {}).bindings) == 8, "it is about other servers"
    assert len(decide_kept({"b": keep("b", 4)}, {"b": 5}).bindings) == 8, "more than it is used"


def test_a_parent_keeps_what_its_children_do_or_more() -> None:
    servers = build_servers({"s": (8, 8)})
    classes = [build_class(name, (1, 0), build_placement(servers), 8) for name in ("a", "z")]
    inner = {"top": InnerTenant(Tenant("top", allocated_r=(0, 0)), keep("top", 3))}
    leaves = {"a": Place("top"), "b": keep("b", 2, parent="top"), "c": keep("c", 2, parent="top"), "z": Place()}
    snapshot = build_snapshot(servers, classes, tenants=[Tenant("b"), Tenant("c")])
    held: dict[Hashable, int] = {"top": 0, "b": 0, "c": 0}
    snapshot = replace(snapshot, hierarchy=Hierarchy(leaves, inner), held=held)

    # The 4 of both children are kept from `a` and `z`. What `a` takes counts for `top`, whose 3 are used first.
    assert count_by_tenant(decide(snapshot)) == {"a": 3, "b": 0, "c": 0, "z": 1}
    alone = replace(snapshot, task_classes=tuple(each for each in snapshot.task_classes if each.tenant == "z"))
    assert count_by_tenant(decide(alone))["z"] == 4
    without = replace(alone, hierarchy=Hierarchy({"a": Place("top"), "z": Place()}, inner), tenants=snapshot.tenants)
    assert count_by_tenant(decide(without))["z"] == 5, "of a parent that keeps 3 for itself"


@pytest.mark.parametrize("change", ["usage", "capacity", "guarantee"])
def test_a_wait_for_what_is_kept_ends_with_what_is_kept(change: str) -> None:
    """Beside a memory, so that nothing is looked at for another reason."""
    servers = build_servers({"s": (4, 4), "t": (4, 4)}, free={"s": (2, 2), "t": (0, 0)})
    classes = [build_class("a", (1, 0), build_placement(servers, only=["s"]), 3)]
    snapshot = build_snapshot(servers, classes, tenants=[Tenant("b")])
    snapshot = replace(snapshot, hierarchy=Hierarchy({"a": Place(), "b": keep_on_two(2)}, {}), held={"b": 0})
    memory, state = UnschedulableCache(), CycleState()

    def look(snapshot: Snapshot) -> int:
        report = run_cycle(snapshot, PolicySettings(), 0.0, unschedulable=memory, state=state, explains=False)
        return len(report.bindings)

    assert look(snapshot) == look(snapshot) == 0
    if change == "usage":
        snapshot = replace(snapshot, held={"b": 1})
    elif change == "capacity":
        free_kr = np.array([[2, 2], [1, 0]])  # on the server that its tasks may not use
        snapshot = replace(snapshot, servers=replace(servers, free_kr=free_kr))
    else:
        snapshot = replace(snapshot, hierarchy=Hierarchy({"a": Place(), "b": keep_on_two(1)}, {}))
    assert look(snapshot) == 1


def keep_on_two(amount: int) -> Place:
    return Place(None, 0, (Guarantee("b", "cpu", amount, build_domains([0, 0], 1)),), lends=False)


@given(
    snapshot=busy_snapshots().flatmap(add_tree),
    policy=st.sampled_from(POLICY_IDS),
    changes=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3), st.integers(-2, 4)), max_size=6),
)
def test_what_cycles_remember_changes_no_decision(
    snapshot: Snapshot, policy: str, changes: list[tuple[int, int, int]]
) -> None:
    memory, state, settings_ = UnschedulableCache(), CycleState(), PolicySettings(policy)
    for server, axis, amount in [*changes, (0, 0, 0)]:
        remembering = run_cycle(snapshot, settings_, 0.0, unschedulable=memory, state=state, explains=False)
        assert remembering.bindings == decide(snapshot, policy).bindings
        after = apply_report(snapshot, remembering)
        same = {each.tasks: each for each in snapshot.task_classes}
        free_kr = np.array(after.servers.free_kr)
        unit = max(int(snapshot.servers.capacity_kr[server % len(free_kr), axis % free_kr.shape[1]]) // 6, 1)
        free_kr[server % len(free_kr), axis % free_kr.shape[1]] += amount * unit
        snapshot = replace(
            after,
            servers=replace(after.servers, free_kr=np.minimum(free_kr, after.servers.capacity_kr)),
            task_classes=tuple(same.get(each.tasks, each) for each in after.task_classes),
            held={each: max(used - amount, 0) for each, used in after.held.items()},
        )


def test_a_pool_that_others_fill_lets_the_level_of_an_inner_tenant_fall() -> None:
    """On the class x `top` is at 5/10, where its least child waits; on y, which is left to it then, at 5/30."""
    servers = build_servers({"x": (10, 1), "y": (30, 2)}, free={"x": (3, 1), "y": (9, 2)})
    only_x, only_y = (build_placement(servers, only=[name]) for name in "xy")
    classes = [build_class("a", (2, 0), only_x, 9), build_class("filler", (1, 0), only_x, 9)]
    classes += [build_class(name, (1, 0), only_y, 9) for name in ("b", "other")]
    held = {"a": 0, "b": 5, "filler": 3, "other": 6}
    tenants = [Tenant(name, allocated_r=(amount, 0)) for name, amount in held.items()]
    snapshot = plant(build_snapshot(servers, classes, tenants=tenants), {"a": "top", "b": "top"})

    report = decide(snapshot, "ps-dsf")

    check_tree_report(snapshot, report)
    assert order_of(report)[:8] == ["other"] * 3 + ["filler"] + ["other"] * 3 + ["filler"]
    assert order_of(report)[8] == "b", "`other` is at 12/30"
