"""What is judged as broken, what is taken away afterwards, and what the page says of it."""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from adversary.attacks import ATTACKS, make_ordinary
from adversary.main import Outcome, find_broken, find_output, make_parser, note_error, select, writes_page
from adversary.report import make_part, read_lines, renew, write_page
from adversary.stage import Size, Stage, compute_p99, read_group_memory
from adversary.test_adversary import MODES
from adversary.thefts import THEFTS, find_own_conditions, find_unequal
from cluster.builders import read_pod
from e2e.api import ApiError
from e2e.modes import give_to_kube_scheduler
from e2e.objects import make_pod
from fairbind.cluster.objects.constraints import FEATURES
from faults.judge import Judge, LeaseWrite
from localplane.tools import Tools

ROWS_THAT_ARE_FAULTS = {"10", "11", "12", "13"}


def test_every_row_and_every_theft_is_there() -> None:
    assert {attack.row for attack in ATTACKS} | ROWS_THAT_ARE_FAULTS == {str(number) for number in range(1, 18)}
    assert len(THEFTS) == 9
    assert [theft.name for theft in THEFTS if not theft.in_small] == [
        "slots by pods that ask for 1m instead of nothing"
    ]


def test_beside_pods_that_fit_the_quiet_tenant_is_compared_with_pods_that_fit_and_get_no_turn() -> None:
    assert [attack.row for attack in ATTACKS if attack.fits] == ["9"]
    fitting, large = (read_pod({**make_ordinary(fits=fits), "status": {}}) for fits in (True, False))
    assert fitting.unsupported is not None
    assert fitting.unsupported not in FEATURES, "kube-scheduler honours those itself"
    assert large.unsupported is None


@pytest.mark.parametrize(("mode", "only"), MODES)
def test_each_of_the_texts_selects_something(mode: str, only: str) -> None:
    for text in only.split("|"):
        thefts, attacks = select(make_parser().parse_args(["--small", f"--mode={mode}", f"--only={text}"]))
        assert thefts or attacks
        assert text or (len(thefts), len(attacks)) == (len(THEFTS) - 1, len(ATTACKS))


@pytest.mark.parametrize(
    ("outcome", "complaint"),
    [
        (Outcome("1", "x", without=0.1, during=0.19, pause=3.0, memory=200.0), None),
        (Outcome("1", "x", without=0.1, during=0.25, pause=3.0, memory=200.0), "2.5 times as long"),
        (Outcome("1", "x", without=0.1, during=0.5, ordinary=0.3, pause=3.0), None),
        (Outcome("1", "x", without=0.1, during=0.7, ordinary=0.3, pause=3.0), "2.3 times as long as beside ordinary"),
        (Outcome("1", "x", without=0.1, during=0.3, alone=0.01, alone_during=0.02, pause=3.0), None),
        (
            Outcome("1", "x", without=0.1, during=0.5, alone=0.01, alone_during=0.02, pause=3.0),
            "5.0 times as long, and 2.0 times without fairbind",
        ),
        (Outcome("1", "x", without=0.1, during=0.21, alone=0.02, alone_during=0.01, pause=3.0), "2.1 times as long"),
        (Outcome("1", "x", without=0.1, during=0.1, pause=11.0, memory=200.0), "not renewed for 11.0 s"),
        (Outcome("1", "x", without=0.1, during=0.1, pause=3.0, memory=900.0), "took 900 MiB"),
    ],
)
def test_each_bound_is_judged(outcome: Outcome, complaint: str | None) -> None:
    found = find_broken(outcome)

    assert len(found) == (complaint is not None)
    assert complaint is None or complaint in found[0]


@pytest.mark.parametrize(
    ("parts", "unequal"),
    [
        ({"a": 105, "b": 95}, 0),
        ({"a": 106, "b": 94}, 2),
        ({"a": 11, "b": 9}, 0),
    ],
)
def test_halves_are_equal_within_five_in_a_hundred_or_one_pod(parts: dict[str, int], unequal: int) -> None:
    assert len(find_unequal(parts, sum(parts.values()) / 2)) == unequal


def test_of_a_hundred_times_the_longest_but_one_counts() -> None:
    assert compute_p99([float(number) for number in range(1, 101)]) == 99.0
    assert compute_p99([3.0, 1.0, 2.0]) == 3.0


