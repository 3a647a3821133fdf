"""Draws for the policy that looks at two servers: random to look at, and the same again for the same input.

What a task draws depends on the seed and on its uid, not on how many draws came before it. So a cycle that goes on
where another ended decides what one long cycle would have decided, and the order of what is asked changes nothing.
"""

from __future__ import annotations

from hashlib import blake2b

_WORD = 8


class RandomChoices:
    """Two different numbers for each task."""

    __slots__ = ("_key",)

    def __init__(self, seed: int) -> None:
        self._key = str(seed).encode()[:64]

    def draw_two(self, uid: str, count: int) -> tuple[int, int]:
        """Return two different numbers below `count`, which must be 2 or more; all pairs are equally likely.

        >>> RandomChoices(0).draw_two("some task", 2) in {(0, 1), (1, 0)}
        True
        """
        digest = blake2b(uid.encode(), key=self._key, digest_size=2 * _WORD).digest()
        first = int.from_bytes(digest[:_WORD], "big") % count
        second = int.from_bytes(digest[_WORD:], "big") % (count - 1)
        return first, second + (second >= first)
