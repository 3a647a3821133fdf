"""Line charts as SVG, for a page that loads nothing.

Colours are Okabe and Ito's, which readers with any colour vision can tell apart. Axes and text take the page's colour,
so a chart suits light and dark pages. Each chart has a title that screen readers read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999")
MOST_LINES: Final = len(COLOURS)
"""More lines than colours would not be told apart."""
MOST_POINTS: Final = 500
_WIDTH, _HEIGHT = 720, 240
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 36
_TICKS = 5
_ROUND_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Line:
    """One line. points: by rising x; the value of each counts up to the next. is_dashed: for what should be."""

    name: str
    points: Points
    colour: str
    is_dashed: bool = False


def draw_chart(title: str, x_name: str, lines: Sequence[Line], *, least_top: float = 0.0) -> str:
    """Return a chart with a legend. least_top: the vertical axis goes at least so far."""
    right = max((x for line in lines for x, _ in line.points), default=0.0) or 1.0
    top = max((y for line in lines for _, y in line.points), default=0.0)
    top = max(top, least_top) or 1.0
    parts = [
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">',
        f"<title>{escape(title)}</title>",
        *_draw_axes(right, top, x_name),
        *(_draw_line(line, right, top) for line in lines),
        "</svg>",
        '<p class="legend">',
        *(_draw_legend(line) for line in lines),
        "</p></figure>",
    ]
    return "".join(parts)


def _draw_legend(line: Line) -> str:
    dashes = ' stroke-dasharray="5 4"' if line.is_dashed else ""
    return (
        f'<span><svg viewBox="0 0 24 8" aria-hidden="true"><path d="M0 4H24" stroke="{line.colour}"{dashes}/></svg> '
        f"{escape(line.name)}</span> "
    )


def _draw_line(line: Line, right: float, top: float) -> str:
    dashes = ' stroke-dasharray="5 4"' if line.is_dashed else ""
    steps: list[str] = []
    for x, y in thin_out(line.points):
        across, up = _place(x, y, right, top)
        steps.append(f"H{across:.1f}V{up:.1f}" if steps else f"M{across:.1f} {up:.1f}")
    return f'<path d="{"".join(steps)}" stroke="{line.colour}"{dashes}/>' if steps else ""


def thin_out(points: Points) -> Points:
    """Return so many of the points as a picture can show, with the last one."""
    stride = math.ceil(len(points) / MOST_POINTS)
    return points if stride <= 1 else [*points[:-1:stride], points[-1]]


def _place(x: float, y: float, right: float, top: float) -> tuple[float, float]:
    across = _LEFT + (_WIDTH - _LEFT - _RIGHT) * x / right
    return across, _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * y / top


def _draw_axes(right: float, top: float, x_name: str) -> Iterator[str]:
    for value in find_ticks(top):
        _, up = _place(0, value, right, top)
        yield f'<path class="grid" d="M{_LEFT} {up:.1f}H{_WIDTH - _RIGHT}"/>'
        yield f'<text x="{_LEFT - 6}" y="{up + 4:.1f}" text-anchor="end">{value:g}</text>'
    for value in find_ticks(right):
        across, _ = _place(value, 0, right, top)
        yield f'<text x="{across:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{value:g}</text>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text x="{middle:.1f}" y="{_HEIGHT - 4}" text-anchor="middle">{escape(x_name)}</text>'


def find_ticks(top: float) -> list[float]:
    """Return round numbers from 0 to the top.

    >>> find_ticks(1.0), find_ticks(37)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 10.0, 20.0, 30.0])
    """
    power = 10.0 ** math.floor(math.log10(top / _TICKS))
    step = next(size * power for size in _ROUND_STEPS if size * power >= top / _TICKS * (1 - 1e-9))
    return [float(f"{step * count:.12g}") for count in range(int(top / step * (1 + 1e-9)) + 1)]


def make_distribution(values: Sequence[float], total: int, longest: float) -> Points:
    """Return the part of a total that is not above each of the values, up to the longest time that any of it took.

    What has no value, as it is not there yet, counts in the total, so the line stays below 1.

    >>> make_distribution([3.0, 1.0], 4, 5.0)
    [(0.0, 0.0), (1.0, 0.25), (3.0, 0.5), (5.0, 0.5)]
    """
    ordered = sorted(values)
    points = [(0.0, 0.0), *((value, (place + 1) / total) for place, value in enumerate(ordered))]
    return points if longest <= points[-1][0] else [*points, (longest, points[-1][1])]
