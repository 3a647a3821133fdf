"""Opens our gate of all pods at once, without decisions: before an uninstall, or when gate mode is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import quote

import msgspec

from fairbind.cluster.objects import wire
from fairbind.cluster.objects.captured import CAPTURED_PODS
from fairbind.cluster.objects.facts import FAIRBIND_GATE
from fairbind.cluster.other_schedulers.opening import make_opening
from fairbind.kube.client.api import STRATEGIC, Api
from fairbind.kube.client.errors import ApiError
from fairbind.kube.operator.list_once import list_captured

AT_ONCE = 32
_GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY})
"""What the API server answers when the pod is not there any more, or another one under its name."""


async def open_all_gates(
    api: Api, *, is_dry: bool = False, on_opened: Callable[[str], None] = lambda _name: None
) -> int:
    """Open our gate of every pod that has it and return how many there were; gates of others stay.

    is_dry: only look. on_opened: called with NAMESPACE/NAME. Raises FairbindError, or ApiError for the first refusal.
    """
    pods = [
        pod
        for pod in await list_captured(api, CAPTURED_PODS)
        if isinstance(pod, wire.Pod) and any(gate.name == FAIRBIND_GATE for gate in pod.spec.scheduling_gates or ())
    ]
    pods.sort(key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.namespace, pod.metadata.name))
    opened = 0
    for first in range(0, len(pods), AT_ONCE):
        batch = pods[first : first + AT_ONCE]
        results = [True] * len(batch) if is_dry else await asyncio.gather(*(_open(api, pod) for pod in batch))
        for pod, is_open in zip(batch, results, strict=True):
            if is_open:
                opened += 1
                on_opened(f"{pod.metadata.namespace}/{pod.metadata.name}")
    return opened


async def _open(api: Api, pod: wire.Pod) -> bool:
    """Open one gate; False when the pod is gone."""
    meta = pod.metadata
    path = f"/api/v1/namespaces/{quote(meta.namespace)}/pods/{quote(meta.name)}"
    try:
        await api.request("PATCH", path, body=msgspec.json.encode(make_opening(meta.uid)), content_type=STRATEGIC)
    except ApiError as error:
        if error.status in _GONE:
            return False
        raise
    return True
