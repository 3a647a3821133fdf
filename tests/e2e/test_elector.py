"""The election on a real API server, with the rights of the chart's ServiceAccount."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from e2e.conftest import remove
from e2e.operators import LEASE, NAMESPACE
from e2e.stalls import Stalls
from e2e.waiting import until
from fairbind.kube.client.api import ApiClient
from fairbind.kube.client.credentials import load_credentials
from fairbind.kube.operator.elector import CALL_TIMEOUT_SECONDS, LEASE_SECONDS, Elector

if TYPE_CHECKING:
    from e2e.api import Api, Json
    from e2e.clusters import Cluster
    from localplane.plane import ControlPlane

TAKE_OVER_SECONDS = 15.0
_numbers = itertools.count()


class Candidate:
    """An elector with a connection of its own."""

    def __init__(self, api: ApiClient) -> None:
        self._api = api
        self.changes: list[bool] = []
        self.elector = Elector(
            api,
            NAMESPACE,
            identity=f"candidate-{next(_numbers)}",
            on_change=self.changes.append,
        )
        self.task = asyncio.create_task(self.elector.run())

    def has_looked(self) -> bool:
        return self.elector._foreign is not None

    async def kill(self) -> None:
        """End without giving anything back."""
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def stop(self) -> None:
        """End as on SIGTERM."""
        await self.kill()
        await self.elector.release()

    async def close(self) -> None:
        await self.stop()
        await self._api.close()


@pytest.fixture
def lease(api: Api) -> Iterator[Callable[[], Json]]:
    """Read what the lease says, in a thread, because electors need the event loop; at first nobody holds it."""
    remove(api, LEASE)

    def read() -> Json:
        spec: Json = api.get(LEASE)["spec"]
        return spec

    yield read
    remove(api, LEASE)


@contextlib.asynccontextmanager
async def candidates(cluster: Cluster, count: int) -> AsyncIterator[list[Candidate]]:
    """The first leads, the others stand by."""
    kubeconfig = cluster.operator_kubeconfig()
    made: list[Candidate] = []
    try:
        for _ in range(count):
            made.append(Candidate(ApiClient(load_credentials(kubeconfig))))
            await until(lambda: made[0].elector.leading, "the first to lead")
        for standby in made[1:]:  # one that has never looked would take a deleted lease at once
            await until(standby.has_looked, "the standby to look")
        yield made
    finally:
        for candidate in made:
            await candidate.close()


async def check_gives_back(leader: Candidate, lease: Callable[[], Json]) -> None:
    """End a leader as on SIGTERM: nobody has to wait until its lease runs out, unless the API server did not answer."""
    with Stalls(lease) as stalls:
        await leader.stop()
    assert not leader.elector.leading
    holder = (await asyncio.to_thread(lease))["holderIdentity"]
    assert holder != leader.elector.identity or stalls.seconds > CALL_TIMEOUT_SECONDS


async def test_the_lease_says_who_leads_and_is_renewed(cluster: Cluster, lease: Callable[[], Json]) -> None:
    async with candidates(cluster, 1) as [leader]:
        first = await asyncio.to_thread(lease)
        assert first["holderIdentity"] == leader.elector.identity
        assert first["leaseDurationSeconds"] == LEASE_SECONDS
        await until(lambda: lease()["renewTime"] > first["renewTime"], "a renewal")
        assert (await asyncio.to_thread(lease))["acquireTime"] == first["acquireTime"]
        await until(lambda: leader.elector.problem is None, "no trouble")
        await check_gives_back(leader, lease)


async def test_a_killed_leader_is_replaced_in_time_and_never_has_company(
    cluster: Cluster, lease: Callable[[], Json]
) -> None:
    async with candidates(cluster, 2) as [leader, standby]:
        assert not standby.elector.leading
        company: list[bool] = []

        def has_taken_over() -> bool:
            leads = standby.elector.leading  # asked first: who was killed can only end
            company.append(leads and leader.elector.leading)
            return leads

        await leader.kill()
        began = time.monotonic()
        with Stalls(lease) as stalls:
            await until(has_taken_over, "the standby to lead")
            took = time.monotonic() - began
        assert not any(company)
        assert took < TAKE_OVER_SECONDS + stalls.seconds
        assert (await asyncio.to_thread(lease))["leaseTransitions"] == 1


async def test_a_leader_that_ends_is_replaced_at_once(cluster: Cluster, lease: Callable[[], Json]) -> None:
    async with candidates(cluster, 2) as [leader, standby]:
        await check_gives_back(leader, lease)
        await until(lambda: standby.elector.leading, "the standby")
        assert (await asyncio.to_thread(lease))["holderIdentity"] == standby.elector.identity


async def test_a_lease_that_is_deleted_or_edited_is_put_right(
    cluster: Cluster, api: Api, lease: Callable[[], Json]
) -> None:
    async with candidates(cluster, 2) as [leader, standby]:
        await asyncio.to_thread(api.delete, LEASE)
        await until(lambda: api.exists(LEASE), "the lease to be made anew")
        assert (await asyncio.to_thread(lease))["holderIdentity"] == leader.elector.identity
        edit = {"spec": {"renewTime": None, "leaseDurationSeconds": 3600}}
        await asyncio.to_thread(api.patch, LEASE, edit)
        await until(lambda: lease()["leaseDurationSeconds"] == LEASE_SECONDS, "the lease to be put right")
        await until(lambda: leader.elector.leading, "the first to lead as before")
        assert not standby.elector.leading


async def test_who_may_not_write_leases_says_so(cluster: Cluster, lease: Callable[[], Json]) -> None:
    api = ApiClient(load_credentials(cluster.service_account_kubeconfig("default", "default")))
    candidate = Candidate(api)

    def says_what_to_do() -> bool:
        problem = candidate.elector.problem or ""
        return "leases.coordination.k8s.io" in problem and "Role" in problem

    await until(says_what_to_do, "the problem to be named")
    await candidate.close()
    with pytest.raises(Exception, match="not found"):
        lease()


@pytest.mark.local_plane
async def test_an_api_server_that_is_away_ends_the_lead_and_one_that_is_back_begins_it(
    cluster: Cluster, plane: ControlPlane, lease: Callable[[], Json]
) -> None:
    async with candidates(cluster, 2) as [leader, standby]:
        await asyncio.to_thread(plane.stop_component, "kube-apiserver", kill=True)
        try:
            await until(lambda: not leader.elector.leading, "the lead to end")
            await until(lambda: leader.changes[-1:] == [False], "everybody to hear of it")
            assert not standby.elector.leading
        finally:
            await asyncio.to_thread(plane.start_component, "kube-apiserver")
        await until(lambda: leader.elector.leading or standby.elector.leading, "somebody to lead")
        assert (await asyncio.to_thread(lease))["holderIdentity"] in {leader.elector.identity, standby.elector.identity}
