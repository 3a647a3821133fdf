"""Tenants and policies as administrators declare them, and whose namespace is whose."""

from __future__ import annotations
