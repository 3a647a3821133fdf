"""Members of groups that are evicted: how many at a time, in which order, and what answers mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from fairbind.cluster.cache.group_evictions import MemberEviction
from fairbind.cluster.loop.write_limits import FIRST_REST_SECONDS
from fairbind.kube.client.api import NotAllowedError
from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.observer import SilentObserver
from fairbind.kube.part_failures import PartFailures
from fairbind.kube.writers.due_writes import WRITES_PER_LOOK
from fairbind.kube.writers.group_undo import BLOCKED_SECONDS, MAX_OF_TENANT, GroupUndoer

RIGHT_MISSING = 'pods "m" is forbidden: User "system:serviceaccount:f:f" cannot create resource "pods/eviction" in'


class Scene(SilentObserver):
    """Who should be evicted, and an API server that remembers who was and lets them go."""

    def __init__(self) -> None:
        self.due: list[MemberEviction] = []
        self.answers: dict[str, ApiError | TransientClusterError] = {}
        self.sent: list[str] = []
        self.results: list[str] = []
        self.told: list[tuple[str, ...]] = []
        self.leads = self.decides = True
        self.shows = True
        self.on_request: Callable[[], object] = lambda: None
        self.now = 0.0
        self._looks = 0
        self.undoer = GroupUndoer(
            self,
            self,
            lambda *words: self.told.append(words),
            observer=self,
            is_leading=lambda: self.leads,
            may_decide=lambda: self.decides,
            failures=PartFailures(self),
            clock=lambda: self.now,
            sleep=self.sleep,
        )

    def list_due(self) -> list[MemberEviction]:
        return list(self.due)

    def is_due(self, eviction: MemberEviction) -> bool:
        return eviction in self.due

    def member_evicted(self, result: str) -> None:
        self.results.append(result)

    async def request(self, method: str, path: str, **rest: Any) -> bytes:
        _, api, version, _, namespace, _, name, subresource = path.split("/")
        assert (method, api, version, subresource) == ("POST", "api", "v1", "eviction")
        self.on_request()
        if not rest["guard"]():
            raise NotAllowedError(path)
        body = msgspec.json.decode(rest["body"])
        assert (body["apiVersion"], body["kind"]) == ("policy/v1", "Eviction")
        assert body["metadata"] == {"name": name, "namespace": namespace}
        assert body["deleteOptions"] == {"preconditions": {"uid": f"uid-{name}"}}
        self.sent.append(f"{namespace}/{name}")
        if (error := self.answers.get(namespace)) is not None:
            raise error
        if self.shows:
            self.due = [eviction for eviction in self.due if eviction.name != name]
        return b"{}"

    async def sleep(self, seconds: float) -> None:
        if self._looks == 0:
            raise _EndedError
        self._looks -= 1
        self.now += seconds

    async def look(self, times: int = 1) -> list[str]:
        """Let it look so often; return who was to be evicted, sorted."""
        self.sent, self._looks = [], times
        with pytest.raises(_EndedError):
            await self.undoer.run()
        return sorted(self.sent)


class _EndedError(Exception):
    """There were as many looks as were asked for."""


@pytest.fixture
def scene() -> Scene:
    return Scene()


def make(name: str, namespace: str = "team", *, tenant: str = "") -> MemberEviction:
    return MemberEviction(namespace, name, f"uid-{name}", tenant or f"ns/{namespace}", f"{namespace}/g", 2, 3)


async def test_who_is_due_is_evicted_once_and_told(scene: Scene) -> None:
    scene.due, scene.shows = [make("m0"), make("m1")], False
    assert await scene.look(5) == ["team/m0", "team/m1"]
    assert scene.results == ["evicted", "evicted"]
    note = "evicted: group team/g has 2 of 3 pods on nodes and cannot be completed (groups.undo)"
    assert scene.told[0] == ("team", "m0", "uid-m0", "GroupUndone", note)
    scene.due = []
    await scene.look()
    scene.due = [make("m0")]  # once more a part of the minimum only
    assert await scene.look() == ["team/m0"]


async def test_only_the_leader_evicts(scene: Scene) -> None:
    scene.due, scene.decides = [make("m0")], False
    assert await scene.look(3) == []
    scene.decides, scene.leads = True, False
    assert await scene.look(3) == []
    scene.leads = True
    assert await scene.look() == ["team/m0"]


async def test_a_group_that_was_completed_a_moment_ago_is_let_be(scene: Scene) -> None:
    scene.due = [make("m0")]
    scene.on_request = scene.due.clear
    assert await scene.look(3) == []
    assert (scene.results, scene.told) == ([], [])


async def test_few_are_evicted_at_a_time_and_tenants_take_turns(scene: Scene) -> None:
    names = [f"m{number:02}" for number in range(20)]
    scene.due = [make(name) for name in names]
    assert await scene.look() == [f"team/{name}" for name in names[:MAX_OF_TENANT]]
    scene.due = [make(f"{tenant}{name}", tenant) for tenant in "abc" for name in names]
    evicted = await scene.look()
    assert len(evicted) == WRITES_PER_LOOK
    assert {each[0] for each in evicted} == set("abc")


async def test_namespaces_of_one_tenant_have_one_part(scene: Scene) -> None:
    scene.due = [make(f"m{number:02}", f"space{number}", tenant="t") for number in range(20)]
    assert len(await scene.look()) == MAX_OF_TENANT


@pytest.mark.parametrize(("asked", "seconds"), [(None, BLOCKED_SECONDS), (20.0, 20.0)])
async def test_a_budget_that_forbids_it_is_asked_again_after_its_pause_and_nobody_else_waits(
    scene: Scene, asked: float | None, seconds: float
) -> None:
    words = "Cannot evict pod as it would violate the pod's disruption budget."
    scene.answers["team"] = ApiError(429, "TooManyRequests", words, asked)
    scene.due = [make("m0"), make("m1"), make("n0", "other")]
    assert await scene.look() == ["other/n0", "team/m0", "team/m1"]
    assert sorted(scene.results) == ["blocked", "blocked", "evicted"]
    scene.due.append(make("m2"))
    assert await scene.look() == ["team/m2"]
    assert await scene.look(int(seconds) - 2) == []
    scene.answers.clear()
    assert await scene.look() == ["team/m0", "team/m1"]
    assert [words[1] for words in scene.told] == ["n0", "m0", "m1"]


@pytest.mark.parametrize("status", [404, 409])
async def test_a_pod_that_is_gone_or_another_one_is_done(scene: Scene, status: int) -> None:
    scene.answers["team"] = ApiError(status, "NotFound", 'pods "m0" not found')
    scene.due = [make("m0")]
    assert await scene.look(60) == ["team/m0"]
    assert (scene.results, scene.told) == ([], [])


@pytest.mark.parametrize(
    "error",
    [
        ApiError(403, "Forbidden", RIGHT_MISSING),
        ApiError(500, "InternalError", "This pod has more than one PodDisruptionBudget"),
        TransientClusterError("no answer"),
    ],
)
async def test_where_it_fails_the_namespace_rests_and_others_go_on(
    scene: Scene, error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    scene.answers["team"] = error
    scene.due = [make("m0"), make("m1")]
    assert await scene.look() == ["team/m0", "team/m1"]
    scene.due.append(make("n0", "other"))
    assert await scene.look(3) == ["other/n0"]
    assert scene.results == ["failed", "failed", "evicted"]
    assert ("pods/eviction with groups.undo" in caplog.text) == ("cannot create" in str(error))
    scene.answers.clear()
    assert await scene.look(10) == ["team/m0", "team/m1"]


async def test_after_the_rest_one_alone_finds_out_whether_it_fails_still(scene: Scene) -> None:
    scene.answers["team"] = ApiError(500, "InternalError", "This pod has more than one PodDisruptionBudget")
    scene.due = [make("m0"), make("m1")]
    await scene.look()
    assert await scene.look(int(FIRST_REST_SECONDS)) == ["team/m0"]
