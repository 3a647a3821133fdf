"""What is fair now, as an operator tells: in the status, in kubectl's table, as metrics; and who solves for it."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2e.checks import check_cluster
from e2e.conftest import TWELVE_CORES
from e2e.objects import POLICIES, TENANTS, make_name, make_pod
from e2e.waiting import wait_for
from e2e.workloads import SMALL, count_bound, create_pods, delete_pods, find_bound
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator
    from e2e.operators import Metrics, Operator

SOLVE_SECONDS = 60.0
"""After so long the operator gives an answer up and ends who did not give it."""
ROUNDS_TRIED = 3


def wait_for_metrics(running: Operator, is_there: Callable[[Metrics], object], describe: str) -> Metrics:
    """Wait until the metrics are as they should be and return them."""

    def look() -> Metrics | None:
        metrics = running.metrics()
        return metrics if is_there(metrics) else None

    found = wait_for(look, describe=describe, pause=0.25)
    assert found is not None
    return found


def wait_for_fair_shares(
    running: Operator, expected: Mapping[str, float], *, meanwhile: Callable[[], object] = lambda: None
) -> Metrics:
    """Wait until these tenants have these fair shares."""

    def has_all(metrics: Metrics) -> bool:
        meanwhile()
        seen = {name: metrics.value("fairbind_tenant_fair_share", tenant=name) for name in expected}
        assert seen == pytest.approx(expected, abs=1e-6)
        return True

    return wait_for_metrics(running, has_all, f"fair shares {expected}")


def wait_for_reason(api: Api, reason: str, *, meanwhile: Callable[[], object] = lambda: None) -> Json:
    """Wait until the default policy's condition about fair shares has this reason and return it."""
    seen: Json = {}

    def look() -> Json:
        meanwhile()
        status = api.get(f"{POLICIES}/default").get("status") or {}
        conditions = {found["type"]: found for found in status.get("conditions") or []}
        seen.update(conditions.get("FairSharesKnown", {}))
        return seen if seen.get("reason") == reason else {}

    return wait_for(look, describe=lambda: f"FairSharesKnown with reason {reason}, not {seen}")


def read_fair_share(api: Api, name: str) -> object:
    return (api.get(f"{TENANTS}/{name}").get("status") or {}).get("fairShare")


def count_findings(metrics: Metrics, kind: str) -> dict[str, float]:
    """Return how many findings of a kind come from what, without zeros."""
    return {sample.labels["cause"]: sample.value for sample in metrics.select(kind) if sample.value}


def count_questions(operator: Operator) -> int:
    """Return how often an operator that logs for debugging has asked for fair shares."""
    return operator.log.read_text(encoding="utf-8").count("drfh is asked")


