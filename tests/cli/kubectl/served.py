"""An API server of which a test says what it has, and whom it refuses."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

USER = "system:serviceaccount:team-a:member"
OWN = "/namespaces/team-a/"


@dataclass
class Served:
    """lists: of objects, and objects, by path. only: what is in all paths that are allowed; empty: all are.

    without: resources that are not allowed.
    headers: of all requests. kubeconfig: of a file that leads here, whose context has the namespace team-a.
    """

    lists: Mapping[str, Any]
    kubeconfig: Path
    only: str = ""
    without: tuple[str, ...] = ()
    headers: list[Mapping[str, str]] = field(default_factory=list)

    def answer(self, path: str) -> tuple[int, Any]:
        """Return a status and a body."""
        resource = path.rpartition("/")[2]
        if self.only not in path or resource in self.without:
            message = f'{resource} is forbidden: User "{USER}" cannot list resource "{resource}" in API group ""'
            return 403, {"kind": "Status", "reason": "Forbidden", "message": message}
        found = self.lists.get(path)
        if found is None:
            if path.startswith("/apis/fairbind.io"):
                return 404, {"kind": "Status", "reason": "NotFound", "message": "not found"}
            found = []
        return 200, {"metadata": {"resourceVersion": "1"}, "items": found} if isinstance(found, list) else found


@contextlib.contextmanager
def serving(
    folder: Path, lists: Mapping[str, Any], *, only: str = "", without: tuple[str, ...] = ()
) -> Iterator[Served]:
    """Serve objects by path until the end."""
    served = Served(lists, folder / "kubeconfig", only, without)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.headers.append(dict(self.headers.items()))
            status, body = served.answer(self.path.partition("?")[0])
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  as in the base class
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        context = {"cluster": "c", "user": "u", "namespace": "team-a"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [
                {"name": "here", "context": context},
                {"name": "bare", "context": {"cluster": "c", "user": "u"}},
            ],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
            "users": [{"name": "u", "user": {}}],
        }
        served.kubeconfig.write_text(yaml.safe_dump(config), encoding="utf-8")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield served
        server.shutdown()
        thread.join()
