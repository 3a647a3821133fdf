"""`fairbind compare --plot`: bars of the tenants' shares, of all servers and of each server entry.

A panel is all servers together, or one entry. In it a group of bars is a mechanism, and a bar is a tenant's dominant
share: the largest part that its tasks hold of any resource there. A tenant without a share to see has no bar, so that
the others are wide enough to tell apart. Each panel has its own axis, chosen by its data: a share of one server and a
share of all servers differ by the number of servers. The picture says what it leaves out. matplotlib draws it without a
display, and the same allocations give the same file.
"""

from __future__ import annotations

import importlib.util
import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.problem import FloatArray
from fairbind.model.errors import FairbindError, InvalidProblemError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_TENANTS: Final = 40
MOST_ENTRIES: Final = 15
MOST_IN_LEGEND: Final = 20
MOST_NAMED: Final = 6  # of the unused entries
MOST_IN_A_ROW: Final = 8
CHARACTERS_IN_AN_INCH: Final = 14  # of the footnote
LONGEST_IN_A_LINE: Final = 8
LEAST_BARS: Final = 3  # of a group, for their width
LEAST_SEEN: Final = 1 / 500
"""Of the highest bar of a panel: a shorter bar is thinner than a line."""

# Okabe and Ito's colours, which readers with any colour vision can tell apart; hatches tell the next rounds apart.
COLOURS: Final = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#666666")
HATCHES: Final = ("", "///", "...", "xx", "++")


def check_can_draw() -> None:
    """Raise InvalidProblemError with what to install if there is no matplotlib."""
    if importlib.util.find_spec("matplotlib") is None:
        raise InvalidProblemError("--plot: matplotlib is not installed: pip install 'fairbind[plot]'")


def draw(allocations: Sequence[Allocation], path: Path, without: Sequence[str] = ()) -> None:
    """Write the picture; its kind is that of the file's name. Raises FairbindError if it cannot be written.

    without: mechanisms that have no allocation.
    """
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
            draw_panel(panel, title, share_mi, [allocation.mechanism for allocation in allocations])
        for unused in axes[len(panels) :]:
            unused.set_axis_off()
        _draw_legend(figure, problem.tenant_names)
        if left_out := find_left_out(allocations, without):
            width = int(figure.get_figwidth() * CHARACTERS_IN_AN_INCH)
            text = textwrap.fill(f"not drawn: {left_out}", width, break_on_hyphens=False)
            figure.supxlabel(text, fontsize=8).set_parse_math(False)
        try:
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
        except OSError as error:
            raise FairbindError(f"--plot: {path}: cannot be written: {error.strerror or error}") from error


def compute_panels(allocations: Sequence[Allocation]) -> list[tuple[str, FloatArray]]:
    """Return the title and the shares of each panel, shape (mechanisms, tenants): all servers, then each used entry.

    One entry alone is all servers; of many entries the first MOST_ENTRIES are drawn.
    """
    problem = allocations[0].problem
    panels = [("all servers", np.array([allocation.dominant_shares_i for allocation in allocations]))]
    if len(problem.server_names) == 1:
        return [(problem.server_names[0], panels[0][1])]
    for k in _find_used(allocations)[:MOST_ENTRIES]:
        name = problem.server_names[k]
        has_r = problem.count_k[k] * problem.capacity_kr[k]
        needs_ir = problem.demand_ir[:, has_r > 0] / has_r[has_r > 0]
        per_task_i = needs_ir.max(axis=1, initial=0.0)
        count = f" ({problem.count_k[k]:.0f} servers)" if problem.count_k[k] > 1 else ""
        panels.append(
            (f"{name}{count}", np.array([allocation.tasks_ik[:, k] * per_task_i for allocation in allocations]))
        )
    return panels


def _find_used(allocations: Sequence[Allocation]) -> list[int]:
    """Return the server entries on which a task runs in some allocation."""
    used_k = np.any([allocation.tasks_ik.max(axis=0, initial=0.0) > 0 for allocation in allocations], axis=0)
    return [int(k) for k in np.flatnonzero(used_k)]