def test_memory_is_that_of_all_processes_of_a_group() -> None:
    hold = "import time; held = bytearray(64 << 20); print('ready', flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", hold], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        assert 64.0 < read_group_memory(child.pid) < 256.0
    finally:
        child.kill()
        child.communicate()
    assert read_group_memory(os.getpgid(0)) > 1.0


@pytest.mark.parametrize(
    ("arguments", "name", "has_page"),
    [
        (["--small", "--page"], "adversary-some.jsonl", False),
        (["--page"], "adversary-1000.jsonl", True),
        (["--nodes=5000", "--page"], "adversary-5000.jsonl", True),
        (["--only=row 14", "--page"], "adversary-some.jsonl", False),
        (["--mode=gate", "--page"], "adversary-gate-1000.jsonl", True),
        (["--mode=extender", "--page"], "adversary-extender-1000.jsonl", True),
    ],
)
def test_a_run_replaces_only_what_is_recorded_of_its_size(arguments: list[str], name: str, *, has_page: bool) -> None:
    parsed = make_parser().parse_args(arguments)

    assert find_output(parsed).name == name
    assert find_output(make_parser().parse_args([*arguments, "--output=x.jsonl"])) == Path("x.jsonl")
    assert writes_page(parsed) is has_page
    assert not writes_page(make_parser().parse_args([each for each in arguments if each != "--page"]))


class LaterLease(Judge):
    """A judge that finds another renewal whenever it reads on, until there are none left."""

    def __init__(self, waits: list[float]) -> None:
        super().__init__(Path("unread"))
        self._later = [dt.datetime.now(dt.UTC) + dt.timedelta(seconds=wait) for wait in waits]
        self.read_on()

    def read_on(self) -> None:
        if self._later:
            moment = self._later.pop(0)
            self.leases.append(LeaseWrite(moment, moment, "operator 1", "me"))


def test_a_pause_of_the_lease_lasts_until_a_renewal_that_came_after_the_attack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adversary.stage.SAMPLE_SECONDS", 0.0)
    monkeypatch.setattr("adversary.stage.LEASE_SECONDS", 0.01)
    stage = Stage(Tools({}), Size(1, 1, 1, 1, 1.0), tmp_path)

    stage.judge = LaterLease([-4.0, -3.0, 60.0, 600.0])
    assert stage.find_longest_pause(1) == pytest.approx(63.0, abs=0.1)
    stage.judge = LaterLease([-4.0, -3.0])
    assert stage.find_longest_pause(1) == math.inf


