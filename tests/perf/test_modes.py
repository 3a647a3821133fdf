from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from fairbind.cluster.other_schedulers.gate_limiter import MOST_UNGATED
from fairbind.cluster.other_schedulers.opening import make_opening
from fairbind.kube.client.api import STRATEGIC, ApiClient
from perf.cluster import PodMaker
from perf.measure import BindingWatch
from perf.modes import open_gates
from perf.workload import make_pods

IN_FLIGHT = 16
COUNT = 3 * MOST_UNGATED


class Server:
    """Opens each gate at once; places the first of the open pods when no further gate is opened."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.bodies: dict[str, Any] = {}
        self.most = 0
        self.bound = 0

    async def request(self, method: str, path: str, *, body: bytes, content_type: str, **_: Any) -> bytes:
        assert (method, content_type) == ("PATCH", STRATEGIC)
        name = path.rpartition("/")[2]
        self.opened.append(name)
        self.bodies[name] = json.loads(body)
        self.most = max(self.most, len(self.opened) - self.bound)
        await asyncio.sleep(0)
        return b"{}"

    async def place_all(self, watch: BindingWatch) -> None:
        while self.bound < COUNT:
            seen = -1
            while seen != len(self.opened):
                seen = len(self.opened)
                for _ in range(3):
                    await asyncio.sleep(0)
            watch.on_bound(self.opened[self.bound])
            self.bound += 1


def test_gates_are_opened_in_order_while_there_are_places() -> None:
    async def main() -> None:
        pods = make_pods(COUNT, "run")
        server = Server()
        api = cast("ApiClient", server)
        made, watch = PodMaker(api, "run", "default-scheduler"), BindingWatch(api, "run")
        made.uids = {pod.name: f"uid-{pod.name}" for pod in pods}
        made.versions = {pod.name: str(number) for number, pod in enumerate(pods)}

        await asyncio.gather(open_gates(api, pods, made, watch, IN_FLIGHT), server.place_all(watch))

        assert server.opened == [pod.name for pod in pods]
        assert server.most == MOST_UNGATED
        assert server.bodies[pods[7].name] == make_opening(f"uid-{pods[7].name}", "7")

    asyncio.run(main())
