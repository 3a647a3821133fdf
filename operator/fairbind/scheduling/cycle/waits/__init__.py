"""Tasks that wait: the store of what fitted nowhere, and why each waits."""

from __future__ import annotations
