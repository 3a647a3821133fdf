"""What is served over HTTP: metrics and probes."""

from __future__ import annotations
