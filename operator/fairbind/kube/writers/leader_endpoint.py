"""Lets a Service lead to the leader alone: the leader writes itself into the Service's only EndpointSlice.

The Service has no selector, so nothing else writes its endpoints. A replica writes when it begins to lead, and again
until it has succeeded, behind the fence. Until a new leader has written, requests go to the one before, which says 503
or is gone. While it leads it writes every `REPEAT_SECONDS`: what others deleted or changed comes back, and what is as
it should be stays at its version.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Callable
from math import inf
from urllib.parse import quote

import msgspec

from fairbind.kube.client.api import Api, NotAllowedError
from fairbind.kube.client.errors import ApiError, TransientClusterError
from fairbind.kube.writers.complaints import Complaints

LOOK_SECONDS = 0.5
REPEAT_SECONDS = 5.0
TIMEOUT_SECONDS = 3.0
COMPLAINT_SECONDS = 60.0
PORT_NAME = "extender"
_log = logging.getLogger(__name__)


class LeaderEndpoint:
    """Runs until cancelled. may_write: the fence. address, port: where this replica listens."""

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        service: str,
        address: str,
        port: int,
        may_write: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._api = api
        self._may_write = may_write
        self._path = f"/apis/discovery.k8s.io/v1/namespaces/{quote(namespace)}/endpointslices/{quote(service)}"
        self._body = msgspec.json.encode(
            {
                "apiVersion": "discovery.k8s.io/v1",
                "kind": "EndpointSlice",
                "metadata": {
                    "name": service,
                    "namespace": namespace,
                    "labels": {
                        "kubernetes.io/service-name": service,
                        "endpointslice.kubernetes.io/managed-by": "fairbind.io",
                    },
                },
                "addressType": f"IPv{ipaddress.ip_address(address).version}",
                "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
                "ports": [{"name": PORT_NAME, "port": port, "protocol": "TCP"}],
            }
        )
        self._clock = clock
        self._complaints = Complaints(COMPLAINT_SECONDS, clock)

    async def run(self) -> None:
        """Write whenever this replica begins to lead, and again while it does, until cancelled."""
        write_at = -inf
        while True:
            if not self._may_write():
                write_at = -inf
            elif write_at <= self._clock() and await self._write():
                write_at = self._clock() + REPEAT_SECONDS
            await asyncio.sleep(LOOK_SECONDS)

    async def _write(self) -> bool:
        try:
            await self._api.request(
                "PATCH",
                self._path,
                query={"fieldManager": "fairbind", "force": "true"},
                body=self._body,
                content_type="application/apply-patch+yaml",
                timeout_seconds=TIMEOUT_SECONDS,
                guard=self._may_write,
            )
        except NotAllowedError:
            return False
        except (ApiError, TransientClusterError) as error:
            _log.log(self._complaints.choose_level(), "kube-scheduler cannot find the leader by its Service: %s", error)
            return False
        return True
