"""A slow judge of what is reserved: who takes some of it, and may, by what tenants hold just before each plan."""

from __future__ import annotations

from fairbind.model import CycleReport, Plan, TaskClass
from fairbind.model.reservations import Reservation
from scheduling.reference import World


def check_reserved(world: World, report: CycleReport) -> None:
    """Walk along the plans of a cycle without a tree, at whose begin the world is; no plan takes what it may not."""
    for plan in report.plans:
        taken = take_plan(world, plan, report.reserved or (), report.now)
        assert not taken, f"{plan.binds[0].tenant} takes what is reserved for {taken[0].tenant}, and is not behind"


def take_plan(world: World, plan: Plan, reserved: tuple[Reservation, ...], now: float) -> list[Reservation]:
    """Carry a plan out; return of which reservations it takes something that it may not."""
    classes = [world.find_class(bind) for bind in plan.binds]
    first, taken = world.snapshot.task_classes[classes[0]], list[Reservation]()
    is_before = first.group is not None and first.group.is_begun and len(plan.binds) == first.group.lacking
    passed = [] if is_before else [each for each in reserved if not is_behind(world, first.tenant, each)]
    for n, bind in zip(classes, plan.binds, strict=True):
        task_class, server = world.snapshot.task_classes[n], world.snapshot.servers.names.index(bind.server)
        closed = [each for each in passed if each.server == bind.server and not is_open(each, task_class, now)]
        for r, demand in enumerate(task_class.demand_r):
            room = world.find_room(task_class, server)[r] - sum(each.count * each.demand_r[r] for each in closed)
            taken += closed if demand > 0 and demand > room else []
        world.put(n, server)
    return taken


def is_open(reservation: Reservation, task_class: TaskClass, now: float) -> bool:
    """Whether something is reserved for these tasks or others of their group, or they surely end before that."""
    own = (task_class.tenant, task_class.group_name)
    is_own = (reservation.tenant, reservation.group) == own
    if not task_class.group_name:
        is_own = is_own and reservation.demand_r == task_class.demand_r
    return is_own or now + task_class.most_seconds <= reservation.expected


def is_behind(world: World, tenant: str, reservation: Reservation) -> bool:
    """Whether a tenant comes before the one for which something is reserved, where that is least."""
    classes = [
        (world.turn_of(each.tasks[0]), n)
        for n, each in enumerate(world.snapshot.task_classes)
        if (each.tenant, each.group_name) == (reservation.tenant, reservation.group)
        and (reservation.group or each.demand_r == reservation.demand_r)
    ]
    if not classes:
        return True
    eligible = world.eligible(world.snapshot.task_classes[min(classes)[1]])
    pools = [None] if world.pool_k is None else sorted({world.pool_k[k] for k in eligible})
    if not pools:
        return True
    own, pool = min(((world.level(reservation.tenant, pool), pool) for pool in pools), key=lambda pair: pair[0])
    return (world.level(tenant, pool), tenant) < (own, reservation.tenant)
