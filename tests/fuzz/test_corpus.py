"""What was once too slow, too large or an error is not any more, and the programme notices what is."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import pytest

from fairbind.cluster.objects import decode
from fuzz import cost
from fuzz.cost import World, judge
from fuzz.main import find_smaller, load, save
from fuzz.recipes import MAX_BYTES, Recipe, draw_recipe

CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.json"))


@pytest.fixture(scope="module")
def world() -> World:
    return World()


@pytest.mark.slow
@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_a_case_stays_within_its_limits(world: World, path: Path) -> None:
    recipe = load(path)
    _, excess = judge(world, recipe, with_memory=True)
    assert excess == [], recipe.describe()


def test_the_same_seed_gives_the_same_recipes_and_none_is_too_large() -> None:
    first, second = (draw_recipe(random.Random(7)) for _ in range(2))
    assert first == second
    drawn = [draw_recipe(random.Random(seed)) for seed in range(16)]
    assert max(len(json.dumps(recipe.make())) for recipe in drawn) <= MAX_BYTES
    assert len({recipe.generator for recipe in drawn}) > 5


def test_a_step_that_is_slow_is_found_and_made_smaller(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    convert = decode.PODS.convert

    def convert_slowly(pod: object) -> object:
        tolerations = pod.spec.tolerations or ()  # type: ignore[attr-defined]
        ends = time.process_time() + (0.15 if len(tolerations) > 100 else 0.0)
        while time.process_time() < ends:
            pass
        return convert(pod)

    monkeypatch.setattr(decode.PODS, "convert", convert_slowly)
    monkeypatch.setattr(cost, "REPEATS", 0)
    recipe = Recipe("pod", "tolerations", {"count": 300})
    _, excess = judge(world, recipe, with_memory=False)
    assert [each.split(" takes")[0] for each in excess] == ["decode", "decode in a list"]
    assert find_smaller(world, recipe).parameters["count"] == 150


def test_what_stays_in_memory_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    convert, kept = decode.PODS.convert, []

    def convert_and_keep(pod: object) -> object:
        kept.append(pod)
        return convert(pod)

    monkeypatch.setattr(decode.PODS, "convert", convert_and_keep)
    _, excess = judge(world, Recipe("pod", "tolerations", {"count": 3000}), with_memory=True)
    assert [each.partition(" ")[2] for each in excess if "left" in each]


def test_an_exception_is_found_and_kept_as_a_case(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(pod: object) -> object:
        del pod
        raise ValueError("no")

    monkeypatch.setattr(decode.PODS, "convert", fail)
    recipe = Recipe("pod", "tolerations", {"count": 3})
    _, excess = judge(world, recipe, with_memory=False)
    assert excess == ["ValueError: no"]
    assert load(save(tmp_path, recipe, excess)) == recipe
