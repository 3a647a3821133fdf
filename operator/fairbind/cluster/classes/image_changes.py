"""From images that came to nodes, or went, to the queues of the pods that use them."""

from __future__ import annotations

from collections.abc import Iterator

from fairbind.cluster.classes.cluster_state import ClusterState
from fairbind.cluster.classes.due import find_part
from fairbind.cluster.objects.constraints import set_images
from fairbind.cluster.objects.facts import Constraints
from fairbind.cluster.objects.image_facts import ImageUse
from fairbind.cluster.state.pods import PodEntry
from fairbind.cluster.state.queue_keys import QueueKey

MAX_CHANGED_QUEUES = 256
"""As many as a cycle may decide. Each costs up to 30 microseconds until it is a class again."""
LOOKS = 4
"""So many times as many queues are looked at, of which some have the right images again."""


def resolve_images(state: ClusterState) -> None:
    """Bring waiting pods to the queues of the images that count now.

    Thousands of queues may use an image, each for a class of its own, and an image is no more than a preference. So
    `MAX_CHANGED_QUEUES` of them go over at a time, in their order; at a start all of them.
    """
    keys = [position.key for position in state.list_waiting(state.filters.images.take_stale())]
    state.queues.to_image.add(key for key in keys if key.unsupported is None)
    if not state.queues.to_image:
        return
    most = find_part(MAX_CHANGED_QUEUES, len(keys)) if state.servers.names else len(state.queues.to_image)
    state.move_waiting(_list_with_other_images(state, most))


def _list_with_other_images(state: ClusterState, most: int) -> Iterator[tuple[PodEntry, QueueKey]]:
    """Return pods that wait in queues of other images than count now, of so many of these queues at most."""
    changed = 0
    shared: dict[tuple[Constraints, ImageUse], Constraints] = {}
    for before in state.queues.to_image.take(LOOKS * most):
        queue = state.queues.by_key.get(before)
        keys: dict[ImageUse, QueueKey] = {before.constraints.images: before}
        for task in () if queue is None else queue.tasks:
            entry = state.pods.entries[task.uid]
            images = state.filters.images.find(entry.facts)
            if images not in keys:
                made_of = before.constraints, images
                if made_of not in shared:
                    shared[made_of] = set_images(*made_of)
                keys[images] = before._replace(constraints=shared[made_of])
            if keys[images] is not before:
                yield entry, keys[images]
        changed += len(keys) > 1
        if changed == most:
            return