def find_workers(operator: Operator) -> list[int]:
    """Return the living processes that solve for an operator."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:  # it has ended meanwhile
                continue
            if fields[0] != "Z" and int(fields[1]) == operator.pid and b"fairbind.kube.fair_shares.worker" in words:
                found.append(int(folder.name))
    return found


def signal_workers(operator: Operator, number: signal.Signals) -> bool:
    """Send all processes that solve for an operator a signal; tell whether there are any."""
    workers = find_workers(operator)
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, number)
    return bool(workers)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_everybody_sees_the_fair_shares_of_now(
    cluster: Cluster,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    policy: Callable[..., None],
    operator: StartOperator,
) -> None:
    """One takes everything, another comes later, gets a heavier weight, and takes over as room comes free."""
    api = cluster.api
    nodes([make_node(make_name("n"), allocatable=TWELVE_CORES)])
    early, late = namespace(), namespace()
    first = tenant(namespaces=[early])
    running = operator()
    create_pods(api, early, [make_pod(SMALL) for _ in range(12)])
    metrics = wait_for_fair_shares(running, {first: 1.0})
    assert metrics.total("fairbind_exact_solves_total", result="solved") >= 1.0
    timed = metrics.value("fairbind_exact_solve_duration_seconds_count")
    assert metrics.total("fairbind_exact_solves_total") == timed
    wait_for(lambda: count_bound(api, early) == 12, describe="the first tenant to take everything")
    wait_for_metrics(
        running, lambda now: now.value("fairbind_fairness_share_error") == 0.0, "nobody to be below its share"
    )

    second = tenant(namespaces=[late])
    create_pods(api, late, [make_pod(SMALL) for _ in range(12)])
    metrics = wait_for_fair_shares(running, {first: 0.5, second: 0.5})
    assert metrics.value("fairbind_fairness_share_error") == pytest.approx(0.5)
    assert wait_for_reason(api, "Solved")["status"] == "True"
    metrics = wait_for_metrics(
        running,
        lambda now: count_findings(now, "fairbind_fairness_envy_pairs") == {"history": 1.0},
        "the second to envy the first for what it took before",
    )
    assert count_findings(metrics, "fairbind_fairness_sharing_incentive_violations") == {"history": 1.0}

    api.patch(f"{TENANTS}/{second}", {"spec": {"weight": 3}})
    metrics = wait_for_fair_shares(running, {first: 0.25, second: 0.75})
    assert metrics.value("fairbind_fairness_share_error") == pytest.approx(0.75)
    wait_for(
        lambda: [read_fair_share(api, name) for name in (first, second)] == ["0.250", "0.750"], describe="both statuses"
    )
    table = [line.split() for line in cluster.kubectl("get", "tenants", first, second).splitlines()]
    assert table[0][:5] == ["NAME", "WEIGHT", "DOMINANT", "SHARE", "FAIR"]
    assert {row[0]: row[1:4] for row in table[1:]} == {
        first: ["1", "1.000", "0.250"],
        second: ["3", "0.000", "0.750"],
    }

    delete_pods(api, early, [pod["metadata"]["name"] for pod in find_bound(api, early)[:9]])
    wait_for(lambda: count_bound(api, late) == 9, describe="the room to go to the second tenant")
    metrics = wait_for_metrics(
        running, lambda now: now.value("fairbind_fairness_share_error") == 0.0, "everybody to have its share"
    )
    wait_for_metrics(
        running,
        lambda now: not count_findings(now, "fairbind_fairness_envy_pairs"),
        "nobody to envy anybody any more",
    )
    check_cluster(cluster)
    assert metrics.total("fairbind_exact_solves_total", result="failed") == 0.0
    wait_for_reason(api, "Solved")

    policy(policy="fifo")  # which knows no fairness
    wait_for_metrics(running, lambda now: not now.select("fairbind_tenant_fair_share"), "the series to go away")
    assert wait_for_reason(api, "NoExactMechanism")["status"] == "False"
    wait_for(lambda: read_fair_share(api, first) is None, describe="the field to go away")
    (worker,) = find_workers(running)
    assert running.stop() == 0
    assert not is_alive(worker)


def bind_without_answer(api: Api, running: Operator, namespace: str, tenant: str, known: int) -> tuple[int, int]:
    """Have a pod bound while no answer comes; no worker is let go. Twelve cores are all that there is.

    known: how many pods the last answer was about. Return the same of now, and how many questions there were before.
    Where the machine stands still for so long that the operator gives the answer up, that round says nothing: it
    could have been the end of waiting that let the pod be bound. Another one is made.
    """

    def are_bound(count: int) -> bool:
        # It may have been asked for an audit: the operator gives that up some day and asks another worker.
        return signal_workers(running, signal.SIGSTOP) and count_bound(api, namespace) == count

    for answered in range(known, known + ROUNDS_TRIED):
        asked = count_questions(running)
        timed_out = running.metrics().total("fairbind_exact_solves_total", result="timeout")
        signal_workers(running, signal.SIGSTOP)  # no answer comes from now on
        stopped_at = time.monotonic()
        create_pods(api, namespace, [make_pod(SMALL)])  # one: of more, the first alone could be what is asked about
        wait_for(functools.partial(are_bound, answered + 1), describe="a pod to be bound meanwhile")
        metrics = running.metrics()
        if time.monotonic() - stopped_at < SOLVE_SECONDS:
            assert metrics.value("fairbind_tenant_fair_share", tenant=tenant) == pytest.approx(answered / 12)
            assert metrics.total("fairbind_exact_solves_total", result="timeout") == timed_out
            assert metrics.total("fairbind_exact_solves_total", result="failed") == 0.0
            return answered, asked
        let_go = functools.partial(signal_workers, running, signal.SIGCONT)
        wait_for_fair_shares(running, {tenant: (answered + 1) / 12}, meanwhile=let_go)
    pytest.fail(f"the machine stood still in each of {ROUNDS_TRIED} rounds")


def test_whatever_happens_to_who_solves_pods_are_bound_and_another_one_solves(
    api: Api, nodes: MakeNodes, namespace: MakeNamespace, tenant: MakeTenant, operator: StartOperator
) -> None:
    nodes([make_node(make_name("n"), allocatable=TWELVE_CORES)])
    own = namespace()
    name = tenant(namespaces=[own])
    create_pods(api, own, [make_pod(SMALL) for _ in range(3)])
    running = operator("--log-level=debug")
    wait_for_fair_shares(running, {name: 0.25})
    (worker,) = find_workers(running)

    os.kill(worker, signal.SIGKILL)  # while it has nothing to do: nobody notices
    create_pods(api, own, [make_pod(SMALL)])
    metrics = wait_for_fair_shares(running, {name: 4 / 12})
    assert metrics.value("fairbind_exact_solves_total", result="failed") == 0.0
    (worker,) = find_workers(running)

    known, asked = bind_without_answer(api, running, own, name, known=4)
    hold_answers = functools.partial(signal_workers, running, signal.SIGSTOP)
    wait_for(running.is_ready, describe="it to be ready")
    wait_for(lambda: hold_answers() and count_questions(running) > asked, describe="the question")
    lose_answers = functools.partial(signal_workers, running, signal.SIGKILL)  # also when it is asked again

    def is_counted(now: Metrics) -> bool:
        lose_answers()
        return now.total("fairbind_exact_solves_total", result="failed") >= 1.0

    metrics = wait_for_metrics(running, is_counted, "the lost answer to be counted")
    assert metrics.value("fairbind_tenant_fair_share", tenant=name) == pytest.approx(known / 12)
    wait_for(
        lambda: "process ended" in wait_for_reason(api, "SolveFailed", meanwhile=lose_answers)["message"],
        describe="the condition to say why",
    )
    create_pods(api, own, [make_pod(SMALL) for _ in range(3)])
    wait_for_fair_shares(running, {name: (known + 4) / 12})
    wait_for_reason(api, "Solved")

    wait_for(lambda: count_bound(api, own) == known + 4, describe="all pods to be bound")
    (worker,) = find_workers(running)
    running.kill()
    wait_for(lambda: not is_alive(worker), describe="no worker to be left")
