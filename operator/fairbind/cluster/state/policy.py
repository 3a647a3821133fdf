"""The policy: settings of the administrator, and results that hold for the whole cluster."""

from __future__ import annotations

from collections.abc import Sequence

from fairbind.model import PolicySettings, Targets, Wait


class PolicyState:
    """The policy as of now. settings: the administrator's. targets: what the exact mechanism gives; None: nothing yet.

    waits: why classes wait, as the last cycle saw it.
    """

    def __init__(self) -> None:
        self.settings = PolicySettings()
        self.targets: Targets | None = None
        self.waits: Sequence[Wait] = ()
