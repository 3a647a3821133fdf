"""A few shapes of SVG as text, on a white ground, so that a page may be dark or light."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

# Those of Okabe and Ito's colours that have a contrast of 3:1 on white; any colour vision can tell them apart.
BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
INK, GREY = "#222222", "#666666"
WHITE, PALE, SUPPLY, CHOICE = "#FFFFFF", "#EEEEEE", "#E8F2F8", "#FDF3DF"
"""Grounds: what is drawn or written on them has the contrast, and a box of them has a frame."""
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
LINE_HEIGHT = 1.25

Point = tuple[float, float]


class Picture:
    """A drawing of a fixed size; `render` returns it. title: what a screen reader says."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.width, self.height = width, height
        self._title = title
        self._parts: list[str] = []

    def rect(self, at: Point, size: Point, *, fill: str, stroke: str = "none", radius: float = 0.0) -> None:
        """Draw a box by its upper left corner."""
        (x, y), (width, height) = at, size
        round_corners = f' rx="{show(radius)}"' if radius else ""
        self._parts.append(
            f'<rect x="{show(x)}" y="{show(y)}" width="{show(width)}" height="{show(height)}" '
            f'fill="{fill}" stroke="{stroke}"{round_corners}/>'
        )

    def line(self, points: Sequence[Point], *, stroke: str, width: float = 1.0, dash: str = "") -> None:
        """Draw lines from point to point."""
        shown = " ".join(f"{show(x)},{show(y)}" for x, y in points)
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self._parts.append(
            f'<polyline points="{shown}" fill="none" stroke="{stroke}" stroke-width="{show(width)}"{dashes}/>'
        )

    def arrow(self, points: Sequence[Point]) -> None:
        """Draw lines with a head at the end; the last piece is horizontal or vertical."""
        (x0, y0), (x1, y1) = points[-2], points[-1]
        size = 5.0
        dx, dy = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
        back = (x1 - 2 * size * dx, y1 - 2 * size * dy)
        self.line([*points[:-1], back], stroke=GREY, width=1.5)
        corners = [(x1, y1), (back[0] + size * dy, back[1] + size * dx), (back[0] - size * dy, back[1] - size * dx)]
        shown = " ".join(f"{show(x)},{show(y)}" for x, y in corners)
        self._parts.append(f'<polygon points="{shown}" fill="{GREY}"/>')

    def text(
        self,
        at: Point,
        words: str,
        *,
        size: float = 13.0,
        fill: str = INK,
        anchor: str = "start",
        bold: bool = False,
        code: bool = False,
    ) -> None:
        """Write one line; its baseline begins at the point, or ends or has its middle there."""
        weight = ' font-weight="600"' if bold else ""
        family = ' font-family="ui-monospace, Menlo, Consolas, monospace"' if code else ""
        self._parts.append(
            f'<text x="{show(at[0])}" y="{show(at[1])}" font-size="{show(size)}" fill="{fill}" '
            f'text-anchor="{anchor}"{weight}{family}>{escape(words)}</text>'
        )

    def box(self, at: Point, size: Point, lines: Iterable[str], *, fill: str = WHITE, stroke: str = GREY) -> None:
        """Draw a box with lines of text in its middle; the first is bold, and a line in backticks is code."""
        self.rect(at, size, fill=fill, stroke=stroke, radius=6.0)
        written = list(lines)
        step = 13.0 * LINE_HEIGHT
        first = at[1] + size[1] / 2 - step * (len(written) - 1) / 2 + 13.0 * 0.35
        for number, words in enumerate(written):
            self.text(
                (at[0] + size[0] / 2, first + number * step),
                words.replace("`", ""),
                anchor="middle",
                bold=number == 0,
                code=words.startswith("`"),
            )

    def render(self) -> str:
        """Return the picture as a file's text."""
        title = escape(self._title, quote=True)
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" aria-label="{title}" font-family="{FONT}">'
        )
        return "\n".join(
            [
                head,
                "<!-- Made by deploy/tools/docs.py; change the code and run it again. -->",
                f"<title>{title}</title>",
                f'<rect width="{self.width}" height="{self.height}" fill="{WHITE}" rx="8"/>',
                *self._parts,
                "</svg>",
                "",
            ]
        )


def show(number: float) -> str:
    """Return a coordinate with one digit at most.

    >>> show(12.0), show(0.25), show(-0.01)
    ('12', '0.2', '0')
    """
    text = f"{number:.1f}".removesuffix(".0")
    return "0" if text == "-0" else text
