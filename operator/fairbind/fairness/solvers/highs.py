"""HiGHS, which solves the linear programs: how to make one that prints nothing and does not disturb the others.

HiGHS prints its name and version when it is first told something, unless that is an option. From version 1.16, highspy
tells it of callbacks while it is being made, before any option can be set from outside.

The first that runs decides how many threads there are for all that this thread of ours runs. One that is set to another
number does not run at all ("not set"), and the default depends on the machine and the version. So all have one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import highspy


def make_silent_highs() -> highspy.Highs:
    """Return a HiGHS that prints nothing, now or later, and has one thread."""
    made: highspy.Highs = _get_silent_class()()
    made.setOptionValue("output_flag", False)
    made.setOptionValue("threads", 1)
    return made


@lru_cache(maxsize=1)
def _get_silent_class() -> type[highspy.Highs]:
    import highspy  # noqa: PLC0415  # see fairbind.fairness: imported by who uses it

    class SilentHighs(highspy.Highs):
        """Silent before highspy 1.16 tells it of callbacks, which it does while it makes one."""

        def enableCallbacks(self) -> None:  # noqa: N802 - highspy's name
            """Be silent, then do the same."""
            self.setOptionValue("output_flag", False)
            super().enableCallbacks()  # type: ignore[no-untyped-call]  # highspy has no types here

    return SilentHighs
