"""What the operator logs about Tenant and SchedulingPolicy objects."""

from __future__ import annotations

import logging

_log = logging.getLogger(__name__)


class AdministrationLog:
    """Logs what `Administration` reports."""

    def object_left_out(self, kind: str, name: str, problem: str) -> None:
        """Warn about an object that counts as if it did not exist."""
        fields = {"reason": problem} | ({"tenant": name} if kind == "Tenant" else {})
        _log.warning("%s %s is left out: %s", kind, name, problem, extra=fields)

    def policy_applied(self, description: str) -> None:
        """Log the settings that apply from now on."""
        _log.info("policy: %s", description)
