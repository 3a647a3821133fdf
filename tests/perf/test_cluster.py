from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any, cast

import pytest

from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.errors import ApiError
from perf.cluster import IN_FLIGHT, PodMaker, ask
from perf.workload import make_pods

RATE = 10_000.0


class SlowServer:
    """Answers nothing before as many requests wait as may, or all have come; so nobody is quick enough."""

    def __init__(self, expected: int) -> None:
        self.left = expected
        self.waiting = 0
        self.most = 0
        self.turn = asyncio.Condition()

    async def request(self, method: str, path: str, **_: Any) -> bytes:
        self.left -= 1
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        async with self.turn:
            self.turn.notify_all()
            await self.turn.wait_for(lambda: self.waiting >= IN_FLIGHT or self.left == 0)
        await asyncio.sleep(0)
        self.waiting -= 1
        return json.dumps({"metadata": {"uid": f"{method} {path}"}}).encode()


def test_a_pod_that_waits_for_a_connection_waits_since_it_was_due() -> None:
    async def main() -> None:
        pods = make_pods(3 * IN_FLIGHT, "run")
        server = SlowServer(len(pods))
        maker = PodMaker(cast("ApiClient", server), "run", "somebody")

        await maker.create_at_rate(pods, RATE)

        due = [maker.asked_at[pod.name] for pod in pods]
        assert [later - sooner for sooner, later in pairwise(due)] == pytest.approx([1 / RATE] * (len(pods) - 1))
        assert len(maker.uids) == len(pods)
        assert server.most == IN_FLIGHT

    asyncio.run(main())


def test_what_is_done_with_a_created_pod_knows_its_uid() -> None:
    async def main() -> None:
        pods = make_pods(3, "run")
        maker = PodMaker(cast("ApiClient", SlowServer(len(pods))), "run", "somebody")
        seen = []

        async def note(pod: Any) -> None:
            seen.append((pod.name, maker.uids[pod.name]))

        await maker.create_at_rate(pods, RATE, note)

        assert sorted(seen) == sorted(maker.uids.items())
        assert len(seen) == len(pods)

    asyncio.run(main())


@pytest.mark.parametrize("status", [429, 403])
def test_only_an_overloaded_server_is_asked_again(status: int) -> None:
    class Server:
        asked = 0

        async def request(self, *_: Any, **__: Any) -> bytes:
            self.asked += 1
            if self.asked == 1:
                raise ApiError(status, "reason", "message", 0.001)
            return b"yes"

    server = Server()
    answering = ask(cast("ApiClient", server), "GET", "/")
    if status == 429:
        assert asyncio.run(answering) == b"yes"
    else:
        with pytest.raises(ApiError, match="message"):
            asyncio.run(answering)
