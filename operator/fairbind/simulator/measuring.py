"""Measures a run: what is used and held over time, at the times of measuring and as means.

Used amounts and dominant shares are constant between two instants at which something happens, so their means over time
are exact. What needs the exact mechanism or the operator's overview (fair shares, Jain's index, the share error) is
looked at when it is measured, and counts until the next time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fairbind.cluster.cache.cache import ClusterCache
from fairbind.cluster.classes.snapshot import Scale
from fairbind.cluster.objects.facts import PODS, NodeFacts, PodFacts
from fairbind.cluster.state.node_state import add_amounts
from fairbind.cluster.tenancy.tenants import IMPLICIT_PREFIX
from fairbind.cluster.tenancy.users import find_tenant_of_leaf
from fairbind.model import compute_dominant_share
from fairbind.model.overview import ClusterOverview
from fairbind.scheduling.fair_shares.audit import Finding, make_audit_scene
from fairbind.simulator.auditing import MOST_TENANTS, AuditLog, find_unfairness
from fairbind.simulator.deviation import compute_deviation
from fairbind.simulator.results import Closeness, ShareRow
from fairbind.simulator.slots import SLOT_RESOURCE
from fairbind.simulator.time_mean import TimeMean
from fairbind.simulator.utilisation import Utilisation
from fairbind.what_if.fair_shares import FairShares

JAIN, MEAN_DEVIATION, LARGEST_DEVIATION = "jain", "deviation", "largest_deviation"


def find_counting(scale: Scale) -> tuple[bool, ...]:
    """Return which resources count for dominant shares: the policy's; where slots decide, all but slots."""
    if SLOT_RESOURCE in scale.resources:
        return tuple(resource not in {SLOT_RESOURCE, PODS} for resource in scale.resources)
    return scale.counts_r


@dataclass(slots=True)
class TenantMeasures:
    """One tenant's. share: what its running tasks count in shares.

    part, worst_part: which part of its fair share it holds while it waits, over time and at the worst time.
    """

    arrived: int
    running: int
    pending: int
    share: dict[str, int]
    dominant_share: float
    mean_share: TimeMean
    part: TimeMean = field(default_factory=TimeMean)
    worst_part: float | None = None


@dataclass(frozen=True, slots=True)
class _Sample:
    """What is measured of one state of the cluster. others: the overview by each further yardstick.

    deviation: from PS-DSF, in the mean and of who deviates most.
    """

    fair_shares: Mapping[str, float] | None
    overview: ClusterOverview
    findings: tuple[Finding, ...]
    deviation: tuple[float, float] | None
    others: Mapping[str, ClusterOverview]


def find_parts(overview: ClusterOverview) -> dict[str, float]:
    """Return which part of its fair share each waiting tenant holds."""
    waiting = (tenant for tenant in overview.tenants if tenant.backlogged and tenant.fair_share)
    return {tenant.name: tenant.dominant_share / tenant.fair_share for tenant in waiting if tenant.fair_share}


class _Closeness:
    """How far tenants that wait are from the fair shares of one mechanism. worst_part: by tenant, as the cache says."""

    __slots__ = ("_share_error", "_worst_error", "worst_part")

    def __init__(self) -> None:
        self._share_error = TimeMean()
        self._worst_error: float | None = None
        self.worst_part: dict[str, float] = {}

    def note(self, overview: ClusterOverview, now: int) -> None:
        """Take what is measured at a time."""
        backlogged = [tenant for tenant in overview.tenants if tenant.backlogged]
        error = overview.share_error if backlogged else None
        self._share_error.set(error, now)
        if error is not None:
            self._worst_error = error if self._worst_error is None else max(self._worst_error, error)
        for name, part in find_parts(overview).items():
            self.worst_part[name] = min(part, self.worst_part.get(name, part))

    def compute_error(self, now: int) -> dict[str, float | None]:
        """Return the share error, mean over time and the worst."""
        return {"mean": self._share_error.compute(now), "max": self._worst_error}


