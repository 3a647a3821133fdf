from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import combinations

import numpy as np
import pytest

from fairbind.cli.simulation import compute_table
from fairbind.simulator.charts import DARK, INK, LIGHT, MOST_POINTS, Line, Scale, draw_chart, draw_rows, thin_out
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.report import compute_report
from fairbind.simulator.results import FindingRow
from simulator.scenarios import SECOND, Json, make_entry, make_scenario, run

VOID = {"meta"}
BOTTOM, HEIGHT = 182.0, 172.0
"""Of charts of lines: where the axis is, and how high they are."""
CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
OKLAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
VISION = (
    np.eye(3),
    np.array([[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]),
    np.array([[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]),
    np.array([[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]),
)
"""What the usual eye sees of red, green and blue, and what those without one kind of cones see."""
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
        self.texts.append(data.replace("\N{NO-BREAK SPACE}", " "))


def make_page(document: Json = DOCUMENT, policies: tuple[str, ...] = ("best-fit-drfh", "fifo")) -> tuple[str, Page]:
    text = compute_report(parse_scenario(document), [run(document, policy) for policy in policies])
    return text, Page(text)


def test_the_page_is_whole_and_loads_nothing() -> None:
    text, page = make_page()

    assert page.open == []
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "link", "img", "iframe", "object", "embed"})
    assert not [names for _, names in page.tags if {"src", "href"} & names.keys()]
    assert re.findall(r"https?:|url\(|@import", text) == []


def find_charts(text: str) -> list[tuple[str, str]]:
    """Return the title and the content of each chart."""
    return re.findall(r'<svg viewBox="[^"]*" role="img"><title>([^<]*)</title>(.*?)</svg>', text)


def find_ends(chart: str) -> dict[str, list[float]]:
    """Return where the lines of each colour end: how far up, as a part of the axis."""
    ends: dict[str, list[float]] = {}
    for path, colour in re.findall(r'<path d="(M[^"]*)" class="(\w+)"', chart):
        ends.setdefault(colour, []).append((BOTTOM - float(path.rpartition("V")[2])) / HEIGHT)
    return ends


def test_the_main_numbers_are_in_tables() -> None:
    _, page = make_page()

    for expected in ("best-fit-drfh", "fifo", "72 of 73", "1", "a", "b", "11 to 50 tasks", "51 to 100 tasks"):
        assert expected in page.texts
    assert sum(tag == "table" for tag, _ in page.tags) == 4 + 2 * 2, "the findings of both policies among them"


def test_fairness_comes_first_and_the_worst_off_before_others() -> None:
    """Tenant b waits for 19 s while a holds all, and for 10 s with its fair share: 10 / 29 in the mean."""
    late = make_entry("late", tenant="b", tasks=9, duration=20, arrival={"at": 1})
    entries = [make_entry(tasks=40, duration=20), late]
    document = make_scenario(*entries, tenants="ab", horizon=30, measureEvery=1)
    text, page = make_page(document, ("best-fit-drfh",))
    headings = [page.texts[place + 1] for place, (tag, _) in enumerate(page.tags) if tag == "h2"]
    first = page.texts.index("policy")

    assert headings
    assert page.texts[first : first + 5] == ["policy", "share error", "worst share error", "worst off", "Jain's index"]
    assert page.texts[first + 8] == "b: 34.5 %"
    assert text.index("<h2>Fairness") < text.index("<h2>Waiting") < text.index("<h2>Use of the nodes")
    rows = re.findall(r'<th scope="row" role="rowheader">(?:<svg.*?</svg>)?(\w)</th>', text)
    assert rows[:2] == ["b", "a"]
    assert [name for name in page.texts if name in {"b", "a"}][:6] == ["b", "a"] * 3, "in both legends and the table"


def test_a_colour_is_a_tenants_in_all_charts() -> None:
    text, _ = make_page()
    legend = {name: colour for colour, name in re.findall(r'class="(t\d)"/></svg>(\w)<', text)}
    charts = [chart for title, chart in find_charts(text) if title.startswith(("Dominant", "Part of tasks"))]

    assert legend == {"a": legend["a"], "b": legend["b"]}
    assert legend["a"] != legend["b"]
    assert len(charts) == 3 * 2
    for chart in charts:
        assert set(re.findall(r' class="(t\d|ink)"', chart)) - {INK} == set(legend.values())
    for _, chart in find_charts(text):
        if chart not in charts:
            assert not re.findall(r'class="t\d"', chart), "nodes have no colour of a tenant's"


def test_shares_have_a_line_for_what_is_held_and_a_dashed_one_for_what_is_fair() -> None:
    text, _ = make_page()
    dashed = {title: chart.count("stroke-dasharray") for title, chart in find_charts(text)}

    assert dashed.pop("Dominant shares and fair shares under best-fit-drfh") == 2
    assert set(dashed.values()) == {0}, "fifo knows no fair share, and a dashed line is nothing else"


def test_charts_of_policies_have_the_same_scale() -> None:
    """The second run is longer and tenants hold more in it, so each chart by itself would have another scale."""
    small, large = (
        make_scenario(make_entry(tasks=30, cpu=cpu), make_entry("b", tenant="b", cpu=cpu), tenants="ab", measureEvery=5)
        for cpu in (0.5, 4)
    )
    runs = [run(small), replace(run(large), policy="other")]
    charts: dict[str, list[str]] = {}
    for title, chart in find_charts(compute_report(parse_scenario(small), runs)):
        charts.setdefault(title.partition(" under ")[0], []).append(chart)

    assert len(charts) == 5
    for one, other in charts.values():
        assert re.findall(r"<text [^>]*>([^<]*)<", one) == re.findall(r"<text [^>]*>([^<]*)<", other)
        paths = [re.findall(r'd="(M[^"]*)" class="(?:ink|t\d)"', chart) for chart in (one, other)]
        ends = [max(float(across) for path in some for across in re.findall(r"H([\d.]+)", path)) for some in paths]
        assert ends[0] < ends[1], "shorter on the same scale"


def test_each_chart_has_a_title_that_is_read_out() -> None:
    _, page = make_page()

    charts = [place for place, (tag, names) in enumerate(page.tags) if tag == "svg" and names.get("role") == "img"]
    assert len(charts) == (3 + 2) * 2
    assert all(page.tags[place + 1][0] == "title" for place in charts)


def to_light(colour: str) -> np.ndarray:
    """Return the linear parts of red, green and blue."""
    part = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


@pytest.mark.parametrize(("colours", "page"), [(LIGHT, "#ffffff"), (DARK, "#16181b")])
def test_colours_stand_out_and_can_be_told_apart_with_any_colour_vision(colours: tuple[str, ...], page: str) -> None:
    """Contrast by WCAG 2; what others see by Machado et al. 2009, and how far apart it is in Oklab."""
    text, _ = make_page()
    assert f"--page: {page};" in text
    assert all(f"--t{place}: {colour};" in text for place, colour in enumerate(colours))
    shades = [float(to_light(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (*colours, page)]
    for shade in shades[:-1]:
        low, high = sorted((shade, shades[-1]))
        assert (high + 0.05) / (low + 0.05) >= 3
    for seen in VISION:
        found = [OKLAB @ np.cbrt(np.clip(CONES @ seen @ to_light(colour), 0, 1)) for colour in colours]
        assert min(np.linalg.norm(one - other) for one, other in combinations(found, 2)) > 0.06


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
    assert "Dominant shares and fair shares (7 of 65 tenants), the worst off first" in shown
    named = [text for text in page.texts if re.fullmatch(r"t\d+", text)]
    assert named[:14] == [f"t{number}" for number in range(63, 56, -1)] * 2, "those that have waited longest"
    assert "Tenants (50 of 65; all are in summary.json), the worst off first" in shown
    assert {"t1", "t54", "t63"} <= shown, "those that want something are in the table"
    assert "t53" not in shown, "one that wants nothing is left out"
    assert "Not made: too many tenants to compare each with each other." in shown


def test_each_of_many_policies_has_its_charts() -> None:
    found = run(DOCUMENT)
    names = [f"p{number}" for number in range(9)]
    text = compute_report(parse_scenario(DOCUMENT), [replace(found, policy=name) for name in names])
    titles = [title for title, _ in find_charts(text)]

    for what in ("Dominant shares and fair shares", "Part of tasks that started within a time"):
        assert [title for title in titles if title.startswith(what)] == [f"{what} under {name}" for name in names]


def test_of_many_shapes_those_are_drawn_of_which_most_is_unused() -> None:
    document = make_scenario(make_entry(cpu=7, duration="forever"), horizon=5)
    document["cluster"] = [{"shape": f"s{n}", "count": 1, "capacity": {"cpu": n, "pods": 9}} for n in range(1, 10)]
    document["policies"] = ["best-fit-drfh"]
    _, page = make_page(document, ("best-fit-drfh",))

    assert "Part of cpu that is used, by shape of node (7 of 9 shapes, those with most of it unused)" in page.texts
    assert [text for text in page.texts if re.fullmatch(r"s\d", text)] == [f"s{n}" for n in (9, 8, 6, 5, 4, 3, 2)]


def test_terminal_report_and_summary_have_the_same_numbers() -> None:
    found = [run(DOCUMENT, policy) for policy in ("best-fit-drfh", "fifo")]
    page = Page(compute_report(parse_scenario(DOCUMENT), found))
    headings, units, *rows = compute_table(found)
    place = list(zip(headings, units, strict=True)).index(("mean", "wait s"))
    start = page.texts.index("wait s")

    for result, row in zip(found, rows, strict=True):
        wait = f"{result.summary['wait_seconds']['mean']:.3f}"
        assert row[place] == wait
        first = page.texts.index(result.policy, start)
        assert page.texts[first + 1] == f"≥ {float(wait):.1f}"
        waits = [(row.start if row.start is not None else result.end) - row.arrival for row in result.tasks]
        assert float(wait) == pytest.approx(sum(waits) / len(waits) / SECOND, abs=1e-3), "over all that arrived"


def test_waits_of_tasks_that_never_start_are_told_as_bounds() -> None:
    """Of a's tasks one never fits, so its wait is longer than the 50 s that are seen; b's is 0 for certain."""
    entries = [make_entry("never", cpu=9), make_entry("fits", tenant="b", duration=5)]
    result = run(make_scenario(*entries, tenants="ab", horizon=50), "fifo")
    page = Page(compute_report(parse_scenario(make_scenario(*entries, tenants="ab", horizon=50)), [result]))
    start = page.texts.index("tenant")

    assert (result.summary["never_started"], result.summary["tenants"]["a"]["never_started"]) == (1, 1)
    first = page.texts.index("a", start)
    assert page.texts[first + 2 : first + 7] == [*["≥ 50.0"] * 2, "≥ 6.000", "1", "0 of 1"]
    first = page.texts.index("b", start)
    assert page.texts[first + 2 : first + 7] == ["0.0", "0.0", "1.000", "0", "1 of 1"]


def test_resources_have_a_table_of_their_own_with_those_of_which_most_is_used() -> None:
    capacity = {"cpu": 1, **{f"x.com/r{n}": 3 for n in range(9)}}
    document = {**DOCUMENT, "cluster": [*DOCUMENT["cluster"], {"shape": "m", "capacity": capacity}]}
    _, page = make_page(document)
    starts = [place for place, text in enumerate(page.texts) if text == "policy"]

    used = ["policy", "cpu", "memory", *(f"x.com/r{n}" for n in range(6))]
    assert page.texts[starts[3] : starts[3] + 9] == used
    assert any("(8 of 11 resources, those of which most is used)" in text for text in page.texts)


def test_lines_of_waiting_and_completion_are_of_all_tasks_that_arrived() -> None:
    """Of four tasks two start, and one of these ends: the lines end at 1/2 and at 1/4 of the height."""
    entries = [
        make_entry("short", cpu=2, duration=5),
        make_entry("long", tasks=3, cpu=4, duration=50, arrival={"at": 1}),
    ]
    text, _ = make_page(make_scenario(*entries, horizon=20), ("fifo",))
    charts = dict(find_charts(text))
    started, ended = (charts[f"Part of tasks that {verb} within a time under fifo"] for verb in ("started", "ended"))

    assert find_ends(started) == {INK: [pytest.approx(1 / 2, abs=1e-3)], "t0": [pytest.approx(1 / 2, abs=1e-3)]}
    assert find_ends(ended) == {INK: [pytest.approx(1 / 4, abs=1e-3)], "t0": [pytest.approx(1 / 4, abs=1e-3)]}
    assert "H336.0V" in started, "up to the longest wait"


def test_jobs_that_have_not_ended_count_up_to_the_end_of_the_run() -> None:
    entries = [make_entry("short", duration=10), make_entry("never", cpu=9, arrival={"at": 20})]
    _, page = make_page(make_scenario(*entries, horizon=50), ("fifo",))
    first = page.texts.index("1 task")

    assert page.texts[first : first + 3] == ["1 task", "fifo", f"≥ {(10 + 30) / 2:.1f}"]


def test_each_cell_says_of_what_it_is_where_a_table_becomes_a_list() -> None:
    text, page = make_page()
    cells = [names for tag, names in page.tags if tag == "td"]

    assert "content: attr(data-name)" in text
    assert cells
    assert all(names["data-name"] in page.texts for names in cells)


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
    line = Line("a", points, INK)
    charts = [
        draw_chart("<title> & co", "<caption>", "x", [line], Scale.of([line])),
        draw_rows("<title> & co", "<caption>", "x", [("<name>", points)], Scale.of([line]).right),
    ]

    for chart in charts:
        assert Page(chart).open == []
        assert "&lt;title&gt; &amp; co" in chart
        assert "&lt;caption&gt;" in chart
    assert "&lt;name&gt;" in charts[1]


@pytest.mark.parametrize(("seconds", "unit"), [(1500, "seconds"), (4 * 3600, "hours"), (30 * 86400, "days")])
def test_a_time_axis_has_the_unit_of_its_length(seconds: float, unit: str) -> None:
    line = Line("a", [(0.0, 0.0), (float(seconds), 0.9)], INK)
    chart = draw_chart("t", "c", "from start", [line], Scale.of([line]))

    assert f">{unit} from start<" in chart
    assert ">100 %<" in chart
