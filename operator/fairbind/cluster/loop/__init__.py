"""The rules of the deciding loop: when a cycle runs, how much it may decide, what is noted of it."""

from __future__ import annotations
