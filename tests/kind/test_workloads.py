"""Hundreds of real pods flow through three workers: kubelets refuse none of them, alone and beside kube-scheduler."""

from __future__ import annotations

import functools
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from e2e.checks import is_held, is_ours
from e2e.conftest import remove
from e2e.operators import read_term
from e2e.waiting import wait_for
from e2e.workloads import create_pods, list_pods
from kind.judge import Picture, check_shares, count_phases, find_refusals, is_refused, is_running, wait_calm
from kind.owners import (
    RESEARCH,
    create_daemon_set,
    create_deployment,
    is_daemon_set_ready,
    make_kind_pod,
    make_pod_spec,
    scale,
)
from kind.release import is_leaving
from kind.workloads import make_container
from localplane.client import call_many

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from e2e.api import Api, Json
    from e2e.conftest import MakeNamespace, MakeTenant
    from kind.release import Release
    from kindcluster.cluster import Cluster

SEED = 20261121
BARE_PODS = 510
TERMS_TRIED = 3
FLOW_SECONDS = 600.0
LOOK_SECONDS = 1.0
TINY = {"cpu": "10m", "memory": "16Mi"}
DEFAULT_SCHEDULER = "default-scheduler"


@dataclass(slots=True)
class Witness:
    """Looks at the cluster again and again and remembers what must never be."""

    api: Api
    overcommitted: list[str] = field(default_factory=list)
    overfull: list[str] = field(default_factory=list)
    most_bound: int = 0

    def look(self) -> Picture:
        picture = Picture.take(self.api)
        self.overcommitted += picture.find_overcommitted()
        self.overfull += picture.find_overfull()
        self.most_bound = max(self.most_bound, sum(1 for pod in picture.pods if pod["spec"].get("nodeName")))
        return picture

    def wait(self, is_over: Callable[[Picture], object], describe: str, timeout: float = FLOW_SECONDS) -> None:
        """Look until it is over."""
        wait_for(lambda: is_over(self.look()), timeout, describe, pause=LOOK_SECONDS)


def draw_pods(rng: random.Random, count: int, *, tolerant: bool) -> list[Json]:
    """Return short-lived pods with random requests and limits. Some only limit, which is their request then."""
    pods = []
    for _ in range(count):
        cpu, memory = rng.randrange(20, 141, 5), rng.randrange(16, 129, 4)
        requests = {"cpu": f"{cpu}m", "memory": f"{memory}Mi"}
        limits = {"cpu": f"{max(100, cpu * rng.randint(1, 3))}m", "memory": f"{max(48, memory * rng.randint(1, 2))}Mi"}
        resources: Json = rng.choice([{"requests": requests}, {"requests": requests, "limits": limits}])
        if rng.random() < 0.1:
            resources = {"limits": {"cpu": "100m", "memory": "48Mi"}}
        container = make_container(f"-sleep={rng.choice(['100ms', '500ms', '1s', '2s'])}", resources=resources)
        taints = [RESEARCH] if tolerant else []
        pods.append(make_kind_pod(containers=[container], restartPolicy="Never", tolerations=taints))
    return pods


def count_rejected(release: Release) -> float:
    """Return how many pods kubelets refused, as the leader counts."""
    return release.metrics().total("fairbind_rejected_pods_total")


def read_metric(release: Release, name: str, **labels: str) -> float:
    return release.metrics().total(name, **labels)


@dataclass(frozen=True, slots=True)
class Counts:
    """What the leader has counted, and in which term."""

    term: tuple[str, int]
    bound: float
    fenced: float
    crowded: float
    rejected: float

    @classmethod
    def take(cls, api: Api, release: Release) -> Counts:
        while True:
            term = read_term(api)
            bound, fenced, crowded = (
                read_metric(release, "fairbind_bindings_total", result=result)
                for result in ("bound", "fenced", "crowded")
            )
            counts = cls(term, bound, fenced, crowded, count_rejected(release))
            if read_term(api) == term:
                return counts


@pytest.fixture
def witness(api: Api, fairbind_installed: Release) -> Witness:
    """On a cluster whose kubelets have come to rest."""
    fairbind_installed.wait_leader()
    wait_calm(api)
    return Witness(api)


