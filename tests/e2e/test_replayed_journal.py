"""The journal of a live operator, decided again: pods come and end while it decides, and each cycle decides the same.

The API server's watch is the history of the world, in one order. Each cycle saw a beginning of it and what the operator
had bound itself, so the history goes on until the world is the one that the journal says the cycle saw. Nothing here
depends on how fast anything was.

A world is told by its counts. Events that change none of them, as when a pod began to run, may have come before a cycle
or after it: by them the operator learns what to reserve. So what was reserved comes from the journal, and each cycle is
decided again with as few and with as many of these events.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from e2e.objects import make_name, make_pod
from e2e.operators import PROGRAM
from e2e.waiting import wait_for
from e2e.workloads import SHAPES, create_pod, create_pods
from fairbind.cluster.loop.deciding import Decider
from fairbind.cluster.loop.journal import CycleRecord, compute_fingerprint, find_difference, parse_journal
from fairbind.cluster.loop.pacing_events import RunCycle
from fairbind.cluster.objects.decode import PODS, Changed
from fairbind.what_if.listed_objects import build_cache
from fairbind.what_if.snapshot_file import parse_snapshot
from localplane.nodes import make_node

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from e2e.conftest import MakeNamespace, MakeNodes, MakeTenant, StartOperator
    from fairbind.cluster.cache.cache import ClusterCache
    from fairbind.what_if.listed_objects import ListedObjects

WATCH_SECONDS = 60
ROUNDS_TRIED = 5
LAST = "the-last"
"""A pod that waits for another scheduler; nothing that is looked at comes after it."""


@dataclass(frozen=True, slots=True)
class Round:
    """What was there before an operator decided, what it says that it decided, and all events of pods since."""

    listed: ListedObjects
    records: list[CycleRecord]
    history: list[Json]


@pytest.mark.parametrize("pods_of_tenant", [25, pytest.param(130, marks=pytest.mark.nightly)])
def test_a_journal_is_decided_again_while_pods_come_and_end(
    cluster: Cluster,
    nodes: MakeNodes,
    namespace: MakeNamespace,
    tenant: MakeTenant,
    operator: StartOperator,
    policy: Callable[..., None],
    tmp_path: Path,
    pods_of_tenant: int,
) -> None:
    """Where the machine stands still, something else happens too; that round is judged up to there, and repeated.

    A journal has no exact answers, so nothing is guided.
    """
    policy(guided=False)
    large, small = {"cpu": "24", "memory": "48Gi", "pods": "110"}, {"cpu": "12", "memory": "72Gi", "pods": "110"}
    nodes([make_node(make_name("n"), allocatable=kind) for kind in (large, large, small, small)])
    for number in range(ROUNDS_TRIED):
        spaces = [namespace() for _ in range(4)]
        for place, space in enumerate(spaces):
            tenant(namespaces=[space], weight=str(1 + place % 2))
        folder = tmp_path / str(number)
        folder.mkdir()
        played = play(cluster, operator, spaces, folder, pods_of_tenant)
        trusted = list(find_undisturbed(played.records))
        for is_early in (False, True):
            assert compare(played.listed, trusted, played.history, is_early=is_early) == len(trusted)
        if len(trusted) == len(played.records):
            assert len(find_decided(trusted)) == 4 * pods_of_tenant
            assert len(trusted) > pods_of_tenant // 25  # it decided while pods came and ended
            return
    pytest.fail(f"the machine stood still in each of {ROUNDS_TRIED} rounds")


def play(cluster: Cluster, operator: StartOperator, spaces: Sequence[str], folder: Path, pods_of_tenant: int) -> Round:
    """Let an operator decide about pods of four tenants that come and end. folder: for the files of this round."""
    api, file, journal, last = cluster.api, folder / "cluster.json", folder / "journal", make_name(LAST)
    command = [str(PROGRAM), "snapshot", f"--kubeconfig={cluster.kubeconfig}", "--out", str(file)]
    subprocess.run(command, capture_output=True, timeout=120, check=True)
    start = api.get("/api/v1/pods", limit=1)["metadata"]["resourceVersion"]

    with ThreadPoolExecutor() as threads:
        history: list[Json] = []
        watching = threads.submit(follow, api, start, history, last)
        try:
            running = operator(f"--journal={journal}")
            creating = [threads.submit(create_pods, api, space, make_pods(pods_of_tenant)) for space in spaces]
            wait_for(
                lambda: len(find_bound_uids(history, spaces)) == 4 * pods_of_tenant,
                describe=lambda: f"all pods to be bound, not {len(find_bound_uids(history, spaces))}",
            )
            for done in creating:
                done.result()
            wait_for(lambda: len(find_decided(read(journal))) >= 4 * pods_of_tenant, describe="the journal")
        finally:
            create_pod(api, spaces[0], make_pod(name=last, scheduler_name="nobody"))  # which ends the watch
        watching.result()
    records = read(journal)
    running.stop()
    return Round(parse_snapshot(json.loads(file.read_text(encoding="utf-8"))), records, history)


def make_pods(count: int) -> list[Json]:
    """Return a tenant's pods, of four shapes in turn, which end a second after their start."""
    return [make_pod(SHAPES[number % len(SHAPES)], run_seconds=1) for number in range(count)]


