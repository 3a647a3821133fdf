"""Our own kinds of objects: their names in the API, how they are listed, and what to do when that fails."""

from __future__ import annotations

from typing import Any

import msgspec

from fairbind.kube.client.api import Api
from fairbind.kube.client.errors import ApiError, TransientClusterError

GROUP = "fairbind.io"
VERSION = "v1alpha1"
TENANTS = "tenants"
POLICIES = "schedulingpolicies"
KINDS = (TENANTS, POLICIES)

NOT_FOUND = 404
FORBIDDEN = 403


class _ListMetadata(msgspec.Struct):
    resourceVersion: str | None = None  # noqa: N815 - as the API spells it


class _ItemMetadata(msgspec.Struct):
    name: str


class _Item(msgspec.Struct):
    metadata: _ItemMetadata


class _List(msgspec.Struct):
    metadata: _ListMetadata
    items: list[dict[str, Any]] | None


async def list_objects(api: Api, kind: str) -> tuple[list[dict[str, Any]], str]:
    """Return all objects of a kind, which at least have names, and the version of the list.

    Raises ApiError, TransientClusterError, and msgspec.MsgspecError for an answer that is no such list;
    `explain_failure` words each of them.
    """
    answer = await api.request("GET", f"/apis/{GROUP}/{VERSION}/{kind}")
    try:
        found = msgspec.json.decode(answer, type=_List)
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(str(error)) from error
    msgspec.convert(found.items or [], list[_Item])
    return found.items or [], found.metadata.resourceVersion or ""


def explain_failure(kind: str, error: ApiError | TransientClusterError | msgspec.MsgspecError) -> str:
    """Return why a kind could not be listed, and what to do about it."""
    if isinstance(error, msgspec.MsgspecError):
        return f"the list cannot be read, is a proxy in between? {error}"
    if isinstance(error, ApiError) and error.status == NOT_FOUND:
        return "the CRD is not installed; apply crds/ or install the chart"
    if isinstance(error, ApiError) and error.status == FORBIDDEN:
        return f"forbidden: {error.message}; the chart's ClusterRole grants list and watch on {kind}.{GROUP}"
    return str(error)
