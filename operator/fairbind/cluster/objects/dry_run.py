"""What an API server says of a pod that it is asked to create on trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class DryRun:
    """The answer to one pod: one of the three.

    pod: as it would be stored, with all that admission adds. refusal: why it would not be created, in the server's
    words. trouble: why the server said neither.
    """

    pod: Mapping[str, Any] | None = None
    refusal: str | None = None
    trouble: str | None = None
