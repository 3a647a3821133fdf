"""Groups in one cycle: the minimum of each is placed as one step of the filling, or not at all.

When the filling comes to the first task of a group, all that is lacking of the minimum is placed at once, each task on
the server that suits it best, and raises its tenant's share by all of them. If one does not fit, all are taken back,
and the group is out of this cycle. What is more than the minimum is placed task by task afterwards.

Groups of which some tasks are placed already come before the order of shares: they hold capacity that is of no use
until their minimum stands again.

Larger tasks are placed first, as small ones find their places later. With a topology the domain is chosen that has the
fewest slots of those that hold the minimum, so that whole domains stay whole for larger groups. Where other members are
placed already, their domain comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from fairbind.model import FreeSlots, GroupWait, Pin, TaskClass, TaskGroup, Wait
from fairbind.model.servers import BoolArray
from fairbind.scheduling.cycle.draft import Draft
from fairbind.scheduling.cycle.gangs.shortages import NOT_TRIED, Shortage, Shortages, compare
from fairbind.scheduling.cycle.gangs.slots import Slots
from fairbind.scheduling.cycle.gangs.tries import Tries
from fairbind.scheduling.cycle.order.sizes import compute_size, find_largest
from fairbind.scheduling.cycle.order.task_queues import Choice, ClassQueue, SortKey
from fairbind.scheduling.cycle.servers.shapes import PinnedShape, Shape
from fairbind.scheduling.cycle.servers.topology import sum_by_domain
from fairbind.scheduling.cycle.waits.explain import Refusals
from fairbind.scheduling.cycle.waits.rivals import Rivals

MAX_DOMAINS_TRIED = 16
"""In so many domains at most a group is tried in a cycle, those first that have the fewest slots."""


class Gangs:
    """The groups of one draft. failed: those whose minimum did not fit, and why, by name. tries: see there.

    _queues_of: the queues of each group. _standing: the groups whose minimum is placed. _partial: those that are left
    out, because it is not known where some of their tasks may go, or their tenant may have no more now.
    """

    def __init__(self, draft: Draft, now: float, find_owner: Callable[[str], str] | None) -> None:
        """Begin with none placed. now, find_owner: see `run_cycle`."""
        self.failed: dict[str, Shortage] = {}
        self._draft = draft
        self._slots = Slots(draft.shapes, draft.free, draft.topology)
        self._shortages = Shortages(draft, self._slots)
        self._standing: set[str] = set()
        self._partial = {each.group.name for each in draft.snapshot.stale if each.group is not None}
        self._queues_of = self._group_queues()
        self._find_owner = find_owner
        self.tries = Tries(now, self._find_owners())
        self._largest_r = find_largest(draft.snapshot.servers)

    def list_begun(self) -> list[str]:
        """Return the groups that come before the order of shares, in the order of their first tasks."""
        firsts = list[tuple[SortKey, str]]()
        for name, queues in self._queues_of.items():
            if _get_group(queues[0]).is_begun and self.is_open(name):
                keys = [queue.sort_key for queue in queues if queue.sort_key is not None]
                firsts += [(min(keys), name)] if keys else []
        return [name for _, name in sorted(firsts)]

    def is_open(self, name: str) -> bool:
        """Whether the minimum of a group is neither placed nor known not to fit, and all its classes are current."""
        return not (name in self._standing or name in self.failed or name in self._partial)

    def stands(self, name: str) -> bool:
        """Whether the minimum of a group is placed."""
        return name in self._standing

    def get_class(self, name: str) -> TaskClass:
        """Return one of the classes of a group."""
        return self._get_queues(name)[0].task_class

    def list_classes(self, name: str) -> list[TaskClass]:
        """Return all classes of a group."""
        return [queue.task_class for queue in self._get_queues(name)]

    def pass_over(self, name: str) -> None:
        """Leave a group out of this cycle, and of its waits; what was placed of it has been taken back."""
        self._standing.discard(name)
        self._partial.add(name)
        self._close(name)

    def count_lacking(self, name: str) -> int:
        """Return how many tasks are placed together."""
        return _get_group(self._get_queues(name)[0]).lacking

    def place(self, name: str) -> bool:
        """Place the minimum of an open group; False when it does not fit or is not tried, and is out of this cycle."""
        shortage = self._find_shortage(name)
        if shortage is None:
            self._standing.add(name)
            return True
        self.failed[name] = shortage
        self._close(name)
        return False

    def list_waiting(self, *, complete: bool) -> Iterator[tuple[ClassQueue, Shortage]]:
        """Yield the queues of groups that do not fit. complete: whether nothing more is decided in this cycle.

        Groups of which no task fits anywhere never came next, so it is found out now what they are short of.
        """
        for name, queues in self._group_queues().items():
            left = [queue for queue in queues if queue.waiting]
            if name in self._standing or name in self._partial or not left:
                continue
            known, group = self.failed.get(name), _get_group(left[0])
            if known is NOT_TRIED and not complete:
                continue
            if known is None and (complete or all(queue.fits_nowhere for queue in left)):
                known = self._shortages.find_any(left, group)
            if known is not None:
                now = known if known.answers else self._shortages.find(left, group) or known
                for queue in left:
                    yield queue, now

    def explain(self, queue: ClassQueue, shortage: Shortage, refusals: Refusals, rivals: Rivals | None) -> Wait:
        """Return the wait of a class of a group that does not fit."""
        task_class, group = queue.task_class, _get_group(queue)
        if not shortage.is_tried:
            told = GroupWait(group.name, group.lacking, 0, note=group.note, is_tried=False)
            return Wait(task_class, queue.first, queue.waiting, (), group=told)
        answer = self._shortages.answer(queue, shortage, group.lacking)
        is_asked = rivals is not None and answer.at_limit is None
        return Wait(
            task_class,
            queue.first,
            queue.waiting,
            answer.rejections,
            fairness=rivals.find_reason(queue.progress, task_class) if rivals is not None and is_asked else None,
            is_too_large=refusals.reaches.is_too_large(task_class),
            at_limit=answer.at_limit,
            until=answer.until,
            group=self._tell(task_class, group, shortage),
        )

    def renew(self, wait: Wait, shortage: Shortage) -> Wait:
        """Return the wait of a class, with its older explanation, as it is now."""
        assert wait.task_class.group is not None
        until = (FreeSlots(shortage.missing_slots),)
        return replace(wait, until=until, group=self._tell(wait.task_class, wait.task_class.group, shortage))

    def _tell(self, task_class: TaskClass, group: TaskGroup, shortage: Shortage) -> GroupWait:
        scattered_r = self._shortages.find_scattered(task_class, group.lacking)
        return GroupWait(
            group.name,
            group.lacking,
            shortage.fitting,
            shortage.short,
            shortage.lacking_r,
            scattered_r,
            self._draft.snapshot.resources,
            group.note,
        )

    def _get_queues(self, name: str) -> list[ClassQueue]:
        """Return the queues of a group. A draft that looks at all again has some more, each group's all at once."""
        if name not in self._queues_of:
            self._queues_of = self._group_queues()
            self.tries.owner_of = self._find_owners()
        return self._queues_of[name]

    def _find_owners(self) -> dict[str, str]:
        """Return who has each group; nothing where tries are not bounded."""
        find_owner, queues_of = self._find_owner, self._queues_of
        return {name: find_owner(each[0].task_class.tenant) for name, each in queues_of.items()} if find_owner else {}

    def _group_queues(self) -> dict[str, list[ClassQueue]]:
        queues_of: dict[str, list[ClassQueue]] = {}
        for queue in self._draft.queues:
            group = queue.task_class.group
            if group is not None and queue.task_class.blocked is None:
                queues_of.setdefault(group.name, []).append(queue)
        return queues_of

    def _close(self, name: str) -> None:
        for queue in self._get_queues(name):
            queue.close()

    def _find_shortage(self, name: str) -> Shortage | None:
        """Place the minimum, and return None; or return why it does not fit, with nothing placed."""
        queues = [queue for queue in self._get_queues(name) if queue.sort_key is not None]
        group = _get_group(queues[0])
        shortage = self._shortages.find(queues, group)
        if shortage is not None:
            return shortage
        if not self.tries.may_try(name):
            return NOT_TRIED
        shortage = self._try_all(queues, group)
        if shortage is not None:
            self.tries.note_failed(name)
        return shortage

    def _try_all(self, queues: Sequence[ClassQueue], group: TaskGroup) -> Shortage | None:
        """Place the minimum in the domain that suits it best, if it has a topology, or on all servers, or nothing."""
        if group.topology is None:
            return self._try(queues, group, None)
        best: Shortage | None = None
        for member_k in self._list_domains(queues, group):
            shortage = self._try(queues, group, member_k)
            if shortage is None:
                return None
            best = shortage if best is None or shortage.fitting > best.fitting else best
        if not group.topology.is_required:
            return self._try(queues, group, None)
        return best or self._shortages.find_in_domains(queues, group, group.topology.domains)

    def _list_domains(self, queues: Sequence[ClassQueue], group: TaskGroup) -> list[BoolArray]:
        """Return the domains that may hold the minimum, as sets of servers.

        The first is the one where members are; then those with the fewest slots.
        """
        assert group.topology is not None
        domains, home = group.topology.domains, group.topology.home
        sums = [(queue, sum_by_domain(self._slots.count_servers(queue.task_class), domains)) for queue in queues]
        suited = [
            (domain != home, sum(float(sum_d[domain]) for _, sum_d in sums), domain)
            for domain in range(domains.size)
            if compare(group, [(queue, int(sum_d[domain])) for queue, sum_d in sums])[0] == group.lacking
        ]
        return [domains.domain_k == domain for _, _, domain in sorted(suited)[:MAX_DOMAINS_TRIED]]

    def _try(self, queues: Sequence[ClassQueue], group: TaskGroup, member_k: BoolArray | None) -> Shortage | None:
        """Place the minimum on these servers, or nothing. member_k: shape (K,); None: on all.

        Return what it is short of, or None when it is placed.
        """
        draft = self._draft
        mark, start = draft.begin_plan(), len(draft.bindings)
        ordered = sorted(queues, key=lambda queue: compute_size(queue.task_class, self._largest_r), reverse=True)
        waiting = {queue: queue.waiting for queue in ordered}
        shapes = {queue: self._get_shape(queue, member_k) for queue in ordered}
        lacking = group.lacking - sum(count for _, count in group.lacking_of_role)
        of_role = dict(group.lacking_of_role)
        for role in dict.fromkeys(queue.task_class.role for queue in ordered if queue.task_class.role in of_role):
            self._place(((queue, shapes[queue]) for queue in ordered if queue.task_class.role == role), of_role[role])
        roles_placed = len(draft.bindings) - start
        if roles_placed == group.lacking - lacking:
            self._place(((queue, shapes[queue]) for queue in ordered), lacking)
        if len(draft.bindings) - start == group.lacking:
            return None
        shortage = self._shortages.explain(ordered, group, {queue: waiting[queue] - queue.waiting for queue in ordered})
        draft.rollback(mark)
        return shortage

    def _get_shape(self, queue: ClassQueue, member_k: BoolArray | None) -> Shape | PinnedShape:
        if member_k is None:
            return queue.shape
        return self._draft.shapes.get_shape(narrow(queue.task_class, member_k))

    def _place(self, shaped: Iterable[tuple[ClassQueue, Shape | PinnedShape]], count: int) -> None:
        """Place so many tasks of these queues, or as many as fit."""
        for queue, shape in shaped:
            while count > 0 and queue.sort_key is not None:
                found = self._find_server(queue, shape)
                if found is None:
                    break
                self._draft.take(Choice(queue, *found))
                count -= 1

    def _find_server(self, queue: ClassQueue, shape: Shape | PinnedShape) -> tuple[int, int] | None:
        """Return the best server and its pool, in the pool where the tenant has least; None: the task fits nowhere."""
        measure, task = self._draft.measure, queue.first
        among = shape.choose_open(measure.pools.every_p)
        while len(among) > 0:
            pool = int(among[0]) if len(among) == 1 else measure.find_least_level(queue.progress, among)[1]
            server = shape.find_server(pool, task)
            if server is not None:
                return server, pool
            among = among[among != pool]
        return None


def _get_group(queue: ClassQueue) -> TaskGroup:
    """Return the group of a queue, which has one."""
    group = queue.task_class.group
    assert group is not None
    return group


def narrow(task_class: TaskClass, member_k: BoolArray) -> TaskClass:
    """Return a class whose tasks may go to some of its servers only. member_k: shape (K,)."""
    placement, pin = task_class.placement, task_class.pin
    if pin is not None and pin.server is not None and not member_k[pin.server]:
        pin = Pin(pin.name, None)
    return replace(task_class, placement=replace(placement, eligible_k=placement.eligible_k & member_k), pin=pin)
