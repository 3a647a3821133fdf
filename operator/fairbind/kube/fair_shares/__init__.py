"""Exact fair shares, solved in a process of their own."""

from __future__ import annotations
