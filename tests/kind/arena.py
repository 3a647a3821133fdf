"""Three tenants that never have enough, on the workers alone: what a policy does with a backlog of real pods.

A round holds the operators' lease, so that nobody decides until the backlog is whole, the policy is set and the exact
answer is known; then it lets go and waits until nothing more fits. What was placed is then taken away, and what still
waits is the next round's backlog.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from e2e.conftest import set_policy
from e2e.fillings import Scene, make_requests
from e2e.objects import POLICIES, TENANTS, make_name, make_tenant
from e2e.operators import LEASE, make_lease_spec
from e2e.waiting import wait_for
from e2e.workloads import create_pods, list_pods
from fairbind.model import Task
from fairbind.scheduling import POLICIES as ALL_POLICIES
from kind.judge import Picture, find_refusals
from kind.owners import RESEARCH, make_kind_pod
from localplane.client import call_many

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from e2e.api import Api, Json
    from kind.release import Release
    from kindcluster.cluster import Cluster

HOLDER = "a test"
POOL = "test.fairbind.io/pool"
GIB = 1 << 30
DEMANDS = {"a": (0.25, 0.5), "b": (0.05, 3.0), "c": (0.15, 1.5)}
"""Cores and GiB of each tenant's pods: one is short of CPU, one of memory, one of both."""
ENOUGH = 1.1
SPARE = 4
PLAY_SECONDS = 600.0
"""Hundreds of containers start and end; how soon says more about the machine than about a policy."""
PAUSE_SECONDS = 0.5


@dataclass(slots=True)
class Arena:
    """See the module. spaces: each tenant's namespace. names: the Tenants' own names."""

    cluster: Cluster
    release: Release
    api: Api
    pool: str
    spaces: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)

    def make_scene(self, weights: Mapping[str, float] | None = None) -> Scene:
        """Return the workers as they are for tenants now."""
        picture = Picture.take(self.api)
        nodes = {}
        for worker in self.cluster.workers():
            capacity = picture.capacity({worker})
            nodes[worker] = float(capacity["cpu"]), float(capacity["memory"]) / GIB
        return Scene(nodes, DEMANDS, weights or {})

    def stock(self, totals: Mapping[str, float]) -> None:
        """Make so many pods wait that nobody can have enough. totals: what each can get."""
        for name, total in totals.items():
            missing = int(ENOUGH * total) + SPARE - len(list_pods(self.api, self.spaces[name]))
            demand, tolerations = make_requests(DEMANDS[name]), [RESEARCH]
            pods = [make_kind_pod(demand, tolerations=tolerations) for _ in range(missing)]
            create_pods(self.api, self.spaces[name], pods)
            self.renew_lease()

    def read_backlog(self) -> dict[str, list[Task]]:
        """Return the pods as the reference filling takes them."""
        return {name: [make_task(pod) for pod in list_pods(self.api, space)] for name, space in self.spaces.items()}

    def count_placed(self) -> dict[str, int]:
        """Return how many pods of each tenant are bound."""
        pods = {name: list_pods(self.api, space) for name, space in self.spaces.items()}
        return {name: sum(1 for pod in some if pod["spec"].get("nodeName")) for name, some in pods.items()}

    def clear(self) -> None:
        """Take away what was placed, with the time that containers need to end."""
        for space in self.spaces.values():
            bound = [pod["metadata"]["name"] for pod in list_pods(self.api, space) if pod["spec"].get("nodeName")]
            call_many([f"/api/v1/namespaces/{space}/pods/{name}" for name in bound], self.api.delete)
            self.renew_lease()
        wait_for(self.is_clear, PLAY_SECONDS, "the last round's pods to be gone", pause=PAUSE_SECONDS)

    def is_clear(self) -> bool:
        """Whether nothing is placed, while we go on holding the lease."""
        self.renew_lease()
        return not any(self.count_placed().values())

    @contextlib.contextmanager
    def hold_lease(self) -> Iterator[None]:
        """Lead in the operators' place."""
        self.renew_lease()
        try:
            wait_for(self.is_leaderless, describe="no operator to lead", pause=PAUSE_SECONDS)
            yield
        finally:
            self.api.patch(LEASE, {"spec": {"holderIdentity": ""}})

    def renew_lease(self) -> None:
        """Hold the lease for another minute."""
        self.api.patch(LEASE, {"spec": make_lease_spec(HOLDER)})

    def is_leaderless(self) -> bool:
        """Whether the lease is ours and no operator believes that it leads."""
        if self.api.get(LEASE)["spec"]["holderIdentity"] != HOLDER:  # a leader renewed it in the same moment
            self.renew_lease()
            return False
        return not any(
            self.release.metrics(pod["metadata"]["name"]).value("fairbind_leader") for pod in self.release.pods()
        )

    def knows(self, fair: Mapping[str, float]) -> bool:
        """Whether every operator knows these fair shares, while we go on holding the lease."""
        self.renew_lease()
        for pod in self.release.pods():
            metrics = self.release.metrics(pod["metadata"]["name"])
            seen = {n: metrics.value("fairbind_tenant_fair_share", tenant=self.names[n]) for n in fair}
            assert seen == pytest.approx(fair, rel=1e-5)
        return True

    def sees(self, counts: Mapping[str, int]) -> bool:
        """Whether every operator sees that so many pods wait and none runs, while we go on holding the lease."""
        self.renew_lease()
        for pod in self.release.pods():
            metrics = self.release.metrics(pod["metadata"]["name"])
            for name, count in counts.items():
                seen = {
                    kind: metrics.total(f"fairbind_tenant_{kind}_pods", tenant=self.names[name])
                    for kind in ("pending", "running")
                }
                assert seen == {"pending": count, "running": 0}, f"{name}: {seen}, not {count}"
        return True

    def knows_nothing(self) -> bool:
        """Whether no operator knows any fair share, while we go on holding the lease."""
        self.renew_lease()
        for pod in self.release.pods():
            metrics = self.release.metrics(pod["metadata"]["name"])
            for name in self.names.values():
                assert metrics.value("fairbind_tenant_fair_share", tenant=name) is None
        return True

    def is_settled(self) -> bool:
        """Whether nothing that waits fits anywhere."""
        forgotten = Picture.take(self.api).find_forgotten()
        assert not forgotten, f"{len(forgotten)} times room for who waits: {forgotten[:3]}"
        return True

    def set_policy(self, **spec: object) -> None:
        """Set the default policy, on the workers alone."""
        set_policy(
            self.api, {"serverClassTolerance": "0.02", "guided": False, **spec, "nodeSelector": {POOL: self.pool}}
        )

    def play(
        self, policy: str, totals: Mapping[str, float], fair: Mapping[str, float] | None, **options: object
    ) -> tuple[dict[str, int], dict[str, list[Task]]]:
        """Play a round; return how many pods of each tenant are placed, and which waited.

        totals: what each can get. fair: the shares of which the operators must know before they decide.
        """
        with self.hold_lease():
            if ALL_POLICIES[policy].follows_targets:
                self.set_policy(policy="fifo")  # what the last round's mechanism gave must not pass for this one's
                wait_for(self.knows_nothing, PLAY_SECONDS, "the last fair shares to be forgotten", pause=PAUSE_SECONDS)
            self.clear()
            self.set_policy(policy=policy, **options)
            self.stock(totals)
            if fair is not None:
                wait_for(lambda: self.knows(fair), PLAY_SECONDS, f"fair shares {fair}", pause=PAUSE_SECONDS)
            waiting = self.read_backlog()
            assert not any(self.count_placed().values())
            counts = {name: len(tasks) for name, tasks in waiting.items()}
            wait_for(lambda: self.sees(counts), PLAY_SECONDS, f"{counts} pods to be seen waiting", pause=PAUSE_SECONDS)
        wait_for(self.is_settled, PLAY_SECONDS, "all to be placed that fits", pause=PAUSE_SECONDS)
        assert Picture.take(self.api).find_overcommitted() == []
        assert find_refusals(self.api, *self.spaces.values()) == []
        return self.count_placed(), waiting


