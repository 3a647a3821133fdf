"""Look for objects that cost too much: `python tests/fuzz/main.py --seconds 600 --seed 1`.

Draws recipes at random, measures each (`fuzz.cost`) and makes what is too slow, too large or an error smaller while it
stays so. One in `MULTIPLE_EVERY` is about many objects of one tenant, and what they cost another (`fuzz.many`).
What it found is kept in a folder, one recipe a file; the same seed draws the same recipes again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from fuzz.cost import World, judge, time_loop
from fuzz.many import draw_multiple, find_growth
from fuzz.recipes import Recipe, draw_recipe, halve

CORPUS = Path(__file__).parent / "corpus"
WITH_MEMORY_EVERY = 4
MAX_SMALLER = 60
MULTIPLE_EVERY = 50


@dataclass
class Summary:
    """What a run did. slowest: milliseconds by step, with the recipe that took them. multiples: recipes of many."""

    seed: int
    seconds: float = 0.0
    recipes: int = 0
    multiples: int = 0
    mebibytes: float = 0.0
    loop_milliseconds: float = 0.0
    found: list[str] = field(default_factory=list)
    slowest: dict[str, tuple[float, str]] = field(default_factory=dict)


def load(path: Path) -> Recipe:
    """Return the recipe of a file."""
    kept = json.loads(path.read_text(encoding="utf-8"))
    return Recipe(kept["kind"], kept["generator"], kept["parameters"])


def save(folder: Path, recipe: Recipe, excess: Sequence[str]) -> Path:
    """Keep a recipe and what is wrong with it; return the file."""
    text = json.dumps({**recipe._asdict(), "found": list(excess)}, indent=2, sort_keys=True) + "\n"
    name = hashlib.sha256(recipe.describe().encode()).hexdigest()[:8]
    path = folder / f"{recipe.kind}-{recipe.generator}-{name}.json"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def find_smaller(world: World, recipe: Recipe) -> Recipe:
    """Return a smaller recipe that is still too much; not the smallest, but soon found."""
    tried = 0
    while True:
        for smaller in halve(recipe):
            tried += 1
            if tried > MAX_SMALLER:
                return recipe
            if judge(world, smaller, with_memory=False)[1]:
                recipe = smaller
                break
        else:
            return recipe


def run(seed: int, seconds: float, folder: Path) -> Summary:
    """Draw and measure recipes until the time is over."""
    randomness, world, summary = random.Random(seed), World(), Summary(seed)
    summary.loop_milliseconds = round(1000 * time_loop(), 2)
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        if summary.recipes == MULTIPLE_EVERY * summary.multiples:
            multiple = draw_multiple(randomness)
            summary.multiples += 1
            summary.found.extend(f"{multiple.describe()}: {each}" for each in find_growth(multiple))
        recipe = draw_recipe(randomness)
        costs, excess = judge(world, recipe, with_memory=summary.recipes % WITH_MEMORY_EVERY == 0)
        summary.recipes += 1
        summary.mebibytes += costs.size / 2**20
        for step, spent in costs.seconds.items():
            if spent * 1000 > summary.slowest.get(step, (0.0, ""))[0]:
                summary.slowest[step] = (round(spent * 1000, 2), recipe.describe())
        if excess:
            path = save(folder, find_smaller(world, recipe), excess)
            summary.found.append(f"{path.name}: {'; '.join(excess)}")
            print(f"{recipe.describe()}: {'; '.join(excess)}; kept in {path}", flush=True)
            world = World()
    summary.seconds, summary.mebibytes = round(time.monotonic() - started, 1), round(summary.mebibytes, 1)
    return summary


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; 1 when anything was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=CORPUS, help="where cases are kept")
    parser.add_argument("--output", type=Path, help="where the summary goes as JSON")
    chosen = parser.parse_args(arguments)
    print(f"to try the same once more: make fuzz-cost SECONDS={chosen.seconds:g} SEED={chosen.seed}", flush=True)
    summary = run(chosen.seed, chosen.seconds, chosen.folder)
    text = json.dumps(asdict(summary), indent=2, sort_keys=True)
    if chosen.output is not None:
        chosen.output.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 1 if summary.found else 0


if __name__ == "__main__":
    sys.exit(main())
