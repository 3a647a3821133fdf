"""The online policies: by what tenants are compared, and how servers are ranked."""

from __future__ import annotations
