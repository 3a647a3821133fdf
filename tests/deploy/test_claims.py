"""Claims of the guides and the tests that hold them, as the reference lists them."""

from __future__ import annotations

import claims

PAGE = """# A page

Tables come. A pod waits for
what it needs <!-- tests/a.py::test_b,
tests/c.py -->, and `x` is so <!-- tests/d.py --> too.

| who | what | how |
| --- | --- | --- |
| [one](other.md#a) <!-- limits: a/b.C --> | two <!-- tests/e.py --> | three <!-- tests/f.py --> |
| none | has no test | at all |

## What's `next`?

- First.
- Second: it holds <!-- tests/g.py::TestH -->.
"""


def test_a_claim_is_a_sentence_or_a_row() -> None:
    assert list(claims.find_claims(PAGE)) == [
        ("A page", "A pod waits for what it needs", ["tests/a.py::test_b", "tests/c.py"]),
        ("A page", "A pod waits for what it needs, and `x` is so", ["tests/d.py"]),
        ("A page", "one: two; three", ["tests/e.py", "tests/f.py"]),
        ("What's `next`?", "Second: it holds", ["tests/g.py::TestH"]),
    ]
