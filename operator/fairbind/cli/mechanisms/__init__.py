"""The commands about exact mechanisms: allocate, check, compare, mechanisms, schema.

`commands` declares them and imports what they need only when one runs; `reading` turns files into documents, `tables`
lays out what people read. What a command prints is built whole before the first byte goes out, so that a failure
leaves standard output empty.
"""

from __future__ import annotations
