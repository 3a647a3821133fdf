"""`fairbind compare --plot`: bars of the tenants' shares, of all servers and of each server entry.

A panel is all servers together, or one entry; in it a group of bars is a mechanism, and a bar is a tenant's dominant
share: the largest part that its tasks hold of any resource there. Drawn by matplotlib without a display; the same
allocations give the same file. Each panel has its own axis, chosen by its data: a share of one server and a share of
all servers differ by the number of servers.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.model.errors import FairbindError, InvalidProblemError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TENANTS: Final = 40
MOST_ENTRIES: Final = 15
MOST_IN_LEGEND: Final = 20
LONGEST_IN_A_LINE: Final = 8

# Okabe and Ito's colours, which readers with any colour vision can tell apart; hatches tell the next rounds apart.
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#666666")
HATCHES: Final = ("", "///", "...", "xx", "++")


def check_can_draw() -> None:
    """Raise InvalidProblemError with what to install if there is no matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidProblemError("--plot: matplotlib is not installed: pip install 'fairbind[plot]'")


def draw(allocations: Sequence[Allocation], path: Path) -> None:
    """Write the picture; its kind is that of the file's name. Raises FairbindError if it cannot be written."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow
    from matplotlib.figure import Figure  # noqa: PLC0415 - the same

    problem = allocations[0].problem
    if len(problem.tenant_names) > MOST_TENANTS:
        raise InvalidProblemError(f"--plot: draws at most {MOST_TENANTS} tenants, not {len(problem.tenant_names)}")
    panels = compute_panels(allocations)
    columns = 1 if len(panels) == 1 else 2
    rows = math.ceil(len(panels) / columns)
    with mpl.rc_context({"svg.hashsalt": "fairbind", "svg.fonttype": "none", "font.size": 9, "hatch.linewidth": 0.5}):
        figure = Figure(figsize=(max(5.0, _panel_width(allocations)) * columns, 0.6 + 2.3 * rows), layout="constrained")
        grid: Any = figure.subplots(rows, columns, squeeze=False, sharey=False)
        axes: list[Axes] = list(grid.flat)
        for panel, (title, share_mi) in zip(axes, panels, strict=False):
            _draw_panel(panel, title, share_mi, [allocation.mechanism for allocation in allocations])
        for unused in axes[len(panels) :]:
            unused.set_axis_off()
        _draw_legend(figure, axes[0].containers, problem.tenant_names)
        if left_out := find_left_out(problem):
            figure.supxlabel(f"not drawn: {left_out}", fontsize=8).set_parse_math(False)
        try:
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        except OSError as error:
            raise FairbindError(f"--plot: {path}: cannot be written: {error.strerror or error}") from error


def compute_panels(allocations: Sequence[Allocation]) -> list[tuple[str, FloatArray]]:
    """Return the title and the shares of each panel, shape (mechanisms, tenants): all servers, then each entry.

    One entry alone is all servers; of many entries the first MOST_ENTRIES are drawn.
    """
    problem = allocations[0].problem
    panels = [("all servers", np.array([allocation.dominant_shares_i for allocation in allocations]))]
    if len(problem.server_names) == 1:
        return [(problem.server_names[0], panels[0][1])]
    for k, name in enumerate(problem.server_names[:MOST_ENTRIES]):
        has_r = problem.count_k[k] * problem.capacity_kr[k]
        needs_ir = problem.demand_ir[:, has_r > 0] / has_r[has_r > 0]
        per_task_i = needs_ir.max(axis=1, initial=0.0)
        count = f" ({problem.count_k[k]:.0f} servers)" if problem.count_k[k] > 1 else ""
        panels.append(
            (f"{name}{count}", np.array([allocation.tasks_ik[:, k] * per_task_i for allocation in allocations]))
        )
    return panels


def find_left_out(problem: Problem) -> str:
    """Return what the picture does not show, in words; nothing where it shows all."""
    servers, tenants = problem.server_names, problem.tenant_names
    parts = []
    if len(servers) > MOST_ENTRIES:
        parts.append(f"{len(servers) - MOST_ENTRIES} of {len(servers)} server entries, from {servers[MOST_ENTRIES]} on")
    if len(tenants) > MOST_IN_LEGEND:
        parts.append(f"the names of the {len(tenants)} tenants, which stand in the problem's order")
    return "; ".join(parts)


def _draw_panel(panel: Axes, title: str, share_mi: FloatArray, mechanisms: Sequence[str]) -> None:
    tenants = share_mi.shape[1]
    width = 0.8 / tenants
    for i in range(tenants):
        panel.bar(
            np.arange(len(mechanisms)) - 0.4 + (i + 0.5) * width,
            share_mi[:, i],
            width * 0.92,
            color=COLOURS[i % len(COLOURS)],
            hatch=HATCHES[i // len(COLOURS) % len(HATCHES)],
            edgecolor="white",
            linewidth=0.0,
        )
    panel.set_title(title, fontsize=9, loc="left").set_parse_math(False)
    panel.set_ylabel("dominant share")
    panel.set_xticks(range(len(mechanisms)), [_break_name(name) for name in mechanisms])
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", linewidth=0.4, alpha=0.5)
    panel.set_axisbelow(True)


def _break_name(mechanism_id: str) -> str:
    return mechanism_id.replace("-", "-\n", 1) if len(mechanism_id) > LONGEST_IN_A_LINE else mechanism_id


def _draw_legend(figure: Figure, bars: Sequence[Any], names: Sequence[str]) -> None:
    if len(names) > MOST_IN_LEGEND:
        return
    # Set afterwards: matplotlib leaves out labels that begin with an underscore, and reads dollars as formulas.
    legend = figure.legend(
        bars, [str(i) for i in range(len(names))], loc="outside upper center", ncols=min(len(names), 8), frameon=False
    )
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_parse_math(False)
        text.set_text(name)


def _panel_width(allocations: Sequence[Allocation]) -> float:
    """Return inches that leave every bar some width."""
    bars = len(allocations) * len(allocations[0].problem.tenant_names)
    return min(10.0, 1.0 + 0.85 * len(allocations) + 0.04 * bars)
