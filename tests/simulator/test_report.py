from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from fairbind.cli.simulation import compute_table
from fairbind.simulator.charts import COLOURS, MOST_POINTS, Line, draw_chart, thin_out
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.report import compute_report
from fairbind.simulator.results import FindingRow
from simulator.scenarios import SECOND, Json, make_entry, make_scenario, run

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
    assert sum(tag == "table" for tag, _ in page.tags) == 5 + 2, "the findings of both policies among them"


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
    document["workload"] = [make_entry("holds", tenant="t1", cpu=4, duration="forever")]
    document["workload"] += [make_entry(f"w{n}", tenant=f"t{n}", arrival={"at": 5 - n / 64}) for n in range(54, 64)]
    _, page = make_page(document, ("fifo",))

    shown = {text.strip() for text in page.texts}
    assert "Dominant shares and fair shares (7 of 65 tenants, those that are worst off)" in shown
    legends = [text.strip() for text in page.texts if text.startswith(" t")]
    assert legends == [f"t{number}" for number in range(57, 64)], "those that have waited longest"
    assert "Tenants (50 of 65, those that are worst off; all are in summary.json)" in shown
    assert {"t1", "t54", "t63"} <= shown, "those that want something are in the table"
    assert "t53" not in shown, "one that wants nothing is left out"
    assert "Not made: too many tenants to compare each with each other." in shown


def test_of_many_policies_those_are_drawn_under_which_tasks_wait_longest() -> None:
    found = run(DOCUMENT)
    waits = {f"p{number}": float(number % 5) for number in range(9)}
    runs = [
        replace(found, policy=name, summary={**found.summary, "wait_seconds": {"mean": wait, "p95": wait}})
        for name, wait in waits.items()
    ]
    page = Page(compute_report(parse_scenario(DOCUMENT), runs))

    title = "Part of all tasks that {} within a time (7 of 9 policies, those under which tasks wait longest)"
    assert all(title.format(verb) in page.texts for verb in ("started", "ended"))
    legends = [text.strip() for text in page.texts if re.fullmatch(r" p\d", text)]
    assert legends == ["p1", "p2", "p3", "p4", "p6", "p7", "p8"] * 2
    assert all(page.texts.count(name) >= 3 for name in waits), "the tables have all"


def test_of_many_shapes_those_are_drawn_of_which_most_is_unused() -> None:
    document = make_scenario(make_entry(cpu=7, duration="forever"), horizon=5)
    document["cluster"] = [{"shape": f"s{n}", "count": 1, "capacity": {"cpu": n, "pods": 9}} for n in range(1, 10)]
    document["policies"] = ["best-fit-drfh"]
    _, page = make_page(document, ("best-fit-drfh",))

    assert "Part of cpu that is used, by shape of node (7 of 9 shapes, those with most of it unused)" in page.texts
    assert [text.strip() for text in page.texts if re.fullmatch(r" s\d", text)] == [
        f"s{n}" for n in (2, 3, 4, 5, 6, 8, 9)
    ]


def test_terminal_report_and_summary_have_the_same_numbers() -> None:
    found = [run(DOCUMENT, policy) for policy in ("best-fit-drfh", "fifo")]
    page = Page(compute_report(parse_scenario(DOCUMENT), found))
    headings, *rows = compute_table(found)

    for result, row in zip(found, rows, strict=True):
        wait = f"{result.summary['wait_seconds']['mean']:.3f}"
        assert row[headings.index("mean wait s")] == wait
        first = page.texts.index(result.policy)
        assert page.texts[first : first + 10][4] == wait
        waits = [(row.start if row.start is not None else result.end) - row.arrival for row in result.tasks]
        assert float(wait) == pytest.approx(sum(waits) / len(waits) / SECOND, abs=1e-3), "over all that arrived"


def test_share_errors_stand_where_a_narrow_page_shows_them_and_resources_have_a_table_of_their_own() -> None:
    document = {**DOCUMENT, "cluster": [*DOCUMENT["cluster"], {"shape": "m", "capacity": {"cpu": 1, "x.com/gpu": 3}}]}
    _, page = make_page(document)
    starts = [place for place, text in enumerate(page.texts) if text == "policy"]

    assert page.texts[starts[0] : starts[0] + 3] == ["policy", "share error", "worst share error"]
    used = ["policy", "cpu used", "memory used", "x.com/gpu used"]
    assert page.texts[starts[1] : starts[1] + 4] == used


def test_lines_of_waiting_and_completion_are_of_all_tasks_that_arrived() -> None:
    """Of four tasks two start, and one of these ends: the lines end at 1/2 and at 1/4 of the height."""
    entries = [
        make_entry("short", cpu=2, duration=5),
        make_entry("long", tasks=3, cpu=4, duration=50, arrival={"at": 1}),
    ]
    text, _ = make_page(make_scenario(*entries, horizon=20), ("fifo",))
    started, ended = re.findall(r'<path d="(M56[^"]*)" stroke="#0072B2"', text)[:2]

    bottom, height = 204.0, 192.0
    assert started.rpartition("V")[2] == f"{bottom - height / 2:.1f}"
    assert ended.rpartition("V")[2] == f"{bottom - height / 4:.1f}"
    assert "H708.0V" in started, "up to the longest wait"


def test_jobs_that_have_not_ended_count_up_to_the_end_of_the_run() -> None:
    entries = [make_entry("short", duration=10), make_entry("never", cpu=9, arrival={"at": 20})]
    _, page = make_page(make_scenario(*entries, horizon=50), ("fifo",))
    first = page.texts.index("tasks")

    assert page.texts[first : first + 4] == ["tasks", "fifo", "1", f"{(10 + 30) / 2:.3f}"]


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

    assert any("(30 of 32 findings, the most frequent ones)" in text for text in page.texts)
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
