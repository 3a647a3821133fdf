"""The problem that every mechanism takes, the instance that every solver takes, and the answer that comes back.

`problem` defines the problem, `validate` checks its arrays, `parse` reads it from a document with the readers of
`fields`, and `instance` prepares it for a solver. `allocation` defines the answer, `verify` checks that it exceeds no
capacity or limit, and `negligible` removes negligible amounts.
Depends on `fairbind.model` only.
"""

from __future__ import annotations
