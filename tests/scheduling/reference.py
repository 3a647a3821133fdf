"""A slow and obviously right judge of cycles: exact fractions, plain loops, no caches, no arrays.

It does not decide: it walks along a report's decisions and says for each whether the policy allowed it. Whose turn it
is and which task goes is exact; among servers the chosen one must be within TOLERANCE of the best fit, because the
cycle compares float64 there. At the end it works out for itself what waits and why.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import floor, inf, log

from fairbind.model import (
    TOLERANCE,
    AffinityRule,
    Bind,
    CycleReport,
    DomainCounter,
    DomainRule,
    EvenPreference,
    FairnessReason,
    Fit,
    LimitRule,
    Preference,
    Preferences,
    PullPreference,
    Rejection,
    RejectionKind,
    Rejections,
    ServerPreference,
    Snapshot,
    SpreadRule,
    Task,
    TaskClass,
    Tenant,
    Wait,
)
from fairbind.scheduling import POLICIES
from fairbind.scheduling.cycle.servers.random_choices import RandomChoices

Level = tuple[bool, Fraction, float]
"""Whether it is infinite, the value, and for who follows a target how far the tenant is on this very pool."""

Candidate = tuple[Level, str, tuple[float | str, ...], int, int | None]
"""The level, the tenant, what orders its tasks, the class, the pool."""

ZERO: Level = (False, Fraction(0), 0.0)
BY_CLASS = {"ps-dsf", "rps-dsf"}
FOLLOWING = {policy.id for policy in POLICIES.values() if policy.follows_targets}
GUIDED = {policy.id for policy in POLICIES.values() if policy.is_guided}


def count_in(counter: DomainCounter, task_class: TaskClass) -> int:
    """What a placed task of a class adds to a counter."""
    return (counter.subject in task_class.counts_as) + dict(task_class.brings).get(counter.subject, 0)


@dataclass
class World:
    """The state of the walk. waiting: for each class, by its position in the snapshot, its tasks in their turn."""

    snapshot: Snapshot
    policy: str
    seed: int = 0
    free: list[list[int]] = field(init=False)
    held: dict[str, list[int]] = field(init=False)
    taken_keys: dict[int, set[str]] = field(init=False)
    waiting: list[list[Task]] = field(init=False)
    pool_k: list[int] | None = field(init=False)
    tasks: dict[str, list[tuple[int, ...]]] = field(init=False)
    on_pool: dict[tuple[str, int], list[int]] = field(init=False)
    placed: list[tuple[TaskClass, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        snapshot = self.snapshot
        self.free = [[int(amount) for amount in row] for row in snapshot.servers.free_kr]
        self.held = {t.name: list(t.allocated_r) or [0] * len(snapshot.resources) for t in snapshot.tenants}
        self.taken_keys = {k: set(snapshot.servers.taken_keys.get(k, ())) for k in range(len(self.free))}
        self.waiting = [sorted(task_class.tasks, key=self.turn_of) for task_class in snapshot.task_classes]
        self.pool_k = self.split_servers()
        self.tasks = {tenant.name: list_tasks(tenant) for tenant in snapshot.tenants}
        self.on_pool = {}
        for tenant in snapshot.tenants:
            for server, amounts in tenant.allocated_by_server.items():
                if server in snapshot.servers.names and self.pool_k is not None:
                    self.count_on_pool(tenant.name, self.pool_k[snapshot.servers.names.index(server)], amounts)

    def split_servers(self) -> list[int] | None:
        """The pool of each server; None: there is one pool."""
        snapshot, targets = self.snapshot, self.snapshot.targets
        if self.policy in BY_CLASS and not self.is_guided:
            table = snapshot.servers  # open servers that are not usable are together, after all classes
            pools = zip(table.class_k.tolist(), table.usable_k.tolist(), strict=True)
            return [pool if usable else len(table.class_names) for pool, usable in pools]
        if (self.policy in FOLLOWING or self.is_guided) and targets is not None and targets.class_names:
            return [targets.class_of.get(name, len(targets.class_names)) for name in snapshot.servers.names]
        return None

    @property
    def is_guided(self) -> bool:
        """Whether targets say on which class of servers a task belongs."""
        targets = self.snapshot.targets
        return self.policy in GUIDED and targets is not None and len(targets.class_names) > 1

    def count_on_pool(self, name: str, pool: int, amounts: tuple[int, ...]) -> None:
        held = self.on_pool.get((name, pool), [0] * len(self.snapshot.resources))
        self.on_pool[name, pool] = [a + b for a, b in zip(held, amounts, strict=True)]

    def turn_of(self, task: Task) -> tuple[float | str, ...]:
        if self.policy == "fifo":
            return -task.priority, task.queue_time, task.name, task.uid
        return -task.priority, task.queue_time, task.uid

    def open_classes(self) -> Iterator[tuple[int, TaskClass]]:
        """Classes with tasks left that may be placed."""
        for n, task_class in enumerate(self.snapshot.task_classes):
            if self.waiting[n] and task_class.blocked is None:
                yield n, task_class

    def eligible(self, task_class: TaskClass) -> list[int]:
        servers, pin = self.snapshot.servers, task_class.pin
        among = range(len(self.free)) if pin is None else [k for k in range(len(self.free)) if k == pin.server]
        return [k for k in among if task_class.placement.eligible_k[k] and servers.accepting_k[k]]

    def fits(self, task_class: TaskClass, k: int) -> bool:
        if task_class.placement.exclusive_keys.conflicting & self.taken_keys[k]:
            return False
        if self.find_closing(task_class, k) is not None:
            return False
        return all(
            demand == 0 or demand <= free
            for demand, free in zip(task_class.demand_r, self.find_room(task_class, k), strict=True)
        )

    def find_closing(self, task_class: TaskClass, k: int) -> Rejection | None:
        """What the first rule says that closes a server to the class, as things stand."""
        rules = task_class.rules.rules if task_class.rules is not None else ()
        return next((rule.rejection for rule in rules if self.closes(rule, k)), None)

    def closes(self, rule: DomainRule, k: int) -> bool:
        match rule:
            case AffinityRule():
                return self.is_lonely(rule, k)
            case SpreadRule():
                return self.is_crowding(rule, k)
        domain, counts = int(rule.counter.domains.domain_k[k]), self.count_domains(rule.counter)
        if isinstance(rule, LimitRule):
            return domain >= 0 and counts[domain] + rule.amount > rule.most_d[domain]
        return domain >= 0 and counts[domain] > 0

    def is_lonely(self, rule: AffinityRule, k: int) -> bool:
        if any(counter.domains.domain_k[k] < 0 for counter in rule.counters):
            return True
        if rule.may_begin and not any(sum(self.count_domains(counter)) for counter in rule.counters):
            return False
        return any(not self.count_domains(counter)[counter.domains.domain_k[k]] for counter in rule.counters)

    def is_crowding(self, rule: SpreadRule, k: int) -> bool:
        domain, counts = int(rule.counter.domains.domain_k[k]), self.count_domains(rule.counter)
        if domain < 0 or self.is_uneven(rule, domain, counts):
            return True
        counts[domain] += dict(rule.reserved).get(k, 0)
        return self.is_uneven(rule, domain, counts)

    @staticmethod
    def is_uneven(rule: SpreadRule, domain: int, counts: list[int]) -> bool:
        least = min(counts, default=0) if len(counts) >= rule.min_domains else 0
        return counts[domain] + rule.counts_itself - least > rule.max_skew

    def count_domains(self, counter: DomainCounter) -> list[int]:
        counts = [int(count) + self.snapshot.held.get(counter.subject, 0) for count in counter.count_d]
        for task_class, k in self.placed:
            domain = int(counter.domains.domain_k[k])
            if domain >= 0:
                counts[domain] += count_in(counter, task_class)
        return counts

    def find_room(self, task_class: TaskClass, k: int) -> list[int]:
        """What is free on a server for tasks of the class."""
        reserved = task_class.placement.reserved.get(k)
        return self.free[k] if reserved is None else [a + b for a, b in zip(self.free[k], reserved, strict=True)]

    def fitting(self, task_class: TaskClass, pool: int | None) -> list[int]:
        """Servers of the pool (None: of the cluster) on which a task of the class fits."""
        return [k for k in self.eligible(task_class) if self.is_in(k, pool) and self.fits(task_class, k)]

    def is_in(self, k: int, pool: int | None) -> bool:
        return self.pool_k is None or pool is None or self.pool_k[k] == pool

    def pools(self) -> list[int | None]:
        return [None] if self.pool_k is None else [*sorted(set(self.pool_k))]

    def find_tenant(self, name: str) -> Tenant:
        return next(tenant for tenant in self.snapshot.tenants if tenant.name == name)

    def level(self, name: str, pool: int | None) -> Level:
        """How far the tenant is by the policy's measure."""
        if self.policy in FOLLOWING:
            return self.lag(name, pool)
        if self.is_guided and self.policy not in BY_CLASS:
            return *self.own_level(name, None)[:2], self.find_place(name, pool)
        return self.own_level(name, pool)

    def own_level(self, name: str, pool: int | None) -> Level:
        """How far the tenant is by a measure that knows no targets."""
        if self.policy == "tsf":
            total = sum((self.task_share(demand) for demand in self.tasks[name]), Fraction(0))
            return False, total / self.find_tenant(name).weight, 0.0
        if self.policy == "asset-fairness":
            shares = [self.held[name][r] / denominator for r, denominator in self.denominators(name)]
            return False, sum(shares, Fraction(0)), 0.0
        return self.dominant_share(name, pool)

    def denominators(self, name: str) -> list[tuple[int, Fraction]]:
        """The counting resources that exist, each with its total times the tenant's weights."""
        return self.denominators_of(self.find_tenant(name))

    def denominators_of(self, tenant: Tenant) -> list[tuple[int, Fraction]]:
        snapshot = self.snapshot
        return [
            (r, snapshot.total_r[r] * tenant.weight * tenant.resource_weights.get(resource, Fraction(1)))
            for r, resource in enumerate(snapshot.resources)
            if snapshot.counts_r[r] and snapshot.total_r[r] > 0
        ]

    def task_share(self, demand_r: tuple[int, ...], endless: Collection[int] = ()) -> Fraction:
        """One in the number of such tasks that the cluster could run, each server class as a pool.

        endless: resources of which there is as if without end.
        """
        snapshot, servers = self.snapshot, self.snapshot.servers
        counting = [r for r, _ in self.denominators(snapshot.tenants[0].name)]
        demanded = [r for r in counting if demand_r[r] > 0 and r not in endless]
        if not demanded:
            return Fraction(0)
        tasks = Fraction(0)
        for pool in range(len(servers.class_names)):
            members = [k for k in range(len(servers.names)) if servers.usable_k[k] and servers.class_k[k] == pool]
            tasks += min(Fraction(sum(int(servers.capacity_kr[k, r]) for k in members), demand_r[r]) for r in demanded)
        return 1 / tasks if tasks > 0 else max(Fraction(demand_r[r], snapshot.total_r[r]) for r in demanded)

    def lag(self, name: str, pool: int | None) -> Level:
        """What the tenant holds in parts of its target, and then on this pool."""
        targets = self.snapshot.targets
        weighted = max((self.held[name][r] / d for r, d in self.denominators(name)), default=Fraction(0))
        if targets is None:
            return False, weighted, 0.0
        unit = self.target_of_weight_one()
        target = self.target(name)
        place = self.find_place(name, pool)
        if target is None:
            return False, weighted / unit, place
        if not any(target):
            return True, weighted, place
        shares = [
            Fraction(held, total or 1) for held, total in zip(self.held[name], self.snapshot.total_r, strict=True)
        ]
        return False, max(share / goal for share, goal in zip(shares, target, strict=True) if goal > 0), place

    def target_of_weight_one(self) -> Fraction:
        """What targets give for a weight of 1 on average."""
        served = [t for t in self.snapshot.tenants if any(self.target(t.name) or ())]
        if not served:
            return Fraction(1)
        given = sum((max(self.target(t.name) or ()) for t in served), Fraction(0))
        return given / sum((t.weight for t in served), Fraction(0))

    def target(self, name: str) -> list[Fraction] | None:
        """The tenant's target for each axis, 0 where a resource does not count; None for who has none."""
        targets, counting = self.snapshot.targets, [r for r, _ in self.denominators(name)]
        row = None if targets is None else targets.shares.get(name)
        if targets is None or row is None:
            return None
        share_of = dict(zip(targets.resources, row, strict=True))
        return [
            Fraction(share_of.get(resource, 0)) if r in counting else Fraction(0)
            for r, resource in enumerate(self.snapshot.resources)
        ]

    def find_place(self, name: str, pool: int | None) -> float:
        """How far the tenant is on the pool."""
        if pool is None or self.snapshot.targets is None:
            return 0.0
        known = self.snapshot.targets.shares_by_class.get(name, ())
        goal = known[pool] if pool < len(known) else 0.0
        return self.place(name, pool, None if self.target(name) is None else goal)

    def place(self, name: str, pool: int, target: float | None) -> float:
        """How far the tenant is on the pool: in parts of its target there, or of the pool when it has no target."""
        held = self.on_pool.get((name, pool), [0] * len(self.snapshot.resources))
        servers, shares = self.snapshot.servers, [0.0]
        for r, _ in self.denominators(name):
            whole = self.snapshot.total_r[r]
            if target is None:
                counted_k = servers.usable_k | servers.accepting_k
                members = [k for k in range(len(servers.names)) if counted_k[k] and self.is_in(k, pool)]
                whole = sum(int(servers.capacity_kr[k, r]) for k in members)
            shares.append(held[r] / whole if whole > 0 else 0.0)
        if target is None:
            return max(shares)
        return max(shares) / target if target > 0 else inf

    def dominant_share(self, name: str, pool: int | None) -> Level:
        """The tenant's weighted (virtual) dominant share."""
        return self.dominant_share_of(self.find_tenant(name), self.held[name], pool)

    def dominant_share_of(
        self, tenant: Tenant, held: list[int], pool: int | None, without: Collection[int] = ()
    ) -> Level:
        """The same of a tenant that holds so much, without some resources."""
        snapshot, servers = self.snapshot, self.snapshot.servers
        counted_k = servers.usable_k if pool is None else servers.accepting_k
        if self.is_guided and pool is not None:
            counted_k = servers.usable_k | servers.accepting_k
        largest = Fraction(0)
        for r, resource in enumerate(snapshot.resources):
            if not snapshot.counts_r[r] or snapshot.total_r[r] == 0 or held[r] == 0 or r in without:
                continue
            weight = tenant.weight * tenant.resource_weights.get(resource, Fraction(1))
            members = [k for k in range(len(self.free)) if counted_k[k] and self.is_in(k, pool)]
            capacity = sum(int(servers.capacity_kr[k, r]) for k in members)
            if capacity == 0:
                continue
            if self.policy == "rps-dsf":
                capacity = sum(max(self.free[k][r], 0) for k in members)
                if capacity == 0:
                    return True, Fraction(0), 0.0
            largest = max(largest, Fraction(held[r]) / (capacity * weight))
        return False, largest, 0.0

    def find_next(self) -> tuple[int, int | None] | None:
        """Return whose turn it is as (class, pool), or None when nothing fits."""
        return self.find_among(list(self.open_classes()))

    def find_among(self, classes: list[tuple[int, TaskClass]]) -> tuple[int, int | None] | None:
        """Return the same, of these classes."""
        candidates: list[Candidate] = []
        for n, task_class in classes:
            for pool in self.pools():
                if self.fitting(task_class, pool):
                    level = ZERO if self.policy == "fifo" else self.level(task_class.tenant, pool)
                    name = "" if self.policy == "fifo" else task_class.tenant
                    candidates.append((level, name, self.turn_of(self.waiting[n][0]), n, pool))
        if not candidates:
            return None
        if self.is_guided and self.policy in BY_CLASS:
            candidates = self.choose_lacking(candidates)
        # The place on the pool is a tenant's own matter: it decides where, and not who.
        first = min((level[:2], name) for level, name, *_ in candidates)
        leading = [(level[2], turn, n, pool) for level, name, turn, n, pool in candidates if (level[:2], name) == first]
        if first[0] == ZERO[:2] and self.policy in BY_CLASS and not self.is_guided:
            # Who holds nothing begins with its first task, in the pool of which the task takes the least part.
            *_, n, pool = min((turn, self.part(n, pool), rank(pool), n, pool) for _, turn, n, pool in leading)
        else:
            *_, n, pool = min((place, rank(pool), turn, n, pool) for place, turn, n, pool in leading)
        return n, pool

    def choose_lacking(self, candidates: list[Candidate]) -> list[Candidate]:
        """Those on pools where the tenant is below its target; of a tenant with none such, all."""
        lacking = [one for one in candidates if self.find_place(one[1], one[4]) < 1]
        names = {one[1] for one in lacking}
        return lacking + [one for one in candidates if one[1] not in names]

    def part(self, n: int, pool: int | None) -> Level:
        """The part of the pool that one task of the class takes: the level of who holds just this."""
        task_class = self.snapshot.task_classes[n]
        held = self.held[task_class.tenant]
        self.held[task_class.tenant] = list(task_class.share_demand_r)
        part = self.level(task_class.tenant, pool)
        self.held[task_class.tenant] = held
        return part

    def distance(self, task_class: TaskClass, k: int) -> tuple[Fraction, ...]:
        """Signed terms of H of DRFH, eq. 9, by resource name; for a task without a direction those of the mean load."""
        snapshot = self.snapshot
        demand, total = task_class.demand_r, snapshot.total_r
        free = [max(amount, 0) for amount in self.find_room(task_class, k)]
        axes = sorted((snapshot.resources[r], r) for r in range(len(total)) if snapshot.counts_r[r] and total[r] > 0)
        shares = [(Fraction(demand[r], total[r]), r) for _, r in axes]
        reference = next((r for share, r in shares if share > 0 and share == max(shares)[0]), None)
        if snapshot.fit is Fit.FIRST_RESOURCE and shares and shares[0][0] > 0:
            reference = shares[0][1]
        if reference is None:
            capacity = [int(amount) for amount in snapshot.servers.capacity_kr[k]]
            known = sum(most > 0 for most in capacity)
            if known == 0:
                return (Fraction(1),)
            parts = [
                1 - Fraction(left, most) if most > 0 else Fraction(0) for left, most in zip(free, capacity, strict=True)
            ]
            return tuple(part / known for part in parts)
        scale = Fraction(demand[reference], total[reference])
        left = Fraction(free[reference], total[reference])
        return tuple(Fraction(demand[r], total[r]) / scale - Fraction(free[r], total[r]) / left for _, r in axes)

    def sum_up(self, task_class: TaskClass, k: int, terms: tuple[Fraction, ...]) -> Fraction:
        """The fit: the less, the better. Of the angle the square of the sine, which needs no root."""
        demand_r, snapshot = task_class.demand_r, self.snapshot
        axes = [r for r, total in enumerate(snapshot.total_r) if snapshot.counts_r[r] and total > 0]
        asked = [Fraction(demand_r[r], snapshot.total_r[r]) for r in axes]
        if snapshot.fit is not Fit.COSINE or not any(asked):
            return sum(map(abs, terms), Fraction(0))
        free = self.find_room(task_class, k)
        left = [Fraction(max(free[r], 0), snapshot.total_r[r]) for r in axes]
        product = sum(a * b for a, b in zip(asked, left, strict=True))
        return 1 - Fraction(product**2, sum(a * a for a in asked) * sum(b * b for b in left))

    def check_server(self, task_class: TaskClass, pool: int | None, chosen: int) -> None:
        fitting = self.fitting(task_class, pool)
        assert chosen in fitting, "the server is not in the pool, not eligible, lacks room or has a conflicting claim"
        wish_k = task_class.placement.preference_k
        if wish_k is not None:
            most = max(wish_k[k] for k in fitting)
            fitting = [k for k in fitting if wish_k[k] == most]
            assert chosen in fitting, "a server that is wanted more has room"
        if task_class.preferences is not None:
            worth = self.wish_scores(task_class, task_class.preferences)
            fitting = [k for k in fitting if worth[k] == max(worth[other] for other in fitting)]
            assert chosen in fitting, "a server that soft wishes rank higher has room"
        if self.policy == "first-fit-drfh":
            assert chosen == fitting[0], "not the first"
            return
        if self.policy == "two-choices-drfh" and (drawn := self.draw(task_class, chosen, fitting, pool)):
            fitting = drawn
            assert chosen in fitting, "one of the drawn servers has room"
        terms = {k: self.distance(task_class, k) for k in fitting}
        total = {k: self.sum_up(task_class, k, terms[k]) for k in fitting}
        best = min(total.values())
        assert total[chosen] <= best + Fraction(TOLERANCE) * max(best, Fraction(1)), "not the best fit"
        # Equal sums of different terms may differ by a rounding; equal proportions may not.
        kind_kr = self.snapshot.servers.capacity_kr > 0
        earlier = [
            k for k in fitting if k < chosen and terms[k] == terms[chosen] and (kind_kr[k] == kind_kr[chosen]).all()
        ]
        assert not earlier, "an equal server comes first by name"

    def draw(self, task_class: TaskClass, chosen: int, fitting: list[int], pool: int | None) -> list[int]:
        """Those of the two drawn servers that have room; drawn are two of those that are wanted like the chosen.

        fitting: of those of the pool that are wanted like it those that have room, to which soft wishes keep the draw.
        """
        wish_k = task_class.placement.preference_k
        eligible = [k for k in self.eligible(task_class) if self.is_in(k, pool)]
        among = [k for k in eligible if wish_k is None or wish_k[k] == wish_k[chosen]]
        if task_class.preferences is not None:
            among = fitting
        task = self.waiting[next(n for n, c in enumerate(self.snapshot.task_classes) if c is task_class)][0]
        drawn = RandomChoices(self.seed).draw_two(task.uid, len(among)) if len(among) > 1 else ()
        return [k for k in sorted(among[n] for n in drawn) if self.fits(task_class, k)]

    def wish_scores(self, task_class: TaskClass, wishes: Preferences) -> dict[int, int]:
        """What each server with room is worth to a task of the class: each wish's part of 100, times its weight."""
        fitting = self.fitting(task_class, None)
        worth = dict.fromkeys(fitting, 0)
        for wish in wishes.preferences:
            for k, score in self.scores_of(wish, fitting).items():
                worth[k] += wish.weight * score
        return worth

    def scores_of(self, wish: Preference, fitting: list[int]) -> dict[int, int]:
        match wish:
            case ServerPreference(amount_k, _, is_dislike, most):
                most = most or max(int(amount_k[k]) for k in fitting)
                part = {k: 100 * int(amount_k[k]) // most if most else 0 for k in fitting}
                return {k: 100 - score for k, score in part.items()} if is_dislike else part
            case PullPreference(pulls, _):
                felt = {k: sum(worth * self.count_at(counter, k) for counter, worth in pulls) for k in fitting}
                width = max(felt.values()) - min(felt.values())
                # The same product of floats as in the cycle: 100 * 0.29 is below 29, and is cut off.
                return {k: int(100 * ((felt[k] - min(felt.values())) / width)) if width else 0 for k in fitting}
            case EvenPreference(counters, _):
                labelled = [k for k in fitting if all(counter.domains.domain_k[k] >= 0 for counter, _ in counters)]
                load = dict.fromkeys(labelled, 0.0)
                for counter, skew in counters:
                    domains = len({int(counter.domains.domain_k[k]) for k in labelled})
                    for k in labelled:
                        load[k] += self.count_at(counter, k) * log(domains + 2) + (skew - 1)
                whole = {k: floor(value + 0.5) for k, value in load.items()}
                most, least = max(whole.values(), default=0), min(whole.values(), default=0)
                score = {k: 100 * (most + least - value) // most if most else 100 for k, value in whole.items()}
                return {k: score.get(k, 0) for k in fitting}

    def count_at(self, counter: DomainCounter, k: int) -> int:
        """How many tasks count in the domain of a server."""
        domain = int(counter.domains.domain_k[k])
        return self.count_domains(counter)[domain] if domain >= 0 else 0

    def put(self, n: int, k: int) -> None:
        task_class = self.snapshot.task_classes[n]
        self.waiting[n].pop(0)
        self.placed.append((task_class, k))
        self.free[k] = [free - demand for free, demand in zip(self.free[k], task_class.demand_r, strict=True)]
        self.taken_keys[k] |= task_class.placement.exclusive_keys.taken
        held = self.held[task_class.tenant]
        self.held[task_class.tenant] = [a + b for a, b in zip(held, task_class.share_demand_r, strict=True)]
        self.tasks[task_class.tenant].append(task_class.share_demand_r)
        if self.pool_k is not None:
            self.count_on_pool(task_class.tenant, self.pool_k[k], task_class.share_demand_r)

    def check_fairness(self, task_class: TaskClass, reason: FairnessReason | None) -> None:
        check_fairness(self, task_class, reason)

    def check_step(self, bind: Bind) -> None:
        following = self.find_next()
        assert following is not None, "nothing fits any more"
        n, pool = following
        self.check_task(n, bind)
        server = self.snapshot.servers.names.index(bind.server)
        self.check_server(self.snapshot.task_classes[n], pool, server)
        self.put(n, server)

    def find_class(self, bind: Bind) -> int:
        """The class of a task that was placed."""
        classes = enumerate(self.snapshot.task_classes)
        return next(n for n, task_class in classes if bind.task in task_class.tasks)

    def check_task(self, n: int, bind: Bind) -> None:
        assert bind.tenant == self.snapshot.task_classes[n].tenant, "somebody else is next"
        assert bind.task == self.waiting[n][0], "another task of the tenant is next"


def list_tasks(tenant: Tenant) -> list[tuple[int, ...]]:
    """The demand of each task that the tenant holds; what is not told task by task is one."""
    tasks = [holding.share_demand_r for holding in tenant.holdings for _ in range(holding.count)]
    rest = tuple(held - sum(demand[r] for demand in tasks) for r, held in enumerate(tenant.allocated_r))
    return [*tasks, rest] if any(rest) else tasks


def rank(pool: int | None) -> int:
    return -1 if pool is None else pool


def check_report(snapshot: Snapshot, report: CycleReport, *, seed: int = 0) -> None:
    """Fail at the first decision that the policy does not allow, and at anything untrue in the rest of the report."""
    check_world(World(snapshot, report.policy, seed), report)


def check_world(world: World, report: CycleReport) -> None:
    for bind in report.bindings:
        world.check_step(bind)
    if report.complete:
        assert world.find_next() is None, "work conservation: a waiting task fits"
    check_capacity(world)
    check_shares(world, report)
    check_waits(world, report)


def check_capacity(world: World) -> None:
    """No placement may have made a resource negative that was not before, unless it was reserved for it."""
    for k, (before, after) in enumerate(zip(world.snapshot.servers.free_kr.tolist(), world.free, strict=True)):
        reserved = [c.placement.reserved[k] for c in world.snapshot.task_classes if k in c.placement.reserved]
        most = [max(amounts) for amounts in zip(*reserved, strict=True)] or [0] * len(before)
        assert all(b >= -more or b == a for a, b, more in zip(before, after, most, strict=True))


def check_shares(world: World, report: CycleReport) -> None:
    totals = World(world.snapshot, "best-fit-drfh")
    totals.held = world.held
    expected = [(tenant.name, float(totals.level(tenant.name, None)[1])) for tenant in world.snapshot.tenants]
    assert [name for name, _ in report.weighted_shares] == sorted(world.held)
    for (name, share), (_, right) in zip(report.weighted_shares, expected, strict=True):
        assert abs(share - right) <= TOLERANCE * max(right, 1.0), name


def check_waits(world: World, report: CycleReport) -> None:
    # A cycle may have added rules to a class; its tasks stay what they are.
    by_class = {id(wait.task_class.tasks): wait for wait in report.waits}
    assert len(by_class) == len(report.waits)
    for n, task_class in enumerate(world.snapshot.task_classes):
        wait = by_class.pop(id(task_class.tasks), None)
        if wait is None:
            fits = task_class.blocked is None and bool(world.fitting(task_class, None))
            assert not world.waiting[n] or (fits and not report.complete) or not report.complete
        else:
            check_wait(world, n, wait)
    assert not by_class, "a wait of a class that does not exist"
    turns = [(wait.task_class.tenant, world.turn_of(wait.first)) for wait in report.waits]
    assert all(before <= after for before, after in pairwise(turns))


def check_wait(world: World, n: int, wait: Wait) -> None:
    task_class = world.snapshot.task_classes[n]
    assert wait.first == world.waiting[n][0]
    assert wait.waiting == len(world.waiting[n])
    assert wait.blocked == task_class.blocked
    if task_class.blocked is not None:
        assert wait.rejections == ()
        assert wait.fairness is None
        return
    assert not world.fitting(task_class, None), "it waits although it fits"
    assert wait.rejections == count_rejections(world, task_class)
    assert (wait.at_limit is not None) == is_at_limit(world, task_class)
    if wait.at_limit is None:
        world.check_fairness(task_class, wait.fairness)
    else:
        assert wait.fairness is None
        assert wait.at_limit.kind == RejectionKind.AT_LIMIT
    assert wait.is_too_large == is_too_large(world, task_class)


def is_at_limit(world: World, task_class: TaskClass) -> bool:
    """Whether limits of its tenant keep a class from all servers that could hold it; or from all that there are."""
    rules = () if task_class.rules is None else task_class.rules.rules
    limits = [rule for rule in rules if rule.rejection.kind == RejectionKind.AT_LIMIT]
    everywhere = [rule for rule in limits if isinstance(rule, LimitRule) and min(rule.counter.domains.domain_k) == 0]
    if any(world.count_domains(rule.counter)[0] + rule.amount > rule.most_d[0] for rule in everywhere):
        return True
    holding = find_holding(world, task_class)
    return bool(holding) and all(any(world.closes(rule, k) for rule in limits) for k in holding)


def count_rejections(world: World, task_class: TaskClass) -> Rejections:
    counts: dict[Rejection, int] = {}
    for reason, count in (task_class.pin or task_class.placement).rejections:
        counts[reason] = counts.get(reason, 0) + count
    for k in world.eligible(task_class):
        reasons = [
            Rejection(RejectionKind.INSUFFICIENT, world.snapshot.resources[r])
            for r, demand in enumerate(task_class.demand_r)
            if demand > 0 and world.find_room(task_class, k)[r] < demand
        ]
        if (closing := world.find_closing(task_class, k)) is not None:
            reasons = [closing]
        elif task_class.placement.exclusive_keys.conflicting & world.taken_keys[k]:
            reasons = [Rejection(RejectionKind.PORT_CONFLICT)]
        for reason in reasons:
            counts[reason] = counts.get(reason, 0) + 1
    return tuple(sorted((reason, count) for reason, count in counts.items() if count > 0))


def find_holding(world: World, task_class: TaskClass) -> list[int]:
    """Return the servers that could hold a task of a class when they are empty."""
    capacity_kr = world.snapshot.servers.capacity_kr.tolist()
    asked = [(r, demand) for r, demand in enumerate(task_class.demand_r) if demand]
    return [k for k in world.eligible(task_class) if all(capacity_kr[k][r] >= demand for r, demand in asked)]


def is_too_large(world: World, task_class: TaskClass) -> bool:
    if world.eligible(task_class):
        return not find_holding(world, task_class)
    reasons = (task_class.pin or task_class.placement).rejections
    return any(reason.kind == RejectionKind.INSUFFICIENT for reason, _ in reasons)


def check_fairness(world: World, task_class: TaskClass, reason: FairnessReason | None) -> None:
    eligible = world.eligible(task_class)
    if world.policy == "fifo" or not eligible:
        assert reason is None
        return
    pools: list[int | None] = [None] if world.pool_k is None else [*sorted({world.pool_k[k] for k in eligible})]
    level, pool = min(((world.level(task_class.tenant, pool), pool) for pool in pools), key=lambda pair: pair[0])
    rivals = []
    for _, other in world.open_classes():
        common = [
            k for k in find_holding(world, task_class) if k in find_holding(world, other) and world.is_in(k, pool)
        ]
        other_level = world.level(other.tenant, pool)[:2]
        is_rival = other.tenant != task_class.tenant and not is_at_limit(world, other)
        if is_rival and common and other_level < level[:2]:
            rivals.append((other_level, other.tenant))
    if level[0] or not rivals:
        assert reason is None
        return
    assert reason is not None, "somebody further below waits for the same servers"
    least, name = min(rivals)
    assert reason.next_tenant == name
    assert abs(reason.share - float(level[1])) <= TOLERANCE * max(float(level[1]), 1.0)
    assert abs(reason.next_share - float(least[1])) <= TOLERANCE * max(float(least[1]), 1.0)
