"""The judge sees what it is there for: each test writes an audit log in which one thing is wrong, or nothing."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest

from e2e.audit import CREDENTIAL
from e2e.checks import View
from e2e.modes import SCHEDULERS
from e2e.objects import make_pod
from faults.judge import KUBE_SCHEDULER, OPENED, Judge, add_bodies
from faults.main import find_miscounted
from faults.world import Replica, World
from localplane.components import AUDIT_POLICY

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def at(seconds: float) -> str:
    return (START + dt.timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def make_event(seconds: float, owner: str, **fields: Any) -> dict[str, Any]:
    return {
        "stage": "ResponseComplete",
        "requestReceivedTimestamp": at(seconds),
        "stageTimestamp": at(seconds + 0.01),
        "user": {"username": "fairbind", "extra": {CREDENTIAL: [f"JTI={owner}"]}},
        "responseStatus": {"code": 201},
        **fields,
    }


def make_lease(seconds: float, owner: str, *, holder: str | None = None, code: int = 200) -> dict[str, Any]:
    target = {"resource": "leases", "namespace": "fairbind-system", "name": "fairbind"}
    body = {"spec": {"holderIdentity": owner if holder is None else holder}}
    status = {"code": code}
    return make_event(seconds, owner, verb="update", objectRef=target, requestObject=body, responseStatus=status)


def make_binding(seconds: float, owner: str, pod: str = "p", *, code: int = 201) -> dict[str, Any]:
    target = {"resource": "pods", "subresource": "binding", "namespace": "red", "name": pod}
    body = {"metadata": {"uid": f"uid-{pod}"}, "target": {"name": "n"}}
    status = {"code": code}
    return make_event(seconds, owner, verb="create", objectRef=target, requestObject=body, responseStatus=status)


def make_opening(seconds: float, owner: str, pod: str = "p", *, code: int = 200) -> dict[str, Any]:
    target = {"resource": "pods", "namespace": "red", "name": pod}
    body = {"metadata": {"uid": f"uid-{pod}"}, "spec": {"schedulingGates": []}}
    status = {"code": code}
    return make_event(seconds, owner, verb="patch", objectRef=target, requestObject=body, responseStatus=status)


def by_scheduler(event: dict[str, Any]) -> dict[str, Any]:
    """Return the same as kube-scheduler does it, with its certificate."""
    return {**event, "user": {"username": KUBE_SCHEDULER}}


def judge(folder: Path, events: Sequence[dict[str, Any]], *, binder: str = "") -> Judge:
    log = folder / "audit.log"
    log.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events), encoding="utf-8")
    return Judge(log, binder=binder, owners={"JTI=a": "a", "JTI=b": "b", "JTI=a-renewed": "a"})


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([make_lease(0, "a"), make_binding(1, "a")], None),
        ([make_lease(0, "a"), make_binding(1, "a-renewed")], None),
        ([make_lease(0, "a"), make_lease(8, "a"), make_binding(17, "a")], None),
        ([make_lease(0, "a"), make_lease(8, "a", code=500), make_binding(17, "a")], "17.0 s after its last renewal"),
        ([make_lease(0, "a"), make_binding(11, "a")], "11.0 s after its last renewal"),
        ([make_lease(0, "a"), make_lease(5, "b"), make_binding(6, "a")], "in the term of b"),
        ([make_lease(0, "a"), make_lease(5, "b", code=409), make_binding(6, "a")], None),
        ([make_lease(0, "a"), make_lease(5, "a", holder=""), make_binding(6, "a")], "given the lease back"),
        ([make_binding(1, "a")], "before anybody had led"),
        ([make_lease(0, "a"), make_binding(1, "a"), make_binding(2, "a")], "red/p was bound twice"),
        ([make_lease(0, "a"), make_binding(1, "a", code=409), make_binding(2, "a")], None),
        ([make_lease(0, "a"), make_binding(1, "a", "p"), make_binding(2, "a", "q")], None),
    ],
)
def test_what_a_binding_is_judged_by(tmp_path: Path, events: list[dict[str, Any]], complaint: str | None) -> None:
    found = judge(tmp_path, events).judge()

    assert len(found) == (complaint is not None), found
    assert complaint is None or complaint in found[0]


@pytest.mark.parametrize(
    ("events", "complaint"),
    [
        ([make_lease(0, "a"), make_opening(1, "a"), by_scheduler(make_binding(2, ""))], None),
        (
            [make_lease(0, "a"), make_lease(5, "b"), make_opening(6, "a")],
            "a opened red/p at 00:00:06.000000",
        ),
        ([make_lease(0, "a"), make_lease(5, "b", code=409), make_opening(6, "a")], None),
        ([make_lease(0, "a"), make_opening(11, "a")], "11.0 s after its last renewal"),
        ([make_lease(0, "a"), make_lease(5, "a", holder=""), make_opening(6, "a")], "given the lease back"),
        ([make_opening(1, "a")], "before anybody had led"),
        ([make_lease(0, "a"), make_opening(1, "a"), make_opening(2, "a")], "red/p was opened twice"),
        ([make_lease(0, "a"), make_opening(1, "a", code=409), make_opening(2, "a")], None),
        ([make_lease(0, "a"), make_opening(1, "a", "p"), make_opening(2, "a", "q")], None),
        ([by_scheduler(make_binding(1, "")), by_scheduler(make_binding(2, ""))], "red/p was bound twice"),
        ([make_lease(0, "a"), make_binding(1, "a"), by_scheduler(make_binding(2, ""))], "red/p was bound twice"),
        ([make_lease(0, "a"), make_lease(5, "b"), make_binding(6, "a")], "a bound red/p at"),
    ],
)
def test_where_kube_scheduler_binds_openings_are_judged_as_bindings_are_elsewhere(
    tmp_path: Path, events: list[dict[str, Any]], complaint: str | None
) -> None:
    found = judge(tmp_path, events, binder=KUBE_SCHEDULER).judge()

    assert len(found) == (complaint is not None), found
    assert complaint is None or complaint in found[0]


def test_where_the_operators_bind_kube_scheduler_may_not(tmp_path: Path) -> None:
    (found,) = judge(tmp_path, [make_lease(0, "a"), by_scheduler(make_binding(1, ""))]).judge()

    assert found == f"{KUBE_SCHEDULER} bound red/p at 00:00:01.000000 in the term of a"


def test_only_operators_open_and_only_by_a_patch_of_the_pod_itself(tmp_path: Path) -> None:
    by_status = make_opening(2, "a", "q")
    by_status["objectRef"]["subresource"] = "status"
    judging = judge(tmp_path, [make_lease(0, "a"), by_scheduler(make_opening(1, "")), by_status, make_opening(3, "a")])

    assert judging.judge() == []
    assert [(deed.what, deed.uid) for deed in judging.deeds] == [(OPENED, "uid-p")]


def test_a_gate_that_a_restore_has_closed_may_be_opened_again(tmp_path: Path) -> None:
    judging = judge(tmp_path, [make_lease(0, "a"), make_opening(1, "a", "old"), make_opening(3, "a", "new")])
    judging.forget_since(START + dt.timedelta(seconds=2))
    with judging.audit_log.open("a", encoding="utf-8") as log:
        for event in (make_lease(4, "a"), make_opening(5, "a", "new"), make_opening(6, "a", "old")):
            log.write(json.dumps(event, separators=(",", ":")) + "\n")

    assert judging.judge() == ["red/old was opened twice"]


def test_what_a_restore_has_undone_may_be_done_again(tmp_path: Path) -> None:
    judging = judge(tmp_path, [make_lease(0, "a"), make_binding(1, "a", "old"), make_binding(3, "a", "new")])
    assert judging.judge() == []

    judging.forget_since(START + dt.timedelta(seconds=2))
    with judging.audit_log.open("a", encoding="utf-8") as log:
        for event in (make_lease(4, "a"), make_binding(5, "a", "new"), make_binding(6, "a", "old")):
            log.write(json.dumps(event, separators=(",", ":")) + "\n")

    assert judging.judge() == ["red/old was bound twice"]


def test_what_was_on_its_way_when_the_copy_was_made_may_be_done_again(tmp_path: Path) -> None:
    judging = judge(tmp_path, [make_lease(0, "a"), make_binding(1.995, "a", "old")])
    judging.forget_since(START + dt.timedelta(seconds=2))
    with judging.audit_log.open("a", encoding="utf-8") as log:
        for event in (make_lease(3, "a"), make_binding(4, "a", "old")):
            log.write(json.dumps(event, separators=(",", ":")) + "\n")

    assert judging.judge() == []


def test_a_line_that_is_half_written_is_read_once_it_is_whole(tmp_path: Path) -> None:
    judging = judge(tmp_path, [make_lease(0, "a")])
    line = json.dumps(make_binding(1, "b"), separators=(",", ":")) + "\n"
    with judging.audit_log.open("a", encoding="utf-8") as log:
        log.write(line[:40])
    assert judging.judge() == []
    with judging.audit_log.open("a", encoding="utf-8") as log:
        log.write(line[40:])

    assert len(judging.judge()) == 1


def test_changes_of_the_lead_are_counted(tmp_path: Path) -> None:
    judging = judge(tmp_path, [make_lease(0, "a"), make_lease(2, "a"), make_lease(4, "b"), make_lease(6, "a")])
    judging.read_on()

    assert judging.count_changes(0) == 2
    assert judging.count_changes(3) == 1


def test_faults_meet_the_last_that_wrote_the_lease_and_ask_no_operator(tmp_path: Path) -> None:
    unused: Any = None
    world = World(unused, seed=0)
    world.judge = judge(tmp_path, [make_lease(0, "a"), make_lease(2, "b")])
    world.judge.owners = {"JTI=a": "a1", "JTI=b": "b3"}
    world.replicas = [
        Replica(name, world, tmp_path, unused, unused, [], starts=starts) for name, starts in (("a", 1), ("b", 3))
    ]

    met = {who: [replica.name for replica in world.find(who)] for who in ("leader", "standby", "both")}
    assert met == {"leader": ["b"], "standby": ["a"], "both": ["a", "b"]}


@pytest.mark.parametrize(
    ("mode", "running", "pending", "is_wrong"),
    [
        ("bind", 1, 2, False),
        ("bind", 2, 1, True),
        ("extender", 2, 1, True),
        ("gate", 1, 2, False),
        ("gate", 2, 1, True),
        ("gate", 1, 1, True),
    ],
)
def test_a_status_counts_as_running_what_is_on_a_node(mode: str, running: int, pending: int, *, is_wrong: bool) -> None:
    unused: Any = None
    gate = {"schedulingGates": [{"name": "fairbind.io/turn"}]} if mode == "gate" else {}
    pods: list[Any] = [make_pod(scheduler_name=SCHEDULERS[mode], **spec) for spec in ({"nodeName": "n"}, gate, {})]
    for pod in pods:
        pod["metadata"]["namespace"], pod["status"] = "red", {"phase": "Pending"}
    tenants: Any = {
        "red": {"status": {"pods": {"running": running, "pending": pending}}},
        "blue": {"status": {"pods": {"running": 0, "pending": 0}}},
    }

    found = find_miscounted(World(unused, seed=0, mode=mode), View({}, pods, tenants, {}))

    assert found == (["red"] if is_wrong else [])


def test_the_audit_policy_notes_bodies_before_it_notes_everything() -> None:
    policy = add_bodies(AUDIT_POLICY)

    assert policy.index("resources: [leases]") < policy.index("resources: [pods]") < policy.index("level: Metadata")
