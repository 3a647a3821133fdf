"""Who bound what, from the API server's own audit log."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection
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
            if not _is_answer(event) or (namespace is not None and target["namespace"] != namespace):
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


@dataclass(frozen=True, slots=True)
class Write:
    """A request that changed something. moment: when the server had received it; ended: when it had answered."""

    moment: str
    ended: str
    credential: str
    resource: str
    name: str


def read_writes(audit_log: Path, *, credentials: Collection[str]) -> list[Write]:
    """Return what was written with these credentials, and was or may have been done, in the order of arrival."""
    writes = []
    with audit_log.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.endswith("\n") or not any(credential in line for credential in credentials):
                continue
            event = json.loads(line)
            target, user = event.get("objectRef") or {}, event["user"]
            own = ((user.get("extra") or {}).get(CREDENTIAL) or [""])[0]  # a token's maker names it in the line too
            if own in credentials and _is_answer(event) and _may_be_done(event):
                parts = (target.get("resource", ""), target.get("subresource", ""))
                writes.append(
                    Write(
                        moment=event["requestReceivedTimestamp"],
                        ended=event["stageTimestamp"],
                        credential=own,
                        resource="/".join(filter(None, parts)),
                        name=target.get("name", ""),
                    )
                )
    return sorted(writes, key=lambda write: write.moment)


def count_opened(audit_log: Path, *, credentials: Collection[str], namespaces: Collection[str]) -> Counter[str]:
    """Return how often the gate of each pod of these namespaces was opened with these credentials, by `namespace/name`.

    An operator patches a pod itself, and not its status, for nothing else.
    """
    counts: Counter[str] = Counter()
    with audit_log.open(encoding="utf-8") as lines:
        for line in lines:
            if '"verb":"patch"' not in line or '"resource":"pods"' not in line or not line.endswith("\n"):
                continue
            event = json.loads(line)
            target, user = event["objectRef"], event["user"]
            own = ((user.get("extra") or {}).get(CREDENTIAL) or [""])[0]
            is_own = own in credentials and target["namespace"] in namespaces and "subresource" not in target
            if is_own and _is_answer(event) and event["responseStatus"]["code"] < HTTPStatus.BAD_REQUEST:
                counts[f"{target['namespace']}/{target['name']}"] += 1
    return counts


def _is_answer(event: Any) -> bool:
    """Tell whether a request has been answered; one that asked to change nothing (a dry run) never counts."""
    return event["stage"] == "ResponseComplete" and "dryRun=All" not in event["requestURI"]


def _may_be_done(event: Any) -> bool:
    """Tell whether a request was not refused: one that failed in the server, or met a cut wire, may have been done."""
    code: int = event["responseStatus"]["code"]
    return not HTTPStatus.BAD_REQUEST <= code < HTTPStatus.INTERNAL_SERVER_ERROR


def check_only_holders_write(writes: list[Write]) -> Counter[str]:
    """Fail when somebody wrote anything who was not the last to have written the lease; return how much of what.

    Whoever takes the lease, renews it or gives it back writes it, and nobody else does; so between two writes of the
    lease nobody but the writer of the first one leads. A write that was received while the lease was being taken by
    another is judged as of before.
    """
    leases = sorted((write for write in writes if write.resource == "leases"), key=lambda write: write.ended)
    counts: Counter[str] = Counter()
    for write in writes:
        if write.resource == "leases" or write.resource.endswith("reviews"):  # a question changes nothing
            continue
        holders = [lease.credential for lease in leases if lease.ended <= write.moment]
        assert holders, f"{write} before anybody had led"
        assert write.credential == holders[-1], f"{write} by somebody who did not lead"
        counts[write.resource] += 1
    return counts


def check_bound_once(bindings: list[Binding]) -> None:
    """Fail when a pod was bound more than once."""
    counts = Counter((done.namespace, done.pod, done.uid) for done in bindings if done.is_done)
    twice = sorted(pod for pod, count in counts.items() if count > 1)
    assert not twice, f"bound more than once: {twice[:10]}"
