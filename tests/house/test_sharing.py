"""What belongs together is for one worker, what takes long begins first, and no test is left out."""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, field

import pytest

import gates
from house.tree import ROOT
from sharing import PACKAGES, PROGRAMMES, START_PROGRAMS, Sharing, rank

ON_KIND = [f"tests/kind/test_{n}.py::t" for n in "abcdef"]
BESIDE = [f"tests/kind/test_{n}.py::t" for n in ("demo", "image")]
E2E = [f"tests/e2e/test_{n}.py::t" for n in "abcdef"]
SLOW = [*ON_KIND, *BESIDE, *E2E]
QUICK = [f"tests/model/test_{n}.py::t{k}" for n in "abcdef" for k in range(3)]
COLLECTION = [*SLOW, *QUICK]
WITH_TARGETS = {"frameworks", "karpenter", "volcano"}
"""Exams, which CI does not run."""


@dataclass(eq=False)
class Worker:
    """What the scheduler knows of a worker, which does at once what it is asked for."""

    asked: list[str] = field(default_factory=list)
    shutting_down: bool = False

    def send_runtest_some(self, indices: list[int]) -> None:
        self.asked += [COLLECTION[index] for index in indices]

    def shutdown(self) -> None:
        self.shutting_down = True


def share(count: int) -> list[Worker]:
    """Let workers do everything in turn, one test each; return them with what they did, in order."""
    sharing = object.__new__(Sharing)  # its own beginning wants a whole pytest
    sharing.log = lambda *_: None
    workers = [Worker() for _ in range(count)]
    sharing.assigned_work = {worker: {} for worker in workers}
    sharing.registered_collections = dict.fromkeys(workers, COLLECTION)
    sharing.workqueue = OrderedDict()
    for test in COLLECTION:
        sharing.workqueue.setdefault(sharing._split_scope(test), {})[test] = False
    for worker in workers:
        sharing._assign_work_unit(worker)
    done = dict.fromkeys(workers, 0)
    while any(done[worker] < len(worker.asked) for worker in workers):
        for worker in workers:
            if done[worker] < len(worker.asked):
                sharing.mark_test_complete(worker, COLLECTION.index(worker.asked[done[worker]]))
                done[worker] += 1
    assert not sharing.workqueue
    return workers


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_everything_is_done_once(count: int) -> None:
    workers = share(count)

    assert sorted(test for worker in workers for test in worker.asked) == sorted(COLLECTION)
    assert all(worker.shutting_down for worker in workers)


def test_one_worker_has_all_tests_on_the_kind_cluster_and_the_other_begins_with_what_is_slow() -> None:
    first, second = share(2)

    assert first.asked[: len(ON_KIND)] == ON_KIND
    assert second.asked[:2] == BESIDE
    assert not set(ON_KIND) & set(second.asked)


def test_one_cluster_that_is_given_is_for_one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRBIND_KUBECONFIG", "somewhere")

    workers = share(3)

    assert [set(E2E) <= set(worker.asked) for worker in workers].count(True) == 1


def test_what_runs_on_the_cluster_is_begun_first() -> None:
    backwards = COLLECTION[::-1]
    assert sorted(backwards, key=rank)[: len(SLOW)] == [*ON_KIND[::-1], *BESIDE, *E2E[::-1]]


def test_single_tests_that_take_minutes_begin_before_the_many_short_ones() -> None:
    programmes = [f"{start}.py::t" for start in PROGRAMMES]

    assert max(map(rank, programmes)) < min(rank(test) for test in [*BESIDE, *E2E])
    assert min(map(rank, programmes)) > rank(ON_KIND[0])


def test_each_stage_looks_into_all_folders_that_have_tests_of_it() -> None:
    tests = ROOT / "tests"
    files = [path.relative_to(tests) for path in tests.rglob("*.py") if path.parent != tests]
    marked = {f.parts[0] for f in files if re.search(r"\b(needs_tools|promtool)\b", (tests / f).read_text("utf-8"))}
    wholly = {start.split("/")[1] for start in START_PROGRAMS if start.endswith("/")}
    parts = {start.split("/")[1] for start in START_PROGRAMS}
    traced, others = gates.COMPUTING

    assert marked - WITH_TARGETS | parts == set(gates.PROGRAMS)
    assert set(gates.ONLY_PROGRAMS) == wholly
    assert traced.folders == tuple(f"tests/{package}" for package in PACKAGES)
    assert others.folders == ("tests",)
