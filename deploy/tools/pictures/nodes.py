"""The example of docs/concepts.md: six nodes under two policies, each pod a box in its tenant's colour."""

from __future__ import annotations

from collections import Counter

from pictures.svg import BLUE, GREY, INK, ORANGE, PALE, WHITE, Picture
from pictures.worlds import Amounts, Team, decide

ORDINARY, DATABASE = (32_000, 128), (32_000, 3_360)
CAPACITY: dict[str, Amounts] = {**{f"node-{number}": ORDINARY for number in range(1, 6)}, "database": DATABASE}
SHARED = tuple(name for name in CAPACITY if name != "database")
PODS: dict[str, Amounts] = {"a": (1_000, 8), "b": (2_000, 1)}
COLOURS = {"a": BLUE, "b": ORANGE}
WANTED = 100
POLICIES = {"best-fit-drfh": "shares of the totals", "ps-dsf": "shares of the nodes that can be used"}
BAR, GAP, HEIGHT = 48.0, 6.0, 128.0


def draw_nodes() -> str:
    """Return the picture: a row for each policy, a node's CPUs and memory as two bars."""
    picture = Picture(860, 500, "Which pods two tenants get on five nodes, by shares of totals and by ps-dsf")
    for row, (policy, meaning) in enumerate(POLICIES.items()):
        teams = [
            Team(name, pod, [f"{name}{number:03}" for number in range(WANTED)]) for name, pod in sorted(PODS.items())
        ]
        placed = Counter((bind.server, bind.tenant) for bind in decide(policy, CAPACITY, teams, shared=SHARED))
        top = 64.0 + row * 240.0
        sums = {name: sum(count for (_, tenant), count in placed.items() if tenant == name) for name in PODS}
        picture.text((24, top - 30), policy, bold=True, size=15)
        picture.text((164, top - 30), meaning, size=13, fill=GREY)
        for number, name in enumerate(PODS):
            at = 470.0 + number * 190.0
            picture.rect((at, top - 42), (14, 14), fill=COLOURS[name])
            picture.text((at + 20, top - 30), f"{name}: {sums[name]} pods")
        for column, server in enumerate((*SHARED, "database")):
            _draw_node(picture, (24.0 + column * 136.0, top), server, placed)
    return picture.render()


def _draw_node(picture: Picture, at: tuple[float, float], server: str, placed: Counter[tuple[str, str]]) -> None:
    x, y = at
    for resource, label in enumerate(("CPU", "memory")):
        left = x + resource * (BAR + GAP)
        picture.rect((left, y), (BAR, HEIGHT), fill=PALE)
        bottom = y + HEIGHT
        for name, pod in PODS.items():
            height = HEIGHT * placed[server, name] * pod[resource] / CAPACITY[server][resource]
            picture.rect((left, bottom - height), (BAR, height), fill=COLOURS[name])
            picture.line([(left, bottom), (left + BAR, bottom)], stroke=WHITE, width=2)
            bottom -= height
        picture.rect((left, y), (BAR, HEIGHT), fill="none", stroke=GREY)
        picture.text((left + BAR / 2, y + HEIGHT + 16), label, size=11, fill=GREY, anchor="middle")
    centre = x + BAR + GAP / 2
    picture.text((centre, y + HEIGHT + 34), server, anchor="middle", bold=True)
    amounts = f"{CAPACITY[server][0] // 1000} CPUs, {CAPACITY[server][1]:,} GiB"
    picture.text((centre, y + HEIGHT + 50), amounts, size=11, anchor="middle", fill=INK)
    if server not in SHARED:
        picture.text((centre, y - 6), "tainted", size=11, anchor="middle", fill=GREY)
    else:
        counts = ", ".join(f"{placed[server, name]} {name}" for name in PODS)
        picture.text((centre, y - 6), counts, size=11, anchor="middle", fill=INK)
