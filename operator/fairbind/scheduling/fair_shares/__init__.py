"""The exact mechanism of a policy asked about a snapshot, and the audit of what holds now."""

from __future__ import annotations
