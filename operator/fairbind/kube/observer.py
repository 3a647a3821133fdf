"""What the operator tells the part that counts: one call for each thing that happened.

The kube package knows no metrics library; the part that shows numbers implements this protocol (structurally) and is
passed in. Calls are made on the event loop, so an implementation returns at once.
"""

from __future__ import annotations

from typing import Protocol

from fairbind.model.overview import ClusterOverview


class Observer(Protocol):
    """Told of everything that is counted or timed."""

    def binding_finished(self, result: str) -> None:
        """One binding came to its end: bound, conflict, gone, invalid, fenced, stale, crowded, deferred or failed."""

    def pod_scheduled(self, tenant: str, seconds: float) -> None:
        """A pod of this tenant was bound this long after its creation."""

    def pod_rejected(self, rejection: str) -> None:
        """A kubelet refused a pod of ours that was bound to it: for resources, ports, node or other."""

    def member_evicted(self, result: str) -> None:
        """An eviction of a member of a group came to its end: evicted, blocked or failed."""

    def cycle_finished(self, seconds: float) -> None:
        """A cycle came to its end after this long."""

    def cycle_failed(self) -> None:
        """A cycle raised an error; nothing of it was executed."""

    def exact_solve_finished(self, result: str, seconds: float) -> None:
        """A solve of the fair shares came to its end: solved, failed or timeout."""

    def watch_restarted(self, resource: str, reason: str) -> None:
        """The watch of a resource had to begin again."""

    def watch_aged(self, resource: str, seconds: float) -> None:
        """The API server last showed this long ago that it tells us everything about this resource."""

    def part_failed(self, part: str) -> None:
        """A part that only reports raised an error; `REPORTING_PARTS` of the metrics names them."""

    def loop_lagged(self, seconds: float) -> None:
        """The event loop came back to its clock this late, the most of the last minute."""

    def leadership_changed(self, leading: bool) -> None:  # noqa: FBT001 - the one thing that the call says
        """This replica now leads, or no longer does."""

    def overview_changed(self, overview: ClusterOverview) -> None:
        """Who holds what now."""


class SilentObserver:
    """An observer that counts nothing."""

    def binding_finished(self, result: str) -> None:
        """Count nothing."""

    def pod_scheduled(self, tenant: str, seconds: float) -> None:
        """Count nothing."""

    def pod_rejected(self, rejection: str) -> None:
        """Count nothing."""

    def member_evicted(self, result: str) -> None:
        """Count nothing."""

    def cycle_finished(self, seconds: float) -> None:
        """Count nothing."""

    def cycle_failed(self) -> None:
        """Count nothing."""

    def exact_solve_finished(self, result: str, seconds: float) -> None:
        """Count nothing."""

    def watch_restarted(self, resource: str, reason: str) -> None:
        """Count nothing."""

    def watch_aged(self, resource: str, seconds: float) -> None:
        """Show nothing."""

    def part_failed(self, part: str) -> None:
        """Count nothing."""

    def loop_lagged(self, seconds: float) -> None:
        """Show nothing."""

    def leadership_changed(self, leading: bool) -> None:  # noqa: FBT001 - as in the protocol
        """Count nothing."""

    def overview_changed(self, overview: ClusterOverview) -> None:
        """Count nothing."""
