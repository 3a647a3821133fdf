"""Which policy of the operator stands behind an id of the simulator."""

from __future__ import annotations

from typing import Final

from fairbind.scheduling import POLICIES

FGD_PREFIX: Final = "fgd-"
DECIDED_OUTSIDE: Final = "best-fit-drfh"
"""What a cache believes to be its policy while a baseline decides: one that needs nothing beyond the usual."""


def find_base(policy: str) -> str | None:
    """Return the operator's policy whose order of tenants this is; None for a rule of its own.

    >>> find_base("fgd-ps-dsf"), find_base("ps-dsf"), find_base("slots")
    ('ps-dsf', 'ps-dsf', None)
    """
    base = policy.removeprefix(FGD_PREFIX)
    return base if base in POLICIES else None
