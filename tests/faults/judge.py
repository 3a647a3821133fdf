"""What must hold whatever went wrong, from the API server's audit log alone; read on as it grows.

The log has, besides every binding, every write of the lease and every patch of a pod with its body. A term begins when
a write of the lease that names a holder was received, and ends with the next write that was done, or `LEASE_SECONDS`
after the last one of its holder. An operator patches a pod itself, and not its status, only to open its gate.
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


BOUND, OPENED = "bound", "opened"
KUBE_SCHEDULER = "system:kube-scheduler"


@dataclass(frozen=True, slots=True)
class Deed:
    """What was done with a pod, once in its life: it was bound, or its gate was opened.

    moment, ended: when the request was received, and answered. owner: which process sent it.
    """

    what: str
    moment: dt.datetime
    ended: dt.datetime
    owner: str
    pod: str
    uid: str


@dataclass(frozen=True, slots=True)
class LeaseWrite:
    """A write of the lease that was done. holder: whom it names, nobody when it gives the lease back."""

    moment: dt.datetime
    ended: dt.datetime
    owner: str
    holder: str


WANTED = (b'"subresource":"binding"', b'"resource":"leases"', b'"verb":"patch"')
"""A line without any of these is about something else."""


@dataclass(slots=True)
class Judge:
    """Reads an audit log from where it stopped. owners: which process has which token, by the token's id.

    binder: the user who binds pods and needs no lease for it, besides the operators; "" where there is none.
    """

    audit_log: Path
    binder: str = ""
    owners: dict[str, str] = field(default_factory=dict)
    deeds: list[Deed] = field(default_factory=list)
    leases: list[LeaseWrite] = field(default_factory=list)
    _offset: int = 0
    _judged: int = 0
    _counts: Counter[tuple[str, str]] = field(default_factory=Counter)

    def read_on(self) -> None:
        """Read what was written since."""
        with self.audit_log.open("rb") as log:
            log.seek(self._offset)
            for line in log:
                if not line.endswith(b"\n"):
                    break  # half written
                self._offset += len(line)
                if any(words in line for words in WANTED):
                    self._take(json.loads(line))
        self.leases.sort(key=lambda write: write.ended)

    def forget_since(self, moment: dt.datetime) -> None:
        """The cluster's state has gone back to this moment: what was done since may be done again.

        What was received before it and answered after may be in that state: then it is done, and stays so.
        """
        self.read_on()
        for deed in self.deeds:
            if deed.ended >= moment:
                self._counts[deed.what, deed.uid] -= 1

    def judge(self) -> list[str]:
        """Return what is wrong with what was done since it was last asked."""
        self.read_on()
        new, self._judged = self.deeds[self._judged :], len(self.deeds)
        found = [complaint for deed in new if (complaint := self._find_complaint(deed))]
        twice = sorted({(deed.pod, deed.what) for deed in new if self._counts[deed.what, deed.uid] > 1})
        return [*found, *(f"{pod} was {what} twice" for pod, what in twice)]

    def _take(self, event: Any) -> None:
        if event["stage"] != "ResponseComplete" or event["responseStatus"]["code"] >= 300:
            return
        token = ((event["user"].get("extra") or {}).get(CREDENTIAL) or [""])[0]
        owner = self.owners.get(token)
        target, body = event["objectRef"], event.get("requestObject") or {}
        match target["resource"], target.get("subresource"), event["verb"]:
            case "pods", "binding", _:
                self._take_deed(BOUND, owner or event["user"]["username"], event)
            case "pods", None, "patch" if owner is not None:
                self._take_deed(OPENED, owner, event)
            case "leases", None, "create" | "update" | "patch" if owner is not None:
                holder = (body.get("spec") or {}).get("holderIdentity") or ""
                self.leases.append(LeaseWrite(*read_times(event), owner, holder))

    def _take_deed(self, what: str, owner: str, event: Any) -> None:
        target, body = event["objectRef"], event.get("requestObject") or {}
        uid = (body.get("metadata") or {}).get("uid") or target.get("uid") or target["name"]
        self.deeds.append(Deed(what, *read_times(event), owner, f"{target['namespace']}/{target['name']}", uid))
        self._counts[what, uid] += 1

    def _find_complaint(self, deed: Deed) -> str:
        if deed.what == BOUND and deed.owner == self.binder:
            return ""
        words = f"{deed.owner} {deed.what} {deed.pod}"
        last = next((write for write in reversed(self.leases) if write.ended <= deed.moment), None)
        if last is None:
            return f"{words} before anybody had led"
        if last.owner != deed.owner:
            return f"{words} at {deed.moment:%T.%f} in the term of {last.owner}"
        if not last.holder:
            return f"{words} at {deed.moment:%T.%f} after it had given the lease back"
        age = (deed.moment - last.moment).total_seconds()
        if age > LEASE_SECONDS + SLACK_SECONDS:
            return f"{words} {age:.1f} s after its last renewal"
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


def read_times(event: Any) -> tuple[dt.datetime, dt.datetime]:
    """Return when a request was received and when it was answered."""
    received, answered = event["requestReceivedTimestamp"], event["stageTimestamp"]
    return dt.datetime.fromisoformat(received), dt.datetime.fromisoformat(answered)


def add_bodies(policy: str) -> str:
    """Return an audit policy that also notes the bodies of writes of the operators' lease, and of patches of pods."""
    rules = """\
  - level: Request
    namespaces: [fairbind-system]
    verbs: [create, update, patch]
    resources:
      - group: coordination.k8s.io
        resources: [leases]
  - level: Request
    verbs: [patch]
    resources:
      - group: ""
        resources: [pods]
"""
    return policy.replace("  - level: Metadata\n", f"{rules}  - level: Metadata\n")
