"""Task classes and snapshots, which follow from the state: queues, the window, server classes, what counts."""

from __future__ import annotations
