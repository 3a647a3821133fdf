"""Faults. What is expected ("does not fit") is a value with a reason and never one of these."""

from __future__ import annotations


class FairbindError(Exception):
    """The root of every error that fairbind raises on purpose."""


class InvalidProblemError(FairbindError, ValueError):
    """The caller's fault: a field has an invalid value. The message names both and what would be right."""


class SolverError(FairbindError):
    """A solver gave no answer, or one that fails its certificate. Names the mechanism, the status and the problem."""


class InvariantError(FairbindError):
    """Our own bug: something that must always hold does not. The message carries what led to it."""
