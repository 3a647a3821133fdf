"""Who bound what, from the API server's own audit log."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CREDENTIAL = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True)
class Binding:
    """One request to bind a pod. moment: RFC 3339 with microseconds, when the server received it.

    credential: which of the user's tokens it came with ("JTI=..."); empty for other credentials.
    """

    moment: str
    user: str
    credential: str
    namespace: str
    pod: str
    uid: str
    node: str
    status: int

    @property
    def is_done(self) -> bool:
        """Whether the server did it."""
        return self.status < 300


def read_bindings(audit_log: Path, *, namespace: str | None = None) -> list[Binding]:
    """Return all requests to bind pods, in the order in which the server wrote them down."""
    bindings = []
    with audit_log.open(encoding="utf-8") as lines:
        for line in lines:
            if '"subresource":"binding"' not in line or not line.endswith("\n"):  # the last line may be half written
                continue
            event = json.loads(line)
            target = event["objectRef"]
            if event["stage"] != "ResponseComplete" or (namespace is not None and target["namespace"] != namespace):
                continue
            body = event.get("requestObject") or {}
            bindings.append(
                Binding(
                    moment=event["requestReceivedTimestamp"],
                    user=event["user"]["username"],
                    credential=((event["user"].get("extra") or {}).get(CREDENTIAL) or [""])[0],
                    namespace=target["namespace"],
                    pod=target["name"],
                    uid=(body.get("metadata") or {}).get("uid", ""),
                    node=(body.get("target") or {}).get("name", ""),
                    status=event["responseStatus"]["code"],
                )
            )
    return bindings


def check_bound_once(bindings: list[Binding]) -> None:
    """Fail when a pod was bound more than once."""
    counts = Counter((done.namespace, done.pod, done.uid) for done in bindings if done.is_done)
    twice = sorted(pod for pod, count in counts.items() if count > 1)
    assert not twice, f"bound more than once: {twice[:10]}"
