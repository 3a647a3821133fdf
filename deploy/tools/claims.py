"""Collect which test holds which claim of the guides into docs/reference/claims.md.

A claim names its tests in a comment behind it, `<!-- tests/kube/test_a.py::test_b, tests/... -->`, which neither GitHub
nor the site shows: in a table the claim is the row, elsewhere the sentence.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WITH_CLAIMS = ("pods", "policies", "shared-limits", "traces")
"""References that are written by hand."""
COMMENT = re.compile(r"\s*<!--\s*(tests/.*?)\s*-->", re.DOTALL)
ANY_COMMENT = re.compile(r"\s*<!--.*?-->", re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$")
SENTENCE = re.compile(r"(?<=[.?!]) (?=[A-Z`*\[])")
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def compute_page(root: Path, made: str) -> str:
    """Return the text of docs/reference/claims.md. made: the line that says who writes it."""
    lines = [
        "# What holds these claims",
        "",
        made,
        "",
        "Each claim of the guides that a test holds, and the test, as pytest takes its name. In the guides' source the",
        "test stands in a comment behind the claim.",
    ]
    docs = root / "docs"
    references = [docs / "reference" / f"{name}.md" for name in WITH_CLAIMS]
    for path in [*sorted(docs.glob("*.md")), *references]:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        page = path.name if path.parent.name == "reference" else f"../{path.name}"
        claims = list(find_claims(text))
        if claims:
            lines += ["", f"## {text.partition(chr(10))[0].removeprefix('# ')}", ""]
        for heading, claim, tests in claims:
            named = ", ".join(f"`{test}`" for test in tests)
            lines.append(f"- {claim} ([{heading}]({page}#{compute_anchor(heading)})): {named}")
    return "\n".join(lines) + "\n"


def find_claims(text: str) -> Iterator[tuple[str, str, list[str]]]:
    r"""Return the claims of a page that name tests: the heading above, the claim, and its tests.

    >>> list(find_claims("# A\n\nOne. It holds <!-- tests/b.py::c -->. Two.\n\n| d | e <!-- tests/f.py --> |\n"))
    [('A', 'It holds', ['tests/b.py::c']), ('A', 'd: e', ['tests/f.py'])]
    """
    heading = ""
    for block in _split(text):
        found = HEADING.match(block)
        heading = _plain(found[1]) if found else heading
        if block.startswith("|"):
            tests = [test for comment in COMMENT.findall(block) for test in _read_tests(comment)]
            if tests:
                yield heading, _read_row(ANY_COMMENT.sub("", block)), tests
            continue
        for comment in COMMENT.finditer(block):
            yield heading, _read_sentence(ANY_COMMENT.sub("", block[: comment.start()])), _read_tests(comment[1])


def compute_anchor(heading: str) -> str:
    """Return the fragment that GitHub makes of a heading.

    >>> compute_anchor("What a pod's `a` may cost")
    'what-a-pods-a-may-cost'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _split(text: str) -> Iterator[str]:
    """Return the paragraphs of a page; a row of a table, a heading and an entry of a list are one each."""
    for paragraph in re.split(r"\n\s*\n", text):
        yield from re.split(r"\n(?=\||#|- |\d+\. )", paragraph.strip())


def _read_tests(comment: str) -> list[str]:
    return re.split(r",\s*", comment)


def _read_row(row: str) -> str:
    first, *others = [cell for cell in map(str.strip, row.strip().strip("|").split(" | ")) if cell]
    return _plain(": ".join([first, "; ".join(others)] if others else [first]))


def _read_sentence(before: str) -> str:
    return _plain(SENTENCE.split(" ".join(before.split()))[-1]).strip("- ").rstrip(".,;:")


def _plain(text: str) -> str:
    return LINK.sub(r"\1", text)
