"""Pictures: what is drawn, not how it looks."""

from __future__ import annotations

import importlib.util
import xml.etree.ElementTree as ET
from importlib.machinery import ModuleSpec
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cli.mechanisms.typed import POOL, SERVERS, Terminal, check_refused, document_with
from fairbind.cli.mechanisms.plot import MOST_ENTRIES, MOST_TENANTS, compute_panels, draw, draw_panel
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.parse import parse_problem
from fairbind.fairness.solve import compute_allocation

WORDS = ("--mechanism", "drfh", "--mechanism", "tsf")


def solve_both() -> list[Allocation]:
    problem = parse_problem(SERVERS)
    return [compute_allocation(problem, mechanism) for mechanism in ("drfh", "tsf")]


def test_panels_are_all_servers_and_each_entry() -> None:
    allocations = solve_both()
    panels = dict(compute_panels(allocations))

    assert list(panels) == ["all servers", "a", "b (3 servers)"]
    np.testing.assert_allclose(panels["all servers"], [one.dominant_shares_i for one in allocations])
    tasks_ik = allocations[0].tasks_ik
    np.testing.assert_allclose(panels["a"][0], tasks_ik[:, 0] * [0.2 / 2, 1 / 2])
    np.testing.assert_allclose(panels["b (3 servers)"][0], tasks_ik[:, 1] * [1 / 6, 0.2 / 6])


def test_one_server_is_one_panel() -> None:
    panels = compute_panels([compute_allocation(parse_problem(POOL), "drf")])

    assert [title for title, _ in panels] == ["a"]
    np.testing.assert_allclose(panels[0][1], [[2 / 3, 2 / 3]])


def test_a_png(terminal: Terminal) -> None:
    path = terminal.folder / "bars.png"
    outcome = terminal.succeed("compare", terminal.write(SERVERS), *WORDS, "--plot", str(path))

    picture = matplotlib.image.imread(path)
    assert picture.ndim == 3
    assert min(picture.shape[:2]) > 300
    assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 10
    assert "dominant share" in outcome.out


def test_an_svg_names_everybody(terminal: Terminal) -> None:
    path = terminal.folder / "bars.SVG"
    terminal.succeed("compare", terminal.write(SERVERS), *WORDS, "--plot", str(path))

    texts = {"".join(element.itertext()) for element in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")}
    assert {"drfh", "tsf", "t", "u", "all servers", "a", "b (3 servers)", "dominant share"} <= texts


def test_names_are_not_read_as_formulas(terminal: Terminal) -> None:
    path = terminal.folder / "bars.svg"
    document = document_with("tenants[0].name", "_hidden $x^", document_with("tenants[1].name", "$\\frac$", SERVERS))
    terminal.succeed("compare", terminal.write(document), *WORDS, "--plot", str(path))

    text = path.read_text(encoding="utf-8")
    assert "_hidden $x^" in text
    assert "$\\frac$" in text


def test_the_same_answers_give_the_same_file(tmp_path: Path) -> None:
    for kind in ("svg", "png"):
        for name in ("first", "second"):
            draw(solve_both(), tmp_path / f"{name}.{kind}")
        assert (tmp_path / f"first.{kind}").read_bytes() == (tmp_path / f"second.{kind}").read_bytes()


def test_nobody_has_anything(terminal: Terminal) -> None:
    document = document_with("tenants[0].tasks", 0, document_with("tenants[1].tasks", 0, SERVERS))
    path = terminal.folder / "bars.png"
    terminal.succeed("compare", terminal.write(document), *WORDS, "--plot", str(path))

    assert path.stat().st_size > 0


def test_what_is_not_drawn_is_said(terminal: Terminal) -> None:
    servers = [{"name": f"n{k}", "capacity": {"cpu": 4 + k, "memory": 8}} for k in range(MOST_ENTRIES + 2)]
    path = terminal.folder / "bars.svg"
    words = ["compare", "--mechanism", "drfh", "--plot", str(path)]
    terminal.succeed(*words, terminal.write({**SERVERS, "servers": servers}))

    assert "not drawn: 2 of 17 server entries, from n15 on" in path.read_text(encoding="utf-8")
    terminal.succeed(*words, terminal.write({**SERVERS, "servers": servers[:MOST_ENTRIES]}))
    assert "not drawn" not in path.read_text(encoding="utf-8")


def test_mechanisms_and_servers_without_an_answer_are_said(terminal: Terminal) -> None:
    """The panel of a server that no tenant uses would be empty."""
    idle = {"name": "idle", "capacity": {"memory": 8}}
    path = terminal.folder / "bars.svg"
    file = terminal.write({**SERVERS, "servers": [*SERVERS["servers"], idle]})
    terminal.succeed("compare", file, "--plot", str(path))

    texts = ["".join(element.itertext()) for element in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")]
    (note,) = (text for text in texts if text.startswith("not drawn: "))
    assert note.startswith("not drawn: idle, on which no task runs; drf, ")
    assert note.endswith(", which have no answer to this problem")
    assert "idle" not in texts


def test_who_has_nothing_has_no_bar_and_the_axis_begins_at_0() -> None:
    figure = Figure()
    shares_mi = np.array([[0.5, 0.0, 0.25], [0.0, 0.0, 0.1], [0.0, 1e-9, 0.0]])
    panel = figure.subplots()
    draw_panel(panel, "a", shares_mi, ["drf", "tsf", "ceei"])
    bars = [bar for bar in panel.patches if isinstance(bar, Rectangle)]

    assert sorted(bar.get_height() for bar in bars) == [0.1, 0.25, 0.5]
    assert [bar.get_x() + bar.get_width() / 2 for bar in bars if bar.get_height() == 0.1] == pytest.approx([1])
    empty = figure.subplots()
    draw_panel(empty, "a", np.zeros((2, 3)), ["drf", "tsf"])
    assert empty.get_ylim() == (0.0, 1.0)


def test_too_many_tenants_for_bars(terminal: Terminal) -> None:
    tenants = [{"name": f"n{i}", "demand": {"cpu": 1}} for i in range(MOST_TENANTS + 1)]
    file = terminal.write({**POOL, "tenants": tenants})
    path = terminal.folder / "bars.png"

    told = terminal.be_refused("compare", file, "--mechanism", "drf", "--plot", str(path))
    assert told == "--plot: draws at most 40 tenants, not 41"
    assert not path.exists()


def test_a_file_that_cannot_be_written(terminal: Terminal) -> None:
    outcome = terminal.run("compare", terminal.write(POOL), "--mechanism", "drf", "--plot", "/proc/bars.png")

    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("fairbind: --plot: /proc/bars.png: cannot be written: ")
    assert len(outcome.err.splitlines()) == 1


def test_without_matplotlib_it_says_what_to_install(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec

    def find_all_but_matplotlib(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name == "matplotlib" else find_spec(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", find_all_but_matplotlib)
    outcome = terminal.run("compare", terminal.write(POOL), "--plot", str(terminal.folder / "bars.png"))

    assert check_refused(outcome) == "--plot: matplotlib is not installed: pip install 'fairbind[plot]'"


def test_a_folder_is_no_picture(terminal: Terminal) -> None:
    folder = terminal.folder / "bars.png"
    folder.mkdir()
    told = terminal.be_refused("compare", terminal.write(POOL), "--plot", str(folder))

    assert told.startswith(f"Invalid value for '--plot': '{folder}' must be a file, but is a folder")
