"""Requests to the API server: credentials, errors, lists and watches."""

from __future__ import annotations
