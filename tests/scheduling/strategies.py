"""Random worlds: small, so that ties, full servers and odd corners come up all the time."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

from fairbind.model import (
    MAX_AMOUNT,
    NO_EXCLUSIVE_KEYS,
    ExclusiveKeys,
    Holding,
    Pin,
    Placement,
    Rejection,
    RejectionKind,
    ServerTable,
    Snapshot,
    Targets,
    Task,
    TaskClass,
    Tenant,
)
from fairbind.scheduling import POLICIES, compute_server_classes
from rejections import unsupported

# All policies that follow targets are one and the same policy with other targets (a test of its own holds them to it).
POLICY_IDS = sorted(policy.id for policy in POLICIES.values() if not policy.follows_targets or policy.id == "drfh")
RESOURCES = ("cpu", "memory", "pods", "gpu")
KEYS = ("p/any", "p/1", "p/2")
# Small amounts make ties and full servers; the others must not overflow or lose a unit.
UNITS = (1, 1, 1, 1_000, 2**30 + 1, MAX_AMOUNT // 16)
WEIGHTS = [Fraction(1), Fraction(1), Fraction(2), Fraction(3), Fraction(1, 3), Fraction(1, 1000), Fraction(1000)]


@st.composite
def server_tables(draw: st.DrawFn, axes: int, unit_r: list[int]) -> ServerTable:
    count = draw(st.sampled_from([1, 2, 3, 4, 5, 6]))
    kind = st.lists(st.sampled_from([6, 8, 9, 12, 12, 4, 1, 0]), min_size=axes, max_size=axes)
    kinds = draw(st.lists(kind, min_size=1, max_size=3))
    capacity_kr = np.array([draw(st.sampled_from(kinds)) for _ in range(count)], dtype=np.int64) * np.array(unit_r)
    used = st.lists(st.sampled_from([0, 0, 0, 1, 2, 7]), min_size=axes, max_size=axes)
    used_kr = draw(st.lists(used, min_size=count, max_size=count))  # sometimes above the capacity: overcommitted
    free_kr = capacity_kr - np.array(used_kr, dtype=np.int64) * np.array(unit_r)
    names = tuple(f"s{k}" for k in range(count))
    signatures = draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))
    class_k, class_names = compute_server_classes(
        capacity_kr, signatures, names, draw(st.sampled_from([0.0, 0.02, 0.5]))
    )
    usable_k = np.array(draw(st.lists(st.sampled_from([True, True, True, False]), min_size=count, max_size=count)))
    taken_keys = draw(st.dictionaries(st.integers(0, count - 1), st.frozensets(st.sampled_from(KEYS)), max_size=2))
    open_k = draw(st.sampled_from([None, np.ones(count, dtype=np.bool_)]))
    return ServerTable(names, capacity_kr, free_kr, usable_k, class_k, class_names, taken_keys, open_k=open_k)


@st.composite
def placements(draw: st.DrawFn, servers: ServerTable) -> Placement:
    count = len(servers.names)
    eligible = draw(st.lists(st.sampled_from([True, True, True, False]), min_size=count, max_size=count))
    wishes = draw(st.none() | st.none() | st.lists(st.integers(-1, 2), min_size=count, max_size=count))
    exclusive_keys = draw(
        st.sampled_from([NO_EXCLUSIVE_KEYS, NO_EXCLUSIVE_KEYS])
        | st.builds(ExclusiveKeys, st.frozensets(st.sampled_from(KEYS)), st.frozensets(st.sampled_from(KEYS)))
    )
    eligible_k = np.array(eligible) & servers.accepting_k
    missing = count - int(eligible_k.sum())
    rejections = ((Rejection(RejectionKind.SELECTOR, "not allowed"), missing),) if missing else ()
    return Placement(
        eligible_k, None if wishes is None else np.array(wishes, dtype=np.int64), rejections, exclusive_keys
    )


@st.composite
def tenants(draw: st.DrawFn, axes: int, unit_r: list[int]) -> tuple[Tenant, ...]:
    names = sorted(draw(st.sets(st.sampled_from("abcde"), min_size=draw(st.sampled_from([2, 3, 1])), max_size=4)))
    made = []
    for name in names:
        held = draw(st.none() | st.lists(st.sampled_from([0, 0, 1, 2, 5]), min_size=axes, max_size=axes))
        weights = draw(st.dictionaries(st.sampled_from([*RESOURCES, "absent"]), st.sampled_from(WEIGHTS), max_size=2))
        allocated_r = () if held is None else tuple(a * unit for a, unit in zip(held, unit_r, strict=True))
        holdings = draw(st.just(()) | st.lists(kinds_of_tasks(axes, unit_r), max_size=2))
        for holding in holdings:
            allocated_r = tuple(
                (allocated_r or (0,) * axes)[r] + holding.count * holding.share_demand_r[r] for r in range(axes)
            )
        on = st.lists(st.sampled_from([0, 1, 3]), min_size=axes, max_size=axes)
        by_server = draw(st.dictionaries(st.sampled_from(["s0", "s1", "s2", "gone"]), on, max_size=3))
        placed = {k: tuple(a * unit for a, unit in zip(v, unit_r, strict=True)) for k, v in by_server.items()}
        weight = draw(st.sampled_from(WEIGHTS))
        made.append(Tenant(name, weight, weights, allocated_r, tuple(holdings), placed))
    return tuple(made)


@st.composite
def kinds_of_tasks(draw: st.DrawFn, axes: int, unit_r: list[int]) -> Holding:
    demand_r = tuple(a * unit for a, unit in zip(draw(amounts(axes)), unit_r, strict=True))
    return Holding(demand_r, demand_r, draw(st.integers(1, 3)))


@st.composite
def task_classes(
    draw: st.DrawFn, names: list[str], choices: list[Placement], axes: int, unit_r: list[int]
) -> tuple[TaskClass, ...]:
    made = []
    serial = 0
    for _ in range(draw(st.sampled_from([4, 5, 6, 3, 2, 1]))):
        demand_r = tuple(a * unit for a, unit in zip(draw(amounts(axes)), unit_r, strict=True))
        share_r = tuple(a or draw(st.sampled_from([0, 0, 1])) for a in demand_r)
        tasks = []
        for _ in range(draw(st.sampled_from([3, 2, 5, 1]))):
            serial += 1
            # Names run against uids, so that a tie broken by the wrong one shows.
            priority, queued = draw(st.sampled_from([0, 0, 5])), draw(st.sampled_from([0.0, 1.0, 1.5]))
            tasks.append(Task(f"u{serial:03}", f"ns/{1000 - serial}", priority, queued))
        tasks.sort(key=lambda task: (-task.priority, task.queue_time, task.uid))
        blocked = draw(st.sampled_from([None] * 9 + [unsupported("not honoured")]))
        tenant, placement = draw(st.sampled_from(names)), draw(st.sampled_from(choices))
        pin = draw(st.none() | st.none() | pins(placement))
        made.append(TaskClass(tenant, demand_r, share_r, placement, tuple(tasks), blocked, pin))
    return tuple(made)


@st.composite
def pins(draw: st.DrawFn, placement: Placement) -> Pin:
    """One of the servers that the placement allows; or none: another one is named then, or one that is gone."""
    count = len(placement.eligible_k)
    named = draw(st.integers(0, count))
    server = named if named < count and placement.eligible_k[named] else None
    others = count - int(placement.eligible_k.sum()), int(placement.eligible_k.sum()) - (server is not None)
    reasons = Rejection(RejectionKind.SELECTOR, "not allowed"), Rejection(RejectionKind.SELECTOR, "pinned")
    return Pin(f"s{named}", server, tuple((reason, n) for reason, n in zip(reasons, others, strict=True) if n))


def amounts(axes: int) -> st.SearchStrategy[list[int]]:
    """Demands: many zeros and ones."""
    return st.lists(st.sampled_from([1, 1, 2, 0, 0, 3, 5]), min_size=axes, max_size=axes)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    axes = draw(st.integers(1, len(RESOURCES)))
    unit_r = draw(st.lists(st.sampled_from(UNITS), min_size=axes, max_size=axes))
    servers = draw(server_tables(axes, unit_r))
    sharing = draw(tenants(axes, unit_r))
    choices = draw(st.lists(placements(servers), min_size=1, max_size=3))
    classes = draw(task_classes([tenant.name for tenant in sharing], choices, axes, unit_r))
    counts_r = draw(st.lists(st.sampled_from([True, True, False]), min_size=axes, max_size=axes))
    total_r = tuple(int(total) for total in servers.capacity_kr[servers.usable_k].sum(axis=0, initial=0))
    goals = draw(st.none() | targets(servers, sharing))
    return Snapshot(RESOURCES[:axes], tuple(counts_r), total_r, servers, sharing, classes, goals)


@st.composite
def targets(draw: st.DrawFn, servers: ServerTable, sharing: tuple[Tenant, ...]) -> Targets:
    """Some tenants have none, some get nothing, some servers are new; what the classes say need not add up."""
    share = st.sampled_from([0.25, 0.25, 0.5, 0.1, 1e-6, 0.0])
    resources = tuple(draw(st.lists(st.sampled_from([*RESOURCES, "absent"]), unique=True, max_size=3)))
    row = st.lists(share, min_size=len(resources), max_size=len(resources)).map(tuple)
    shares = draw(st.dictionaries(st.sampled_from([t.name for t in sharing] + ["gone"]), row, max_size=4))
    class_names = draw(st.sampled_from([(), ("x",), ("x", "y"), ("x", "y", "z")]))
    if not class_names:
        return Targets("drf", resources, shares)
    place = st.integers(0, len(class_names) - 1)
    class_of = draw(st.dictionaries(st.sampled_from([*servers.names, "gone"]), place, max_size=6))
    row = st.lists(share, min_size=len(class_names), max_size=len(class_names)).map(tuple)
    by_class = {name: draw(row) for name in shares}
    return Targets("drfh", resources, shares, class_names, class_of, by_class)
