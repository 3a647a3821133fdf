"""The state of the cluster: nodes, pods and where they stand, usage, volumes and devices; nothing of what waits."""

from __future__ import annotations
