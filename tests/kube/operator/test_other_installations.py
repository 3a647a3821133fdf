from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.client.reviews import ACCESS_REVIEWS
from fairbind.kube.operator.elector import Elector
from fairbind.kube.operator.other_installations import (
    GONE_SECONDS,
    LEASES,
    LOOK_SECONDS,
    MOST_REVIEWS,
    SELF_REVIEWS,
    SHORT_LOOK_SECONDS,
    OtherInstallations,
)
from kube.operator.simulation import LeaseServer, run_virtual

OPERATOR = "system:serviceaccount:there:fairbind"


def make_lease(
    namespace: str = "there", *, name: str = "fairbind", account: str = "fairbind", holder: str = "x"
) -> Any:
    annotations = {"fairbind.io/scheduler-name": name.split(",", maxsplit=1)[0], "fairbind.io/service-account": account}
    if "," in name:
        annotations["fairbind.io/scheduler-names"] = name
    metadata = {"name": "fairbind", "namespace": namespace, "resourceVersion": "1", "annotations": annotations}
    return {"metadata": metadata, "spec": {"holderIdentity": holder}}


class Server:
    """Leases of many namespaces, and who may bind."""

    def __init__(self, *leases: Any, binders: frozenset[str] = frozenset({OPERATOR})) -> None:
        self.leases = list(leases)
        self.binders = binders
        self.username = "system:serviceaccount:here:fairbind"
        self.fault: Exception | None = None
        self.others: dict[str, Any] = {}
        self.looks = 0
        self.reviews: list[dict[str, Any]] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        timeout_seconds: float = 15.0,
        **_: Any,
    ) -> bytes:
        assert timeout_seconds <= LOOK_SECONDS
        await asyncio.sleep(0.001)
        if self.fault is not None:
            raise self.fault
        if path == LEASES:
            selector = (query or {})["fieldSelector"]
            if selector in self.others:
                return json.dumps({"items": [self.others[selector]]}).encode()
            assert (method, selector) == ("GET", "metadata.name=fairbind")
            self.looks += 1
            return json.dumps({"items": self.leases or None}).encode()
        if path == SELF_REVIEWS:
            return json.dumps({"status": {"userInfo": {"username": self.username}}}).encode()
        assert (method, path) == ("POST", ACCESS_REVIEWS)
        spec = json.loads(body or b"")["spec"]
        self.reviews.append(spec)
        assert "namespace" not in spec["resourceAttributes"], "a right in one namespace is not enough"
        return json.dumps({"status": {"allowed": spec["user"] in self.binders}}).encode()


def make_others(server: Server) -> OtherInstallations:
    return OtherInstallations(server, "here", "fairbind", clock=asyncio.get_running_loop().time)


async def test_who_is_alone_finds_nobody() -> None:
    assert await make_others(Server()).find() is None
    assert await make_others(Server(make_lease("here"))).find() is None


async def test_another_installation_is_named_with_what_to_do() -> None:
    problem = await make_others(Server(make_lease(holder="pod-7"))).find()
    assert problem is not None
    for part in ("'there'", "pod-7", "'fairbind'", "Uninstall", "schedulerName"):
        assert part in problem


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ({"volcano"}, "volcano", "'volcano'"),
        ({"volcano"}, "other,volcano", "'volcano'"),
        (set(), "other,fairbind", "'fairbind'"),
        ({"volcano"}, "other,third", None),
    ],
)
async def test_an_installation_is_another_one_by_any_of_its_names(
    ours: set[str], theirs: str, found: str | None
) -> None:
    clock, server = asyncio.get_running_loop().time, Server(make_lease(name=theirs))
    server.others = {"metadata.name=volcano": {"metadata": {}, "spec": {}}}
    others = OtherInstallations(server, "here", "fairbind", clock=clock, other_names=frozenset(ours))
    problem = await others.find()
    assert (problem is None) == (found is None)
    assert found is None or (problem is not None and found in problem)
    names = {"fairbind.io/scheduler-names": "fairbind,volcano"} if ours else {}
    assert await others.make_annotations() == {
        "fairbind.io/scheduler-name": "fairbind",
        **names,
        "fairbind.io/service-account": "fairbind",
    }


