"""The operator's life: election, health, the scheduling loop, and all parts put together."""

from __future__ import annotations
