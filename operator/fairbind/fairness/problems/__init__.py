"""The problem that every mechanism takes, the instance that every solver takes, and the answer that comes back.

`problem` holds what is asked, `parse` reads it from a document and `instance` makes it ready for a solver. `allocation`
holds the answer, `verify` checks that it exceeds nothing and `negligible` takes out amounts that are nothing.
Depends on `fairbind.model` only.
"""

from __future__ import annotations
