"""The servers of Google's cluster in 2011, as Table 1 of the DRFH paper (TPDS 2015) counts them."""

from __future__ import annotations

GOOGLE_SHAPES = (
    (6732, 0.50, 0.50),
    (3863, 0.50, 0.25),
    (1001, 0.50, 0.75),
    (795, 1.00, 1.00),
    (126, 0.25, 0.25),
    (52, 0.50, 0.12),
    (5, 0.50, 0.03),
    (5, 0.50, 0.97),
    (3, 1.00, 0.50),
    (1, 0.50, 0.06),
)
"""How many of each, and the CPUs and memory of one, in parts of the largest."""

GOOGLE_SERVERS = sum(count for count, _, _ in GOOGLE_SHAPES)
