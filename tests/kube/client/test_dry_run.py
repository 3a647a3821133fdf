from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from fairbind.cluster.objects.dry_run import DryRun
from fairbind.kube.client.dry_run import create_on_trial
from kube.fakes import Answer, connected, refuse

POD = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main"}]}}


async def try_pod(answer: Any) -> DryRun:
    async def handle(_request: web.Request) -> web.Response:
        assert isinstance(answer, Answer)
        return answer.make()

    async with connected(handle) as api:
        return await create_on_trial(api, "team", "web", POD)


async def test_the_server_is_asked_to_store_nothing() -> None:
    seen: list[Any] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append((request.method, request.path_qs, await request.json()))
        return web.json_response({"metadata": {"name": "web-x"}, "spec": {"priority": 7}})

    async with connected(handle) as api:
        found = await create_on_trial(api, "team", "web", POD)

    assert found == DryRun(pod={"metadata": {"name": "web-x"}, "spec": {"priority": 7}})
    ((method, path, body),) = seen
    assert (method, path) == ("POST", "/api/v1/namespaces/team/pods?dryRun=All")
    assert body["kind"] == "Pod"
    assert body["metadata"] == {"labels": {"app": "web"}, "generateName": "web-", "namespace": "team"}
    assert body["spec"] == POD["spec"]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (403, 'pods "web-x" is forbidden: exceeded quota: small, requested: cpu=3'),
        (403, 'pods "web-x" is forbidden: violates PodSecurity "restricted:latest"'),
        (422, 'Pod "web-x" is invalid: spec.containers[0].image: Required value'),
        (400, 'admission webhook "check.example" denied the request: no'),
    ],
)
async def test_what_admission_refuses_is_a_refusal(status: int, message: str) -> None:
    assert await try_pod(refuse(status, "Forbidden", message)) == DryRun(refusal=message)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (403, 'pods is forbidden: User "bob" cannot create resource "pods" in API group "" in the namespace "team"'),
        (400, "admission webhook does not support dry run"),
        (404, 'namespaces "team" not found'),
        (429, "too many requests"),
        (500, "failed calling webhook"),
    ],
)
async def test_what_says_nothing_about_the_pod_is_trouble(status: int, message: str) -> None:
    assert await try_pod(refuse(status, "Reason", message)) == DryRun(trouble=message)


async def test_an_answer_that_is_no_pod_is_trouble() -> None:
    found = await try_pod(Answer(200, "<html>who are you?</html>"))

    assert (found.pod, found.refusal) == (None, None)
    assert found.trouble
