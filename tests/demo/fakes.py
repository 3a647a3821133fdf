"""What stands for a clock and for an API server in tests of the demo."""

from __future__ import annotations

from typing import Any

import urllib3

from demo.workload import Json
from localplane.client import ApiError

BUSY = ApiError(503, "ServiceUnavailable", "apiserver is shutting down")
SILENT = urllib3.exceptions.HTTPError("connection reset by peer")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Api:
    """Takes each name once. troubles: whose creation fails, by name. asked: for what, since it recovered last."""

    def __init__(self) -> None:
        self.troubles: dict[str, Exception] = {}
        self.asked: list[str] = []
        self.made: list[str] = []

    def recover(self) -> None:
        """Have no troubles any more, and forget what was asked for."""
        self.troubles = {}
        self.asked = []

    def post(self, _path: str, body: Json) -> Json:
        name: str = body["metadata"]["name"]
        self.asked.append(name)
        if name in self.troubles:
            raise self.troubles[name]
        if name in self.made:
            raise ApiError(409, "AlreadyExists", name)
        self.made.append(name)
        return body

    def exists(self, path: str) -> bool:
        return path.endswith("/serviceaccounts/default")

    def items(self, _path: str, **_query: Any) -> list[Json]:
        """Nobody waits."""
        return []
