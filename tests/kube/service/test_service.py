from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, cast

import pytest

from fairbind.kube import service
from fairbind.kube.decode import NODES, PODS
from fairbind.kube.health import Health
from fairbind.kube.observer import SilentObserver
from fairbind.kube.service import Operator, OperatorSettings
from fairbind.model.overview import ClusterOverview
from kube.inbound.builders import make_node, make_pod


class WatchingObserver(SilentObserver):
    def __init__(self) -> None:
        self.overviews: list[ClusterOverview] = []

    def overview_changed(self, overview: ClusterOverview) -> None:
        self.overviews.append(overview)

    @property
    def counts(self) -> list[tuple[int, int]]:
        """(running, pending) of the only tenant, as last shown."""
        return [(t.running, sum(t.pending.values())) for t in self.overviews[-1].tenants] if self.overviews else []


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10.0):
        while not condition():  # noqa: ASYNC110 - the observer tells nobody
            await asyncio.sleep(0.001)


async def test_a_decision_is_shown_although_it_wakes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The overview was made between a pod's arrival and the decision; nothing that changes the books follows."""
    monkeypatch.setattr(service, "OVERVIEW_SECONDS", 0.005)
    observer = WatchingObserver()
    nothing = cast("Any", None)  # no request is made
    operator = Operator(
        OperatorSettings("fairbind-system", "fairbind", "me"), nothing, nothing, observer, Health(), lambda: None
    )
    publishing = asyncio.create_task(operator._publish_overviews())
    operator.mirror.nodes.apply(NODES.decode_item(_encode(make_node("n1"))))
    operator.mirror.pods.apply(PODS.decode_item(_encode(make_pod("p"))))
    await eventually(lambda: observer.counts == [(0, 1)])
    assert operator.mirror.assume("uid-p", "n1")
    operator.mirror.pods.apply(PODS.decode_item(_encode(make_pod("p", node="n1"))))
    await eventually(lambda: observer.counts == [(1, 0)])
    shown = len(observer.overviews)
    await asyncio.sleep(0.05)
    assert len(observer.overviews) == shown  # nothing changes, nothing is computed
    publishing.cancel()
    await asyncio.gather(publishing, return_exceptions=True)


def _encode(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()
