"""Pictures of outcomes, with the paper's axes. matplotlib draws them; the same outcome gives the same file."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairbind.model.errors import InvalidProblemError
from fairbind.simulator.charts import LIGHT
from fairbind.simulator.reproduction.outcome import Outcome, Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHES = ("-", "--", "-.", ":")
MOST_IN_A_ROW = 3


def check_can_draw() -> None:
    """Raise InvalidProblemError with what to install if there is no matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidProblemError("matplotlib is not installed: pip install 'fairbind[simulate]'")


def draw(outcome: Outcome, path: Path) -> None:
    """Write the picture; its kind is that of the file's name."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow
    from matplotlib.figure import Figure  # noqa: PLC0415 - the same

    columns = min(len(outcome.panels), MOST_IN_A_ROW)
    rows = -(-len(outcome.panels) // columns)
    with mpl.rc_context({"svg.hashsalt": "fairbind", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(max(5.5, 4.2 * columns), 3.2 * rows), layout="constrained")
        grid: Any = figure.subplots(rows, columns, squeeze=False)
        axes: list[Axes] = list(grid.flat)
        for axis, panel in zip(axes, outcome.panels, strict=False):
            _draw_panel(axis, panel)
        for unused in axes[len(outcome.panels) :]:
            unused.set_axis_off()
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)


def _draw_panel(axis: Axes, panel: Panel) -> None:
    axis.set_xlabel(panel.x_name)
    axis.set_ylabel(panel.y_name)
    axis.set_title(panel.title)
    axis.set_prop_cycle(color=list(LIGHT))
    if panel.kind == "bars":
        _draw_bars(axis, panel)
    elif panel.kind == "circles":
        for series in panel.series:
            axis.scatter(
                _numbers(series.x), series.y, s=[12 * size for size in series.size], alpha=0.5, label=series.name
            )
        axis.plot([0, 1], [0, 1], color="#666666", linewidth=0.8)
    else:
        for place, series in enumerate(panel.series):
            style = DASHES[place % len(DASHES)]
            if panel.kind == "steps":
                axis.step(_numbers(series.x), series.y, style, where="post", label=series.name, linewidth=1.2)
            else:
                axis.plot(_numbers(series.x), series.y, style, marker="o", markersize=3, label=series.name)
    if panel.has_log_x:
        axis.set_xscale("log")
    if panel.has_log_y:
        axis.set_yscale("log")
    elif panel.kind != "circles" and panel.has_zero:
        values = [value for series in panel.series for value in series.y]
        space = 1.25 if len(panel.series) > 1 else 1.05  # for the legend
        axis.set_ylim(min(0.0, *values) * 1.1, max(values) * space or 1.0)
    if len(panel.series) > 1:
        axis.legend(fontsize=7, ncols=2)


def _draw_bars(axis: Axes, panel: Panel) -> None:
    names = [str(name) for name in panel.series[0].x]
    width = 0.8 / len(panel.series)
    for place, series in enumerate(panel.series):
        axis.bar(np.arange(len(names)) + (place + 0.5) * width - 0.4, series.y, width, label=series.name)
    axis.set_xticks(range(len(names)), names)


def _numbers(values: Any) -> list[float]:
    return [float(value) for value in values]
