from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from fairbind.simulator.charts import COLOURS, MOST_POINTS, Line, draw_chart, thin_out
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.report import compute_report
from fairbind.simulator.results import FindingRow
from simulator.scenarios import Json, make_entry, make_scenario, run

VOID = {"meta"}
DOCUMENT = make_scenario(
    make_entry(tasks=12, duration=10, arrival={"every": 1}),
    make_entry("large", tenant="b", tasks=60, cpu=0.5, duration=5),
    make_entry("never", tenant="b", cpu=9),
    tenants="ab",
    measureEvery=1,
    horizon=100,
)


class Page(HTMLParser):
    """Reads a page, and judges that each element that begins ends."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def make_page(document: Json = DOCUMENT, policies: tuple[str, ...] = ("best-fit-drfh", "fifo")) -> tuple[str, Page]:
    text = compute_report(parse_scenario(document), [run(document, policy) for policy in policies])
    return text, Page(text)


def test_the_page_is_whole_and_loads_nothing() -> None:
    text, page = make_page()

    assert page.open == []
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "link", "img", "iframe", "object", "embed"})
    assert not [names for _, names in page.tags if {"src", "href"} & names.keys()]
    assert re.findall(r"https?:|url\(|@import", text) == []


def test_the_main_numbers_are_in_tables() -> None:
    _, page = make_page()

    for expected in ("best-fit-drfh", "fifo", "72", "1", "a", "b", "Jobs by size", "11 to 50", "51 to 100"):
        assert expected in page.texts
    assert sum(tag == "table" for tag, _ in page.tags) == 4 + 2, "the findings of both policies among them"


def test_shares_have_a_line_for_what_is_held_and_a_dashed_one_for_what_is_fair() -> None:
    text, page = make_page()

    assert page.texts.count(" a, fair share") == 1, "fifo knows no fair share"
    assert page.texts.count(" a") == 2
    assert text.count("stroke-dasharray") == 2 * 2, "a line and its sign in the legend, for each tenant"


def test_each_chart_has_a_title_that_is_read_out() -> None:
    _, page = make_page()

    charts = [place for place, (tag, names) in enumerate(page.tags) if tag == "svg" and names.get("role") == "img"]
    assert len(charts) == 2 + 2 * 3
    assert all(page.tags[place + 1][0] == "title" for place in charts)


def test_both_colour_schemes_are_there() -> None:
    text, _ = make_page()

    assert "color-scheme: light dark" in text
    assert "prefers-color-scheme: dark" in text


def test_an_interrupted_simulation_says_so() -> None:
    scenario = parse_scenario(DOCUMENT)
    text = compute_report(scenario, [replace(run(DOCUMENT), interrupted=True)])

    assert "The simulation was interrupted" in text
    assert Page(text).open == []


def test_a_page_without_runs_is_a_page() -> None:
    assert Page(compute_report(parse_scenario(DOCUMENT), [])).open == []


def test_many_tenants_are_drawn_and_told_in_part() -> None:
    document = make_scenario(make_entry(duration="forever"), horizon=5)
    document["tenants"] = [{"name": f"t{number}"} for number in range(65)]
    document["workload"][0]["tenant"] = "t59"
    _, page = make_page(document, ("fifo",))

    assert " t59" in page.texts
    assert "And 15 more in summary.json." in page.texts
    assert "Not made: too many tenants to compare each with each other." in page.texts
    assert any("the 7 tenants that hold most, of 65" in text for text in page.texts)


def test_findings_of_the_audit_are_told() -> None:
    """Tenant a holds all for 40 s, then b comes, which fifo lets wait."""
    entries = [make_entry(tasks=2, cpu=2, duration=40), make_entry("late", tenant="b", tasks=2, arrival={"at": 10})]
    document = make_scenario(*entries, tenants="ab", measureEvery=10)
    result = run(document, "fifo")
    assert result.findings is not None

    found = {(row.tenant, row.envied): (row.times, row.has, row.could_have) for row in result.findings}
    assert found == {("b", "a"): (3, 0, 0.5), ("b", None): (3, 0, 0.5)}
    _, page = make_page(document, ("fifo",))
    assert {"with what a has", "in a cluster of its own", "history"} <= set(page.texts)


def test_a_run_without_findings_says_so() -> None:
    _, page = make_page(make_scenario(), ("best-fit-drfh",))

    assert "No tenant envied another or would have had more alone, at any of 2 measurements." in page.texts


def test_no_more_findings_are_shown_than_anybody_reads() -> None:
    result = run(make_scenario())
    rows = tuple(FindingRow(f"t{number}", None, "history", 1, 0.0, 0.5) for number in range(32))
    page = Page(compute_report(parse_scenario(make_scenario()), [replace(result, findings=rows)]))

    assert "And 2 less frequent ones." in page.texts
    assert "t29" in page.texts
    assert "t30" not in page.texts


def test_a_chart_shows_no_more_points_than_can_be_seen() -> None:
    points = [(float(x), float(x)) for x in range(10 * MOST_POINTS + 3)]

    thinned = thin_out(points)
    assert len(thinned) <= MOST_POINTS + 1
    assert (thinned[0], thinned[-1]) == (points[0], points[-1])
    assert thin_out(points[:9]) == points[:9]


@pytest.mark.parametrize("points", [[], [(0.0, 0.0)], [(1e-9, 1e-12)], [(1e9, 1e15)]])
def test_odd_charts_are_charts(points: list[tuple[float, float]]) -> None:
    chart = draw_chart("<title> & co", "x", [Line("<name>", points, COLOURS[0])])

    assert Page(chart).open == []
    assert "&lt;title&gt; &amp; co" in chart
    assert "&lt;name&gt;" in chart
