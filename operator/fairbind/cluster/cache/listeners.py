"""The listeners of a cache: functions that it calls when something happens to a pod."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PodListeners:
    """The functions that a cache calls, by what happened; by default they do nothing.

    arrival: gets the UID of a pod of a scheduler that asks or is gated, which has come to a node (True), or is gone
    (False). opened: gets the UID of such a pod whose gate was opened. reserved: gets the UID of such a pod for which
    other capacity is reserved than was decided for it (True), or none (False). rejection: gets what for, when a kubelet
    refused one of our pods.
    """

    arrival: Callable[[str, bool], None] = lambda _uid, _is_bound: None
    opened: Callable[[str], None] = lambda _uid: None
    reserved: Callable[[str, bool], None] = lambda _uid, _has_capacity: None
    rejection: Callable[[str], None] = lambda _rejection: None


NO_LISTENERS = PodListeners()
