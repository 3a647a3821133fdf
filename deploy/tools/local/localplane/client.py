"""A small JSON client for an API server: paths in, dictionaries out, errors with the server's own words.

It knows nothing of kinds. Connections are kept and shared by threads. The plane uses it for its own errands; the tests
use it to look at the cluster without the code under test.
"""

from __future__ import annotations

import base64
import functools
import http.client
import json
import ssl
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlencode

import urllib3
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType

Json = dict[str, Any]
Item = TypeVar("Item")

PATCH_TYPES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}

# A server that is too busy, or whose storage of a kind is only just being made, has done nothing and says when to ask
# again. We do as kubectl does: up to ten times. Nothing else is asked twice by itself.
COME_BACK_LATER = urllib3.Retry(10, connect=0, read=0, redirect=0, other=0, allowed_methods=None, raise_on_status=False)


class ApiError(Exception):
    """The API server refused: its status code, reason and message."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class ApiClient:
    """JSON requests to one API server under one identity. Usable from many threads."""

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None = None,
        headers: Mapping[str, str] | None = None,
        connections: int = 64,
        timeout_seconds: float = 60.0,
    ) -> None:
        self.server = server.rstrip("/")
        self._headers = {"Accept": "application/json", **(headers or {})}
        self._timeout = urllib3.Timeout(connect=min(30.0, timeout_seconds), read=timeout_seconds)
        self._pool = urllib3.PoolManager(
            num_pools=2, maxsize=connections, block=False, ssl_context=tls, retries=COME_BACK_LATER
        )

    @classmethod
    def from_kubeconfig(cls, path: Path, *, timeout_seconds: float = 60.0) -> Self:
        """Return a client for the current context of a kubeconfig (certificates or tokens; no exec plugins)."""
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        context = _find_named(config["contexts"], config["current-context"])["context"]
        cluster = _find_named(config["clusters"], context["cluster"])["cluster"]
        user = _find_named(config["users"], context["user"])["user"]
        headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        tls = _compute_tls(cluster, user, path.parent)
        return cls(cluster["server"], tls=tls, headers=headers, timeout_seconds=timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.clear()

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, object] | None = None,
        content_type: str = "application/json",
    ) -> Any:
        """Send one request and return the decoded answer (text when it is not JSON); raise ApiError on a refusal.

        urllib3's HTTPError is raised when the server cannot be reached.
        """
        headers = dict(self._headers)
        payload = None
        if body is not None:
            payload = json.dumps(body).encode()
            headers["Content-Type"] = content_type
        url = self._compute_url(path, query)
        send = functools.partial(self._pool.request, method, url, body=payload, headers=headers, timeout=self._timeout)
        try:
            answer = send()
        except (urllib3.exceptions.ProtocolError, urllib3.exceptions.MaxRetryError) as error:
            reason = error.reason if isinstance(error, urllib3.exceptions.MaxRetryError) else error
            if reason is None or not isinstance(reason.args[-1], http.client.RemoteDisconnected):
                raise
            answer = send()  # the server closes what was idle for long, also in the moment in which we begin to speak
        return _decode(answer.status, answer.data, answer.headers.get("Content-Type", ""))

    def get(self, path: str, **query: object) -> Any:
        """Return the object, list or text at a path."""
        return self.request("GET", path, query=query)

    def items(self, path: str, **query: object) -> list[Json]:
        """Return the items of a list; an empty list also when the server says null."""
        items: list[Json] = self.get(path, **query)["items"] or []
        return items

    def exists(self, path: str) -> bool:
        """Tell whether there is an object at a path."""
        try:
            self.get(path)
        except ApiError as error:
            if error.status == 404:  # noqa: PLR2004  the one status that means no
                return False
            raise
        return True

    def post(self, path: str, body: object, **query: object) -> Any:
        """Create an object (or call a subresource)."""
        return self.request("POST", path, body, query=query)

    def put(self, path: str, body: object, **query: object) -> Any:
        """Replace an object."""
        return self.request("PUT", path, body, query=query)

    def patch(self, path: str, body: object, kind: str = "merge", **query: object) -> Any:
        """Change an object; ``kind`` is merge, strategic, json or apply."""
        return self.request("PATCH", path, body, query=query, content_type=PATCH_TYPES[kind])

    def delete(self, path: str, body: object = None, **query: object) -> Any:
        """Delete an object or a collection."""
        return self.request("DELETE", path, body, query=query)

    def watch(self, path: str, *, timeout_seconds: int = 60, **query: object) -> Iterator[Json]:
        """Yield the events of a watch until the server ends it; an ERROR event is raised as ApiError."""
        everything = {**query, "watch": "true", "timeoutSeconds": timeout_seconds}
        url = self._compute_url(path, everything)
        timeout = urllib3.Timeout(connect=30.0, read=timeout_seconds + 10.0)
        answer = self._pool.request("GET", url, headers=self._headers, preload_content=False, timeout=timeout)
        try:
            if answer.status >= 400:  # noqa: PLR2004
                _decode(answer.status, answer.read(), "application/json")
            yield from _decode_events(answer.stream(64 * 1024))
        finally:
            answer.close()

    def _compute_url(self, path: str, query: Mapping[str, object] | None) -> str:
        filled = {name: value for name, value in (query or {}).items() if value is not None}
        mark = "&" if "?" in path else "?"
        return self.server + path + (mark + urlencode(filled) if filled else "")


def call_many(calls: Iterable[Item], call: Callable[[Item], object], *, parallel: int = 16) -> None:
    """Do many independent calls on a few threads; the first error is raised after the others have ended."""
    with ThreadPoolExecutor(parallel, thread_name_prefix="calls") as executor:
        for outcome in [executor.submit(call, item) for item in calls]:
            outcome.result()


def _decode_events(chunks: Iterable[bytes]) -> Iterator[Json]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            event = json.loads(line)
            if event["type"] == "ERROR":
                status = event["object"]
                raise ApiError(status.get("code", 500), status.get("reason", ""), status.get("message", ""))
            yield event


def _decode(status: int, content: bytes, content_type: str) -> Any:
    is_json = content_type.startswith("application/json")
    answer: Any = json.loads(content) if is_json and content else content.decode(errors="replace")
    if status < 400:  # noqa: PLR2004
        return answer
    if isinstance(answer, dict):
        raise ApiError(status, answer.get("reason") or "", answer.get("message") or "")
    raise ApiError(status, "", answer.strip())


def _find_named(entries: list[Json], name: str) -> Json:
    return next(entry for entry in entries if entry["name"] == name)


def _compute_tls(cluster: Json, user: Json, folder: Path) -> ssl.SSLContext | None:
    if not cluster["server"].startswith("https"):
        return None
    tls = ssl.create_default_context()
    authority = _read_blob(cluster, "certificate-authority", folder)
    if authority:
        tls.load_verify_locations(cadata=authority.decode())
    certificate = _read_blob(user, "client-certificate", folder)
    key = _read_blob(user, "client-key", folder)
    if certificate and key:
        with tempfile.NamedTemporaryFile() as joined:  # the ssl module takes certificates from files only
            joined.write(certificate + b"\n" + key)
            joined.flush()
            tls.load_cert_chain(joined.name)
    return tls


def _read_blob(section: Json, name: str, folder: Path) -> bytes | None:
    if f"{name}-data" in section:
        return base64.b64decode(section[f"{name}-data"])
    if name in section:
        path: str = section[name]
        return (folder / path).read_bytes()
    return None
