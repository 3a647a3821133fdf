"""Of a tenant with very many wishes about other pods so many are looked at, and all have their turn."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_node, make_pod, next_version, read_pod
from fairbind.cluster.messages import format_unschedulable
from fairbind.cluster.state import term_rotation
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.model import CycleReport, RejectionKind
from fairbind.scheduling import run_cycle
from seeds import draw_seeds

MOST = 4
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture(autouse=True)
def _few_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(term_rotation, "MAX_TENANT_TERMS", MOST)


def near(app: str) -> Json:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAffinity": {REQUIRED: [term]}}


def make_wishing(number: int, app: str | None = None, **more: Any) -> Json:
    return make_pod(f"p{number:02}", affinity=near(app or f"app-{number}"), **more)


def make_cluster() -> Cluster:
    cluster = Cluster()
    cluster.add_nodes(make_node("a", labels={"zone": "1"}))
    return cluster


def cycle(cluster: Cluster) -> CycleReport:
    cluster.cache.check_consistent()
    report = run_cycle(cluster.cache.build_snapshot(), cluster.cache.settings, 0.0)
    for bind in report.bindings:
        cluster.cache.assume(bind.task.uid, bind.server)
    cluster.note_waits(report.waits)
    return report


def count_watched(cluster: Cluster) -> int:
    return len(cluster.cache.state.filters.topology._users)


def test_so_many_terms_are_counted_and_the_rest_says_that_it_waits_its_turn() -> None:
    cluster = make_cluster()
    cluster.add_pods(*(make_wishing(n) for n in range(10)))

    report = cycle(cluster)

    later = [wait for wait in report.waits if wait.blocked is not None]
    assert [(wait.waiting, wait.blocked and wait.blocked.kind) for wait in later] == [(6, RejectionKind.LATER)]
    assert "come first" in format_unschedulable(later[0], 1)
    assert count_watched(cluster) <= MOST


def test_users_of_a_tenant_have_their_terms_looked_at_together() -> None:
    cluster = make_cluster()
    cluster.cache.set_tenant(TenantSpec("t", namespaces=frozenset({"team"}), users_label="user"))
    cluster.add_pods(*(make_wishing(n, labels={"user": f"u{n}"}) for n in range(10)))
    cycle(cluster)
    assert count_watched(cluster) <= MOST


def test_a_pod_behind_many_that_fit_nowhere_has_its_turn_without_any_change() -> None:
    cluster = make_cluster()
    cluster.add_pods(make_pod("web", labels={"app": "web"}, node="a", phase="Running"))
    cluster.add_pods(*(make_wishing(n) for n in range(12)), make_wishing(99, "web"))
    bound: list[str] = []
    for _ in range(20):
        woken = cluster.changes
        bound.extend(bind.task.uid for bind in cycle(cluster).bindings)
        if bound:
            break
        assert cluster.changes > woken  # nothing else would run the next cycle

    assert bound == ["uid-p99"]


def test_a_round_ends_when_all_were_looked_at_and_begins_again_with_a_change() -> None:
    cluster = make_cluster()
    cluster.add_pods(*(make_wishing(n) for n in range(10)))
    for _ in range(30):
        cycle(cluster)
    quiet = cluster.changes
    cycle(cluster)
    assert cluster.changes == quiet

    cluster.add_pods(make_pod("web", labels={"app": "app-9"}, node="a", phase="Running"))
    bound = [bind.task.uid for _ in range(30) for bind in cycle(cluster).bindings]
    assert bound == ["uid-p09"]


def test_when_pods_go_others_have_their_turn() -> None:
    cluster = make_cluster()
    cluster.add_pods(*(make_wishing(n) for n in range(6)))
    cluster.cache.build_snapshot()
    looked_at = {task.uid for c in cluster.cache.build_snapshot().task_classes if c.blocked is None for task in c.tasks}
    for uid in looked_at:
        name = uid.removeprefix("uid-")
        pod = make_wishing(int(name[1:]))
        pod["metadata"]["resourceVersion"] = next_version()
        cluster.cache.pods.delete(read_pod(pod))

    left = {task.uid for c in cluster.cache.build_snapshot().task_classes if c.blocked is None for task in c.tasks}

    assert len(looked_at) == MOST
    assert len(left) == 2
    assert not left & looked_at


def test_a_pod_with_more_terms_than_all_is_looked_at_alone() -> None:
    cluster = make_cluster()
    terms = [{"topologyKey": "zone", "labelSelector": {"matchLabels": {"n": str(n)}}} for n in range(2 * MOST)]
    cluster.add_pods(make_pod("much", affinity={"podAntiAffinity": {REQUIRED: terms}}))

    assert [bind.task.uid for bind in cycle(cluster).bindings] == ["uid-much"]


def test_other_tenants_have_their_own_turns() -> None:
    cluster = make_cluster()
    cluster.add_pods(*(make_wishing(n) for n in range(10)))
    cluster.add_pods(*(make_wishing(20 + n, namespace="other") for n in range(3)))

    waits = Counter((w.task_class.tenant, w.blocked is None) for w in cycle(cluster).waits for _ in range(w.waiting))

    assert waits == {("ns/team", True): MOST, ("ns/team", False): 6, ("ns/other", True): 3}


@pytest.mark.parametrize("seed", draw_seeds(20))
def test_whatever_comes_and_goes_nothing_is_lost(seed: int) -> None:
    cluster, draw = make_cluster(), random.Random(seed)
    pods: dict[str, Json] = {}
    for number in range(60):
        match draw.choice(("add", "add", "go", "cycle", "bind")):
            case "add":
                pods[f"uid-p{number:02}"] = make_wishing(number, f"app-{draw.randrange(9)}", labels={"app": "x"})
                cluster.add_pods(pods[f"uid-p{number:02}"])
            case "go" if pods:
                pod = pods.pop(draw.choice(sorted(pods)))
                pod["metadata"]["resourceVersion"] = next_version()
                cluster.cache.pods.delete(read_pod(pod))
            case "bind" if pods:
                pod = pods.pop(draw.choice(sorted(pods)))
                pod["metadata"]["resourceVersion"] = next_version()
                pod["spec"]["nodeName"] = "a"
                cluster.add_pods(pod)
            case _:
                cycle(cluster)
        snapshot = cluster.cache.build_snapshot()
        assert sorted(task.uid for c in snapshot.task_classes for task in c.tasks) == sorted(pods)
        assert count_watched(cluster) <= MOST
    for pod in pods.values():
        pod["metadata"]["resourceVersion"] = next_version()
        cluster.cache.pods.delete(read_pod(pod))
    assert not cluster.cache.state.filters.rotation._tenants
    assert count_watched(cluster) == 0