def test_the_page_has_every_size_from_small_to_large(tmp_path: Path) -> None:
    for name, nodes in (("adversary", 200), ("adversary-10000", 10_000), ("adversary-5000", 5000)):
        head = {"day": "2026-01-01", "nodes": nodes, "tenants": 1, "probes": 1, "rounds": 1, "scale": 1.0}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(head) + "\n", encoding="utf-8")
    write_page(tmp_path, tmp_path / "page.md")
    titles = [
        line
        for line in (tmp_path / "page.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("## ") and " nodes, " in line
    ]

    assert [title.split()[1] for title in titles] == ["200", "5,000", "10,000"]


def test_the_page_says_what_did_not_hold() -> None:
    head = {
        "day": "2026-01-01",
        "commit": "c0ffee",
        "nodes": 200,
        "tenants": 20,
        "probes": 50,
        "rounds": 2,
        "scale": 0.1,
    }
    line = {"row": "3", "name": "x", "without": 0.1, "during": 0.25, "pause": 2.0, "memory": 100.0, "figures": {}}
    theft = {**line, "row": "theft", "without": None, "during": None, "pause": None, "memory": None}

    part = make_part(head, [line | {"found": ["slow"]}, theft | {"found": [], "figures": {"slots": 4}}], "r.jsonl")

    assert "## 200 nodes, 20 tenants, each attack at 10% of its whole size" in part
    assert "On 2026-01-01, of commit c0ffee: 2 tried, 1 held, 1 did not ([lines](r.jsonl)). Each p99 is of 50" in part
    assert "pods, the least of 2 rounds." in part
    assert "| 3 | x | 100 | 250 | 2.0 | 100.0 | slow |" in part
    assert "| theft | x |  |  |  |  | held (slots 4) |" in part
    assert Size(nodes=1, tenants=1, probes=1, rounds=1, scale=0.1).of(5) == 1


def test_the_page_names_a_mode_and_no_mode_is_renewed_by_another(tmp_path: Path) -> None:
    head = {"day": "2026-01-01", "commit": "c0ffee", "nodes": 200, "tenants": 20, "scale": 1.0}
    recorded, tried = tmp_path / "recorded.jsonl", tmp_path / "tried.jsonl"
    recorded.write_text(json.dumps(head) + "\n", encoding="utf-8")  # of a time when there was bind mode only
    tried.write_text(json.dumps({**head, "mode": "bind"}) + "\n", encoding="utf-8")
    renew(recorded, tried)
    tried.write_text(json.dumps({**head, "mode": "gate"}) + "\n", encoding="utf-8")

    with pytest.raises(ValueError, match="mode gate instead of None"):
        renew(recorded, tried)
    assert make_part({**head, "mode": "gate"}, [], "r.jsonl").startswith("## 200 nodes, 20 tenants, gate mode\n")
    assert make_part({**head, "mode": "bind"}, [], "r.jsonl").startswith("## 200 nodes, 20 tenants\n")


def test_pods_that_wait_are_kube_schedulers_in_the_other_modes() -> None:
    waiting, placed, other = make_pod(), make_pod(nodeName="n"), make_pod(scheduler_name="other")

    assert give_to_kube_scheduler(waiting)["spec"] == {**waiting["spec"], "schedulerName": "default-scheduler"}
    assert [give_to_kube_scheduler(pod) for pod in (placed, other)] == [placed, other]


def test_what_the_charts_policies_refuse_holds() -> None:
    refused, broken = Outcome("2", "x"), Outcome("2", "x")
    message = "ValidatingAdmissionPolicy 'fairbind-gate' with binding 'fairbind-gate' denied request: no"
    note_error(refused, ApiError(403, "Forbidden", message))
    note_error(broken, ApiError(403, "Forbidden", 'User "x" cannot create resource "pods"'))

    assert (refused.found, refused.figures) == ([], {"refused by": "an admission policy of the chart"})
    assert broken.found[0].startswith("it could not be judged: ")


def test_only_conditions_that_kube_scheduler_did_not_write_are_fairbinds_words() -> None:
    fields: dict[str, Any] = {"f:status": {"f:conditions": {'k:{"type":"PodScheduled"}': {"f:message": {}}}}}
    conditions = [{"type": "PodScheduled", "message": "names"}, {"type": "Other"}]
    pod = {"metadata": {"managedFields": [{"manager": "kube-scheduler", "fieldsV1": fields}]}}
    of_fairbind = {"metadata": {"managedFields": [{"manager": "fairbind", "fieldsV1": fields}]}}

    assert find_own_conditions({**pod, "status": {"conditions": conditions}}) == conditions[1:]
    assert find_own_conditions({**of_fairbind, "status": {"conditions": conditions}}) == conditions


def test_what_is_tried_again_says_its_day_and_commit(tmp_path: Path) -> None:
    size = {"nodes": 200, "tenants": 20}
    first = {"row": "3", "name": "x", "without": 0.1, "during": 0.25, "pause": 2.0, "memory": 100.0, "figures": {}}
    recorded, tried = tmp_path / "recorded.jsonl", tmp_path / "tried.jsonl"

    def write(path: Path, *lines: dict[str, Any]) -> None:
        path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")

    head = {"day": "2026-01-01", "commit": "c0ffee", **size, "scale": 1.0}
    write(recorded, head, first | {"found": ["slow"]}, first | {"name": "y", "found": []})
    write(tried, head | {"day": "2026-01-02", "commit": "decaf"}, first | {"found": [], "during": 0.15})
    renew(recorded, tried)
    part = make_part(read_lines(recorded)[0], read_lines(recorded)[1:], "r.jsonl")

    assert "of commit c0ffee: 2 tried, 1 held, 1 did not" in part
    verdict = "held when tried again on 2026-01-02, of commit decaf; before: slow"
    assert f"| 3 | x | 100 | 150 | 2.0 | 100.0 | {verdict} |" in part
    assert "| 3 | y | 100 | 250 | 2.0 | 100.0 | held |" in part
    write(tried, head | {"nodes": 300}, first | {"found": []})
    with pytest.raises(ValueError, match="nodes 300 instead of 200"):
        renew(recorded, tried)
