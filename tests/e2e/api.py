"""The tests' own eyes: raw JSON from the API server, through any kubeconfig.

Nothing of fairbind is imported here, so that a mistake in the product cannot hide itself.
"""

from __future__ import annotations

import ssl
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self

import urllib3
from kubernetes import client, config

from localplane.client import ApiClient, ApiError, Json, call_many

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Api", "ApiError", "Json", "call_many"]


class Api(ApiClient):
    """JSON requests as the identity of a kubeconfig; refusals are ``ApiError`` with status, reason and message.

    The methods are ``get``, ``items``, ``exists``, ``post``, ``put``, ``patch``, ``delete``, ``watch``.
    """

    @classmethod
    def connect(cls, kubeconfig: Path, *, timeout_seconds: float = 60.0) -> Self:
        """Return a client for any kubeconfig that kubectl would take, also with exec plugins."""
        settings = client.Configuration()
        config.load_kube_config(config_file=str(kubeconfig), client_configuration=settings)
        tls = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        if settings.cert_file:
            tls.load_cert_chain(settings.cert_file, settings.key_file)
        token = settings.get_api_key_with_prefix("BearerToken", alias="authorization")
        headers = {"Authorization": token} if token else {}
        return cls(settings.host, tls=tls, headers=headers, timeout_seconds=timeout_seconds)

    def get(self, path: str, **query: object) -> Any:
        """Return the object, list or text at a path. A server that is too busy to answer in time is asked once more."""
        try:
            return super().get(path, **query)
        except urllib3.exceptions.HTTPError:
            pass
        except ApiError as error:
            if error.status not in {HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.GATEWAY_TIMEOUT}:
                raise
        time.sleep(1.0)
        return super().get(path, **query)
