"""Audits of a run: at each measurement, who envies whom, and who would do better alone, by the operator's own audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fairbind.scheduling.fair_shares.audit import AuditScene, Finding, audit
from fairbind.simulator.results import FindingRow

MOST_TENANTS = 64
"""An audit compares each tenant with each other, so that many more would cost more than the run itself."""


def find_unfairness(scene: AuditScene, fair_shares: Mapping[str, float] | None) -> tuple[Finding, ...]:
    """Return what an audit finds. fair_shares: by tenant, where the policy has such."""
    report = audit(scene, fair_shares)
    return (*report.envies, *report.sharing_incentive_violations)


@dataclass(slots=True)
class _Tally:
    """How often the same was found, and when it was worst."""

    times: int
    worst: Finding


class AuditLog:
    """Counts findings over a run."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str | None, str], _Tally] = {}

    def add(self, findings: Iterable[Finding]) -> None:
        """Take what one audit found."""
        for finding in findings:
            key = finding.tenant, finding.envied, finding.cause.value
            tally = self._tallies.setdefault(key, _Tally(0, finding))
            tally.times += 1
            if finding.could_have - finding.has > tally.worst.could_have - tally.worst.has:
                tally.worst = finding

    def list_rows(self) -> tuple[FindingRow, ...]:
        """Return all that was found, the most frequent first."""
        rows = (
            FindingRow(*key, tally.times, tally.worst.has, tally.worst.could_have)
            for key, tally in self._tallies.items()
        )
        return tuple(sorted(rows, key=lambda row: (-row.times, row.tenant, row.envied or "", row.cause)))
