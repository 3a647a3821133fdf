"""What the operator writes to the API server: bindings, events, conditions, statuses."""

from __future__ import annotations
