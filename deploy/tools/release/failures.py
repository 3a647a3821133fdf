"""Why there is no release."""

from __future__ import annotations


class ReleaseError(RuntimeError):
    """A part cannot be built, or is not the same when it is built again; the message is for the terminal."""