@pytest.mark.nightly
def test_kubelets_refuse_none_of_five_hundred_pods(
    kind_cluster: Cluster,
    fairbind_installed: Release,
    api: Api,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    witness: Witness,
) -> None:
    """Bare pods, because nothing makes a refused one again: each that kubelets refuse stays Failed for ever."""
    rng = random.Random(SEED)
    spaces = [namespace() for _ in range(3)]
    tenants = [tenant(namespaces=[space], weight=weight) for space, weight in zip(spaces, (1, 2, 1), strict=True)]
    workers = len(kind_cluster.workers())
    for name, scheduler in (("ours", "fairbind"), ("theirs", DEFAULT_SCHEDULER)):
        create_daemon_set(api, spaces[0], name, make_pod_spec(TINY, scheduler_name=scheduler, tolerations=[RESEARCH]))
        ready = functools.partial(is_daemon_set_ready, api, spaces[0], name, workers)
        wait_for(ready, describe=f"the DaemonSet {name}")

    for round_number in range(1, TERMS_TRIED + 1):
        counts = Counts.take(api, fairbind_installed)
        for number, space in enumerate(spaces):
            create_pods(api, space, draw_pods(rng, BARE_PODS // 3, tolerant=number < 2))
        all_pods, started = round_number * BARE_PODS, time.monotonic()
        witness.wait(functools.partial(have_succeeded, api, spaces, all_pods), f"{all_pods} pods to succeed")
        print(
            f"{BARE_PODS} pods flowed in {time.monotonic() - started:.0f} s, at most {witness.most_bound} bound at once"
        )

        assert find_refusals(api, *spaces) == []
        assert count_phases(api, *spaces) == {"Succeeded": all_pods, "Running": 2 * workers}
        assert witness.overcommitted == []
        assert len({pod["spec"]["nodeName"] for space in spaces for pod in list_pods(api, space)}) == workers
        now = Counts.take(api, fairbind_installed)
        if now.term == counts.term:  # counters begin again with each leader: another round is made
            break
    else:
        pytest.fail(f"the lead passed on in each of {TERMS_TRIED} rounds")
    # no metric counts the outcome of a binding that was sent before the fence closed
    assert BARE_PODS - now.fenced <= now.bound - counts.bound <= BARE_PODS
    # no other scheduler took any room: each decision was right from the beginning, not put right at the last look
    assert now.crowded == counts.crowded
    assert now.rejected == counts.rejected
    shares = check_shares(api, *tenants)
    assert [shares[name]["running"] for name in tenants] == [2 * workers, 0, 0]


def have_succeeded(api: Api, spaces: Sequence[str], count: int, picture: Picture) -> bool:
    """Tell whether so many bare pods have, which are all; fail at once when one cannot any more."""
    phases = Counter(pod["status"].get("phase") for pod in picture.pods if pod["metadata"]["namespace"] in spaces)
    if phases["Failed"]:
        pytest.fail(f"{phases['Failed']} have failed: {find_refusals(api, *spaces)[:5]}")
    return phases["Succeeded"] == count


def compute_slots(picture: Picture, nodes: Sequence[str], cpu_milli: int) -> int:
    """Return how many pods of so much CPU fit on these nodes beside what runs there."""
    free = 0
    for node in nodes:
        left = picture.allocatable(node)["cpu"] - picture.used.get(node, {}).get("cpu", 0)
        free += int(left * 1000) // cpu_milli
    return free


@pytest.mark.nightly
def test_two_schedulers_fill_the_same_nodes_at_once(
    kind_cluster: Cluster,
    fairbind_installed: Release,
    api: Api,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    witness: Witness,
) -> None:
    """Each wants most of the room; whoever comes too late is refused by a kubelet, counted, made anew, and waits."""
    own = namespace()
    name = tenant(namespaces=[own])
    before, term = count_rejected(fairbind_installed), read_term(api)
    wanted = {"cpu": "120m", "memory": "32Mi"}
    slots = compute_slots(Picture.take(api), kind_cluster.workers(), 120)
    each = slots * 3 // 4
    for scheduler in ("fairbind", DEFAULT_SCHEDULER):
        spec = make_pod_spec(wanted, scheduler_name=scheduler, tolerations=[RESEARCH])
        create_deployment(api, own, scheduler, each, spec)

    def is_full(picture: Picture) -> bool:
        """Whether all room is taken again, and nobody is about to leave any."""
        pods = [pod for pod in picture.pods if pod["metadata"]["namespace"] == own]
        running = sum(map(is_running, pods))
        return running == slots and not any(map(is_leaving, pods)) and not picture.find_forgotten()

    witness.wait(is_full, f"{slots} of {2 * each} pods to run")
    for _ in range(3):  # who gets the room that comes free?
        running = [pod["metadata"]["name"] for pod in list_pods(api, own) if is_running(pod)]
        call_many(sorted(running)[::4], lambda pod: remove(api, f"/api/v1/namespaces/{own}/pods/{pod}"))
        witness.wait(is_full, "the room that came free to be taken")

    refused = [pod for pod in list_pods(api, own) if is_refused(pod)]
    print(f"{len(refused)} refused, {sum(map(is_ours, refused))} of ours; {slots} run")
    assert witness.overfull == []

    def is_counted() -> bool:
        """Kubelets may refuse one more between two looks. Counters begin anew with each leader."""
        ours = sum(1 for pod in list_pods(api, own) if is_refused(pod) and is_ours(pod))
        return read_term(api) != term or count_rejected(fairbind_installed) - before == ours

    wait_for(is_counted, FLOW_SECONDS, "all refused pods of ours to be counted", pause=LOOK_SECONDS)
    check_shares(api, name)

    scale(api, own, DEFAULT_SCHEDULER, 0)

    def are_all_ours(picture: Picture) -> bool:
        held = [pod for pod in picture.pods if pod["metadata"]["namespace"] == own and is_held(pod)]
        return len(held) == each and all(is_ours(pod) and is_running(pod) for pod in held)

    witness.wait(are_all_ours, f"all {each} pods of ours to run, and no others")
    assert witness.overfull == []
    shares = check_shares(api, name)
    assert (shares[name]["running"], shares[name]["pending"]) == (each, 0)


@pytest.mark.nightly
def test_a_pod_that_somebody_else_bound_where_there_is_no_room_is_counted(
    kind_cluster: Cluster,
    fairbind_installed: Release,
    api: Api,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    witness: Witness,
) -> None:
    """Our own pod, bound by somebody else to a node that is too small for it: its kubelet refuses it, once."""
    own = namespace()
    name = tenant(namespaces=[own])
    small = kind_cluster.find_worker("small")
    before, term = count_rejected(fairbind_installed), read_term(api)
    huge = make_kind_pod({"cpu": "1000", "memory": "16Mi"})
    (pod,) = create_pods(api, own, [huge])
    path = f"/api/v1/namespaces/{own}/pods/{pod}"
    wait_for(
        lambda: "Insufficient cpu" in read_message(api.get(path)), describe="it to be told that nothing is so large"
    )
    assert check_shares(api, name)[name]["pending"] == 1

    binding = {"metadata": {"name": pod}, "target": {"apiVersion": "v1", "kind": "Node", "name": small}}
    api.post(f"{path}/binding", {"apiVersion": "v1", "kind": "Binding", **binding})
    wait_for(lambda: is_refused(api.get(path)), describe="the kubelet to refuse it")

    assert api.get(path)["status"]["reason"] == "OutOfcpu"

    def is_counted() -> bool:
        if read_term(api) != term:  # counters begin anew with each leader
            return True
        assert count_rejected(fairbind_installed) == before + 1
        return read_metric(fairbind_installed, "fairbind_rejected_pods_total", reason="resources") == before + 1

    wait_for(is_counted, describe="it to be counted")
    shares = check_shares(api, name)
    assert (shares[name]["running"], shares[name]["pending"]) == (0, 0)
    assert witness.look().find_overfull() == []


def read_message(pod: Json) -> str:
    conditions = pod["status"].get("conditions") or []
    return next((c.get("message") or "" for c in conditions if c["type"] == "PodScheduled"), "")
