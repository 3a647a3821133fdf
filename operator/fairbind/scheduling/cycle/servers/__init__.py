"""Servers within a cycle: free capacity, shapes of tasks, scores, minima of domains."""

from __future__ import annotations
