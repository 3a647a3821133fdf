"""The way in: what the queues of other schedulers say, as Tenants, and what of it has no counterpart.

A reader for each system (`kueue`, `volcano`, `yunikorn`, `kai`) makes `Queue`s of its documents, `tenants` makes
Tenants of these. An invalid value is refused with its place; a field that is not read is noted.
"""

from __future__ import annotations
