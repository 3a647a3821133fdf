"""Which nodes a task may use."""

from __future__ import annotations