def find_left_out(allocations: Sequence[Allocation], without: Sequence[str]) -> str:
    """Return what the picture does not show, in words; nothing where it shows all.

    >>> from fairbind.fairness import compute_allocation, make_problem
    >>> problem = make_problem([[1], [1]], [[1]], eligible_ik=[[True, False]], server_names=["left", "right"])
    >>> find_left_out([compute_allocation(problem, "tsf")], ["drf", "ceei"])
    'right, on which no task runs; drf, ceei, which have no answer to this problem'
    """
    problem = allocations[0].problem
    servers, tenants = problem.server_names, problem.tenant_names
    used = _find_used(allocations)
    unused = [name for k, name in enumerate(servers) if k not in set(used)]
    parts = []
    if len(servers) > 1 and unused:
        names = ", ".join(unused) if len(unused) <= MOST_NAMED else f"{len(unused)} of {len(servers)} server entries"
        parts.append(f"{names}, on which no task runs")
    if len(used) > MOST_ENTRIES:
        first = servers[used[MOST_ENTRIES]]
        parts.append(f"{len(used) - MOST_ENTRIES} of {len(servers)} server entries, from {first} on")
    if len(tenants) > MOST_IN_LEGEND:
        parts.append(f"the names of the {len(tenants)} tenants, which stand in the problem's order")
    if without:
        parts.append(f"{', '.join(without)}, which {'has' if len(without) == 1 else 'have'} no answer to this problem")
    return "; ".join(parts)


def draw_panel(panel: Axes, title: str, share_mi: FloatArray, mechanisms: Sequence[str]) -> None:
    """Draw a group of bars for each mechanism. share_mi: shape (mechanisms, tenants)."""
    is_seen_mi = share_mi > LEAST_SEEN * share_mi.max(initial=0.0)
    width = 0.8 / max(int(is_seen_mi.sum(axis=1).max(initial=0)), LEAST_BARS)
    place_mi = np.cumsum(is_seen_mi, axis=1) - 0.5 - is_seen_mi.sum(axis=1, keepdims=True) / 2
    for i in range(share_mi.shape[1]):
        seen = np.flatnonzero(is_seen_mi[:, i])
        panel.bar(seen + place_mi[seen, i] * width, share_mi[seen, i], width * 0.92, linewidth=0.0, **_look(i))
    panel.set_ylim(bottom=0.0, top=None if is_seen_mi.any() else 1.0)
    panel.set_xlim(-0.5, len(mechanisms) - 0.5)
    panel.set_title(title, fontsize=9, loc="left").set_parse_math(False)
    panel.set_ylabel("dominant share")
    panel.set_xticks(range(len(mechanisms)), [_break_name(name) for name in mechanisms])
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="y", linewidth=0.4, alpha=0.5)
    panel.set_axisbelow(True)


def _look(tenant: int) -> dict[str, Any]:
    """Return how the bars of the tenant look."""
    hatch = HATCHES[tenant // len(COLOURS) % len(HATCHES)]
    return {"facecolor": COLOURS[tenant % len(COLOURS)], "hatch": hatch, "edgecolor": "white"}


def _break_name(mechanism_id: str) -> str:
    return mechanism_id.replace("-", "-\n", 1) if len(mechanism_id) > LONGEST_IN_A_LINE else mechanism_id


def _draw_legend(figure: Figure, names: Sequence[str]) -> None:
    from matplotlib.patches import Patch  # noqa: PLC0415 - an extra, and slow

    if len(names) > MOST_IN_LEGEND:
        return
    boxes = [Patch(linewidth=0.0, **_look(i)) for i in range(len(names))]
    columns = math.ceil(len(names) / math.ceil(len(names) / MOST_IN_A_ROW))
    # Set afterwards: matplotlib leaves out labels that begin with an underscore, and reads dollars as formulas.
    legend = figure.legend(
        boxes, [str(i) for i in range(len(names))], loc="outside upper center", ncols=columns, frameon=False
    )
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_parse_math(False)
        text.set_text(name)


def _panel_width(allocations: Sequence[Allocation]) -> float:
    """Return inches that leave every bar some width."""
    bars = len(allocations) * len(allocations[0].problem.tenant_names)
    return min(10.0, 1.0 + 0.85 * len(allocations) + 0.04 * bars)
