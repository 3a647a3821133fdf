from __future__ import annotations

import itertools

import pytest

from fairbind.cluster.messages import compute_signature, format_unschedulable
from fairbind.kube.writers.pod_messages import (
    EVENT_PERIOD_SECONDS,
    EVENTS_PER_CLASS,
    FORGET_SECONDS,
    MAX_REWRITE_SECONDS,
    REFRESH_SECONDS,
    REFRESHED_PODS,
    REFRESHES_PER_SECOND,
    RENEW_SECONDS,
    RENEWALS_PER_SECOND,
    UNCHANGED_SECONDS,
    Notice,
    PodMessages,
    WaitingPod,
)
from fairbind.model import FairnessReason, Wait
from kube.writers.waiting import CPU, MEMORY, make_owner, make_pod, make_tasks, make_wait
from rejections import lack, unsupported


class World:
    """A backlog, its clock, and pods that take note of what they are told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pods: dict[str, WaitingPod] = {}
        self.generations: dict[str, int] = {}
        self.pod_messages = PodMessages(
            self.pods.get, lambda: self.now, find_generation=lambda uid: self.generations.get(uid, 1)
        )

    def show(self, *waits: Wait, nodes: int = 3) -> None:
        for wait in waits:
            for task in wait.task_class.tasks:
                self.pods.setdefault(task.uid, make_pod(task.uid))
        self.pod_messages.replace(waits, nodes)

    def visit(self) -> list[Notice]:
        return [notice for notice in self.pod_messages.find_due() if notice is not None]

    def tell(self) -> list[Notice]:
        """Look, and tell everybody who is due, as the recorder does."""
        notices = self.visit()
        for notice in notices:
            announced = notice.announced
            announced.queued = False
            notice.note_told(notice.cause.format(), self.now)
            if notice.event_budget is not None:
                announced.event_signature, announced.event_at, announced.event_count = notice.signature, self.now, 1
        return notices

    def pass_time(self, seconds: float) -> list[Notice]:
        """Look twice a second; return everything that was told."""
        notices = []
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            notices += self.tell()
        return notices


@pytest.fixture
def world() -> World:
    return World()


def names(notices: list[Notice]) -> list[str]:
    return [f"ns/{notice.uid.removeprefix('uid-')}" for notice in notices if notice.owner is None]


def owners(notices: list[Notice]) -> list[str]:
    return [notice.owner.name for notice in notices if notice.owner is not None]


def wants_event(notice: Notice) -> bool:
    return notice.event_budget is not None


def test_every_new_pod_is_due_and_the_first_of_a_class_get_an_event(world: World) -> None:
    world.show(make_wait(make_tasks(30), CPU))
    notices = world.tell()
    assert names(notices) == [f"ns/p{n}" for n in range(30)]
    assert [wants_event(notice) for notice in notices] == [True] * EVENTS_PER_CLASS + [False] * 20


def test_only_the_tasks_that_wait_are_told(world: World) -> None:
    world.show(make_wait(make_tasks(5), CPU, waiting=2))
    assert names(world.tell()) == ["ns/p3", "ns/p4"]


def test_what_is_queued_is_not_queued_again(world: World) -> None:
    world.show(make_wait(make_tasks(5), CPU))
    assert len(world.visit()) == 5
    world.now += 1.0
    assert world.visit() == []


def test_nothing_new_is_nothing_to_tell_however_often_it_is_seen(world: World) -> None:
    tasks = make_tasks(50)
    world.show(make_wait(tasks, CPU))
    world.tell()
    announced = []
    for _ in range(400):
        world.show(make_wait(tasks, CPU))
        announced += world.pass_time(0.5)
    assert announced == []
    assert world.now < EVENT_PERIOD_SECONDS


def test_numbers_alone_are_renewed_after_a_minute_and_few_at_a_time(world: World) -> None:
    tasks = make_tasks(1000)
    world.show(make_wait(tasks, CPU))
    world.tell()
    world.show(make_wait(tasks, (lack("cpu"), 2)))
    assert set(names(world.pass_time(RENEW_SECONDS - 1.0))) == {f"ns/p{n}" for n in range(REFRESHED_PODS)}
    renewed = world.pass_time(101.0)
    assert 100.0 * RENEWALS_PER_SECOND * 0.8 < len(renewed) <= 101.0 * RENEWALS_PER_SECOND + 10
    assert len(set(names(renewed))) == len(renewed)
    assert not any(wants_event(notice) for notice in renewed)


def test_what_the_first_pods_say_of_fairness_stays_current(world: World) -> None:
    tasks = make_tasks(50)
    reason = FairnessReason(0.35, "vision", 0.11)
    world.show(make_wait(tasks, CPU, fairness=reason))
    world.tell()
    shares = (0.34, 0.33, None)  # in the end nobody is before it
    for share in shares:
        fairness = None if share is None else FairnessReason(share, "vision", 0.2)
        wait = make_wait(tasks, CPU, fairness=fairness)
        world.show(wait)
        refreshed = world.pass_time(REFRESH_SECONDS + UNCHANGED_SECONDS)
        assert [name for name in names(refreshed) if name in {"ns/p0", "ns/p1"}] == ["ns/p0", "ns/p1"]
        announced = world.pod_messages._announced["uid-p0"]
        assert announced.message == format_unschedulable(wait, 3)
    assert "tenant" not in format_unschedulable(wait, 3)


def test_a_class_whose_first_pods_keep_changing_is_refreshed_rarely(world: World) -> None:
    tasks = make_tasks(400)
    world.show(make_wait(tasks, CPU, fairness=FairnessReason(0.9, "vision", 0.1)))
    world.tell()
    announced = []
    for turn in range(1, 110):  # one pod is bound each half second, and the shares move with it
        world.show(make_wait(tasks[turn:], CPU, fairness=FairnessReason(0.9 + turn / 1000, "vision", 0.1)))
        announced += world.pass_time(0.5)
    assert len(announced) == REFRESHED_PODS


def test_refreshing_many_classes_keeps_to_its_budget(world: World) -> None:
    def show(share: float) -> None:
        fairness = FairnessReason(share, "vision", 0.1)
        world.show(*(make_wait(make_tasks(1, f"c{n}-"), CPU, demand=n + 1, fairness=fairness) for n in range(500)))

    show(0.5)
    world.tell()
    show(0.6)
    announced = world.pass_time(RENEW_SECONDS - 1.0)
    assert 0 < len(announced) <= REFRESHES_PER_SECOND * (RENEW_SECONDS + UNCHANGED_SECONDS)


def test_other_kinds_of_reasons_are_told_soon_but_each_time_later(world: World) -> None:
    tasks = make_tasks(1)
    told_at = []
    for turn in range(4000):
        world.show(make_wait(tasks, CPU if turn % 2 else MEMORY))
        if world.pass_time(0.5):
            told_at.append(world.now)
    gaps = [later - earlier for earlier, later in itertools.pairwise(told_at)]
    assert gaps[0] <= 12.0
    assert gaps == sorted(gaps)
    assert gaps[-1] == pytest.approx(MAX_REWRITE_SECONDS, abs=2.0)


@pytest.mark.slow
def test_flapping_reasons_of_many_pods_settle_to_a_trickle(world: World) -> None:
    tasks = make_tasks(500)
    last: list[Notice] = []
    for turn in range(2400):
        world.show(make_wait(tasks, CPU if turn % 2 else MEMORY))
        announced = world.pass_time(0.5)
        if world.now > 600.0:
            last += announced
    assert len(last) / 600.0 < 500 / MAX_REWRITE_SECONDS * 1.3


def test_events_are_repeated_after_their_period(world: World) -> None:
    tasks = make_tasks(30)
    world.show(make_wait(tasks, CPU))
    world.tell()
    assert world.pass_time(EVENT_PERIOD_SECONDS - UNCHANGED_SECONDS - 1.0) == []
    repeated = world.pass_time(2 * UNCHANGED_SECONDS + 2.0)
    assert names(repeated) == [f"ns/p{n}" for n in range(EVENTS_PER_CLASS)]
    assert all(wants_event(notice) for notice in repeated)


def test_a_class_whose_pods_keep_changing_has_no_more_events_than_its_budget(world: World) -> None:
    events = 0
    for turn in range(200):
        world.show(make_wait(make_tasks(5, f"t{turn}-"), CPU))
        events += sum(wants_event(notice) for notice in world.pass_time(1.0))
    assert events == EVENTS_PER_CLASS
    world.show(make_wait(make_tasks(5, "other"), CPU, tenant="b"), make_wait(make_tasks(5, "more"), MEMORY))
    assert sum(wants_event(notice) for notice in world.tell()) == 10


def test_a_large_class_that_keeps_changing_is_looked_at_rarely(world: World) -> None:
    tasks = make_tasks(5000)
    visits = 0
    for turn in range(100):
        world.now += 0.1
        world.show(make_wait(tasks[turn:], CPU if turn % 2 else MEMORY))
        visits += len(list(world.pod_messages.find_due())) > 0
    assert 15 <= visits <= 20


def test_a_class_that_is_settled_is_not_looked_at_until_it_changes(world: World) -> None:
    tasks = make_tasks(100)
    world.show(make_wait(tasks, CPU))
    world.tell()
    list(world.pod_messages.find_due())
    assert list(world.pod_messages.find_due()) == []
    world.now += 0.5
    world.show(make_wait((*tasks, *make_tasks(1, "new")), CPU))
    assert len(list(world.pod_messages.find_due())) == 101
    assert world.pod_messages._announced["uid-new0"].queued


def test_what_a_pod_says_already_is_not_told_by_the_next_leader(world: World) -> None:
    tasks = make_tasks(3)
    wait = make_wait(tasks, CPU)
    message = format_unschedulable(wait, 3)
    world.pods["uid-p0"] = make_pod("uid-p0", "1", message)
    world.pods["uid-p1"] = make_pod("uid-p1", "1", message.replace("3", "9"))
    world.pods["uid-p2"] = make_pod("uid-p2", "1", "something else")
    world.show(wait)
    conditions = [notice for notice in world.tell() if not wants_event(notice)]
    assert names(conditions) == []  # they are the first of their class: an event comes with it
    world.pod_messages.clear()
    world.pod_messages._event_budgets[("a", (1,), compute_signature(wait))] = (world.now, 0)
    world.show(wait)
    assert names(world.tell()) == ["ns/p2"]


def test_a_pod_whose_spec_is_changed_is_told_again_each_time_later(world: World) -> None:
    wait = make_wait(make_tasks(2), CPU)
    world.show(wait)
    world.tell()
    told = 0
    for generation in range(2, 602):
        world.generations["uid-p0"] = generation
        told += len([notice for notice in world.pass_time(1.0) if notice.uid == "uid-p0"])
    assert 5 <= told <= 9  # after 5, 15, 35, 75, 155, 315 s and so on, and two events more
    world.pass_time(MAX_REWRITE_SECONDS)
    assert world.pass_time(MAX_REWRITE_SECONDS / 2) == []


def test_the_next_leader_writes_of_which_generation_a_condition_is(world: World) -> None:
    message = format_unschedulable(make_wait(make_tasks(1), CPU), 3)
    tasks = make_tasks(EVENTS_PER_CLASS + 2)
    for task in tasks:
        world.pods[task.uid] = make_pod(task.uid, "8", message, generation=1)
    world.pods[tasks[-1].uid] = make_pod(tasks[-1].uid, "8", message)  # of a leader that did not say it
    world.show(make_wait(tasks, CPU))
    assert len(world.tell()) == EVENTS_PER_CLASS
    [notice] = world.pass_time(2 * UNCHANGED_SECONDS)
    assert (notice.uid, notice.generation) == (tasks[-1].uid, 1)


def test_a_blocked_pod_that_says_so_in_detail_is_left_alone(world: World) -> None:
    wait = make_wait(make_tasks(1), blocked=unsupported("resource claims"))
    detail = "resource claim 'x'"
    message = format_unschedulable(wait, 3, blocked_detail=detail)
    world.pods["uid-p0"] = make_pod("uid-p0", "1", message, detail)
    world.pod_messages._event_budgets[("a", (1,), compute_signature(wait))] = (0.0, 0)
    world.show(wait)
    assert world.tell() == []


def test_pods_that_wait_no_more_are_forgotten(world: World) -> None:
    for turn in range(20):
        tasks = make_tasks(100, f"t{turn}-")
        world.show(make_wait(tasks, CPU))
        world.pass_time(10.0)
        for task in tasks:
            del world.pods[task.uid]
    world.show()
    world.pass_time(FORGET_SECONDS + 1.0)
    assert len(world.pod_messages) == 0


def test_a_pod_that_leaves_the_picture_for_a_moment_is_not_told_twice(world: World) -> None:
    tasks = make_tasks(5)
    world.show(make_wait(tasks, CPU))
    world.tell()
    world.show()
    world.pass_time(2 * FORGET_SECONDS)
    world.show(make_wait(tasks, CPU))
    assert world.tell() == []


def test_twenty_thousand_pods_are_cheap_to_look_at_again(world: World) -> None:
    tasks = make_tasks(20_000)
    world.show(make_wait(tasks, CPU))
    world.tell()
    list(world.pod_messages.find_due())
    world.show(make_wait(tasks, (lack("cpu"), 1)))
    assert list(world.pod_messages.find_due()) == []


def test_the_owner_of_many_pods_has_one_event_for_each_class_and_period(world: World) -> None:
    job = make_owner("job")
    tasks, others = make_tasks(40), make_tasks(40, "other")
    for task in (*tasks, *others):
        world.pods[task.uid] = make_pod(task.uid, owner=job)
    waits = make_wait(tasks, CPU), make_wait(others, MEMORY, demand=2)
    world.show(*waits)
    notices = world.tell()
    assert owners(notices) == ["job", "job"]
    assert notices[0].owner == job  # before the pods: of thousands it would be told minutes later
    assert len(names(notices)) == 80
    for _ in range(30):
        world.show(*waits)
        assert owners(world.pass_time(5.0)) == []
    assert sorted(owners(world.pass_time(EVENT_PERIOD_SECONDS))) == ["job", "job"]


def test_an_owner_hears_of_a_new_kind_of_reason_at_once_and_what_was_not_written_is_still_due(world: World) -> None:
    tasks = make_tasks(3)
    for task in tasks:
        world.pods[task.uid] = make_pod(task.uid, owner=make_owner("job"))
    world.show(make_wait(tasks, CPU))
    [notice] = [notice for notice in world.visit() if notice.owner is not None]
    assert notice.event_budget is not None
    notice.announced.queued = False  # it could not be written
    world.pod_messages.give_back_event(notice.event_budget)
    world.now += UNCHANGED_SECONDS
    assert owners(world.tell()) == ["job"]
    world.show(make_wait(tasks, MEMORY))
    assert owners(world.pass_time(1.0)) == ["job"]


def test_many_owners_of_one_pod_each_have_no_more_events_than_pods_do(world: World) -> None:
    tasks = make_tasks(1_000)
    for task in tasks:
        world.pods[task.uid] = make_pod(task.uid, owner=make_owner(f"job-{task.uid}"))
    world.show(make_wait(tasks, CPU))
    assert len(owners(world.pass_time(EVENT_PERIOD_SECONDS - UNCHANGED_SECONDS))) == EVENTS_PER_CLASS
    world.show()
    world.pass_time(2 * EVENT_PERIOD_SECONDS + 2 * FORGET_SECONDS)
    assert world.pod_messages._owners == {}