async def test_another_scheduler_of_one_of_our_names_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    server = Server()
    server.others = {"metadata.name=volcano": {"metadata": {"namespace": "v"}, "spec": {"holderIdentity": "vc-0"}}}
    clock = asyncio.get_running_loop().time
    others = OtherInstallations(server, "here", "fairbind", clock=clock, other_names=frozenset({"volcano"}))
    assert [await others.find(), await others.find()] == [None, None]
    told = [record.getMessage() for record in caplog.records if "volcano" in record.getMessage()]
    assert len(told) == 1
    assert "a lease v/volcano is held by vc-0" in told[0]


@pytest.mark.parametrize(
    "lease",
    [
        make_lease(name="other"),
        make_lease(holder=""),
        make_lease(account=""),
        make_lease(account="default"),
        make_lease("evil"),
        {"metadata": {"name": "fairbind", "namespace": "there"}},
        {"metadata": {"name": "fairbind", "namespace": "there"}, "spec": {}},
    ],
    ids=["another scheduler name", "given back", "no account", "may not bind", "a tenant's", "bare", "empty"],
)
async def test_a_lease_that_keeps_nobody_from_leading(lease: Any) -> None:
    assert await make_others(Server(lease)).find() is None


def test_a_lease_that_is_not_renewed_counts_for_a_while_only() -> None:
    async def main() -> None:
        server = Server(make_lease())
        others = make_others(server)
        assert await others.find()
        await asyncio.sleep(GONE_SECONDS - 1.0)
        assert await others.find()
        server.leases[0]["metadata"]["resourceVersion"] = "2"
        await asyncio.sleep(2.0)
        assert await others.find()
        await asyncio.sleep(GONE_SECONDS)
        assert await others.find() is None

    run_virtual(main())


async def test_a_right_that_is_missing_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    server = Server(make_lease())
    server.fault = ApiError(403, "Forbidden", "cannot list leases")
    others = make_others(server)
    with caplog.at_level(logging.WARNING):
        assert await others.find() is None
        assert await others.find() is None
    assert [record.getMessage().count("cannot list leases") for record in caplog.records] == [1]


@pytest.mark.parametrize("fault", [ApiError(500, "InternalError", "etcd"), TransientClusterError("timed out")])
async def test_who_cannot_look_does_not_know(fault: Exception) -> None:
    server = Server()
    server.fault = fault
    with pytest.raises(type(fault)):
        await make_others(server).find()


def test_thousands_of_leases_of_others_cost_few_questions() -> None:
    async def main() -> None:
        server = Server(*(make_lease(f"evil-{number}") for number in range(500)), make_lease("there"))
        others = make_others(server)
        assert await others.find() is None
        assert len(server.reviews) == MOST_REVIEWS
        while await others.find() is None:  # what was refused is not asked again, so the other one has its turn
            assert len(server.reviews) <= 500
        assert len(server.reviews) == len({review["user"] for review in server.reviews})

    run_virtual(main())


class Slow(Server):
    """A server whose authorizer takes its time; it answers others at once."""

    def __init__(self, seconds: float, *leases: Any) -> None:
        super().__init__(*leases)
        self.seconds = seconds

    async def request(self, method: str, path: str, *, timeout_seconds: float = 15.0, **options: Any) -> bytes:
        if path == ACCESS_REVIEWS:
            await asyncio.sleep(min(self.seconds, timeout_seconds))
            if self.seconds > timeout_seconds:
                raise TransientClusterError("timed out")
        return await super().request(method, path, timeout_seconds=timeout_seconds, **options)


