"""A survey: the cluster once, as the operator would see it, for commands that look and do not act.

Everything is listed once and nothing is watched, so whoever may list may survey.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from fairbind.kube.administration import Administration
from fairbind.kube.administration_log import AdministrationLog
from fairbind.kube.api import Api
from fairbind.kube.custom_objects import GROUP, POLICIES, TENANTS, explain_failure, list_objects
from fairbind.kube.decode import NAMESPACES, NODES, PODS
from fairbind.kube.errors import ApiError, PermanentClusterError, TransientClusterError
from fairbind.kube.mirror import Mirror
from fairbind.kube.reflector import Reflector


def make_reflectors(
    api: Api,
    mirror: Mirror,
    on_restart: Callable[[str, str], None],
    *,
    jitter: Callable[[], float] = random.random,
) -> dict[str, Reflector[Any]]:
    """Return who keeps the mirror in step with the API, by the resource's name. jitter: random numbers from 0 to 1."""
    return {
        "pods": Reflector(api, PODS, mirror.pods, on_restart=on_restart, jitter=jitter),
        "nodes": Reflector(api, NODES, mirror.nodes, on_restart=on_restart, jitter=jitter),
        "namespaces": Reflector(api, NAMESPACES, mirror.namespaces, on_restart=on_restart, jitter=jitter),
    }


async def survey_cluster(api: Api, scheduler_name: str, operator_namespace: str) -> Mirror:
    """Return a mirror of the cluster as it is now. PermanentClusterError says what could not be listed, and why."""
    mirror = Mirror(scheduler_name, lambda: None, operator_namespace=operator_namespace)
    administration = Administration(mirror, lambda: None, AdministrationLog())
    for kind, table in ((TENANTS, administration.tenants), (POLICIES, administration.policies)):
        try:
            table.replace(*await list_objects(api, kind))
        except (ApiError, TransientClusterError, msgspec.MsgspecError) as error:
            raise PermanentClusterError(f"{kind}.{GROUP}: {explain_failure(kind, error)}") from error
    for name, reflector in make_reflectors(api, mirror, lambda *_: None).items():
        try:
            await reflector.list_once()
        except (ApiError, TransientClusterError, msgspec.MsgspecError) as error:
            raise PermanentClusterError(f"{name} cannot be listed: {error}") from error
    return mirror
