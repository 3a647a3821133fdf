"""Something that is looked at again and again, in a thread of its own, while a context lasts."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


class Sampling:
    """Calls `sample` in a thread while the context lasts. It must return soon after `ended` is set."""

    def __init__(self, name: str) -> None:
        self.ended = threading.Event()
        self._thread = threading.Thread(target=self.sample, name=name, daemon=True)

    def sample(self) -> None:
        """Look again and again, until `ended` is set."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ended.set()
        self._thread.join()
