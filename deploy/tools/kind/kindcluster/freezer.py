"""Frees containers that no signal reaches any more, where the kernel still groups processes the old way (cgroup v1).

There, starting a container freezes its processes for an instant. When the node around it is killed in this instant,
nothing thaws them: they cannot end, so the node cannot, and the engine says that it did not receive an exit event.
On a busy machine this happens now and then. On cgroup v2 a frozen process can be killed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path

FREEZER = Path("/sys/fs/cgroup/freezer/docker")
"""Where the engine's containers are, if it runs on this machine and groups processes itself."""
STATE = "freezer.state"
THAWED = "THAWED"


def thaw(containers: Iterable[str], freezer: Path = FREEZER) -> None:
    """Thaw all that is frozen in these containers, by their whole ids; what may not be done is left as it is."""
    for container in containers:
        for path in sorted((freezer / container).rglob(STATE)):
            with contextlib.suppress(OSError):
                if path.read_text(encoding="ascii").strip() != THAWED:
                    path.write_text(f"{THAWED}\n", encoding="ascii")
