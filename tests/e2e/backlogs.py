"""Two thousand pods of five tenants, nodes that hold three hundred of them, and what bind mode makes of it.

On each node CPUs run out first, so how many pods a tenant gets does not depend on the nodes that another scheduler
chooses. Policies differ all the same: memory is the dominant resource of some pods, and nodes differ in what they have
of it for each core. What bind mode gives is what the slow filling gives; `test_operator_policies` holds it to that.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from e2e.conftest import making_namespaces, making_nodes, making_tenants
from e2e.fillings import Scene, make_requests
from e2e.objects import make_name
from e2e.test_operator_policies import SEED, Case
from e2e.turns import TOLERANCE, count_bound, make_default
from e2e.waiting import wait_for
from e2e.workloads import create_pods, delete_pods, list_pods
from fairbind.model import PolicySettings, Task
from fairbind.scheduling import POLICIES
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from e2e.api import Api, Json
    from e2e.clusters import Cluster

SCENE = Scene(
    {"n1": (60, 120), "n2": (60, 120), "n3": (40, 160), "n4": (80, 140), "n5": (60, 240)},
    {"a": (1, 0.25), "b": (1, 0.5), "c": (1, 1), "d": (1, 3), "e": (1, 4)},
    {"a": 5, "b": 4, "c": 3, "d": 2, "e": 1},
)
PODS_OF_EACH = 400
PLAY_SECONDS = 900.0
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "two-choices-drfh": {"spec": {"twoChoicesDrfh": {"seed": SEED}}},
    "alpha-pf-vds": {"options": {"alpha": 1.0}, "spec": {"alphaPfVds": {"alpha": 1}}},
}
"""Of policies that have some. How many tenants will come may be said to dynamic-drf only where weights are equal."""


def make_case(policy: str) -> Case:
    """Return a policy on the scene of this module."""
    return Case(policy, SCENE, size=1.0, **SETTINGS.get(policy, {}))


@dataclass(frozen=True)
class Backlog:
    """See the module. spaces: the namespaces by the scene's names of tenants; Tenants are called STEM-NAME.

    waits: whether a pod has not been let through yet.
    """

    api: Api
    stem: str
    spaces: Mapping[str, str]
    waits: Callable[[Json], object]
    pods_of_each: int = PODS_OF_EACH

    def stock(self) -> None:
        """Take away the pods that were let through before, and make others wait in their place."""
        for space in self.spaces.values():
            passed = [pod["metadata"]["name"] for pod in list_pods(self.api, space) if not self.waits(pod)]
            delete_pods(self.api, space, passed)
        for name, space in self.spaces.items():
            missing = self.pods_of_each - len(list_pods(self.api, space))
            create_pods(self.api, space, [make_default(make_requests(SCENE.pods[name])) for _ in range(missing)])

    def compute_expected(self, case: Case) -> dict[str, int]:
        """Return how many pods of each tenant bind mode lets run, of those that wait."""
        waiting = {name: [make_task(pod) for pod in list_pods(self.api, space)] for name, space in self.spaces.items()}
        assert {len(tasks) for tasks in waiting.values()} == {self.pods_of_each}
        targets = SCENE.make_targets(case.solve()) if POLICIES[case.policy].follows_targets else None
        return SCENE.fill(PolicySettings(case.policy, seed=SEED), waiting, targets)

    def count_bound(self) -> dict[str, int]:
        """Return how many pods of each tenant have a node."""
        return dict(zip(self.spaces, count_bound(self.api, [*self.spaces.values()]), strict=True))

    def list_passed(self) -> list[Json]:
        """Return all pods that were let through."""
        return [pod for space in self.spaces.values() for pod in list_pods(self.api, space) if not self.waits(pod)]

    def wait_shared(self, expected: Mapping[str, int]) -> None:
        """Wait until the nodes are full, and check that each tenant has what it should, within two pods."""
        wait_for(
            lambda: sum(self.count_bound().values()) == sum(expected.values()),
            PLAY_SECONDS,
            describe=lambda: f"{expected} bound pods, not {self.count_bound()}",
            pause=1.0,
        )
        bound = self.count_bound()
        assert all(abs(bound[name] - count) <= TOLERANCE for name, count in expected.items()), (
            f"{bound}, not {expected}"
        )


@contextlib.contextmanager
def opening_backlog(
    cluster: Cluster, waits: Callable[[Json], object], labels: Mapping[str, str] | None = None
) -> Iterator[Backlog]:
    """Make the nodes, and the tenants without pods; all goes away with the context. labels: of the namespaces."""
    stem = make_name("p")
    with (
        making_nodes(cluster) as nodes,
        making_tenants(cluster.api) as tenant,
        making_namespaces(cluster.api) as namespace,
    ):
        nodes(
            [
                make_node(f"{stem}-{name}", allocatable={**make_requests(amounts), "pods": "500"})
                for name, amounts in SCENE.nodes.items()
            ]
        )
        spaces = {name: namespace(labels=labels) for name in SCENE.pods}
        for name, space in spaces.items():
            tenant(f"{stem}-{name}", namespaces=[space], weight=SCENE.weights[name])
        yield Backlog(cluster.api, stem, spaces, waits)


def make_task(pod: Json) -> Task:
    """Return a pod as the filling takes it."""
    meta = pod["metadata"]
    created = dt.datetime.fromisoformat(meta["creationTimestamp"]).timestamp()
    return Task(meta["uid"], f"{meta['namespace']}/{meta['name']}", 0, created)
