"""The benchmark's control plane: one whose nodes keep still, so that every phase meets the same cluster.

kwok sends the heartbeats of all nodes within two or three of every eleven minutes, because all nodes were made at the
same time. At 5,000 nodes that is forty writes a second, and whoever happens to be measured then pays for them.
"""

from __future__ import annotations

from localplane.components import Layout
from localplane.plane import ControlPlane

HEARTBEAT = "name: node-heartbeat"
SEPARATOR = "\n---\n"
GRACE_FLAG = "--node-monitor-grace-period="
GRACE_SECONDS = 24 * 60 * 60


class StillPlane(ControlPlane):
    """A control plane without heartbeats, whose nodes are Ready for a day all the same."""

    def _write_files(self) -> None:
        super()._write_files()
        leave_out_heartbeats(self.layout)

    def _compute_arguments(self, name: str) -> list[str]:
        arguments = super()._compute_arguments(name)
        return [f"{GRACE_FLAG}{GRACE_SECONDS}s" if part.startswith(GRACE_FLAG) else part for part in arguments]


def leave_out_heartbeats(layout: Layout) -> None:
    """Take the stage of heartbeats out of kwok's file; raise ValueError when there is none."""
    documents = layout.kwok_config.read_text(encoding="utf-8").split(SEPARATOR)
    kept = [document for document in documents if HEARTBEAT not in document]
    if len(kept) != len(documents) - 1:
        raise ValueError(f"{layout.kwok_config} has {len(documents) - len(kept)} stages of heartbeats, not one")
    layout.kwok_config.write_text(SEPARATOR.join(kept), encoding="utf-8")
