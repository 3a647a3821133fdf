"""How much of a pod's images the nodes have already, scored as kube-scheduler does.

Each image that a node has counts with its size there, times the part of all nodes that have it: an image that few nodes
have draws little, so that its pods do not gather on these. The sum for all images of the pod is then a score from 0 to
100 between two bounds.

Nodes list their images often, and most lists say nothing new. Where an image is, is kept for all names, as bits of one
number for each size: an image is as large on thousands of nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from fairbind.cluster.objects.image_facts import ImageUse, NodeImages
from fairbind.derived import Rotation
from fairbind.model.preferences import FULL_SCORE

ScoreArray = NDArray[np.int8]

MEGABYTE = 1024 * 1024
LEAST_SIZE = 23 * MEGABYTE
"""Less than this is not worth going anywhere for: the score is 0."""
MOST_SIZE_PER_IMAGE = 1000 * MEGABYTE
"""With so much for each image of the pod the score is the full one."""


class ImageLocality:
    """See the module. An image is asked for by its name, and is in here if some node has it.

    added_or_removed: names that no node had before, or that none has any more; who looks at them clears them.
    to_score: names whose scores may be others.
    """

    def __init__(self) -> None:
        self.added_or_removed: set[str] = set()
        self.to_score = Rotation[str]()
        self._nodes_by_size: dict[str, dict[int, int]] = {}
        self._slots: dict[str, int] = {}
        self._vacant: list[int] = []
        self._slot_k: tuple[Mapping[str, int], NDArray[np.intp]] = {}, np.zeros(0, dtype=np.intp)
        self._known: tuple[Mapping[str, int], WeakValueDictionary[ImageUse, ScoreArray]] = {}, WeakValueDictionary()

    def __contains__(self, name: object) -> bool:
        return name in self._nodes_by_size

    def set_images(self, node: str, old: NodeImages, new: NodeImages) -> None:
        """Take the images of a node in the place of those that it had; none when it is gone, or was not there."""
        if old == new:
            return
        self._known = {}, WeakValueDictionary()
        slot = self._slots.get(node)
        if slot is None:
            slot = self._slots[node] = self._vacant.pop() if self._vacant else len(self._slots)
            self._slot_k = {}, self._slot_k[1]
        before = {(name, size) for names, size in old for name in names}
        now = {(name, size) for names, size in new for name in names}
        bit = 1 << slot
        for name, size in now - before:
            sizes = self._nodes_by_size.setdefault(name, {})
            if not sizes:
                self.added_or_removed.add(name)
            sizes[size] = sizes.get(size, 0) | bit
        for name, size in before - now:
            sizes = self._nodes_by_size[name]
            sizes[size] ^= bit
            if not sizes[size]:
                del sizes[size]
            if not sizes:
                del self._nodes_by_size[name]
                self.added_or_removed.add(name)
        self.to_score.add(name for name, _ in now ^ before)
        if not new:
            self._vacant.append(self._slots.pop(node))
            self._slot_k = {}, self._slot_k[1]

    def compute_scores(self, use: ImageUse, index: Mapping[str, int]) -> ScoreArray:
        """Return what each node is worth to pods that use these images, from 0 to 100, shape (K,), read-only.

        Pods with many other constraints may use the same images. So it is the same object while nothing changes, as
        long as it is in use. index: of each node by its name, another object when nodes come or go.
        """
        if self._known[0] is not index:
            self._known = index, WeakValueDictionary()
        score_k = self._known[1].get(use)
        if score_k is None:
            score_k = self._known[1][use] = self._sum_up(use, index)
            score_k.flags.writeable = False
        return score_k

    def _sum_up(self, use: ImageUse, index: Mapping[str, int]) -> ScoreArray:
        count = len(self._slots) + len(self._vacant) + 1  # the last one: nodes without images
        sum_s = np.zeros(count, dtype=np.int64)
        for name, times in Counter(use.names).items():
            sizes = self._nodes_by_size.get(name, {})
            spread = sum(nodes.bit_count() for nodes in sizes.values()) / len(index)
            for size, nodes in sizes.items():
                has_s = np.frombuffer(nodes.to_bytes(count // 8 + 1, "little"), dtype=np.uint8)
                has_s = np.unpackbits(has_s, count=count, bitorder="little")
                sum_s += has_s.astype(np.int64) * (times * int(size * spread))
        most = MOST_SIZE_PER_IMAGE * use.sources
        score_s = FULL_SCORE * (np.clip(sum_s, LEAST_SIZE, most) - LEAST_SIZE) // (most - LEAST_SIZE)
        return score_s.astype(np.int8)[self._find_slots(index)]

    def _find_slots(self, index: Mapping[str, int]) -> NDArray[np.intp]:
        """Return the slot of each node, and the last one for those without images, shape (K,)."""
        known, slot_k = self._slot_k
        if known is not index:
            slots = (self._slots.get(name, -1) for name in index)
            slot_k = np.fromiter(slots, dtype=np.intp, count=len(index))
            self._slot_k = index, slot_k
        return slot_k