class Measures:
    """Follows one run.

    home: whose tenant a namespace is of, in the scenario's own names. fair_shares: those of the tables. yardsticks: to
    whose fair shares the run is held beside them, by name.
    """

    def __init__(
        self,
        policy: str,
        tenants: Iterable[str],
        shapes: Mapping[str, NodeFacts],
        home: Mapping[str, str],
        cache: ClusterCache,
        fair_shares: FairShares,
        yardsticks: Mapping[str, FairShares] | None = None,
    ) -> None:
        self._policy = policy
        self._home = home
        self._cache = cache
        self._fair_shares = fair_shares
        self.tenants = {name: TenantMeasures(0, 0, 0, {}, 0.0, TimeMean()) for name in tenants}
        self.utilisation = Utilisation(shapes)
        self._means = {name: TimeMean() for name in (JAIN, MEAN_DEVIATION, LARGEST_DEVIATION)}
        self._closeness = _Closeness()
        self._yardsticks = {name: (shares, _Closeness()) for name, shares in (yardsticks or {}).items()}
        self._touched: dict[str, None] = {}
        self._scale: tuple[Scale, tuple[bool, ...]] | None = None
        self._inner: frozenset[str] = frozenset()
        self._sample: _Sample | None = None
        self.audits = AuditLog() if len(self.tenants) <= MOST_TENANTS else None
        self.shares: list[ShareRow] = []

    # --- what happens ---

    def arrive(self, tenant: str) -> None:
        """Note that a task arrived."""
        measures = self.tenants[tenant]
        measures.arrived += 1
        measures.pending += 1

    def start(self, tenant: str, shape: str, pod: PodFacts) -> None:
        """Note that a task began to run."""
        self._hold(tenant, shape, pod, 1)
        self.tenants[tenant].pending -= 1

    def end(self, tenant: str, shape: str, pod: PodFacts) -> None:
        """Note that a task ended."""
        self._hold(tenant, shape, pod, -1)

    def lose(self, tenant: str, shape: str, pod: PodFacts) -> None:
        """Note that a task lost its node."""
        self._hold(tenant, shape, pod, -1)
        self.tenants[tenant].pending += 1

    def _hold(self, tenant: str, shape: str, pod: PodFacts, sign: int) -> None:
        measures = self.tenants[tenant]
        measures.running += sign
        add_amounts(measures.share, pod.demand.share, sign)
        self.utilisation.use(shape, pod.demand.real, sign)
        self._touched[tenant] = None

    def follow(self, scale: Scale, now: int) -> None:
        """Take the state after an instant's last cycle. scale: says what counts, and how much there is."""
        self._sample = None
        if self._scale is None or scale != self._scale[0]:
            self._scale = scale, find_counting(scale)
            self._touched.update(dict.fromkeys(self.tenants))
        self.utilisation.follow(now)
        inner = self._cache.state.usage.inner.by_name
        before, self._inner = self._inner, frozenset(self.tenants.keys() & inner.keys())
        self._touched.update(dict.fromkeys(before | self._inner))
        for name in self._touched:
            measures = self.tenants[name]
            share = inner[name].share if name in inner else measures.share  # of all below it where there are others
            allocated_r = [share.get(resource, 0) for resource in scale.resources]
            measures.dominant_share, _ = compute_dominant_share(allocated_r, scale.total_r, self._scale[1])
            measures.mean_share.set(measures.dominant_share, now)
        self._touched.clear()

    # --- what is measured ---

    def measure(self, now: int) -> None:
        """Add the rows of a time."""
        sample = self._sample = self._sample or self._look()
        shown = {tenant.name: tenant for tenant in sample.overview.shown}
        for name, measures in self.tenants.items():
            fair_share = None if sample.fair_shares is None else sample.fair_shares.get(name, 0.0)
            running, pending = measures.running, measures.pending
            if name in self._inner:
                inner = shown[name]
                fair_share, running, pending = inner.fair_share, inner.running, sum(inner.pending.values())
            self.shares.append(ShareRow(self._policy, now, name, measures.dominant_share, fair_share, running, pending))
        self.utilisation.measure(self._policy, now)
        self._note_fairness(sample, now)
        if self.audits is not None:
            self.audits.add(sample.findings)

    def _look(self) -> _Sample:
        by_name = self._fair_shares.compute()
        overview = self._cache.queries.build_overview(by_name, self._fair_shares.compute_inner() if self._inner else {})
        findings, deviation = self._audit(by_name) if self.audits is not None else ((), None)
        build = self._cache.queries.build_overview
        others = {name: build(shares.compute()) for name, (shares, _) in self._yardsticks.items()}
        if by_name is None:
            return _Sample(None, overview, findings, deviation, others)
        fair_shares: dict[str, float] = defaultdict(float)
        for name, share in by_name.items():
            fair_shares[self._find_home(name)] += share
        return _Sample(fair_shares, overview, findings, deviation, others)

    def _audit(self, by_name: Mapping[str, float] | None) -> tuple[tuple[Finding, ...], tuple[float, float] | None]:
        """Return what an audit finds now, and the deviation."""
        scene = make_audit_scene(self._cache.build_detailed_snapshot(whole=True))
        return find_unfairness(scene, by_name), compute_deviation(scene)

    def _find_home(self, name: str) -> str:
        """Return the scenario's name of a tenant of the cache's, which may be implicit, or a user."""
        name = find_tenant_of_leaf(name)
        return self._home[name.removeprefix(IMPLICIT_PREFIX)] if name.startswith(IMPLICIT_PREFIX) else name

    def _note_fairness(self, sample: _Sample, now: int) -> None:
        is_backlogged = any(tenant.backlogged for tenant in sample.overview.tenants)
        deviations = sample.deviation or (None, None)
        values = (sample.overview.jain_index if is_backlogged else None, *deviations)
        for mean, value in zip(self._means.values(), values, strict=True):
            mean.set(value, now)
        self._closeness.note(sample.overview, now)
        parts = {self._find_home(name): part for name, part in find_parts(sample.overview).items()}
        for name, measures in self.tenants.items():
            measures.part.set(parts.get(name), now)
        for name, part in self._closeness.worst_part.items():
            measures = self.tenants[self._find_home(name)]
            measures.worst_part = part if measures.worst_part is None else min(measures.worst_part, part)
        for name, (_, closeness) in self._yardsticks.items():
            closeness.note(sample.others[name], now)

    def compute_closeness(self, now: int) -> dict[str, Closeness]:
        """Return how near the run is to each yardstick."""
        return {
            name: Closeness(each.compute_error(now)["mean"], min(each.worst_part.values(), default=None))
            for name, (_, each) in self._yardsticks.items()
        }

    def compute_means(self, now: int) -> dict[str, object]:
        """Return what the summary says of the whole cluster over time."""
        means = {name: mean.compute(now) for name, mean in self._means.items()}
        return {
            "utilisation": self.utilisation.compute_means(now),
            "jain": means[JAIN],
            "share_error": self._closeness.compute_error(now),
            "deviation": {"mean": means[MEAN_DEVIATION], "max": means[LARGEST_DEVIATION]},
        }
