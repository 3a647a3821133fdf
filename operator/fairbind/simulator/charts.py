"""Charts as SVG, for a page that loads nothing: lines over time, and rows of areas.

A colour means one thing, a tenant; the page gives it as a class, so that it suits light and dark pages. All else is
drawn in the page's own text colour. Charts that are compared get one `Scale`. Each has a title for screen readers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

LIGHT: Final = ("#0054ae", "#a55d0b", "#4d1566", "#4c9d72", "#8c396b", "#8788be", "#1d4118")
DARK: Final = ("#4e94f2", "#f9993e", "#d7acf0", "#73ebac", "#c7609d", "#6655dd", "#208c08")
"""Colours of tenants on light and on dark pages: readers with any colour vision can tell each from the others."""
MOST_LINES: Final = len(LIGHT)
"""More lines than colours would not be told apart."""
INK: Final = "ink"
"""The class of what is no tenant's."""
MOST_POINTS: Final = 500
_WIDTH, _HEIGHT, _ROW = 360, 220, 52
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 24, 10, 38
_MOST_LETTERS = 40
_TICKS = 4
_ROUND_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_UNITS = (("days", 86_400.0), ("hours", 3_600.0), ("seconds", 1.0))
_LEAST_UNITS = 3.0
"""A time axis has the largest unit of which it is so many long at least."""

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Line:
    """One line. points: by rising x; the value of each counts up to the next. colour: a class of the page's.

    is_dashed: for what should be.
    """

    name: str
    points: Points
    colour: str
    is_dashed: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """How far axes go: across in seconds, up as a part of 1."""

    right: float
    top: float

    @staticmethod
    def of(lines: Iterable[Line]) -> Scale:
        """Return the scale on which all lines can be seen. It goes up to a round number."""
        points = [point for line in lines for point in line.points]
        right, top = (max((point[axis] for point in points), default=0.0) or 1.0 for axis in (0, 1))
        step = find_step(top)
        return Scale(right, step * math.ceil(top / step * (1 - 1e-9)))


def draw_chart(title: str, caption: str, x_name: str, lines: Sequence[Line], scale: Scale) -> str:
    """Return a chart of lines. caption: what stands above it; title: the same for who does not see its surroundings."""
    parts = [
        *_begin(title, caption, _HEIGHT),
        *_draw_parts(scale),
        *_draw_time(scale.right, x_name, _HEIGHT),
        *(_draw_line(line, scale) for line in lines),
        "</svg></figure>",
    ]
    return "".join(parts)


def draw_rows(title: str, caption: str, x_name: str, rows: Sequence[tuple[str, Points]], right: float) -> str:
    """Return a chart with an area for each row, from 0 to 1, under its name."""
    height = _TOP + _ROW * len(rows) + _BOTTOM
    parts = [*_begin(title, caption, height), *_draw_time(right, x_name, height)]
    for place, (name, points) in enumerate(rows):
        bottom = _TOP + _ROW * (place + 1) - 4
        path = _draw_steps(points, Scale(right, 1.0), bottom, _ROW - 26)
        if path:
            end = _place_across(points[-1][0], right)
            parts.append(f'<path d="{path}V{bottom}H{_LEFT}Z" class="area"/>')
            parts.append(f'<path d="M{_LEFT} {bottom}H{end:.1f}" class="ink"/>')
        parts.append(f'<text x="{_LEFT}" y="{bottom - _ROW + 18}">{escape(shorten(name))}</text>')
        parts.append(f'<text x="{_LEFT - 6}" y="{bottom + 4}" text-anchor="end">0</text>')
        parts.append(f'<text x="{_LEFT - 6}" y="{bottom - _ROW + 34}" text-anchor="end">100 %</text>')
    return "".join([*parts, "</svg></figure>"])


def shorten(name: str) -> str:
    """Return a name as long as a chart is wide at most.

    >>> shorten("small"), shorten("a" * 30 + "b" * 30)
    ('small', 'aaaaaaaaaaaaaaaaaaa…bbbbbbbbbbbbbbbbbbb')
    """
    return name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS // 2 - 1]}…{name[1 - _MOST_LETTERS // 2 :]}"


