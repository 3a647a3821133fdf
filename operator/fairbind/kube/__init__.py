"""Everything that speaks Kubernetes."""

from __future__ import annotations
