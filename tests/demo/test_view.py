from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from rich.console import Console

from demo import view
from demo.scenes import make_sample, make_scene
from demo.workload import CAST


def draw(width: int, height: int) -> list[str]:
    output = io.StringIO()
    console = Console(file=output, width=width, height=height, color_system=None)
    console.print(view.render(make_scene(), height))
    return output.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_everything_is_there_at_each_width(width: int) -> None:
    lines = draw(width, 24)
    assert max(map(len, lines)) <= width
    rows = {line.split()[0]: line for line in lines if line.strip()}
    for tenant in make_sample().tenants:
        row = next(line for line in lines if re.match(rf" *{tenant.name}\s+\d", line))
        assert f"{tenant.share:.3f}" in row
        assert re.search(rf"{tenant.share:.3f}\s+{view.format_share(tenant.fair_share)}\s", row)
        assert f"{tenant.weighted_share:.3f}" in row
        assert row.split()[-2:] == [str(tenant.running), str(tenant.waiting)]
        assert view.shorten_resource(tenant.dominant_resource) in row
        assert "━" in row
    assert "1780 of 1800 cores" in "\n".join(lines)
    assert "44 pods/s" in lines[0]
    assert any(line.startswith("  shop ") for line in lines), "children stand below their parent"
    assert rows["Why"].startswith("Why the first one waits")
    assert rows["research"].startswith("research came 10 s ago")


@pytest.mark.parametrize(("height", "reason_lines"), [(15, 1), (30, 2), (50, 3)])
def test_reasons_take_the_room_that_is_left(height: int, reason_lines: int) -> None:
    lines = draw(80, height)
    start = lines.index(next(line for line in lines if line.startswith("Why")))
    reasons = lines[start + 1 : -1]
    assert len(reasons) == reason_lines * sum(tenant.has_pods for tenant in CAST.tenants)
    assert len(lines) < max(height, 24)
    assert any("…" in line for line in reasons) == (reason_lines < 3)


def test_wider_terminals_give_wider_bars() -> None:
    bars = [max(draw(width, 24), key=lambda line: line.count("━")).count("━") for width in (80, 120)]
    assert bars[1] > bars[0]


def test_a_line_is_one_plain_line() -> None:
    line = view.format_line(make_scene())
    assert "\n" not in line
    assert "\x1b" not in line
    for word in ("30 s", "web 0.380 weighted 0.190 (330 run, 40 wait)", "cpu 99 %", "gpu 50 %", "44 pods/s"):
        assert word in line


def test_the_picture_is_an_svg_that_loads_nothing(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "demo.svg"
    view.write_picture(make_scene(), path)
    text = path.read_text(encoding="utf-8")
    assert ET.fromstring(text).tag.endswith("svg")
    assert "url(http" not in text
    assert "@font-face" not in text
    assert "analytics" in text
