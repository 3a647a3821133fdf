"""Whatever happens: no node is overcommitted, no pod is bound twice, and in the end every pod that fits is bound."""

from __future__ import annotations

import pytest

from kube.assembled.histories import History
from kube.assembled.processes import run_processes
from seeds import draw_seeds

HISTORIES, BATCH = 200, 20

pytestmark = pytest.mark.slow


async def live(seed: int) -> None:
    history = History(seed)
    try:
        await history.live()
    except BaseException as error:
        error.add_note("\n".join([f"seed {seed}", *history.story, *history.find_unfinished()]))
        raise


@pytest.mark.parametrize("first", draw_seeds(HISTORIES)[::BATCH])
def test_random_histories_end_well(first: int) -> None:
    for seed in range(first, first + BATCH):
        run_processes(live(seed))
