"""Pods with real containers: the program of deploy/tools/kind/workload, which sleeps, burns, fails as it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from e2e.objects import make_pod
from kindcluster.images import WORKLOAD_IMAGE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from e2e.api import Json


def make_container(
    *arguments: str, name: str = "main", requests: Mapping[str, str] | None = None, **fields: Any
) -> Json:
    """Return a container that runs the workload with these arguments (``-sleep=3s``, ``-exit=1``, ``-memory=16``)."""
    resources = {"requests": dict(requests)} if requests else {}
    return {"name": name, "image": WORKLOAD_IMAGE, "args": list(arguments), "resources": resources, **fields}


def make_real_pod(
    requests: Mapping[str, str] | None = None, *arguments: str, containers: Sequence[Json] | None = None, **fields: Any
) -> Json:
    """Return a pod for fairbind whose one container runs the workload until it is told to end, unless told otherwise.

    requests: of that container. fields: those of ``e2e.objects.make_pod`` (name, labels, scheduler_name, spec's own).
    """
    chosen = list(containers) if containers is not None else [make_container(*arguments, requests=requests)]
    return make_pod(containers=chosen, **fields)
