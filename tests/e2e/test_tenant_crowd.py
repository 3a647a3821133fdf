"""One tenant with very many pending pods does not make another's wait: times with and without them, in one run.

FAIRBIND_CROWD is the number of pending pods; CI takes fewer than a tenant could have. The other tenant's pods come one
by one, and there is room for each of them at once, so that its time is the scheduler's and not the queue's. Whatever
else runs on the machine only adds to a time, so the least median of five rounds counts, with and without, as many each;
and without is measured before and after, because the machine may have become slower meanwhile.
"""

from __future__ import annotations

import functools
import os
import statistics
import time
from typing import TYPE_CHECKING

import pytest

from e2e.objects import make_name, make_pod
from e2e.waiting import wait_for
from e2e.workloads import count_bound, create_pods, delete_pods, find_condition, find_waiting
from localplane.nodes import make_node

if TYPE_CHECKING:
    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator
    from e2e.operators import Operator

CROWD = int(os.environ.get("FAIRBIND_CROWD", "500"))
ROUNDS, PROBES = 5, 15
MOST_TIMES_LONGER = 2.0
POLL_SECONDS = 0.002
LOOK_SECONDS = max(1.0, CROWD / 2000)
PATIENCE_SECONDS = 300.0 + CROWD / 10
POOL = "example.com/pool"
PROBE = {"cpu": "100m", "memory": "64Mi"}


def find_node(api: Api, path: str) -> str | None:
    node: str | None = api.get(path)["spec"].get("nodeName")
    return node


def measure_once(api: Api, namespace: str) -> float:
    """Return, in seconds, how long a pod takes from its creation until the API server shows its node."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    pod = make_pod(PROBE, nodeSelector={POOL: "theirs"})
    started = time.perf_counter()
    name = api.post(path, pod)["metadata"]["name"]
    wait_for(functools.partial(find_node, api, f"{path}/{name}"), pause=POLL_SECONDS)
    return time.perf_counter() - started


def measure(api: Api, namespace: str) -> float:
    """Return the least of the rounds' medians, in seconds."""
    return min(statistics.median(measure_once(api, namespace) for _ in range(PROBES)) for _ in range(ROUNDS))


def make_crowd(kinds: int) -> list[Json]:
    """Return pods of so many sizes for the pool that is soon full."""
    sizes = [f"{1000 + number % kinds}m" for number in range(CROWD)]
    return [make_pod({"cpu": size, "memory": "1Gi"}, nodeSelector={POOL: "mine"}) for size in sizes]


def count_pending(operator: Operator, tenant: str) -> float:
    return operator.metrics().total("fairbind_tenant_pending_pods", tenant=tenant)


def is_told(api: Api, namespace: str) -> bool:
    """Tell whether every pod that waits knows why: until then the operator has more to write than usual."""
    waiting = find_waiting(api, namespace)
    return len(waiting) > CROWD / 2 and all(find_condition(pod) for pod in waiting)


@pytest.mark.nightly
@pytest.mark.timeout(2 * PATIENCE_SECONDS + 300.0)
@pytest.mark.parametrize("kinds", [1, pytest.param(CROWD, marks=pytest.mark.nightly)])
def test_a_crowd_of_one_tenant_does_not_slow_another(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator, kinds: int
) -> None:
    pools = {"mine": 2, "theirs": 8}
    nodes([make_node(make_name("n"), labels={POOL: pool}) for pool, count in pools.items() for _ in range(count)])
    mine, theirs = namespace(), namespace()
    cheater = tenant(namespaces=[mine])
    tenant(namespaces=[theirs])
    running = operator()
    measure_once(api, theirs)  # connections, caches
    before = measure(api, theirs)

    names = create_pods(api, mine, make_crowd(kinds))
    try:
        wait_for(lambda: is_told(api, mine), PATIENCE_SECONDS, f"{CROWD} pods to be told", pause=LOOK_SECONDS)
        during = measure(api, theirs)
        pending = count_pending(running, cheater)
        assert pending == CROWD - count_bound(api, mine) > CROWD / 2
    finally:
        delete_pods(api, mine, names)  # one request for all of them could take longer than the API server allows
    wait_for(lambda: count_pending(running, cheater) == 0, PATIENCE_SECONDS, "nobody to be pending", pause=LOOK_SECONDS)
    without = max(before, measure(api, theirs))
    figures = f"{without * 1000:.0f} ms without, {during * 1000:.0f} ms with {pending:.0f} pending of {kinds} sizes"
    print(figures)
    assert during <= MOST_TIMES_LONGER * without, figures