def test_a_look_ends_and_the_second_that_does_not_come_to_an_end_is_the_last(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        others = make_others(Slow(60.0, *(make_lease(f"evil-{number}") for number in range(64))))
        begun = clock()
        with pytest.raises(TransientClusterError, match="could not look"):
            await others.find()
        assert await others.find() is None
        assert clock() - begun <= 2 * LOOK_SECONDS + 0.1
        begun = clock()
        assert await others.find() is None
        assert clock() - begun <= SHORT_LOOK_SECONDS + 0.1

    with caplog.at_level(logging.WARNING):
        run_virtual(main())
    assert [record.getMessage()[:36] for record in caplog.records] == ["leading without knowing whether anot"]


@pytest.mark.parametrize("seconds", [0.0, 0.25, 1.0, 60.0])
@pytest.mark.parametrize("count", [30, MOST_REVIEWS, 500])
def test_forged_leases_keep_no_replica_from_leading(count: int, seconds: float) -> None:
    """A tenant writes a lease into each of its namespaces, renews them all, and the authorizer is slow."""
    server = Slow(seconds, *(make_lease(f"evil-{number}") for number in range(count)))

    async def check(elector: Elector, _server: LeaseServer) -> None:
        for version in range(15):
            for lease in server.leases:
                lease["metadata"]["resourceVersion"] = str(version)
            await asyncio.sleep(1.0)
        for _ in range(60):
            assert leads(elector), find_problem(elector)
            await asyncio.sleep(0.5)

    play_election(lambda: make_others(server), check)


def test_a_slow_answer_that_another_may_bind_is_heard() -> None:
    async def main() -> None:
        others = make_others(Slow(1.0, *(make_lease(f"evil-{number}") for number in range(20)), make_lease("there")))
        assert "'there'" in (await others.find() or "")

    run_virtual(main())


@pytest.mark.parametrize(
    ("username", "account"),
    [
        ("system:serviceaccount:here:fairbind", {"fairbind.io/service-account": "fairbind"}),
        ("system:serviceaccount:elsewhere:fairbind", {}),
        ("admin", {}),
    ],
)
async def test_what_a_lease_says_about_itself(username: str, account: dict[str, str]) -> None:
    server = Server()
    server.username = username
    assert await make_others(server).make_annotations() == {"fairbind.io/scheduler-name": "fairbind", **account}


class Found:
    """Finds what it is told to. after: so many looks that find nothing come first."""

    def __init__(self, problem: str | None = None, *, after: int = 0) -> None:
        self.problem = problem
        self.after = after
        self.looks = 0

    async def make_annotations(self) -> dict[str, str]:
        return {"fairbind.io/scheduler-name": "fairbind"}

    async def find(self) -> str | None:
        self.looks += 1
        return self.problem if self.looks > self.after else None


class Api:
    """The elector's way to a server of one lease."""

    def __init__(self) -> None:
        self.server = LeaseServer()

    async def request(
        self, method: str, path: str, *, body: bytes | None = None, timeout_seconds: float = 1.0, **_: Any
    ) -> bytes:
        assert timeout_seconds > 0
        await asyncio.sleep(0.001)
        return self.server.carry_out(method, path, body)


def leads(elector: Elector) -> bool:
    return elector.leading


def find_problem(elector: Elector) -> str | None:
    return elector.problem


def play_election(found: Found | Callable[[], OtherInstallations], check: Any) -> None:
    async def main() -> None:
        api, clock = Api(), asyncio.get_running_loop().time
        others = found if isinstance(found, Found) else found()
        elector = Elector(api, "fairbind-system", identity="we", others=others, clock=clock)
        task = asyncio.create_task(elector.run())
        try:
            await check(elector, api.server)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    run_virtual(main())


def test_who_sees_another_does_not_take_the_lease_until_the_other_is_gone() -> None:
    found = Found("another one")

    async def check(elector: Elector, server: LeaseServer) -> None:
        await asyncio.sleep(5.0)
        assert not leads(elector)
        assert find_problem(elector) == "another one"
        assert server.writes == []
        found.problem = None
        await asyncio.sleep(2.0)
        assert leads(elector)
        assert find_problem(elector) is None
        assert server.lease is not None
        assert server.lease["metadata"]["annotations"] == {"fairbind.io/scheduler-name": "fairbind"}

    play_election(found, check)


def test_who_sees_another_only_after_it_took_the_lease_gives_it_back_and_never_led() -> None:
    found = Found("another one", after=1)

    async def check(elector: Elector, server: LeaseServer) -> None:
        await asyncio.sleep(0.5)
        assert find_problem(elector) == "another one"
        assert [holder for _, _, holder in server.writes] == ["we", ""]
        assert elector.term == 0, "it never led"
        assert not leads(elector)

    play_election(found, check)


def test_a_renewal_looks_for_nobody_and_who_had_lost_the_lease_looks_again() -> None:
    found = Found()

    async def check(elector: Elector, server: LeaseServer) -> None:
        await asyncio.sleep(30.0)
        assert leads(elector)
        assert found.looks == 2
        server.refusal = ApiError(500, "InternalError", "etcd")
        await asyncio.sleep(15.0)
        assert not leads(elector)
        found.problem = "another one"
        server.refusal = None
        await asyncio.sleep(5.0)
        assert not leads(elector)
        assert find_problem(elector) == "another one"

    play_election(found, check)
