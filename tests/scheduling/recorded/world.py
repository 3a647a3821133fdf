"""A cluster in plain values that can change, and the snapshot of it.

What did not change between two snapshots stays the same object in both: classes by their identity are what a memory of
the cycle before goes by, and placements are shared by classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from scheduling.recorded import build

Amounts = tuple[int, ...]
Kind = tuple[Amounts, Amounts, int]
"""Demand, demand in shares, and the number of the rule: what tells held tasks apart."""

UNUSABLE = "node(s) were unschedulable"


@dataclass(slots=True, eq=False)
class Server:
    """foreign: what others use. held: what our tasks use. ports: keys taken by others. label: its class, if drawn."""

    name: str
    capacity: list[int]
    foreign: list[int]
    held: list[int]
    usable: bool = True
    signature: int = 0
    label: int = 0
    ports: frozenset[str] = frozenset()

    def find_free(self) -> list[int]:
        return [c - f - h for c, f, h in zip(self.capacity, self.foreign, self.held, strict=True)]


@dataclass(slots=True, eq=False)
class Rule:
    """Where tasks may go. refused: why not, by server. preference: by server, of a soft wish."""

    number: int
    refused: dict[str, str]
    preference: dict[str, int] | None
    taken: frozenset[str]
    conflicting: frozenset[str]
    made: build.Placement | None = None

    def build(self, servers: Sequence[Server], *, is_lax: bool) -> build.Placement:
        """is_lax: the placement does not know which servers are usable."""
        if self.made is None:
            eligible: list[bool] = []
            reasons: dict[str, int] = {}
            for server in servers:
                unusable = UNUSABLE if not server.usable and not is_lax else None
                reason = self.refused.get(server.name, unusable)
                eligible.append(reason is None)
                if reason is not None:
                    reasons[reason] = reasons.get(reason, 0) + 1
            wishes = None
            if self.preference is not None:
                wishes = [self.preference.get(server.name, 0) for server in servers]
            self.made = build.build_placement(eligible, wishes, reasons, self.taken, self.conflicting)
        return self.made


@dataclass(slots=True, frozen=True)
class Job:
    """One task. Its name runs against its uid, so that a tie broken by the wrong one shows."""

    serial: int
    priority: int
    queue_time: float

    @property
    def uid(self) -> str:
        return f"u{self.serial:05}"

    @property
    def turn(self) -> tuple[int, float, str]:
        return -self.priority, self.queue_time, self.uid

    def build(self) -> build.Task:
        return build.build_task(self.uid, f"ns/{99_999 - self.serial}", self.priority, self.queue_time)


@dataclass(slots=True, eq=False)
class Group:
    """A task class."""

    tenant: str
    demand: Amounts
    share: Amounts
    rule: Rule
    jobs: list[Job]
    blocked: str | None = None
    made: build.TaskClass | None = None

    def set_jobs(self, jobs: Sequence[Job]) -> None:
        self.jobs, self.made = sorted(jobs, key=lambda job: job.turn), None

    def build(self, placement: build.Placement) -> build.TaskClass:
        if self.made is None:
            tasks = [job.build() for job in self.jobs]
            self.made = build.build_task_class(self.tenant, self.demand, self.share, placement, tasks, self.blocked)
        return self.made


@dataclass(slots=True, eq=False)
class Running:
    """A task that runs."""

    tenant: str
    server: str
    demand: Amounts
    share: Amounts
    rule: Rule


@dataclass(slots=True, eq=False)
class Member:
    """A tenant. allocated, kinds, by_server: its books. extra: what is in no other book. gone: on a server that went.

    is_new: it has no books at all yet, and says so with an empty vector.
    """

    name: str
    weight: Fraction
    resource_weights: dict[str, Fraction]
    since: float
    allocated: list[int]
    extra: list[int]
    gone: list[int] | None = None
    is_new: bool = False
    kinds: dict[Kind, int] = field(default_factory=dict)
    by_server: dict[str, list[int]] = field(default_factory=dict)

    def count(self, running: Running, sign: int) -> None:
        self.is_new = False
        self.allocated = [a + sign * b for a, b in zip(self.allocated, running.share, strict=True)]
        kind = running.demand, running.share, running.rule.number
        self.kinds[kind] = self.kinds.get(kind, 0) + sign
        if self.kinds[kind] == 0:
            del self.kinds[kind]
        before = self.by_server.get(running.server, [0] * len(self.allocated))
        self.by_server[running.server] = [a + sign * b for a, b in zip(before, running.share, strict=True)]
        if not any(self.by_server[running.server]):
            del self.by_server[running.server]

    def build(self, rules: Sequence[Rule], *, is_detailed: bool) -> build.Tenant:
        holdings, by_server = [], {}
        if is_detailed:
            made = {rule.number: rule.made for rule in rules}
            holdings = [build.build_holding(d, s, count, made.get(n)) for (d, s, n), count in self.kinds.items()]
            by_server = {name: tuple(held) for name, held in self.by_server.items()}
            if self.gone is not None:
                by_server["gone"] = tuple(self.gone)
        allocated = () if self.is_new else tuple(a + b for a, b in zip(self.allocated, self.extra, strict=True))
        return build.build_tenant(
            self.name, self.weight, self.resource_weights, allocated, holdings, by_server, self.since
        )


@dataclass(slots=True, eq=False)
class World:
    """All of it. tolerance: of server classes; None: each server's class is its label. labels: how many there are."""

    resources: tuple[str, ...]
    units: tuple[int, ...]
    counts: tuple[bool, ...]
    tolerance: float | None
    labels: int
    is_detailed: bool
    is_lax: bool
    servers: list[Server]
    members: list[Member]
    rules: list[Rule] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    running: list[Running] = field(default_factory=list)
    targets: build.Targets | None = None
    serial: int = 0
    _classes: tuple[list[int], tuple[str, ...]] | None = None

    def find_server(self, name: str) -> Server:
        return next(server for server in self.servers if server.name == name)

    def find_member(self, name: str) -> Member:
        return next(member for member in self.members if member.name == name)

    def start(self, running: Running) -> None:
        self.running.append(running)
        self._count(running, 1)

    def finish(self, running: Running) -> None:
        self.running.remove(running)
        self._count(running, -1)

    def _count(self, running: Running, sign: int) -> None:
        server = self.find_server(running.server)
        server.held = [a + sign * b for a, b in zip(server.held, running.demand, strict=True)]
        self.find_member(running.tenant).count(running, sign)

    def note_servers(self) -> None:
        """Servers came, went or changed: whatever was made of them is made anew."""
        self._classes = None
        for rule in self.rules:
            rule.made = None
        for group in self.groups:
            group.made = None

    def note_capacities(self) -> None:
        self._classes = None

    def compute_classes(self) -> tuple[list[int], tuple[str, ...]]:
        if self._classes is None:
            if self.tolerance is None:
                names = tuple(f"class-{number:03}" for number in range(self.labels))
                self._classes = [server.label for server in self.servers], names
            else:
                self._classes = build.classify_servers(
                    [server.capacity for server in self.servers],
                    [server.signature for server in self.servers],
                    [server.name for server in self.servers],
                    self.tolerance,
                )
        return self._classes

    def build(self) -> build.Snapshot:
        classes, class_names = self.compute_classes()
        taken_keys: dict[str, frozenset[str]] = {server.name: server.ports for server in self.servers}
        for running in self.running:
            if running.rule.taken:
                taken_keys[running.server] = taken_keys[running.server] | running.rule.taken
        table = build.build_servers(
            [server.name for server in self.servers],
            [server.capacity for server in self.servers],
            [server.find_free() for server in self.servers],
            [server.usable for server in self.servers],
            classes,
            class_names,
            {k: taken_keys[server.name] for k, server in enumerate(self.servers) if taken_keys[server.name]},
        )
        placements = {id(rule): rule.build(self.servers, is_lax=self.is_lax) for rule in self.rules}
        members = sorted(self.members, key=lambda member: member.name)
        return build.build_snapshot(
            self.resources,
            self.counts,
            [sum(s.capacity[r] for s in self.servers if s.usable) for r in range(len(self.resources))],
            table,
            [member.build(self.rules, is_detailed=self.is_detailed) for member in members],
            [group.build(placements[id(group.rule)]) for group in self.groups],
            self.targets,
        )
