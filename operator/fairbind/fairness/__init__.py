"""What is fair: the mechanisms of the papers on divisible tasks, exact and certified.

A `Problem` goes in, an `Allocation` with its certificate comes out of `compute_allocation`, or an error: never an
answer that was not verified. `MECHANISMS` lists every mechanism with its paper, the options it takes and what it
guarantees. Pure: no clock, no randomness, no input or output. scipy is imported by the functions that need it, because
that takes longer than most answers.
"""

from __future__ import annotations
