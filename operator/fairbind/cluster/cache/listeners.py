"""Who is told of what happens to pods."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodListeners:
    """Who is told of pods.

    arrival: with the UID of a pod of a scheduler that asks or is gated, which has come to a node (True), or is gone
    (False). opened: with the UID of such a pod whose gate was opened. reserved: with the UID of such a pod for which
    other capacity is reserved than was decided for it (True), or none (False). rejection: with what for, when a kubelet
    refused one of our pods.
    """

    arrival: Callable[[str, bool], None] = lambda _uid, _is_bound: None
    opened: Callable[[str], None] = lambda _uid: None
    reserved: Callable[[str, bool], None] = lambda _uid, _has_capacity: None
    rejection: Callable[[str], None] = lambda _rejection: None


NOBODY = PodListeners()
