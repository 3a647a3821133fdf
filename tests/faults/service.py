"""The way from kube-scheduler to the operator that leads, in extender mode, as kube-proxy makes it.

New connections lead to where the Service's EndpointSlice says; those that are open stay with whom they were opened to.
While the API server is away, all stays as it was.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import urllib3

from e2e.api import Api, ApiError
from e2e.operators import NAMESPACE
from e2e.relay import Flows
from e2e.sampling import Sampling

if TYPE_CHECKING:
    from pathlib import Path

SERVICE = "fairbind-extender"
SLICE = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices/{SERVICE}"
LOOK_SECONDS = 0.2
TIMEOUT_SECONDS = 5.0


class ServiceProxy(Sampling):
    """Follows the EndpointSlice while the context lasts. flows: what it leads; its port is where kube-scheduler asks.

    All operators run on this machine, so their ports alone tell them apart.
    """

    def __init__(self, kubeconfig: Path, flows: Flows) -> None:
        super().__init__("service")
        self._api = Api.connect(kubeconfig, timeout_seconds=TIMEOUT_SECONDS)
        self._flows = flows

    def sample(self) -> None:
        """Look where the Service leads, again and again."""
        while not self.ended.wait(LOOK_SECONDS):
            with contextlib.suppress(ApiError, urllib3.exceptions.HTTPError):
                self._flows.upstream = "127.0.0.1", self._api.get(SLICE)["ports"][0]["port"]
        self._api.close()
