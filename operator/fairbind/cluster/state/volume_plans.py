"""Plans: which volumes the claims of a pod get on the node that is decided for it, and how many a tenant may have.

A pod with a plan holds its place until its claims are bound. A provisioner that does not answer keeps such pods for
ten minutes. So at most `MOST_PLANS` pods of a tenant wait for their claims at a time, which delays no other tenant.
Pods that are decided together are not parted by that. A
tenant that had so many may begin again when `REOPEN_PLANS` are left: all its pods with unbound claims are looked at
then, and that would be too much after each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

MOST_PLANS = 32
REOPEN_PLANS = 16


@dataclass(frozen=True, slots=True)
class VolumePlan:
    """How the claims of a pod whose place is decided get volumes.

    volumes: for each claim, by `name_claim`, the volume that it gets; empty: one must be made. They stay with the pod
    until all of them are bound.
    """

    uid: str
    node: str
    volumes: tuple[tuple[str, str], ...]


class VolumePlans:
    """All of them.

    by_uid: by the pod. planners: the pod by the claim.
    """

    def __init__(self) -> None:
        self.by_uid: dict[str, VolumePlan] = {}
        self.planners: dict[str, str] = {}
        self._waiting: dict[str, str] = {}
        self._counts: Counter[str] = Counter()
        self._full: set[str] = set()

    def is_full(self, tenant: str) -> bool:
        """Whether no further pod of a tenant may have a plan now."""
        return tenant in self._full

    def begin(self, plan: VolumePlan, tenant: str) -> bool:
        """Take a plan; return whether the tenant may have no further one now."""
        self.by_uid[plan.uid] = plan
        self.planners.update((key, plan.uid) for key, _ in plan.volumes)
        self._waiting[plan.uid] = tenant
        self._counts[tenant] += 1
        if self._counts[tenant] < MOST_PLANS or tenant in self._full:
            return False
        self._full.add(tenant)
        return True

    def end(self, uid: str) -> VolumePlan | None:
        """Let the plan of a pod go, and return it; None when it has none. `resolve` comes after it."""
        plan = self.by_uid.pop(uid, None)
        for key, _ in () if plan is None else plan.volumes:
            del self.planners[key]
        return plan

    def resolve(self, uid: str) -> str | None:
        """Note that a pod does not wait for its claims any more; return its tenant if that may have plans again."""
        tenant = self._waiting.pop(uid, None)
        if tenant is None:
            return None
        self._counts[tenant] -= 1
        is_open_again = tenant in self._full and self._counts[tenant] <= REOPEN_PLANS
        if is_open_again:
            self._full.discard(tenant)
        if not self._counts[tenant]:
            del self._counts[tenant]
        return tenant if is_open_again else None

    def copy(self, other: VolumePlans) -> list[str]:
        """Take all plans of another one, and return the volumes that they are about; for tests."""
        for uid, plan in other.by_uid.items():
            self.begin(plan, other._waiting.get(uid, ""))
            if uid not in other._waiting:
                self.resolve(uid)
        self._full = set(other._full)
        return [volume for plan in self.by_uid.values() for _, volume in plan.volumes if volume]

    def describe(self) -> tuple[Mapping[str, object], ...]:
        """Return all of them as comparable values."""
        maps = self.by_uid, self.planners, self._waiting, self._counts, dict.fromkeys(self._full)
        return tuple(dict(sorted(each.items())) for each in maps)
