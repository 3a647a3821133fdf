"""Opening all gates at the end of gate mode."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from cluster.builders import Json, make_pod
from fairbind.cluster.objects.facts import FAIRBIND_GATE
from fairbind.kube.client.api import Api
from fairbind.kube.client.errors import ApiError
from fairbind.kube.operator.open_gates import open_all_gates

GATE, OTHER = {"name": FAIRBIND_GATE}, {"name": "example.com/other"}


class Pods:
    """An API server with pods. patches: bodies by path. answers: refusals by path."""

    def __init__(self, *pods: Json) -> None:
        self.pods = pods
        self.patches: dict[str, Json] = {}
        self.answers: dict[str, ApiError] = {}

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = "",
        timeout_seconds: float = 0.0,
        guard: Callable[[], bool] | None = None,
    ) -> bytes:
        if method == "GET":
            assert path == "/api/v1/pods"
            return json.dumps({"metadata": {"resourceVersion": "9"}, "items": self.pods}).encode()
        assert (method, content_type, guard, query, timeout_seconds) == (
            "PATCH",
            "application/strategic-merge-patch+json",
            None,
            None,
            0.0,
        )
        self.patches[path] = json.loads(body or b"")
        if path in self.answers:
            raise self.answers[path]
        return b"{}"


def make_gated(name: str, second: int, *gates: Json) -> Json:
    return make_pod(name, created=f"2026-01-01T00:00:0{second}Z", schedulingGates=list(gates))


async def test_every_pod_behind_our_gate_is_opened_the_oldest_first_and_other_gates_stay() -> None:
    pods = Pods(make_gated("late", 2, GATE), make_gated("early", 1, OTHER, GATE), make_gated("not", 0, OTHER))
    opened: list[str] = []
    assert await open_all_gates(cast("Api", pods), on_opened=opened.append) == 2
    assert opened == ["team/early", "team/late"]
    assert pods.patches["/api/v1/namespaces/team/pods/early"] == {
        "metadata": {"uid": "uid-early"},
        "spec": {"schedulingGates": [{"name": FAIRBIND_GATE, "$patch": "delete"}]},
    }


async def test_looking_changes_nothing() -> None:
    pods = Pods(make_gated("a", 1, GATE))
    assert await open_all_gates(cast("Api", pods), is_dry=True) == 1
    assert pods.patches == {}


async def test_a_pod_that_is_gone_is_no_trouble_and_a_missing_right_is_one() -> None:
    pods = Pods(make_gated("a", 1, GATE), make_gated("b", 2, GATE))
    pods.answers["/api/v1/namespaces/team/pods/a"] = ApiError(404, "NotFound", "gone")
    assert await open_all_gates(cast("Api", pods)) == 1
    pods.answers["/api/v1/namespaces/team/pods/b"] = ApiError(403, "Forbidden", "may not")
    with pytest.raises(ApiError, match="may not"):
        await open_all_gates(cast("Api", pods))


async def test_more_than_one_group_of_pods_is_opened() -> None:
    pods: Any = Pods(*(make_gated(f"p{n}", n % 10, GATE) for n in range(70)))
    assert await open_all_gates(pods) == 70
    assert len(pods.patches) == 70
