"""How the demo looks: a live table for a terminal, one line at a time for a pipe, a picture for the documents.

Everything here turns a `Scene` into something that `rich` prints, and nothing else. The table fits 80 columns; a wider
terminal gives its bars and reasons more space.
"""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from demo.observe import Sample, TenantSight, Use

COLOURS = ("cyan", "magenta", "yellow", "green", "blue", "red")
CORES, BYTES = "cpu", "memory"
TEBIBYTE, GIBIBYTE = 2**40, 2**30
MANY_CORES = 100
BOUND, LET_THROUGH = "bound", "let through"
FIXED_LINES = 12
"""Lines of the picture that are there whatever the tenants: title, heads, cluster, note, and one for the cursor."""
MOST_REASON_LINES = 4
PICTURE_HEIGHT = 40
PICTURE_WIDTH = 100
CHARACTER_WIDTH = 12.2  # of rich's SVG
INDENTED_TEXT = re.compile(r'x="([\d.]+)" y="([\d.]+)" textLength="([\d.]+)"([^>]*)>((?:&#160;)+)(?=[^&<])')
FONT_FACE = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Scene:
    """One picture: what was seen last, and what the demo itself knows.

    note: what happens next or has just happened. done: what fairbind does with pods, in a word.
    """

    sample: Sample
    duration_seconds: float
    nodes: int
    policy: str
    pods_per_second: float
    note: str
    done: str = BOUND


