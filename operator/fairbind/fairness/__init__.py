"""What is fair: the mechanisms of the papers on divisible tasks, exact and certified.

A `Problem` goes in, an `Allocation` with its certificate comes out of `solve.compute_allocation`, or an error: never an
answer that was not verified. Each of the four sub-packages uses only those before it: `problems` (what is asked and
answered), `solvers` (numerical methods), `mechanisms` (one module each, listed in `mechanisms.registry`) and, above
`solve`, `properties` (what a mechanism should guarantee, with a search for witnesses against it).

Pure: no clock, no randomness, no input or output. highspy is imported by the functions that need it, because that takes
longer than most answers.
"""

from __future__ import annotations
