"""fairbind: a fair scheduler for Kubernetes clusters whose nodes differ."""

from __future__ import annotations

__version__ = "0.1.0"
