"""The least of many scores that change one by one: the first least one of a slice, without a look at all of it.

Scores are cut into blocks, and each block has a bound that is never above its least score. A score that falls takes the
bound with it; one that rises leaves the bound too low, which shows at the next question: then the block is looked at
and the bound raised. As a rule the score that was the least one last time has risen, so a question costs two looks at
the bounds and two at a block, however many scores there are.
"""

from __future__ import annotations

from math import inf

import numpy as np

from fairbind.model.servers import FloatArray, IndexArray

BLOCK = 256
"""So many scores a block: as many as there are blocks of 65,536 scores."""


class BlockMinima:
    """See the module. It refers to the scores, shape (n,); a writer tells of it with `lower`."""

    __slots__ = ("_bound_b", "_scores")

    def __init__(self, scores: FloatArray) -> None:
        self._scores = scores
        self._bound_b: FloatArray = np.minimum.reduceat(scores, np.arange(0, len(scores), BLOCK))

    def lower(self, position: int, score: float) -> None:
        """Note that a score was written."""
        block = position // BLOCK
        self._bound_b[block] = min(self._bound_b[block], score)

    def lower_many(self, positions: IndexArray, scores: FloatArray) -> None:
        """Note that scores were written."""
        np.minimum.at(self._bound_b, positions // BLOCK, scores)

    def find_least(self, start: int, stop: int) -> int:
        """Return the position of the first least score of a slice that is not empty.

        >>> BlockMinima(np.array([3.0, 1.0, 2.0, 1.0])).find_least(2, 4)
        3
        """
        scores = self._scores
        first, last = -(-start // BLOCK), stop // BLOCK  # blocks that are in the slice as a whole
        if first >= last:
            return start + int(scores[start:stop].argmin())
        best, least = start, inf
        if start < first * BLOCK:
            best += int(scores[start : first * BLOCK].argmin())
            least = scores[best]
        inner = self._find_in_blocks(first, last)
        # Of equal scores the first one wins, and a slice of nothing but infinities has a first one, too.
        if scores[inner] < least:
            best, least = inner, scores[inner]
        if last * BLOCK < stop:
            after = last * BLOCK + int(scores[last * BLOCK : stop].argmin())
            best = after if scores[after] < least else best
        return best

    def _find_in_blocks(self, first: int, last: int) -> int:
        """Return the position of the first least score of whole blocks."""
        bound_b = self._bound_b[first:last]
        while True:
            block = int(bound_b.argmin())
            start = (first + block) * BLOCK
            position = start + int(self._scores[start : start + BLOCK].argmin())
            least = self._scores[position]
            if least == bound_b[block]:
                return position
            bound_b[block] = least
