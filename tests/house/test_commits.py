"""The commits of a change say in a few words what they do: CONTRIBUTING's rule, where git knows the change."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from house.tree import ROOT

MAX_CHARACTERS = 72
PAST = re.compile(r"[A-Z][a-z]+(?<!e)ed|[A-Z][a-z]+ing")
IMPERATIVES = frozenset({"Bring", "Embed", "Shed", "Shred", "Wed"})
"""Words that look like a past or an -ing form and are none."""


def find_fault(subject: str) -> str | None:
    """Return what is wrong with a commit's subject, or None.

    >>> [find_fault(text) for text in ("Bound what a tenant holds", "Feed the cache", "Merge branch 'x'")]
    [None, None, None]
    """
    if subject.startswith(("Merge ", "Revert ")):
        return None
    if len(subject) > MAX_CHARACTERS:
        return f"{len(subject)} characters, not {MAX_CHARACTERS} at most"
    first = subject.split(" ", 1)[0]
    if not re.fullmatch(r"[A-Z][a-z-]+", first):
        return f"begins with {first!r}, not with a verb and a capital letter"
    if PAST.fullmatch(first) and first not in IMPERATIVES:
        return f"begins with {first!r}, not with an imperative"
    return "ends with a full stop" if subject.endswith(".") else None


def list_subjects() -> list[str]:
    """Return the subjects of the commits since the base, and of the last one; none outside a git checkout."""
    if not (ROOT / ".git").exists():
        return []
    git = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT)]
    base = os.environ.get("FAIRBIND_BASE") or "origin/main"
    known = subprocess.run(
        [*git, "rev-parse", "--verify", "-q", f"{base}^{{commit}}"], capture_output=True, check=False
    )
    log = [*git, "log", "--no-merges", "--format=%s"]
    ranges = [["-1", "HEAD"], *([[f"{base}..HEAD"]] if known.returncode == 0 else [])]
    listed = [subprocess.run([*log, *what], capture_output=True, text=True, check=True) for what in ranges]
    return [subject for output in listed for subject in output.stdout.splitlines()]


def test_each_commit_of_the_change_begins_with_an_imperative_and_is_short() -> None:
    assert {subject: fault for subject in list_subjects() if (fault := find_fault(subject))} == {}


@pytest.mark.parametrize(
    "subject",
    [
        "Fixed a race",
        "Moving files",
        "fix a race",
        "docs: Name the option",
        "Say what it does.",
        "Say " + "very " * 20 + "much",
    ],
)
def test_a_subject_that_breaks_the_rule_is_found(subject: str) -> None:
    assert find_fault(subject)
