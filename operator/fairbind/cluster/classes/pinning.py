"""From the name of the node that a pod is pinned to, to a server of the snapshot, and to why it may go nowhere else.

The pin is asked after everything else that a task's selectors and required affinity say. So a node that refuses the
task for an earlier reason counts under that, and all others but the one count as not what the affinity asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from fairbind.cluster.filters.anti_affinity import REPELLED
from fairbind.cluster.filters.refusals import MISMATCH
from fairbind.model import Pin, Placement, Rejection, RejectionKind, Rejections

_SHARED_ANSWERS = 256


def make_pin(name: str, base: Placement, allowed: Placement, index: Mapping[str, int]) -> Pin:
    """Return the pin to a node.

    base: where the tasks might go without it. allowed: the same without the nodes that placed pods close. index: of
    each node by its name.
    """
    server = index.get(name)
    may_use = server is not None and bool(base.eligible_k[server])
    eligible = len(index) - sum(count for _, count in base.rejections)
    rejections = _add(base.rejections, MISMATCH, eligible - may_use)
    if may_use and not allowed.eligible_k[server]:
        return Pin(name, None, _add(rejections, REPELLED, 1))
    return Pin(name, server if may_use else None, rejections)


def refuse(pin: Pin, rejection: Rejection) -> Pin:
    """Return the pin of tasks whose node is not eligible for another reason."""
    return Pin(pin.name, None, _add(pin.rejections, rejection, 1))


def lack(pin: Pin, missing: tuple[str, ...]) -> Pin:
    """Return the pin of tasks that ask for resources that no node offers: their node lacks them."""
    if pin.server is None or not missing:
        return pin
    for resource in missing:
        pin = refuse(pin, Rejection(RejectionKind.INSUFFICIENT, resource))
    return pin


@lru_cache(_SHARED_ANSWERS)
def _add(rejections: Rejections, rejection: Rejection, count: int) -> Rejections:
    """Return rejections with so many more for a reason; thousands of pins share one answer."""
    counts = dict(rejections)
    counts[rejection] = counts.get(rejection, 0) + count
    return tuple(sorted((reason, refused) for reason, refused in counts.items() if refused))
