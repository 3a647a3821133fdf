"""Random walks of drafts: what is done to one, and told in a story that a new draft can begin with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from derived import find_wrong
from fairbind.model import PolicySettings, Snapshot
from fairbind.scheduling import POLICIES, CycleState, UnschedulableCache, run_cycle
from fairbind.scheduling.cycle.draft import Draft, Mark
from fairbind.scheduling.policies.guided import Guided
from fairbind.scheduling.policies.target_ratios import TargetRatios
from scheduling.drafts import Story

Step = tuple[str, int, int]
Decision = tuple[str, str]

steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["choose", "choose", "place", "evict", "evict", "restrict", "reopen", "checkpoint", "rollback", "rollback"]
        ),
        st.integers(0, 1000),
        st.integers(0, 1000),
    ),
    max_size=14,
)


def fill(draft: Draft) -> list[Decision]:
    """What the draft decides from here, to the end."""
    decisions = []
    while (choice := draft.find_choice()) is not None:
        bind = draft.take(choice)
        decisions.append((bind.task.uid, bind.server))
    return decisions


def look(draft: Draft) -> list[Decision]:
    """What the draft would decide from here, to the end; it is left as it was."""
    mark = draft.checkpoint()
    decisions = fill(draft)
    draft.rollback(mark)
    return decisions


full_before = st.sampled_from([None, frozenset(range(6)), frozenset(range(6)), frozenset({0, 1}), frozenset({2, 4, 5})])
"""Servers on which nothing was free in a cycle before, of which something is remembered; None: there was none."""


class Walk:
    """A draft, and the story of what was done to it. full_before: as above."""

    def __init__(self, snapshot: Snapshot, policy: str, full_before: frozenset[int] | None = None) -> None:
        self.snapshot = snapshot
        self.policy = policy
        unschedulable, state = None, None
        if full_before is not None:
            unschedulable, state = UnschedulableCache(), CycleState()
            full = [k for k in full_before if k < len(snapshot.servers.names)]
            free_kr = np.array(snapshot.servers.free_kr)
            free_kr[full] = np.minimum(free_kr[full], 0)
            before = replace(snapshot, servers=replace(snapshot.servers, free_kr=free_kr))
            # With a limit of 0: what a cycle places changes counts, and here none of it would be carried out.
            run_cycle(before, PolicySettings(policy), 0.0, limit=0, unschedulable=unschedulable, state=state)
        self.draft = Draft(snapshot, POLICIES[policy], unschedulable=unschedulable, state=state)
        self.state, self.start = state, self.draft.checkpoint()
        self.story = Story()
        self.marks: list[tuple[Mark, Story]] = []

    def do(self, step: Step) -> None:
        kind, first, second = step
        getattr(self, kind)(first, second % len(self.snapshot.servers.names))

    def choose(self, _: int, __: int) -> None:
        choice = self.draft.find_choice()
        if choice is not None:
            self.draft.take(choice)
            self.story.placed.append((choice.queue.task_class, choice.server))

    def place(self, first: int, server: int) -> None:
        fitting = [queue for queue in self.draft.queues if queue.sort_key and self.draft.fits(queue.task_class, server)]
        if fitting:
            queue = fitting[first % len(fitting)]
            self.draft.place(queue, server)
            self.story.placed.append((queue.task_class, server))

    def evict(self, first: int, _: int) -> None:
        running = [t for tasks in self.snapshot.running.values() for t in tasks if t not in self.story.evicted]
        if running:
            self.draft.evict(running[first % len(running)])
            self.story.evicted.append(running[first % len(running)])

    def restrict(self, first: int, server: int) -> None:
        placement = self.snapshot.task_classes[first % len(self.snapshot.task_classes)].placement
        self.draft.restrict(placement, [server])
        self.story.restricted.append((placement, server))

    def reopen(self, _: int, server: int) -> None:
        self.draft.reopen([server])
        self.story.restricted = [entry for entry in self.story.restricted if entry[1] != server]

    def checkpoint(self, _: int, __: int) -> None:
        self.marks.append((self.draft.checkpoint(), self.story.copy()))

    def rollback(self, first: int, _: int) -> None:
        if self.marks:
            del self.marks[1 + first % len(self.marks) :]
            mark, story = self.marks[-1]
            self.draft.rollback(mark)
            self.story = story.copy()

    def go_back_to_the_start(self) -> None:
        """Take all back; what is kept for the next cycle is what is computed from nothing."""
        self.draft.rollback(self.start)
        assert find_wrong(self.state) == []

    def check(self) -> None:
        anew = self.story.start_anew(self.snapshot, self.policy)
        np.testing.assert_array_equal(self.draft.free.left_rk, anew.free.left_rk)
        assert {k: v for k, v in self.draft.free.taken_keys.items() if v} == {
            k: v for k, v in anew.free.taken_keys.items() if v
        }
        pools = range(len(anew.measure.pools.amount_pr))
        assert self.draft.measure.pools.amount_pr == anew.measure.pools.amount_pr
        np.testing.assert_array_equal(self.draft.measure.pools.inverse_rp, anew.measure.pools.inverse_rp)
        for name, progress in self.draft.progress_of.items():
            for pool in pools:
                level = self.draft.measure.compute_level(progress, pool)
                assert level == anew.measure.compute_level(anew.progress_of[name], pool)
        if self.draft.tree is not None and anew.tree is not None:
            for inner in self.snapshot.hierarchy.inner.values():
                held_r = anew.tree.get_progress(anew.tree.hierarchy.inner[inner.tenant.name]).held_r
                assert self.draft.tree.get_progress(inner).held_r == held_r
        measure, of_anew = self.draft.measure, anew.measure
        if isinstance(measure, TargetRatios | Guided) and isinstance(of_anew, TargetRatios | Guided):
            for name in self.draft.progress_of:
                np.testing.assert_array_equal(measure._places.get(name), of_anew._places.get(name))
        assert look(self.draft) == fill(anew)
