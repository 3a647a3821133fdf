"""A result says of which commit it is, and a page how many commits have come since."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from recorded import count_commits_since, describe_age, read_commit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def git(tmp_path: Path) -> Callable[..., str]:
    """A function that runs git in a repository of the test's own, without any commit."""

    def run(*arguments: str) -> str:
        command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", "-C", str(tmp_path), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    (tmp_path / "operator").mkdir()
    run("init", "-q")
    return run


def commit(git: Callable[..., str], folder: Path, text: str) -> str:
    (folder / "operator" / "code.py").write_text(text, encoding="utf-8")
    git("add", ".")
    git("commit", "-q", "-m", text)
    return git("rev-parse", "--short=10", "HEAD")


def test_the_commit_is_known_with_a_plus_where_the_code_differs(git: Callable[..., str], tmp_path: Path) -> None:
    assert read_commit(tmp_path) == ""
    first = commit(git, tmp_path, "one")

    assert read_commit(tmp_path) == first
    (tmp_path / "README").write_text("of no program", encoding="utf-8")
    git("add", ".")
    assert read_commit(tmp_path) == first
    (tmp_path / "operator" / "code.py").write_text("other", encoding="utf-8")
    assert read_commit(tmp_path) == f"{first}+"


def test_commits_since_are_counted_where_the_commit_is_known(git: Callable[..., str], tmp_path: Path) -> None:
    first, second = (commit(git, tmp_path, text) for text in ("one", "two"))
    commit(git, tmp_path, "three")

    counts = [count_commits_since(each, tmp_path) for each in (first, f"{second}+", read_commit(tmp_path))]
    assert counts == [2, 1, 0]
    assert count_commits_since("", tmp_path) is None
    assert count_commits_since("0123456789", tmp_path) is None
    assert count_commits_since("--all", tmp_path) is None


def test_a_page_says_how_old_a_commit_was(git: Callable[..., str], tmp_path: Path) -> None:
    first, second = (commit(git, tmp_path, text) for text in ("one", "two"))
    third = commit(git, tmp_path, "three")

    assert describe_age(first, tmp_path) == f"{first}, 2 commits before this page was written"
    assert describe_age(second, tmp_path) == f"{second}, 1 commit before this page was written"
    assert describe_age(third, tmp_path) == f"{third}, 0 commits before this page was written"
    assert describe_age("unknown", tmp_path) == "unknown"
