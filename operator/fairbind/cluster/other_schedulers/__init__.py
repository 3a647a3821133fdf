"""Rules for pods that another scheduler places: gates, the extender, places under way, scale-up."""

from __future__ import annotations
