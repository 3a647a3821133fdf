"""The pages about mechanisms show what comes out, in their examples, their pictures and their sentences."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import docs
import mechanism_pages as pages
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.parse import parse_problem
from fairbind.fairness.solve import compute_allocation

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / pages.FOLDER


def read(name: str) -> str:
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8")


def solve(name: str, mechanism: str, *, alpha: float | None = None, **lies: dict[str, float]) -> Allocation:
    """Return an example's allocation by a mechanism; lies: other demands, by tenant."""
    document: dict[str, Any] = json.loads((ROOT / pages.example_of(name)).read_text(encoding="utf-8"))
    for tenant in document["tenants"]:
        tenant["demand"] = lies.get(tenant["name"], tenant["demand"])
    return compute_allocation(parse_problem(document), mechanism, alpha=alpha)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a root with a copy of the pages."""
    shutil.copytree(FOLDER, tmp_path / pages.FOLDER)
    return tmp_path


def test_every_mechanism_has_its_page_and_its_example() -> None:
    assert {path.stem for path in FOLDER.glob("*.md")} == {*MECHANISMS, "README", "trees"}
    assert set(pages.BESIDE) == set(MECHANISMS)
    for name in MECHANISMS:
        made = [match["name"] for match in pages.BLOCK.finditer(read(name))]
        assert made == ["facts", "example", "properties"]


def test_the_ideas_take_five_sentences() -> None:
    for name in MECHANISMS:
        idea = read(name).split("\n\n")[1].replace("\n", " ")
        assert idea.count(". ") + 1 == 5, name


def test_the_pages_show_what_comes_out() -> None:
    for path, text in pages.compute_pages(ROOT).items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run python deploy/tools/docs.py"


def test_the_pictures_show_what_comes_out() -> None:
    assert pages.find_stale_pictures(ROOT) == []
    for name in MECHANISMS:
        assert ET.parse(FOLDER / "examples" / f"{name}.svg").getroot().tag.endswith("svg")


@pytest.mark.slow
def test_another_demand_makes_page_and_picture_stale(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = copy / pages.example_of("drf")
    example.write_text(example.read_text(encoding="utf-8").replace('"cpu": 3', '"cpu": 4'), encoding="utf-8")

    assert pages.find_stale_pictures(copy) == ["drf"]
    assert docs.main(["--check", "--root", str(copy)]) == 1
    named = capsys.readouterr().err
    assert "docs/mechanisms/drf.md is out of date" in named
    assert "docs/mechanisms/examples/drf.svg shows other numbers" in named


def test_a_little_rounding_redraws_nothing_and_another_number_does(copy: Path) -> None:
    kept = copy / pages.FOLDER / "examples" / pages.NUMBERS
    numbers = json.loads(kept.read_text(encoding="utf-8"))
    numbers["ceei"]["ceei"]["A"]["pool"] *= 1 + 1e-8
    kept.write_text(json.dumps(numbers), encoding="utf-8")
    assert pages.find_stale_pictures(copy) == []

    numbers["ceei"]["ceei"]["A"]["pool"] *= 1 + 1e-4
    kept.write_text(json.dumps(numbers), encoding="utf-8")
    assert pages.find_stale_pictures(copy) == ["ceei"]


@pytest.mark.slow
def test_a_stale_picture_is_drawn_again(copy: Path) -> None:
    (copy / pages.FOLDER / "examples" / "drf.svg").unlink()

    assert docs.main(["--root", str(copy)]) == 0
    assert pages.find_stale_pictures(copy) == []


def one_decimal(values: Sequence[float]) -> list[str]:
    return [f"{value:.1f}" for value in values]


def percents(values: Sequence[float], digits: int = 0) -> list[str]:
    return [f"{value * 100:.{digits}f} %" for value in values]


def say_asset_fairness() -> list[str]:
    ours, drf = solve("asset-fairness", "asset-fairness").totals_i, solve("asset-fairness", "drf").totals_i
    return [f"could run 15 tasks on a half of the pool and gets {ours[1]:.0f}", f"gives it those {drf[1]:.0f}"]


def say_ceei() -> list[str]:
    truth = solve("ceei", "ceei").totals_i[0]
    lie = solve("ceei", "ceei", A={"cpu": 16, "memory": 8}).totals_i[0]
    assert (lie, truth) == pytest.approx((25 / 6, 100 / 31), rel=1e-6)
    return ["25/6 tasks in place of 100/31", *percents([lie / truth - 1])]


def say_drfh() -> list[str]:
    kiosk, web, _ = solve("drfh", "drfh").dominant_shares_i
    # With the kiosk's level for all, the rack's 48 CPUs run its 52 and 25 tasks a unit of level.
    return ["its share is " + percents([kiosk])[0], *percents([1 - kiosk * (52 + 25) / 48, web])]


def say_per_server_drf() -> list[str]:
    assert solve("per-server-drf", "per-server-drf").totals_i.tolist() == pytest.approx([6, 6])
    assert solve("per-server-drf", "drfh").totals_i.tolist() == pytest.approx([10, 10])
    return ["six each", "both would run ten"]


def say_tsf() -> list[str]:
    drfh, tsf = solve("tsf", "drfh").totals_i[1], solve("tsf", "tsf").totals_i[1]
    assert drfh < 10 / 3 < tsf
    return ["A could run 16 tasks and B 20/3", f"({drfh:.1f})"]


def say_ps_dsf() -> list[str]:
    both, drfh = solve("ps-dsf", "ps-dsf").totals_i, solve("ps-dsf", "drfh").totals_i
    assert both[0] == pytest.approx(both[1])
    assert drfh[0] == pytest.approx(2 * drfh[1])
    return [f"both get {both[0]:.1f}", "A gets twice as many", *percents([drfh[0] * 8 / 640])]


def say_alpha_pf_vds() -> list[str]:
    rows = [solve("alpha-pf-vds", "alpha-pf-vds", alpha=alpha).totals_i.tolist() for alpha in (1.0, 8.0)]
    rows.append(solve("alpha-pf-vds", "ps-dsf").totals_i.tolist())
    return [" and ".join(one_decimal(row)) for row in rows]


def say_drbf() -> list[str]:
    truth, drf = solve("drbf", "drbf"), solve("drbf", "drf")
    lie = solve("drbf", "drbf", a={"cpu": 3, "memory": 5})
    shares = [truth.dominant_shares_i[0], truth.dominant_shares_i[2], drf.dominant_shares_i[0]]
    return [*percents(shares, 1), f"gains {lie.totals_i[0] / truth.totals_i[0] - 1:.0%}".replace("%", " %")]


def say_dynamic_drf() -> list[str]:
    assert solve("dynamic-drf", "dynamic-drf").dominant_shares_i.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 4])
    return ["one third each", "gets one quarter"]


SENTENCES: dict[str, Callable[[], list[str]]] = {
    "asset-fairness": say_asset_fairness,
    "ceei": say_ceei,
    "drfh": say_drfh,
    "per-server-drf": say_per_server_drf,
    "tsf": say_tsf,
    "ps-dsf": say_ps_dsf,
    "alpha-pf-vds": say_alpha_pf_vds,
    "drbf": say_drbf,
    "dynamic-drf": say_dynamic_drf,
}


@pytest.mark.parametrize("name", SENTENCES)
def test_the_numbers_in_the_sentences_come_out(name: str) -> None:
    page = read(name).replace("\n", " ")

    assert [said for said in SENTENCES[name]() if said not in page] == []


def test_drf_on_totals_can_be_impossible_to_place() -> None:
    servers = [{"name": "1", "capacity": {"cpu": 1, "memory": 14}}, {"name": "2", "capacity": {"cpu": 8, "memory": 4}}]
    tenants = [{"name": "A", "demand": {"cpu": 1, "memory": 4}}]
    problem = parse_problem({"resources": ["cpu", "memory"], "servers": servers, "tenants": tenants})

    assert compute_allocation(problem, "drfh").totals_i.tolist() == pytest.approx([2])
    assert "A could run two tasks" in read("drf").replace("\n", " ")
