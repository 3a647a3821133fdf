"""Hints: what members of a namespace can do about a message of a waiting pod; docs/share.md has the same in a table."""

from __future__ import annotations

from typing import Final

TOO_LARGE: Final = "request less, or ask for larger nodes: waiting does not help"
HINTS: Final = (
    ("no node is large enough", TOO_LARGE),
    ("untolerated taint", "tolerate the taint, if you may use these nodes"),
    ("node affinity/selector", "check the nodeSelector and the node affinity"),
    ("topology spread", "relax the spread constraint"),
    ("affinity rules", "relax the affinity to other pods"),
    ("free ports", "drop the host port"),
    ("persistentvolumeclaim", "look at the claim: kubectl describe pvc"),
    ("resourceclaim", "look at the claim: kubectl describe resourceclaim"),
    ("does not honour", "remove the field, or name another scheduler for the pod"),
    ("that makes no sense", "correct the field"),
    ("scheduling gates", "remove the gates, or wait for the controller that set them"),
    ("no Tenant claims", "ask the administrator to let a Tenant claim the namespace"),
    ("failed: ", "tell the administrator; fairbind tries again by itself"),
    ("Insufficient ", "wait until pods end, or request less"),
    ("Too many pods", "wait until pods end"),
)
MOST_HINTS: Final = 3


def find_hints(message: str) -> list[str]:
    """Return what can be done, at most `MOST_HINTS`.

    >>> find_hints("0/9 nodes are available: 9 Insufficient cpu. no node is large enough, even when empty, ...")
    ['request less, or ask for larger nodes: waiting does not help']
    """
    lowered = message.lower()
    found = [hint for words, hint in HINTS if words.lower() in lowered]
    return [TOO_LARGE] if TOO_LARGE in found else found[:MOST_HINTS]
