"""The picture of the packages: which stands on which, what is outside, and what is pure.

Layers and what is pure are read from the import contracts in pyproject.toml, which the gates hold the code to.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pictures.svg import CHOICE, GREY, SUPPLY, Picture

ROOT = Path(__file__).resolve().parents[3]
LAYERS, PURE = "Layers: dependencies point inward", "The inner packages do no I/O"
DOES: Mapping[str, str] = {
    "cli": "commands; puts the parts together",
    "kube": "client, watches, election, bindings, statuses",
    "web": "metrics, probes, the extender",
    "simulator": "scenarios, traces, reports on a virtual clock",
    "importing": "queues of other schedulers, as Tenants",
    "what_if": "trials on a copy: what-if, advise, replay",
    "cluster": "state without I/O: pods, nodes, tenants, queues",
    "scheduling": "policies, and the cycle that decides",
    "fairness": "the papers' exact mechanisms",
    "model": "values and arrays that all others use",
    "derived": "values that follow from others, kept up to date",
}
OUTSIDE: Mapping[str, str] = {
    "cli": "you: terminal, files",
    "kube": "Kubernetes API server",
    "web": "Prometheus, kube-scheduler",
}
LEFT, WIDTH, HEIGHT, GAP, TOP = 70.0, 480.0, 40.0, 16.0, 64.0
BETWEEN = 6.0
FAR, FAR_WIDTH = 640.0, 196.0


def read_layers() -> list[list[str]]:
    """Return the packages of each layer, from the outermost; those of one layer do not know each other."""
    layers = _find_contract(LAYERS)["layers"]
    return [found for layer in layers if (found := [name for name in re.findall(r"\w+", layer) if name in DOES])]


def read_pure() -> set[str]:
    """Return the packages that do no I/O, read no clock and draw no randomness."""
    return {name.removeprefix("fairbind.") for name in _find_contract(PURE)["source_modules"]}


def _find_contract(beginning: str) -> Mapping[str, Sequence[str]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [contract] = [one for one in settings["tool"]["importlinter"]["contracts"] if one["name"].startswith(beginning)]
    found: Mapping[str, Sequence[str]] = contract
    return found


def draw_architecture() -> str:
    """Return the picture."""
    layers, pure = read_layers(), read_pure()
    boxes = sum(map(len, layers))
    height = TOP + boxes * (HEIGHT + BETWEEN) + (len(layers) - 1) * (GAP - BETWEEN) + 24
    picture = Picture(860, round(height), "The packages of fairbind: each imports only those below it")
    picture.text((LEFT, 30), "Packages: each imports only those below it", bold=True, size=15)
    picture.text((FAR + FAR_WIDTH / 2, 30), "outside", size=12, fill=GREY, anchor="middle")
    picture.text(
        (LEFT, 50), "blue: no I/O, no clock, no randomness, so the same input gives the same decisions", fill=GREY
    )
    top = TOP
    for layer in layers:
        for name in layer:
            _draw_package(picture, name, top, is_pure=name in pure)
            top += HEIGHT + BETWEEN
        top += GAP - BETWEEN
    picture.arrow([(LEFT - 24, TOP), (LEFT - 24, top - GAP)])
    picture.text((LEFT - 24, top - GAP + 16), "imports", size=12, fill=GREY, anchor="middle")
    return picture.render()


def _draw_package(picture: Picture, name: str, top: float, *, is_pure: bool) -> None:
    fill = SUPPLY if is_pure else CHOICE
    middle = top + HEIGHT / 2
    picture.rect((LEFT, top), (WIDTH, HEIGHT), fill=fill, stroke=GREY, radius=6)
    picture.text((LEFT + 14, middle + 5), name, bold=True, code=True)
    picture.text((LEFT + 124, middle + 5), DOES[name])
    if name in OUTSIDE:
        picture.box((FAR, top), (FAR_WIDTH, HEIGHT), (OUTSIDE[name],))
        picture.arrow([(LEFT + WIDTH + 45, middle), (FAR, middle)])
        picture.arrow([(LEFT + WIDTH + 45, middle), (LEFT + WIDTH, middle)])