def render(scene: Scene, height: int = PICTURE_HEIGHT) -> RenderableType:
    """Return the whole live picture. height: lines that there are; the reasons are cut to what is left."""
    spare_lines = height - FIXED_LINES - len(scene.sample.tenants)
    reason_lines = max(1, min(MOST_REASON_LINES, spare_lines // max(1, len(scene.sample.tenants))))
    return Group(
        _render_title(scene),
        Text(""),
        _render_tenants(scene.sample.tenants),
        Text(""),
        _render_uses(scene.sample.uses),
        Text(""),
        _render_reasons(scene.sample.tenants, reason_lines),
        Text(scene.note, style="italic", overflow="ellipsis", no_wrap=True),
    )


def _render_title(scene: Scene) -> RenderableType:
    left = Text.assemble(("fairbind", "bold"), f"  {scene.policy}, {scene.nodes} nodes")
    rate = f"{scene.pods_per_second:.0f} pods/s, {scene.sample.bound} {scene.done}"
    right = Text.assemble((rate, "bold"), f"  {scene.sample.seconds:.0f} of {scene.duration_seconds:.0f} s")
    grid = Table.grid(expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_row(left, right)
    return grid


def _render_tenants(tenants: tuple[TenantSight, ...]) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, expand=True, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("tenant", no_wrap=True)
    table.add_column("weight", justify="right", no_wrap=True)
    table.add_column("dominant", no_wrap=True)
    table.add_column("share", ratio=1, min_width=8)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("fair", justify="right", no_wrap=True)
    table.add_column("weighted", justify="right", no_wrap=True)
    table.add_column("running", justify="right", no_wrap=True)
    table.add_column("waiting", justify="right", no_wrap=True)
    for tenant, colour in zip(tenants, COLOURS, strict=False):
        table.add_row(
            Text(indent(tenant), style=f"bold {colour}"),
            f"{tenant.weight:g}",
            shorten_resource(tenant.dominant_resource),
            _make_bar(tenant.share, colour),
            f"{tenant.share:.3f}",
            format_share(tenant.fair_share),
            Text(f"{tenant.weighted_share:.3f}", style="bold"),
            str(tenant.running),
            str(tenant.waiting),
        )
    return table


def _render_uses(uses: tuple[Use, ...]) -> RenderableType:
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, min_width=8)
    table.add_column(justify="right", no_wrap=True, min_width=5)
    table.add_column(justify="right", no_wrap=True, min_width=18)
    for use in uses:
        table.add_row(
            f"cluster {shorten_resource(use.resource)}",
            _make_bar(use.fraction, "white"),
            f"{100 * use.fraction:.0f} %",
            Text(describe_use(use), style="dim"),
        )
    return table


def _render_reasons(tenants: tuple[TenantSight, ...], lines: int) -> RenderableType:
    table = Table.grid(expand=True, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    parents = {tenant.parent for tenant in tenants}
    for tenant, colour in zip(tenants, COLOURS, strict=False):
        if tenant.name not in parents:  # a parent's pods are its children's
            table.add_row(Text(tenant.name, style=colour), _Clipped(tenant.why or "no pod waits", lines))
    return Group(Text("Why the first one waits", style="dim"), table)


@dataclass(frozen=True, slots=True)
class _Clipped:
    """Text that is wrapped to at most so many lines; what is cut shows as an ellipsis."""

    text: str
    lines: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        wrapped = Text(self.text).wrap(console, width)
        kept = list(wrapped[: self.lines])
        if len(wrapped) > self.lines:
            kept[-1] = Text(kept[-1].plain.rstrip() + " " + wrapped[self.lines].plain)
            kept[-1].truncate(width, overflow="ellipsis")
        yield from kept


def _make_bar(fraction: float, colour: str) -> ProgressBar:
    return ProgressBar(total=1.0, completed=min(1.0, fraction), complete_style=colour, finished_style=colour)


def indent(tenant: TenantSight) -> str:
    """Return the name of a tenant, moved to the right below a parent."""
    return f"  {tenant.name}" if tenant.parent else tenant.name


def shorten_resource(resource: str | None) -> str:
    """Return a resource's name without its domain.

    >>> shorten_resource("nvidia.com/gpu"), shorten_resource(None)
    ('gpu', '-')
    """
    return "-" if resource is None else resource.rsplit("/", 1)[-1]


def format_share(share: float | None) -> str:
    """Return a share that may not be known.

    >>> format_share(0.25), format_share(None)
    ('0.250', '-')
    """
    return "-" if share is None else f"{share:.3f}"


def describe_use(use: Use) -> str:
    """Return the amounts in the unit that people use.

    >>> describe_use(Use("cpu", 900.5, 1800.0)), describe_use(Use("memory", 2**40, 2**44))
    ('900 of 1800 cores', '1.0 of 16.0 TiB')
    >>> describe_use(Use("cpu", 3.84, 4.1))
    '3.8 of 4.1 cores'
    """
    if use.resource == BYTES:
        unit, name = (TEBIBYTE, "TiB") if use.capacity >= TEBIBYTE else (GIBIBYTE, "GiB")
        return f"{use.allocated / unit:.1f} of {use.capacity / unit:.1f} {name}"
    if use.resource == CORES:
        digits = 0 if use.capacity >= MANY_CORES else 1
        return f"{use.allocated:.{digits}f} of {use.capacity:.{digits}f} cores"
    return f"{use.allocated:.0f} of {use.capacity:.0f} GPUs"


def format_line(scene: Scene) -> str:
    """Return the scene as one plain line."""
    tenants = "; ".join(
        f"{tenant.name} {tenant.share:.3f} weighted {tenant.weighted_share:.3f}"
        f" ({tenant.running} run, {tenant.waiting} wait)"
        for tenant in scene.sample.tenants
    )
    uses = ", ".join(f"{shorten_resource(use.resource)} {100 * use.fraction:.0f} %" for use in scene.sample.uses)
    return f"{scene.sample.seconds:3.0f} s  {tenants}; used: {uses}; {scene.pods_per_second:.0f} pods/s"


def write_picture(scene: Scene, path: Path) -> None:
    """Write the live picture as an SVG that loads nothing from anywhere."""
    console = Console(
        record=True, width=PICTURE_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(render(scene))
    drawing = FONT_FACE.sub("", console.export_svg(title="make demo", unique_id="demo"))  # rich's font is a download
    drawing = INDENTED_TEXT.sub(_move_indented, drawing)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(drawing, encoding="utf-8")


def _move_indented(found: re.Match[str]) -> str:
    """Replace leading blanks by a place further right: some programs drop the blanks."""
    x, y, length, rest, blanks = found.groups()
    shift = CHARACTER_WIDTH * blanks.count("&#160;")
    return f'x="{float(x) + shift:.1f}" y="{y}" textLength="{float(length) - shift:.1f}"{rest}>'
