"""For a Dask worker (`--preload`): it is killed when it begins its second task, as if its machine had gone."""

from __future__ import annotations

import os
import signal

from distributed import Worker, WorkerPlugin


class Ending(WorkerPlugin):  # type: ignore[misc]
    def __init__(self) -> None:
        self._begun = 0

    def transition(self, key: object, start: str, finish: str, **_: object) -> None:  # noqa: ARG002 - the plugin's shape
        self._begun += finish == "executing"
        if self._begun > 1:
            os.kill(os.getpid(), signal.SIGKILL)


async def dask_setup(worker: Worker) -> None:
    await worker.plugin_add(Ending())
