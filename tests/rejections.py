"""Reasons as tests say them, in few words."""

from __future__ import annotations

from fairbind.model import Rejection, RejectionKind

CORDONED = Rejection(RejectionKind.CORDONED)
NOT_READY = Rejection(RejectionKind.NOT_READY)
OUTSIDE = Rejection(RejectionKind.OUTSIDE)
PORT_CONFLICT = Rejection(RejectionKind.PORT_CONFLICT)
REPELLED = Rejection(RejectionKind.ANTI_AFFINITY)
UNCLAIMED = Rejection(RejectionKind.UNCLAIMED)
UNREADABLE = Rejection(RejectionKind.UNREADABLE)
UNWANTED = Rejection(RejectionKind.SELECTOR)


def lack(resource: str) -> Rejection:
    return Rejection(RejectionKind.INSUFFICIENT, resource)


def taint(subject: str) -> Rejection:
    return Rejection(RejectionKind.TAINT, subject)


def unsupported(feature: str) -> Rejection:
    return Rejection(RejectionKind.NOT_SUPPORTED, feature)
