"""The scheduling order within a cycle: the queues of tenants, and which task is next."""

from __future__ import annotations
