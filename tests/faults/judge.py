"""What must hold whatever went wrong, from the API server's audit log alone; read on as it grows.

The log has, besides every binding, every write of the lease with its body. A term begins when a write that names
somebody was received, and ends with the next write that was done, or `LEASE_SECONDS` after the last one of its holder.
"""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from e2e.audit import CREDENTIAL

if TYPE_CHECKING:
    from pathlib import Path

LEASE_SECONDS = 10.0
SLACK_SECONDS = 0.1
"""The log's times are of when the server read a request; a holder counts from before it sent it."""


@dataclass(frozen=True, slots=True)
class Bind:
    """A request to bind that was done. moment, ended: received, answered. owner: which process sent it."""

    moment: dt.datetime
    ended: dt.datetime
    owner: str
    pod: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class LeaseWrite:
    """A write of the lease that was done. holder: whom it names, nobody when it gives the lease back."""

    moment: dt.datetime
    ended: dt.datetime
    owner: str
    holder: str


@dataclass(slots=True)
class Judge:
    """Reads an audit log from where it stopped. owners: which process has which token, by the token's id."""

    audit_log: Path
    owners: dict[str, str] = field(default_factory=dict)
    binds: list[Bind] = field(default_factory=list)
    leases: list[LeaseWrite] = field(default_factory=list)
    _offset: int = 0
    _judged: int = 0
    _counts: Counter[str] = field(default_factory=Counter)

    def read_on(self) -> None:
        """Read what was written since."""
        with self.audit_log.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n"):
                    break  # half written
                self._offset += len(line)
                if b'"subresource":"binding"' in line or b'"resource":"leases"' in line:
                    self._take(json.loads(line))
        self.leases.sort(key=lambda write: write.ended)

    def forget_since(self, moment: dt.datetime) -> None:
        """The cluster's state has gone back to this moment: what was bound since may be bound again.

        What was received before it and answered after may be in that state: then it is bound, and stays so.
        """
        self.read_on()
        for bind in self.binds:
            if bind.ended >= moment:
                self._counts[bind.uid] -= 1

    def judge(self) -> list[str]:
        """Return what is wrong with what was done since it was last asked."""
        self.read_on()
        new, self._judged = self.binds[self._judged :], len(self.binds)
        found = [complaint for bind in new if (complaint := self._find_complaint(bind))]
        twice = sorted({bind.pod for bind in new if self._counts[bind.uid] > 1})
        return [*found, *(f"{pod} was bound twice" for pod in twice)]

    def _take(self, event: Any) -> None:
        if event["stage"] != "ResponseComplete" or event["responseStatus"]["code"] >= 300:
            return
        token = ((event["user"].get("extra") or {}).get(CREDENTIAL) or [""])[0]
        owner = self.owners.get(token)
        target, body = event["objectRef"], event.get("requestObject") or {}
        moment, ended = map(dt.datetime.fromisoformat, (event["requestReceivedTimestamp"], event["stageTimestamp"]))
        if target.get("subresource") == "binding":
            uid = (body.get("metadata") or {}).get("uid") or target.get("uid") or target["name"]
            pod = f"{target['namespace']}/{target['name']}"
            sender = owner or f"{event['user']['username']}"
            self.binds.append(Bind(moment, ended, sender, pod, uid, body["target"]["name"]))
            self._counts[uid] += 1
        elif owner is not None and event["verb"] in {"create", "update", "patch"}:
            holder = (body.get("spec") or {}).get("holderIdentity") or ""
            self.leases.append(LeaseWrite(moment, ended, owner, holder))

    def _find_complaint(self, bind: Bind) -> str:
        last = next((write for write in reversed(self.leases) if write.ended <= bind.moment), None)
        if last is None:
            return f"{bind.owner} bound {bind.pod} before anybody had led"
        if last.owner != bind.owner:
            return f"{bind.owner} bound {bind.pod} at {bind.moment:%T.%f} in the term of {last.owner}"
        if not last.holder:
            return f"{bind.owner} bound {bind.pod} at {bind.moment:%T.%f} after it had given the lease back"
        age = (bind.moment - last.moment).total_seconds()
        if age > LEASE_SECONDS + SLACK_SECONDS:
            return f"{bind.owner} bound {bind.pod} {age:.1f} s after its last renewal"
        return ""

    def count_changes(self, since: int) -> int:
        """Return how often the lease has changed hands since so many writes of it."""
        owners = [write.owner for write in self.leases[max(0, since - 1) :] if write.holder]
        return sum(1 for one, other in itertools.pairwise(owners) if one != other)


def read_token_id(token: str) -> str:
    """Return how the audit log names a token."""
    claims = token.split(".")[1]
    padding = "=" * (-len(claims) % 4)
    return f"JTI={json.loads(base64.urlsafe_b64decode(claims + padding))['jti']}"


def add_lease_bodies(policy: str) -> str:
    """Return an audit policy that also notes the bodies of writes of the operators' lease."""
    rule = """\
  - level: Request
    namespaces: [fairbind-system]
    verbs: [create, update, patch]
    resources:
      - group: coordination.k8s.io
        resources: [leases]
"""
    return policy.replace("  - level: Metadata\n", f"{rule}  - level: Metadata\n")
