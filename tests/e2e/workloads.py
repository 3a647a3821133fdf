"""Pods in numbers, and what became of them, as the API says; objects that are made again until they are there."""

from __future__ import annotations

import functools
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

import urllib3

from e2e.api import ApiError, call_many
from e2e.checks import is_waiting
from e2e.objects import make_pod
from e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from e2e.api import Api, Json
    from e2e.operators import Operator

CREATE_ATTEMPTS = 3
SMALL = {"cpu": "1", "memory": "1Gi"}
SHAPES = (
    {"cpu": "500m", "memory": "1Gi"},
    {"cpu": "1", "memory": "512Mi"},
    {"cpu": "2", "memory": "3Gi"},
    {"cpu": "250m", "memory": "4Gi"},
)


def make_mixed_pods(count: int) -> list[Json]:
    """Return pods of four shapes in turn."""
    return [make_pod(SHAPES[number % len(SHAPES)]) for number in range(count)]


def create_pods(api: Api, namespace: str, pods: Sequence[Json]) -> list[str]:
    """Create pods on a few connections and return their names."""
    call_many(pods, functools.partial(create_pod, api, namespace))
    return [pod["metadata"]["name"] for pod in pods]


def create_pod(api: Api, namespace: str, pod: Json) -> None:
    """Create a pod that has a name; a busy server that failed, or did not answer, is asked again."""
    for attempt in range(CREATE_ATTEMPTS):
        try:
            api.post(f"/api/v1/namespaces/{namespace}/pods", pod)
        except (ApiError, urllib3.exceptions.HTTPError) as error:
            status = error.status if isinstance(error, ApiError) else HTTPStatus.SERVICE_UNAVAILABLE
            if attempt and status == HTTPStatus.CONFLICT:
                return  # it was made, although nobody said so
            if status < HTTPStatus.INTERNAL_SERVER_ERROR or attempt == CREATE_ATTEMPTS - 1:
                raise
            time.sleep(1.0)
        else:
            return


def create_object(api: Api, path: str, body: Json) -> bool:
    """Create what has a name, as a condition: an earlier look may have made it unsaid, or an old one still goes."""
    try:
        api.post(path, body)
    except ApiError as error:
        if error.status != HTTPStatus.CONFLICT:
            raise
        return "deletionTimestamp" not in api.get(f"{path}/{body['metadata']['name']}")["metadata"]
    return True


def delete_pods(api: Api, namespace: str, names: Sequence[str]) -> None:
    """Delete pods without grace; those that are gone already are no error."""

    def delete(name: str) -> None:
        try:
            api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": 0})
        except ApiError as error:
            if error.status != 404:
                raise

    call_many(names, delete)


def list_pods(api: Api, namespace: str) -> list[Json]:
    return api.items(f"/api/v1/namespaces/{namespace}/pods")


def find_waiting(api: Api, namespace: str) -> list[Json]:
    return [pod for pod in list_pods(api, namespace) if is_waiting(pod)]


def find_bound(api: Api, namespace: str) -> list[Json]:
    return [pod for pod in list_pods(api, namespace) if pod["spec"].get("nodeName")]


def count_bound(api: Api, namespace: str) -> int:
    return len(find_bound(api, namespace))


def wait_full(api: Api, free: int, *namespaces: str) -> tuple[int, ...]:
    """Wait until so many pods of these namespaces are bound; return how many of each."""

    def count() -> tuple[int, ...]:
        return tuple(count_bound(api, namespace) for namespace in namespaces)

    wait_for(lambda: sum(count()) == free, describe=lambda: f"{free} pods to be bound, not {count()}")
    return count()


def count_bindings(operator: Operator) -> float:
    """Return how many pods an operator says it has bound: much cheaper to ask than the API server."""
    return operator.metrics().total("fairbind_bindings_total", result="bound")


def count_ended_bindings(operator: Operator) -> float:
    """Return how many pods an operator has bound, or may have: with those whose answer came when it led no more."""
    metrics = operator.metrics()
    return sum(metrics.total("fairbind_bindings_total", result=result) for result in ("bound", "fenced"))


def find_condition(pod: Json) -> Json:
    """Return the pod's PodScheduled condition, an empty object when it has none."""
    conditions = pod["status"].get("conditions") or []
    return next((condition for condition in conditions if condition["type"] == "PodScheduled"), {})
