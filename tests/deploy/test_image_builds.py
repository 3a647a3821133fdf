"""What builds leave in the engine's store, with a program that stands in for docker and remembers what is tagged."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from kindcluster import engine
from kindcluster.commands import ROOT, KindError
from kindcluster.images import STAGE_LABEL, build_operator_image, compute_clone

STAND_IN = """#!/bin/sh
echo "$*" >> "$STORE/notes"
case "$1 $2" in
"image inspect") cat "$STORE/tags/$4";;
"build --tag") test -n "$BUILT" && echo "$BUILT" > "$STORE/tags/$3";;
"image ls") case "$*" in *filter=label=*) cat "$STORE/stages";; *) cat "$STORE/nameless";; esac;;
"image rm") test "$3" != "$USED";;
esac
"""


@dataclass(frozen=True, slots=True)
class Store:
    """An engine's images: by tag, and those without one."""

    folder: Path

    def tag(self, tag: str, image: str) -> None:
        (self.folder / "tags" / tag).write_text(f"{image}\n", encoding="utf-8")

    def leave(self, kind: str, *images: str) -> None:
        """Have images without names: `nameless`, or `stages` with the label that is asked for."""
        (self.folder / kind).write_text("".join(f"{image}\n" for image in images), encoding="utf-8")

    def calls(self, words: str) -> list[str]:
        notes = (self.folder / "notes").read_text(encoding="utf-8").splitlines()
        return [call.removeprefix(f"{words} ") for call in notes if call.startswith(f"{words} ")]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    (tmp_path / "docker").write_text(STAND_IN, encoding="utf-8")
    (tmp_path / "docker").chmod(0o755)
    (tmp_path / "tags").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STORE", str(tmp_path))
    monkeypatch.setenv("BUILT", "new")
    monkeypatch.setenv("USED", "none")
    store = Store(tmp_path)
    store.leave("nameless")
    store.leave("stages")
    return store


def test_the_image_that_had_the_tag_before_goes(store: Store) -> None:
    store.tag("ours:1", "old")
    store.leave("nameless", "theirs", "old")

    engine.build("ours:1", ["."])

    assert store.calls("image rm") == ["old"]
    assert engine.find_image("ours:1") == "new"


def test_an_image_that_has_another_name_stays(store: Store) -> None:
    store.tag("ours:1", "old")
    store.leave("nameless", "theirs")

    engine.build("ours:1", ["."])

    assert store.calls("image rm") == []


@pytest.mark.parametrize("before", ["new", None])
def test_nothing_goes_when_the_tag_names_the_same_or_is_new(store: Store, before: str | None) -> None:
    if before is not None:
        store.tag("ours:1", before)
    store.leave("nameless", "theirs")

    engine.build("ours:1", ["."])

    assert store.calls("image rm") == []


def test_an_image_that_a_container_uses_stays_without_a_word(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USED", "old")
    store.tag("ours:1", "old")
    store.leave("nameless", "old")

    engine.build("ours:1", ["."])

    assert store.calls("image rm") == ["old"]


def test_a_build_that_fails_takes_nothing_away(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUILT", "")
    store.tag("ours:1", "old")
    store.leave("nameless", "old")
    store.leave("stages", "stage")

    with pytest.raises(KindError):
        build_operator_image("ours:1", report=lambda _: None)

    assert store.calls("image rm") == []


@pytest.mark.parametrize(("fresh", "removed"), [(False, ["older", "oldest"]), (True, ["newest", "older", "oldest"])])
def test_of_the_stages_the_newest_stays_for_the_next_build_unless_it_must_be_fresh(
    store: Store, removed: list[str], *, fresh: bool
) -> None:
    store.leave("stages", "newest", "older", "oldest")

    build_operator_image("ours:1", report=lambda _: None, fresh=fresh)

    assert store.calls("image rm") == removed
    (build,) = store.calls("build")
    assert ("--no-cache" in build.split()) == fresh
    assert f"--build-arg=STAGE_OF={compute_clone()}/ours:1" in build.split()
    asked = f"--filter=dangling=true --filter=label={STAGE_LABEL}={compute_clone()}/ours:1"
    assert store.calls("image ls") == [f"--quiet --no-trunc {asked}"]


def test_the_stage_is_labelled_where_no_layer_depends_on_it() -> None:
    stage, _, image = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8").partition("\nFROM scratch\n")
    lines = [line for line in stage.splitlines() if line and not line.startswith("#")]

    assert lines[-2:] == ["ARG STAGE_OF=", f'LABEL {STAGE_LABEL}="${{STAGE_OF}}"']
    assert "STAGE_OF" not in image
