"""The state of the cluster, kept up to date change by change, and the snapshots made from them."""

from __future__ import annotations