def follow(api: Api, version: str, history: list[Json], last: str) -> None:
    """Note all events of pods up to that of the last one. A server ends a watch that is read too slowly."""
    while True:
        for event in api.watch("/api/v1/pods", timeout_seconds=WATCH_SECONDS, resourceVersion=version):
            history.append(event)
            version = event["object"]["metadata"]["resourceVersion"]
            if event["object"]["metadata"]["name"] == last:
                return


def find_bound_uids(history: Iterable[Json], spaces: Collection[str]) -> set[str]:
    pods = [event["object"] for event in list(history)]
    return {
        pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName") and pod["metadata"]["namespace"] in spaces
    }


def read(journal: Path) -> list[CycleRecord]:
    return parse_journal(journal.read_bytes().splitlines())[0] if journal.exists() else []


def find_decided(records: Iterable[CycleRecord]) -> Counter[str]:
    """How often it was decided about each pod."""
    return Counter(uid for record in records for uid, _ in record.bindings)


def find_undisturbed(records: list[CycleRecord]) -> Iterator[CycleRecord]:
    """Yield the cycles before the world had more in it than events of pods: all of them unless the machine stalled.

    After a binding that failed the operator decides about the pod again; a node whose heartbeat is late takes no pods.
    """
    decided = find_decided(records)
    for record in records:
        if record.world.usable_servers != records[0].world.usable_servers:
            return
        yield record
        if any(decided[uid] > 1 for uid, _ in record.bindings):
            return


def compare(listed: ListedObjects, records: Iterable[CycleRecord], history: Iterable[Json], *, is_early: bool) -> int:
    """Decide each cycle again and return how many there are; fail at the first that decides something else.

    is_early: whether events that change no count come before a cycle or after it.
    """
    cache, decider, events = build_cache(listed), Decider(), deque(history)
    compared = 0
    for record in records:
        while compute_fingerprint(cache.build_snapshot()) != record.world:
            assert events, f"no such world as in cycle {record.number}: {record.world}"
            apply(cache, events.popleft())
        while is_early and events and not is_counted(cache, events[0]):
            apply(cache, events.popleft())
        snapshot = cache.build_snapshot()
        order = RunCycle(record.limit, record.explains, record.turns)
        decider.reservations.restore(record.reserved or (), snapshot)
        report = decider.decide(snapshot, cache.settings, record.time, order)
        assert find_difference(record, snapshot, report) is None
        for bind in report.bindings:
            assert cache.assume(bind.task.uid, bind.server)
        cache.note_waits(report.waits, rotates=record.turns)
        compared += 1
    return compared


def apply(cache: ClusterCache, event: Json) -> None:
    changed = PODS.decode_event(json.dumps(event).encode())
    assert isinstance(changed, Changed)
    (cache.pods.delete if changed.deleted else cache.pods.apply)(changed.item)


def is_counted(cache: ClusterCache, event: Json) -> bool:
    """Whether an event may change what there is: all but those about pods that hold their capacity and go on."""
    pod = cache.find_pod(event["object"]["metadata"]["uid"])
    goes_on = event["type"] == "MODIFIED" and event["object"]["status"].get("phase") in {"Pending", "Running"}
    return not goes_on or pod is None or (pod.node or pod.assumed) != event["object"]["spec"].get("nodeName")
