"""README's first picture: dominant shares over time, beside the fair shares, while a tenant arrives late.

fairbind's own cycle decides every few seconds of a simulated time; pods end when their time is over. The fair shares
are those of the exact mechanism of the policy.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from fairbind.fairness.problems.parse import parse_problem
from fairbind.fairness.solve import compute_allocation
from pictures.svg import BLUE, GREEN, GREY, INK, ORANGE, PALE, Picture
from pictures.worlds import Amounts, Team, decide

POLICY, MECHANISM = "best-fit-drfh", "drfh"
CAPACITY: dict[str, Amounts] = {f"node-{number:02}": (16_000, 64) for number in range(10)}
PODS: dict[str, Amounts] = {"team-a": (1_000, 1), "team-b": (500, 4), "team-c": (500, 1)}
WEIGHTS = {"team-a": 2, "team-b": 1, "team-c": 1}
ARRIVALS = {"team-a": 0, "team-b": 0, "team-c": 180}
COLOURS = {"team-a": BLUE, "team-b": ORANGE, "team-c": GREEN}
SECONDS, STEP = 600, 5
SHORTEST, LONGEST = 120, 360  # how long a pod runs
PENDING = 250  # always more than fit

LEFT, TOP, WIDTH, HEIGHT = 56.0, 64.0, 620.0, 250.0
HIGHEST = 0.9


def simulate() -> dict[str, list[float]]:
    """Return each tenant's dominant share after the cycle of every step."""
    draw = random.Random(1)  # noqa: S311 - lengths of pods, nothing secret
    running: list[tuple[int, str, str]] = []  # when it ends, its tenant and its server
    shares: dict[str, list[float]] = {name: [] for name in PODS}
    for second in range(0, SECONDS + 1, STEP):
        running = [pod for pod in running if pod[0] > second]
        teams = [
            Team(
                name,
                pod,
                [f"{name}/{second}/{number:03}" for number in range(PENDING)],
                [server for _, tenant, server in running if tenant == name],
                WEIGHTS[name],
            )
            for name, pod in PODS.items()
            if second >= ARRIVALS[name]
        ]
        for bind in decide(POLICY, CAPACITY, teams, shared=tuple(CAPACITY)):
            running.append((second + draw.randint(SHORTEST, LONGEST), bind.tenant, bind.server))
        for name in PODS:
            shares[name].append(compute_share(name, sum(tenant == name for _, tenant, _ in running)))
    return shares


def compute_share(tenant: str, pods: float) -> float:
    """Return the largest part of any resource of the cluster that so many pods hold."""
    return max(pods * PODS[tenant][r] / sum(amounts[r] for amounts in CAPACITY.values()) for r in range(2))


def find_dominant_resources() -> dict[str, list[str]]:
    """Return the tenants by the resource of which their pods ask for the largest part of the cluster."""
    found: dict[str, list[str]] = {}
    for name, pod in PODS.items():
        parts = [pod[r] / sum(amounts[r] for amounts in CAPACITY.values()) for r in range(2)]
        found.setdefault(("CPUs", "memory")[parts.index(max(parts))], []).append(name)
    return found


def compute_fair_shares(tenants: Sequence[str]) -> Mapping[str, float]:
    """Return the dominant shares that the exact mechanism gives tenants who always want more."""
    size = next(iter(CAPACITY.values()))
    problem = parse_problem(
        {
            "resources": ["cpu", "memory"],
            "servers": [{"name": "node", "capacity": _name(size), "count": len(CAPACITY)}],
            "tenants": [{"name": name, "demand": _name(PODS[name]), "weight": WEIGHTS[name]} for name in tenants],
        }
    )
    shares_i = compute_allocation(problem, MECHANISM).dominant_shares_i
    return dict(zip(tenants, shares_i.tolist(), strict=True))


def _name(amounts: Amounts) -> dict[str, int]:
    return {"cpu": amounts[0], "memory": amounts[1]}


def draw_shares() -> str:
    """Return the picture."""
    picture = Picture(860, 398, "Dominant shares of three tenants over ten minutes, and their fair shares, dashed")
    picture.text((24, 30), "Dominant shares over time", bold=True, size=16)
    picture.text((300, 30), "solid: what a tenant holds; dashed: its fair share", fill=GREY)
    most = "; ".join(f"{resource}: {', '.join(names)}" for resource, names in find_dominant_resources().items())
    why = f"A share is of the resource that the tenant holds most of ({most}), so shares add up to more than 100%."
    picture.text((24, 384), why)
    _draw_axes(picture)
    arrival = ARRIVALS["team-c"]
    before = compute_fair_shares([name for name in PODS if name != "team-c"])
    after = compute_fair_shares(list(PODS))
    shares = simulate()
    for name in PODS:
        fair = [(0, before[name]), (arrival, before[name])] if name in before else []
        fair += [(arrival, after[name]), (SECONDS, after[name])]
        picture.line([_place(*point) for point in fair], stroke=COLOURS[name], width=1.8, dash="6 4")
        begin = ARRIVALS[name]
        held = [_place(n * STEP, share) for n, share in enumerate(shares[name]) if n * STEP >= begin]
        picture.line(held, stroke=COLOURS[name], width=2.4)
    _draw_labels(picture, shares, after)
    return picture.render()


def _draw_labels(picture: Picture, shares: Mapping[str, Sequence[float]], fair: Mapping[str, float]) -> None:
    """Write names, weights and the last shares at the right, from the largest down, without overlap."""
    lowest = 0.0
    for name in sorted(PODS, key=lambda name: (-fair[name], name)):
        y = max(_place(SECONDS, shares[name][-1])[1] - 6, lowest)
        lowest = y + 40
        picture.rect((LEFT + WIDTH + 12, y - 9), (10, 10), fill=COLOURS[name])
        picture.text((LEFT + WIDTH + 28, y), f"{name}, weight {WEIGHTS[name]}", bold=True)
        picture.text((LEFT + WIDTH + 28, y + 16), f"{shares[name][-1]:.0%} held, {fair[name]:.0%} fair", size=12)


def _draw_axes(picture: Picture) -> None:
    for share in (0.0, 0.25, 0.5, 0.75):
        picture.line([_place(0, share), _place(SECONDS, share)], stroke=PALE)
        picture.text((LEFT - 8, _place(0, share)[1] + 4), f"{share:.0%}", size=11, fill=GREY, anchor="end")
    for second in range(0, SECONDS + 1, 60):
        at = _place(second, 0.0)
        picture.text((at[0], at[1] + 18), f"{second // 60} min", size=11, fill=GREY, anchor="middle")
    arrival = _place(ARRIVALS["team-c"], 0.0)[0]
    picture.line([(arrival, TOP), (arrival, TOP + HEIGHT)], stroke=INK, dash="2 3")
    picture.text((arrival + 6, TOP + 12), "team-c arrives; no pod is evicted, shares follow as pods end", size=12)


def _place(second: float, share: float) -> tuple[float, float]:
    return LEFT + WIDTH * second / SECONDS, TOP + HEIGHT * (1.0 - share / HIGHEST)
