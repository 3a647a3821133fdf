"""The order of a cycle's decisions, with where the tenant of each stood before it.

The decisions are made once more by the same draft, which is asked about its measure on the way. A cycle itself does not
note this, because nothing in the operator reads it.
"""

from __future__ import annotations

from dataclasses import dataclass

from fairbind.model import Bind, PolicySettings, Snapshot
from fairbind.scheduling.cycle.draft import Draft, expect_undefined_scores
from fairbind.scheduling.policies.registry import get_policy


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision. share: where its tenant stood before it, in what the policy measures by; None: nothing is measured.

    label: what the number is, for people, after "its". has_classes: whether it stood there on the server's class only.
    """

    bind: Bind
    share: float | None
    label: str
    has_classes: bool


def trace_decisions(snapshot: Snapshot, settings: PolicySettings, count: int) -> list[Decision]:
    """Return the first so many decisions that `run_cycle` makes of this snapshot, in their order."""
    policy = get_policy(settings.policy)
    decisions: list[Decision] = []
    with expect_undefined_scores():
        draft = Draft(snapshot, policy, seed=settings.seed)
        measure = draft.measure
        has_classes = policy.decides_class and measure.pools.pool_k is not None
        while len(decisions) < count and (choice := draft.find_choice()) is not None:
            pool = measure.pools.get_pool(choice.server)
            share = measure.compute_share(choice.queue.progress, pool) if policy.is_fair else None
            decisions.append(Decision(draft.take(choice), share, measure.label, has_classes))
    return decisions
