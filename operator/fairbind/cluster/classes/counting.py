"""Which resources count for shares, and which say how well a pod suits a node.

The administrator's list says both, if there is one. By default all count that the nodes have, and slots only while they
are scarce: those for pods (`pods`), and those of each driver for the volumes that it attaches (see `slots`).
"""

from __future__ import annotations

from functools import lru_cache

from fairbind.cluster.classes.cluster_state import ClusterState
from fairbind.cluster.objects.facts import EPHEMERAL_STORAGE, PODS
from fairbind.cluster.objects.volume_facts import are_attach_slots, name_slots
from fairbind.cluster.state.node_state import Axes

NOT_FITTED = frozenset({PODS, EPHEMERAL_STORAGE})
"""By default these do not say how well a pod suits a node. Most pods ask for one slot and for no storage, so a node of
which much is used would look as if it had too much of both, and best fit would spread pods instead of packing them."""


def find_chosen(state: ClusterState, axes: Axes) -> frozenset[str]:
    """Return the fairness resources that the administrator chose and some node has."""
    return frozenset(state.policy.settings.fairness_resources or ()).intersection(axes)


@lru_cache(maxsize=8)
def list_unslotted(axes: Axes) -> frozenset[str]:
    """Return the axes that are no slots."""
    return frozenset(r for r in axes if r != PODS and not are_attach_slots(r))


def compute_fits(state: ClusterState, axes: Axes) -> tuple[bool, ...] | None:
    """Return `Snapshot.fits_r`."""
    return None if find_chosen(state, axes) else _mark(axes, list_unslotted(axes) - NOT_FITTED)


def compute_counts(state: ClusterState, axes: Axes) -> tuple[bool, ...]:
    """Return for each axis whether it counts for shares now."""
    counted = find_chosen(state, axes)
    if counted:
        return _mark(axes, counted)
    counted = list_unslotted(axes)
    counted |= _find_scarce(state, axes, counted, [PODS])
    limits = state.volumes.limits
    drivers = {name_slots(driver) for driver in limits.counted if not limits.is_limitless(driver)}
    return _mark(axes, counted | _find_scarce(state, axes, counted, sorted(drivers.intersection(axes))))


def _find_scarce(state: ClusterState, axes: Axes, counted: frozenset[str], slots: list[str]) -> frozenset[str]:
    """Return which slots would run out before all of the counted resources."""
    total_r, counts_r, specs = state.servers.total_r, _mark(axes, counted), state.directory.specs
    return frozenset(r for r in slots if state.queues.wanted.are_slots_scarce(r, axes, total_r, counts_r, specs))


@lru_cache(maxsize=32)
def _mark(axes: Axes, some: frozenset[str]) -> tuple[bool, ...]:
    """Return for each axis whether it is one of some."""
    return tuple(r in some for r in axes)
