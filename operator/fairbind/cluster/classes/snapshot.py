"""From the state to the snapshot that a cycle reads: what changed is made again, the rest is shared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from fairbind.cluster.classes import due
from fairbind.cluster.classes.cluster_state import ClusterState
from fairbind.cluster.classes.counting import compute_counts, compute_fits, find_chosen, list_unslotted
from fairbind.cluster.classes.group_changes import add_kept, close_others, resolve_groups
from fairbind.cluster.classes.growths import follow_growths
from fairbind.cluster.classes.image_changes import resolve_images
from fairbind.cluster.classes.pinning import make_pin, refuse
from fairbind.cluster.classes.server_classes import ServerGrouping
from fairbind.cluster.classes.task_queue import NO_RULES, ClassRules, TaskQueue
from fairbind.cluster.classes.window import MAX_CLASSES, MAX_PLACEMENTS, Choice, Window
from fairbind.cluster.classes.window_groups import Group
from fairbind.cluster.filters.anti_affinity import close
from fairbind.cluster.filters.attach_limits import FULL
from fairbind.cluster.filters.nominated_rules import Rank
from fairbind.cluster.objects.constraints import NO_CONSTRAINTS
from fairbind.cluster.objects.facts import Constraints, Demand, PodTerm, PodTerms
from fairbind.cluster.state.group_members import Standing
from fairbind.cluster.state.holdings import MAX_BOUND_PLACEMENTS, choose_bound_placements
from fairbind.cluster.state.kubelet_refusals import REFUSED, find_kind
from fairbind.cluster.state.node_state import Axes
from fairbind.cluster.state.queue_keys import QueueKey
from fairbind.cluster.state.tenant_limits import TenantRules
from fairbind.derived import Given, Memo, Rotation, Watch
from fairbind.model import (
    ClassChanges,
    Placement,
    Rejection,
    RejectionKind,
    ServerTable,
    Snapshot,
    Targets,
    TaskClass,
    leave_out,
)
from fairbind.scheduling import POLICIES, reads_targets

_Asked = tuple[PodTerms | None, frozenset[PodTerm], Constraints, str | None, Rank, TenantRules]
"""All that the rules of a class depend on: pod terms, terms that select it, constraints, pin, rank, and limits."""


class Scale(NamedTuple):
    """What shares are measured by, as in a `Snapshot`."""

    resources: Axes
    counts_r: tuple[bool, ...]
    total_r: tuple[int, ...]


class SnapshotBuilder:
    """Makes snapshots of one state, and keeps what it may use again.

    window: which queues of tenants with very many of them a snapshot shows. closings: what volumes, and what nodes take
    of them, are for the last snapshot.
    _made: the task classes of the last snapshot; None: it was not made to its end. _windowed_classes: those of them
    that are of such tenants. _placements: how many classes use each that may be placed.
    _old_classes: the classes of queues that are due, and others that may say where tasks might go before something
    changed. _lacks: whether tasks that wait are in no class. _answers: whether and where tasks may go.
    _shape: what the arrays of classes are for. _shape_revision: of `_answers` when it changed last.
    """

    def __init__(self, state: ClusterState, *, is_limited: bool = True) -> None:
        """is_limited: whether a tenant's pods beyond a limit wait in turn; see `Window`."""
        self._state = state
        self._grouping = ServerGrouping()
        self._task_classes: dict[QueueKey, TaskClass] = {}
        self._windowed_classes: dict[str, list[TaskClass]] = {}
        self._made: tuple[TaskClass, ...] | None = ()
        self._placements = Counter[Placement]()
        self._due = Rotation[QueueKey]()
        self._old_classes: list[TaskClass] = []
        self._lacks = False
        self._shape: tuple[Axes, tuple[str, ...]] | None = None
        self._shape_revision = 0
        self._windowed_tenants: frozenset[str] = frozenset()
        self._answers = Given()
        eligibility, servers, volumes = state.filters.eligibility, state.servers, state.volumes
        nodes, closed = eligibility.nodes, state.filters.anti_affinity.closed
        self._answer_changes = Watch(
            servers.offered.axes, eligibility.answers, eligibility.simplified.changes, servers.claimed
        )
        self.closings = Watch(nodes, volumes.limits.changes, volumes.offers.changes)
        self._nomination_changes = Watch(state.nominations.changes)
        self._restricted = Memo(self._restrict, of=(nodes, closed), most=MAX_PLACEMENTS)
        self._known_rules: dict[_Asked, ClassRules] = {}
        self.window = Window(eligibility, state.filters.rotation.changes, state.find_block, is_limited=is_limited)

    @property
    def is_current(self) -> bool:
        """`Snapshot.is_current` of the last one."""
        return not (self._old_classes or self._lacks)

    def build(self, *, whole: bool = False) -> Snapshot:
        """Return the world as the state says it is now. whole: all waiting tasks, and none stale."""
        self._state.resolve(whole=whole)
        resolve_groups(self._state)
        resolve_images(self._state)
        self._state.servers.flush()
        axes = self._state.servers.axes
        if follow_growths(self._state, find_chosen(self._state, axes) or list_unslotted(axes)):
            self._state.resolve(whole=whole)
            self._state.servers.flush()
        axes = self._state.servers.axes
        self._state.resolve_limits()
        task_classes, changes = self._make_task_classes(whole=whole)
        nodes, settings = self._state.servers, self._state.policy.settings
        arrays = nodes.arrays
        class_k, class_names = self._grouping.compute(
            arrays.names,
            arrays.capacity_kr,
            arrays.capacity.revision,
            self._placements,
            settings.server_class_tolerance,
            arrays.usable_k,
        )
        needs_detail, targets = POLICIES[settings.policy].needs_detail, self._find_targets()
        target_classes = None if targets is None or not targets.class_names else self._grouping.classify(targets)
        if targets is None or target_classes is None:
            self._state.usage.set_classes({}, 0)
        else:
            self._state.usage.set_classes(targets.class_of, len(targets.class_names))
        servers = ServerTable(
            names=arrays.names,
            capacity_kr=arrays.capacity_kr,
            free_kr=arrays.free_kr,
            usable_k=arrays.usable_k,
            open_k=np.ones_like(arrays.usable_k),  # who tolerates it may go to a cordoned node
            class_k=class_k,
            class_names=class_names,
            taken_keys=nodes.taken_keys,
            fixed_keys=nodes.fixed_keys,
        )
        return Snapshot(
            resources=axes,
            counts_r=compute_counts(self._state, axes),
            fits_r=compute_fits(self._state, axes),
            fit=settings.fit,
            total_r=self._state.servers.total_r,
            servers=servers,
            tenants=self._state.usage.build_tenants(axes, detailed=needs_detail),
            task_classes=task_classes,
            targets=targets,
            target_classes=target_classes,
            running=self._state.running.build(axes),
            changes=changes,
            stale=frozenset(self._old_classes),
            is_whole=not self._lacks,
            held=self._state.usage.limits.get_held(),
            hierarchy=self._state.usage.build_hierarchy(),
        )

    def compute_scale(self) -> Scale:
        """Return what shares are measured by as the state says now, for less than a snapshot."""
        self._state.resolve()
        servers = self._state.servers
        if servers.is_total_stale:
            servers.flush()
        return Scale(servers.axes, compute_counts(self._state, servers.axes), servers.total_r)

    def _find_targets(self) -> Targets | None:
        """Return what the policy's own mechanism gives; the answer of the one before says nothing any more."""
        targets, settings = self._state.policy.targets, self._state.policy.settings
        is_own = targets is not None and targets.mechanism == POLICIES[settings.policy].mechanism
        return targets if is_own and reads_targets(settings) else None

    def _make_task_classes(self, *, whole: bool) -> tuple[tuple[TaskClass, ...], ClassChanges | None]:
        """Return all classes, and what is other than the last time; None: that was not made to its end."""
        state = self._state
        self._known_rules.clear()
        self._note_changed_placements()
        state.queues.to_build.add(due.list_next(self._due, state.queues.to_build, whole=whole))
        choices = self.window.choose(state.queues.waiting, state.queues.to_build)
        changed_sides = self._windowed_tenants ^ choices.keys()
        for tenant in changed_sides:
            state.queues.to_build.add(state.queues.waiting.by_leaf.get(tenant, ()))
        self._windowed_tenants = frozenset(choices)
        before, self._made = self._made, None
        added, removed = self._follow_queues(choices)
        self._old_classes = [self._task_classes[key] for key in self._due if key in self._task_classes]
        self._lacks = len(self._old_classes) < len(self._due)
        most = MAX_CLASSES if whole else max(1, due.MAX_DUE // max(1, len(choices)))
        windowed_classes = {
            tenant: list(self._build_windowed(tenant, choice, most)) for tenant, choice in choices.items()
        }
        self._mark_selected_stale()
        for tenant in windowed_classes | self._windowed_classes:
            now, then = windowed_classes.get(tenant, []), self._windowed_classes.get(tenant, [])
            if now != then:
                added += leave_out(now, then)
                removed += leave_out(then, now)
        if added and removed:  # a class may be what a queue was under another key, or alone, and a windowed one
            added, removed = leave_out(added, removed), leave_out(removed, added)
        self._windowed_classes = windowed_classes
        windowed = tuple(chain.from_iterable(windowed_classes.values()))
        groups = sum(len(choice.groups) for choice in choices.values())
        most = 2 * (MAX_BOUND_PLACEMENTS + len(self._task_classes) + len(self._due) + groups)
        if len(state.filters.eligibility) > most:
            shown = (group.first.key for choice in choices.values() for group in choice.groups)
            state.filters.eligibility.keep_only(key.constraints for key in (*self._task_classes, *self._due, *shown))
        after = self._made = (*self._task_classes.values(), *windowed)
        if before is None:
            self._placements.clear()
            self._count_placements(after, ())
            return after, None
        self._count_placements(added, removed)
        return after, ClassChanges(before, after, added, removed)

    def _follow_queues(self, windowed: Container[str]) -> tuple[list[TaskClass], list[TaskClass]]:
        """Build the classes of queues that changed, and return those that came and those that went."""
        state, task_classes = self._state, self._task_classes
        added, removed = list[TaskClass](), list[TaskClass]()
        for key in state.queues.to_build:
            self._due.discard(key)
            queue, before, after = state.queues.by_key.get(key), task_classes.get(key), None
            if queue is None or key.tenant in windowed:
                task_classes.pop(key, None)
            else:
                after = task_classes[key] = self._build_task_class(queue)
            if queue is not None:
                self._count_wanted(queue, is_windowed=key.tenant in windowed)
            if after is before:
                continue
            if after is not None:
                added.append(after)
            if before is not None:
                removed.append(before)
        state.queues.to_build.take_all()
        return added, removed

    def _count_placements(self, added: Iterable[TaskClass], removed: Iterable[TaskClass]) -> None:
        counts = self._placements
        counts.update(each.placement for each in added if each.blocked is None)
        for each in removed:
            if each.blocked is None:
                counts[each.placement] -= 1
                if not counts[each.placement]:
                    del counts[each.placement]

    def _count_wanted(self, queue: TaskQueue, *, is_windowed: bool) -> None:
        """Note how many tasks may be placed. Where many are not looked at yet, none is known to be in vain."""
        may_be_placed = self._state.find_block(queue.key) is None
        if may_be_placed and not is_windowed:
            may_be_placed = queue.is_placeable or self._waits_for_attach_slots(queue)
        self._state.queues.wanted.set_waiting(queue.key, len(queue.tasks) if may_be_placed else 0)

    def _waits_for_attach_slots(self, queue: TaskQueue) -> bool:
        """Whether nodes have too many volumes now, and could take these: they are wanted as if others were moved."""
        load, placement, limits = queue.key.load, self._task_classes[queue.key].placement, self._state.volumes.limits
        if load is None or queue.is_lacking or not limits.could_take(load):
            return False
        return any(rejection == FULL for rejection, _ in placement.rejections)

    def _build_windowed(self, tenant: str, choice: Choice, most: int) -> Iterator[TaskClass]:
        """Build the classes of a tenant that has very many queues.

        most: of so many that have not changed themselves; further ones are stale, or left out when they do not go
        with the nodes and resources of now.
        """
        stale: list[Group] = []
        for group in choice.groups:
            if group.task_class is None or (group.is_stale and group.revision >= self._shape_revision):
                self._rebuild(group)
            elif group.revision != self._answers.revision:
                stale.append(group)
        stale.sort(key=attrgetter("revision"))  # so each has its turn however often something happens
        for group in stale[:most]:
            self._rebuild(group)
        for group in choice.groups:
            if group.revision < self._shape_revision:
                self._lacks = True
                continue
            assert group.task_class is not None
            if group.revision != self._answers.revision:
                self._old_classes.append(group.task_class)
            yield group.task_class
        nothing_r = (0,) * len(self._state.servers.axes)
        for reason, tasks in choice.blocked.items():  # whatever these tasks ask for, none is placed
            placement = self._state.filters.eligibility.get_placement(NO_CONSTRAINTS)
            yield TaskClass(tenant, nothing_r, nothing_r, placement, tasks, blocked=reason)

    def _rebuild(self, group: Group) -> None:
        """Build the class of a group; the same object as before when nothing in it changed."""
        template, before = self._build_task_class(group.first, group.simple), group.task_class
        group.is_stale, group.revision = False, self._answers.revision
        if len(group) == 1:
            group.template = group.task_class = template
            return
        for queue in group:
            queue.follow(group.first)
        if before is None or template is not group.template or before.tasks != group.tasks:
            group.task_class = replace(template, tasks=group.tasks)
        group.template = template

    def _note_changed_placements(self) -> None:
        """Note which queues must be looked at because nodes or placed pods changed."""
        state = self._state
        is_other_answer, is_other_closing = self._answer_changes.take(), self.closings.take()
        changed_terms = state.filters.topology.take_changed()
        before, self._shape = self._shape, (state.servers.axes, state.servers.names)
        if is_other_answer:
            self._answers.note_change()
        if before is None or self._shape[0] != before[0] or self._shape[1] is not before[1]:
            self._note_shape()
        elif is_other_answer:
            self._note_due(self._list_unwindowed())
        elif is_other_closing:
            about = state.groups.has_topology
            self._note_due(
                key for key in state.queues.by_key if key.may_have_rules or key.is_about_volumes or about(key.group)
            )
        elif changed_terms:
            self._note_due(key for key in state.queues.by_key if key.is_about(changed_terms))
        if images := frozenset(state.filters.eligibility.rescored.take_all()):
            self._note_due(key for key in state.queues.by_key if key.is_about_images(images))
        if self._nomination_changes.take():
            self._note_due(key for key in state.queues.by_key if key.has_reserved)

    def _note_shape(self) -> None:
        """Note that no class of before goes with the nodes and resources of now."""
        self._shape_revision = self._answers.revision
        keys = list(self._list_unwindowed())
        if len(keys) <= due.MAX_DUE:
            self._state.queues.to_build.add(keys)
            return
        self._add_due(key for key in keys if key in self._task_classes)
        self._task_classes.clear()
        self._made = None

    def _list_unwindowed(self) -> Iterator[QueueKey]:
        """Return the queues of tenants that have no more than a snapshot shows."""
        by_tenant = self._state.queues.waiting.by_leaf.items()
        return chain.from_iterable(queues for tenant, queues in by_tenant if tenant not in self._windowed_tenants)

    def _note_due(self, keys: Iterable[QueueKey]) -> None:
        """Note that queues must be looked at, after those that must be already."""
        fresh = list[QueueKey]()
        for key in keys:
            if key in self._due:
                continue
            if key in self._task_classes:
                fresh.append(key)
            else:  # a tenant's with very many queues, or one that has come just now
                self._state.queues.to_build.add([key])
        self._add_due(fresh)

    def _add_due(self, keys: Iterable[QueueKey]) -> None:
        self._due.add(due.order(keys, self._state.queues.by_key, len(self._due)))

    def _mark_selected_stale(self) -> None:
        """Mark the classes of pods as stale that other terms may select than their queues say."""
        for key in self._state.list_selected_otherwise():
            task_class = self._task_classes.get(key)
            if task_class is None:
                task_class = self.window.find_class(key)
            if task_class is not None:
                self._old_classes.append(task_class)

    def _build_task_class(self, queue: TaskQueue, simple: Constraints | None = None) -> TaskClass:
        """Return the class of a queue. simple: its constraints by `Eligibility.simplify`; None: they are not known."""
        servers, eligibility, key = self._state.servers, self._state.filters.eligibility, queue.key
        standing = self._state.groups.find_standing(key.group, servers)
        if simple is None:
            simple = eligibility.simplify(key.constraints)
        placement, pin = self._find_placement(key, simple, standing), None
        if queue.is_plain and key.tenant not in self._state.usage.limits:
            return queue.build_task_class(servers.axes, placement, eligibility, claimed_only=servers.claimed.value.only)
        if key.pin is not None:
            pin = make_pin(key.pin, placement, self._restricted(placement, key.repelled), servers.index)
        else:
            placement = self._restricted(placement, key.repelled)
        if key.may_have_rules:
            open_ = placement
            if key.pod_terms is not None:
                open_ = eligibility.share(self._state.filters.topology.close_unlabelled(placement, key.pod_terms))
            open_ = self._state.filters.topology.reserved.restrict(open_, key.rank, key.pod_terms, key.selected_by)
            if pin is None:
                placement = open_
            elif pin.server is not None and not open_.eligible_k[pin.server]:
                more = Counter(dict(open_.rejections)) - Counter(dict(placement.rejections))
                pin = refuse(pin, next(iter(more)))
        rules = self._find_rules(key, simple)
        if rules.preferences is not None and placement.preference_k is not None:
            placement = eligibility.share(replace(placement, preference_k=None))  # `ClassRules.preferences` has it all
        # Last, as what is shared above must not say what is reserved: not all classes that share it may use that.
        nominations, prefers = self._state.nominations, rules.preferences is None
        if rules.preferences is not None and key.nominated is not None:
            rules = rules._replace(preferences=nominations.add_preference(rules.preferences, key))
        placement = nominations.reserve(placement, key, servers.axes, prefers=prefers)
        placement = add_kept(placement, key, self._state, servers.axes)
        claimed_only = servers.claimed.value.only
        return queue.build_task_class(servers.axes, placement, eligibility, pin, rules, claimed_only, standing)

    def _find_placement(self, key: QueueKey, simple: Constraints, standing: Standing) -> Placement:
        """Return where a class may go by its constraints, its volumes, its group and what nodes have."""
        servers, eligibility = self._state.servers, self._state.filters.eligibility
        placement = eligibility.get_placement_of_simple(simple)
        if servers.claimed.value.by_axis:
            placement = self._close_claimed(placement, key.demand)
        if key.unbound:
            offers = self._state.volumes.offers
            placement = eligibility.share(offers.restrict(placement, key.unbound))
        if key.load is not None:
            limits = self._state.volumes.limits
            placement = eligibility.share(limits.restrict(placement, key.load))
        if standing.beside is not None:
            placement = eligibility.share(close_others(placement, *standing.beside, servers.index))
        if resting := servers.refusals.find_resting(find_kind(key.tenant, key.demand.real)):
            closed_k = np.isin(np.array(servers.names), resting)
            placement = eligibility.share(close(placement, closed_k, REFUSED))
        return placement

    def _close_claimed(self, base: Placement, demand: Demand) -> Placement:
        """Return a placement without the nodes that have what is asked for as devices only, which claims serve."""
        servers, eligible_k, rejections = self._state.servers, base.eligible_k, Counter(dict(base.rejections))
        claimed = servers.claimed.value.by_axis
        for resource, _ in demand.real:
            if resource in claimed and resource not in servers.claimed.value.only:
                closed_k = eligible_k & claimed[resource]
                rejections[Rejection(RejectionKind.INSUFFICIENT, resource)] += int(closed_k.sum())
                eligible_k = eligible_k & ~closed_k
        if eligible_k is base.eligible_k:
            return base
        eligible_k.flags.writeable = False
        closed = replace(base, eligible_k=eligible_k, rejections=tuple(sorted((+rejections).items())))
        return self._state.filters.eligibility.share(closed)

    def _find_rules(self, key: QueueKey, simple: Constraints) -> ClassRules:
        """Return what topology domains and limits say to a class. simple: its constraints by `Eligibility.simplify`."""
        if key.unsupported is not None:
            return NO_RULES
        limits = self._state.usage.limits.find_rules(key.tenant, key.demand.real)
        of_volumes = () if key.load is None else self._state.volumes.limits.find_rules(key.load)
        if key.unbound and key.group is not None:  # single pods that take the same volume are decided again
            of_volumes += self._state.volumes.offers.find_rules(key.unbound)
        if of_volumes:
            brought = tuple((rule.counter.subject, rule.amount) for rule in of_volumes)
            limits = TenantRules(limits.limits + of_volumes, limits.brings + brought)
        if not (key.may_have_rules or limits.limits or limits.brings):
            return NO_RULES
        asked = key.pod_terms, key.selected_by, simple, key.pin, key.rank, limits
        known = self._known_rules.get(asked)
        if known is None:
            known = self._known_rules[asked] = self._make_rules(*asked)
        return known

    def _make_rules(
        self,
        pod_terms: PodTerms | None,
        selected_by: frozenset[PodTerm],
        constraints: Constraints,
        pin: str | None,
        rank: Rank,
        limits: TenantRules,
    ) -> ClassRules:
        topology = self._state.filters.topology
        return ClassRules(
            topology.find_rules(pod_terms, selected_by, constraints, pin, rank, limits.limits),
            # A pinned pod has no choice, so it would like nothing.
            topology.find_preferences(pod_terms, selected_by, constraints) if pin is None else None,
            topology.find_subjects(pod_terms, selected_by),
            limits.brings,
        )

    def _restrict(self, base: Placement, repelled: frozenset[PodTerm]) -> Placement:
        """Return a placement without the nodes that placed pods close."""
        filters = self._state.filters
        if not repelled:
            return base
        return filters.eligibility.share(filters.anti_affinity.restrict(base, repelled, filters.eligibility))

    def add_detail(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot of now with what each tenant holds task by task and server by server."""
        usages = self._state.usage.by_name
        placements = {
            constraints: self._state.filters.eligibility.get_placement(constraints)
            for constraints in choose_bound_placements({name: leaf.kinds for name, leaf in usages.items()})
        }
        tenants = self._state.usage.build_detailed_tenants(snapshot.resources, placements)
        return replace(snapshot, tenants=tenants)
