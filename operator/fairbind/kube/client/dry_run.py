"""Pods that are created on trial: the API server completes and judges them as any others, and stores nothing.

It needs the right to create pods in the namespace, and no other. A webhook that has effects besides its answer is not
called: the server refuses the trial then, which says nothing about the pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec

from fairbind.cluster.objects.dry_run import DryRun
from fairbind.kube.client.api import Api
from fairbind.kube.client.errors import ApiError, TransientClusterError, is_right_missing

_NO_TRIAL = "does not support dry run"
_REFUSING = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.UNPROCESSABLE_ENTITY})


async def create_on_trial(api: Api, namespace: str, name: str, pod: Mapping[str, Any]) -> DryRun:
    """Return what the server says of a pod. name: its first part; the server adds letters, so that no other has it."""
    meta = {**pod["metadata"], "generateName": f"{name}-", "namespace": namespace}
    body = {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": meta}
    try:
        answer = await api.request(
            "POST",
            f"/api/v1/namespaces/{quote(namespace, safe='')}/pods",
            query={"dryRun": "All"},
            body=msgspec.json.encode(body),
        )
        return DryRun(pod=msgspec.json.decode(answer, type=dict[str, Any]))
    except ApiError as error:
        if error.status in _REFUSING and not is_right_missing(error) and _NO_TRIAL not in error.message:
            return DryRun(refusal=error.message)
        return DryRun(trouble=error.message)
    except (TransientClusterError, msgspec.MsgspecError) as error:
        return DryRun(trouble=str(error))
