"""One cycle: the draft of what is, who comes next, and why the rest waits."""

from __future__ import annotations