@contextlib.contextmanager
def open_arena(cluster: Cluster, release: Release, api: Api) -> Iterator[Arena]:
    """Make tenants and mark the workers; everything is as before afterwards, the policy too."""
    stem = make_name("arena")
    arena = Arena(cluster, release, api, stem)
    before = api.get(f"{POLICIES}/default")["spec"]
    try:
        for worker in cluster.workers():
            cluster.kubectl("label", "node", worker, f"{POOL}={stem}")
        for name in DEMANDS:
            arena.spaces[name] = arena.names[name] = f"{stem}-{name}"
            api.post("/api/v1/namespaces", {"metadata": {"name": arena.spaces[name]}})
            api.post(TENANTS, make_tenant(arena.names[name], namespaces=[arena.spaces[name]]))
            account = f"/api/v1/namespaces/{arena.spaces[name]}/serviceaccounts/default"
            wait_for(functools.partial(api.exists, account), describe="the service account")
        yield arena
    finally:
        set_policy(api, before)
        for worker in cluster.workers():
            cluster.kubectl("label", "node", worker, f"{POOL}-")
        for name, space in arena.spaces.items():
            api.delete(f"/api/v1/namespaces/{space}")
            api.delete(f"{TENANTS}/{arena.names[name]}")
        for space in arena.spaces.values():
            wait_for(functools.partial(is_gone, api, space), PLAY_SECONDS, f"{space} to be gone", pause=PAUSE_SECONDS)


def is_gone(api: Api, namespace: str) -> bool:
    return not api.exists(f"/api/v1/namespaces/{namespace}")


def make_task(pod: Json) -> Task:
    """Return a pod as the reference filling takes it."""
    meta = pod["metadata"]
    created = dt.datetime.fromisoformat(meta["creationTimestamp"]).timestamp()
    return Task(meta["uid"], f"{meta['namespace']}/{meta['name']}", 0, created)


def find_apart(placed: Mapping[str, int], expected: Mapping[str, int]) -> Sequence[str]:
    """Return the tenants that have at least two pods more or less than they should."""
    return [name for name, count in expected.items() if abs(placed[name] - count) > 1]