def draw_sign(colour: str, *, is_dashed: bool = False) -> str:
    """Return what a line looks like, for legends and tables."""
    return (
        f'<svg class="sign" viewBox="0 0 24 8" aria-hidden="true"><path d="M0 4H24" {_style(colour, is_dashed)}/></svg>'
    )


def _begin(title: str, caption: str, height: float) -> Iterator[str]:
    yield f'<figure><figcaption>{escape(caption)}</figcaption><svg viewBox="0 0 {_WIDTH} {height}" role="img">'
    yield f"<title>{escape(title)}</title>"


def _style(colour: str, is_dashed: bool) -> str:  # noqa: FBT001 (as the lines say it)
    return f'class="{colour}"' + (' stroke-dasharray="5 4"' if is_dashed else "")


def _draw_line(line: Line, scale: Scale) -> str:
    path = _draw_steps(line.points, scale, _HEIGHT - _BOTTOM, _HEIGHT - _TOP - _BOTTOM)
    return f'<path d="{path}" {_style(line.colour, line.is_dashed)}/>' if path else ""


def _draw_steps(points: Points, scale: Scale, bottom: float, height: float) -> str:
    steps: list[str] = []
    for x, y in thin_out(points):
        across, up = _place_across(x, scale.right), bottom - height * y / scale.top
        steps.append(f"H{across:.1f}V{up:.1f}" if steps else f"M{across:.1f} {up:.1f}")
    return "".join(steps)


def thin_out(points: Points) -> Points:
    """Return so many of the points as a picture can show, with the last one."""
    stride = math.ceil(len(points) / MOST_POINTS)
    return points if stride <= 1 else [*points[:-1:stride], points[-1]]


def _place_across(x: float, right: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * x / right


def _draw_parts(scale: Scale) -> Iterator[str]:
    """Return the lines of the vertical axis, in per cent."""
    for value in find_ticks(scale.top):
        up = _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / scale.top
        yield f'<path class="grid" d="M{_LEFT} {up:.1f}H{_WIDTH - _RIGHT}"/>'
        yield f'<text x="{_LEFT - 6}" y="{up + 4:.1f}" text-anchor="end">{100 * value:.12g} %</text>'


def _draw_time(right: float, x_name: str, height: float) -> Iterator[str]:
    unit, seconds = next(each for each in _UNITS if right >= _LEAST_UNITS * each[1] or each is _UNITS[-1])
    for value in find_ticks(right / seconds):
        across = _place_across(value * seconds, right)
        yield f'<text x="{across:.1f}" y="{height - _BOTTOM + 16}" text-anchor="middle">{value:g}</text>'
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    yield f'<text x="{middle:.1f}" y="{height - 4}" text-anchor="middle">{escape(f"{unit} {x_name}".rstrip())}</text>'


def find_ticks(top: float) -> list[float]:
    """Return round numbers from 0 to the top.

    >>> find_ticks(1.0), find_ticks(37)
    ([0.0, 0.25, 0.5, 0.75, 1.0], [0.0, 10.0, 20.0, 30.0])
    """
    step = find_step(top)
    return [float(f"{step * count:.12g}") for count in range(int(top / step * (1 + 1e-9)) + 1)]


def find_step(top: float) -> float:
    """Return the round number by which an axis goes on."""
    power = 10.0 ** math.floor(math.log10(top / _TICKS))
    return next(size * power for size in _ROUND_STEPS if size * power >= top / _TICKS * (1 - 1e-9))


def make_distribution(values: Sequence[float], total: int, longest: float) -> Points:
    """Return the part of a total that is not above each of the values, up to the longest time that any of it took.

    What has no value, as it is not there yet, counts in the total, so the line stays below 1.

    >>> make_distribution([3.0, 1.0], 4, 5.0)
    [(0.0, 0.0), (1.0, 0.25), (3.0, 0.5), (5.0, 0.5)]
    """
    ordered = sorted(values)
    points = [(0.0, 0.0), *((value, (place + 1) / total) for place, value in enumerate(ordered))]
    return points if longest <= points[-1][0] else [*points, (longest, points[-1][1])]
