"""The papers' evaluations at the small scale: what is printed, and what holds whatever the workload."""

from __future__ import annotations

import csv
import math
import re
from collections import Counter, defaultdict
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from fairbind.cli import main
from fairbind.fairness import make_problem
from fairbind.simulator.reproduction.drfh_runs import SERVERS, Day, Job, compute_use
from fairbind.simulator.reproduction.dynamic_drf import solve_by_programs
from fairbind.simulator.reproduction.outcome import Comparison, Lab, Outcome
from fairbind.simulator.reproduction.page import compute_markdown, compute_page
from fairbind.simulator.reproduction.ps_dsf import iterate, judge_order
from fairbind.simulator.reproduction.ps_dsf_clusters import (
    ALPHAS,
    GOOGLE,
    RIVALS,
    Setting,
    Variant,
    draw_jobs,
    live,
    make_data_centre,
    solve,
)
from fairbind.simulator.reproduction.ps_dsf_settings import SETTINGS
from fairbind.simulator.reproduction.registry import PAPERS
from fairbind.simulator.results import TaskRow
from fairbind.what_if.reading import NANOSECONDS
from reproduction import Kept, place_sections

COLUMNS = {
    "drfh-figure-5": "time,user,cpu_share,memory_share,dominant_share",
    "drfh-figure-6": "policy,time,cpu_utilisation,memory_utilisation",
    "drfh-figure-7": "policy,job_size,completion_seconds",
    "drfh-figure-8": "policy,user,completion_ratio",
}
NAMES = [
    f"{paper}-{figure}" if not figure.isdigit() else f"{paper}-figure-{figure}"
    for paper, each in PAPERS.items()
    for figure in each.figures
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reproduction") / "new"
    assert main(["reproduce", "all", "--out", str(out)]) == 0
    return out


def read(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_means(folder: Path, name: str, key: str, value: str) -> dict[str, float]:
    found = defaultdict(list)
    for row in read(folder, name):
        found[row[key]].append(float(row[value]))
    return {each: sum(values) / len(values) for each, values in found.items()}


def test_each_figure_has_a_table_and_a_picture_and_the_page_shows_all(folder: Path) -> None:
    class Page(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.sources: list[str | None] = []
            self.words = ""

        def handle_starttag(self, _tag: str, attrs: list[tuple[str, str | None]]) -> None:
            self.sources += [value for name, value in attrs if name in {"src", "href"}]

        def handle_data(self, data: str) -> None:
            self.words += data

    page = Page()
    page.feed((folder / "index.html").read_text(encoding="utf-8"))

    wanted = sorted(f"{name}.{kind}" for name in NAMES for kind in ("csv", "svg"))
    assert sorted(path.name for path in folder.iterdir()) == sorted([*wanted, "index.html"])
    assert sorted(source or "" for source in page.sources) == wanted
    assert all(words in page.words for words in ("paper says", "we get", "why they differ", "synthetic"))


@pytest.mark.parametrize("name", COLUMNS)
def test_tables_have_the_columns_that_are_promised(folder: Path, name: str) -> None:
    assert (folder / f"{name}.csv").read_text(encoding="utf-8").splitlines()[0] == COLUMNS[name]


def test_verdicts_stand_beside_what_is_judged() -> None:
    judged = Comparison("more", "less", "synthetic", "contradicts")
    plain = Comparison("more", "more", "synthetic")
    lines = [
        compute_markdown([Outcome("n", "title", "setting", (), (), (), [one])], "small").splitlines()
        for one in (judged, plain)
    ]

    assert "| paper says | we get | verdict | why they differ |" in lines[0]
    assert "|---|---|---|---|" in lines[0]
    assert "| more | less | contradicts | synthetic |" in lines[0]
    assert "| paper says | we get | why they differ |" in lines[1]
    assert "| more | more | synthetic |" in lines[1]
    assert '<th scope="col">verdict</th>' in compute_page([Outcome("n", "t", "s", (), (), (), [judged])], "small")


def test_an_order_that_one_value_breaks_contradicts() -> None:
    assert judge_order({"a": (0.9, 0.5), "b": (0.8, 0.5004), "c": (0.8, 0.2)}) == "direction only"
    assert judge_order({"a": (0.9, 0.5), "b": (0.8, 0.4), "c": (0.81, 0.2)}) == "contradicts"


def test_the_page_lists_what_lay_in_the_folder_before(tmp_path: Path) -> None:
    """A second run into the folder leaves what the first one wrote, so its page leads to that, too."""
    assert main(["reproduce", "drf", "--figure", "table-1", "--out", str(tmp_path)]) == 0
    (tmp_path / "notes #1 & more.txt").touch()
    assert main(["reproduce", "drf", "--figure", "theorem-2", "--out", str(tmp_path)]) == 0
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    others = page.partition('<section id="others">')[2]

    assert "drf-theorem-2.csv" not in others
    assert re.findall(r'href="([^"]*)"', others) == ["drf-table-1.csv", "drf-table-1.svg", "notes %231 &amp; more.txt"]
    assert re.findall(r'src="([^"]*)"', others) == ["drf-table-1.svg"]
    links = re.findall(r'(?:href|src)="([^"]*)"', page)
    assert {path.name for path in tmp_path.iterdir()} - {"notes #1 & more.txt", "index.html"} <= set(links)


# --- DRFH ---


def read_section(folder: Path, name: str) -> list[tuple[str, str, str]]:
    """Return the rows of what is compared: the paper, ours, and why they differ."""
    page = (folder / "index.html").read_text(encoding="utf-8")
    section = page.partition(f'<section id="{name}">')[2].partition("</section>")[0]
    cells = [cell.partition("</td>")[0] for cell in section.split("<td>")[1:]]
    return list(zip(cells[::3], cells[1::3], cells[2::3], strict=True))


@pytest.mark.parametrize(("figure", "tasks"), [(3, (5, 1, 1, 5)), (4, (10, 0, 0, 10))])
def test_drfh_examples_give_the_papers_tasks(folder: Path, figure: int, tasks: tuple[float, ...]) -> None:
    rows = read(folder, f"drfh-figure-{figure}")
    assert [float(row["tasks"]) for row in rows] == pytest.approx(tasks, abs=1e-6)
    used = Counter[tuple[str, str]]()
    for row in rows:
        used[row["server"], "cpu"] += float(row["cpu"])  # type: ignore[assignment]  # a sum of floats
        used[row["server"], "memory"] += float(row["memory"])  # type: ignore[assignment]  # a sum of floats
    has = {"server 1": {"cpu": 2, "memory": 12}, "server 2": {"cpu": 12, "memory": 2}}
    assert all(amount <= has[server][resource] + 1e-6 for (server, resource), amount in used.items())
    assert {why for _, _, why in read_section(folder, f"drfh-figure-{figure}")} == {"they agree"}


def test_drfh_proposition_4_is_of_the_printed_shares(folder: Path) -> None:
    found = {(row["user"], row["allocation"]): row for row in read(folder, "drfh-proposition-4")}
    shares = {key: float(row["dominant_share"]) for key, row in found.items()}
    assert shares["user 1", "DRFH"] == shares["user 2", "DRFH"] == pytest.approx(12 / 25)
    assert shares["user 2", "half of every server"] == pytest.approx(1 / 2)
    assert float(found["user 1", "half of every server"]["tasks"]) == pytest.approx(2)
    assert [why for _, _, why in read_section(folder, "drfh-proposition-4")] == ["they agree"] * 4


def test_drfh_figure_5_meets_what_is_printed_and_shares_are_equal_in_each_phase(folder: Path) -> None:
    rows = read(folder, "drfh-figure-5")
    shares = {(float(row["time"]), row["user"]): row for row in rows}
    alone = shares[100.0, "user-1"]
    assert float(alone["cpu_share"]) == pytest.approx(0.40, abs=0.02)
    assert float(alone["memory_share"]) == pytest.approx(0.62, abs=0.02)
    for time, users in ((450.0, 2), (900.0, 3)):
        held = [float(shares[time, f"user-{user + 1}"]["dominant_share"]) for user in range(users)]
        assert max(held) - min(held) < 0.03
    assert 1000 < max(float(row["time"]) for row in rows if row["user"] == "user-1" and float(row["cpu_share"])) < 1160
    for resource in ("cpu_share", "memory_share"):
        used = Counter[float]()
        for row in rows:
            used[float(row["time"])] += float(row[resource])  # type: ignore[assignment]  # a sum of floats
        assert max(used.values()) <= 1 + 1e-9


def test_drfh_uses_more_than_slots(folder: Path) -> None:
    for resource in ("cpu_utilisation", "memory_utilisation"):
        means = read_means(folder, "drfh-figure-6", "policy", resource)
        assert set(means) == {"best-fit-drfh", "first-fit-drfh", "two-choices-drfh", "slots"}
        assert min(means["best-fit-drfh"], means["first-fit-drfh"]) > means["slots"] + 0.05
        assert all(0 <= float(row[resource]) <= 1 + 1e-9 for row in read(folder, "drfh-figure-6"))


def test_drfh_figure_7_compares_the_same_jobs(folder: Path) -> None:
    sizes = defaultdict(list)
    for row in read(folder, "drfh-figure-7"):
        sizes[row["policy"]].append(row["job_size"])
        assert float(row["completion_seconds"]) > 0

    assert len(sizes) == 4
    assert len({tuple(each) for each in sizes.values()}) == 1


def test_drfh_figure_8_has_each_user_once_for_each_policy(folder: Path) -> None:
    rows = read(folder, "drfh-figure-8")
    counts = Counter((row["policy"], row["user"]) for row in rows)

    assert set(counts.values()) == {1}
    assert len(counts) == 4 * len({row["user"] for row in rows})
    assert all(0 <= float(row["completion_ratio"]) <= 1 for row in rows)
    assert len(read(folder, "drfh-figure-9")) == len({row["user"] for row in rows})


def test_table_2_has_the_papers_slots(folder: Path) -> None:
    counts = [row["slots"] for row in read(folder, "drfh-table-2")]
    assert counts == ["10", "12", "14", "16", "20", "24", "28", "32", "40"]


def test_slots_are_of_the_best_size_of_the_table(folder: Path) -> None:
    table = read(folder, "drfh-table-2")
    best = max(table, key=lambda row: float(row["cpu_utilisation"]) + float(row["memory_utilisation"]))
    ((_, ours, _),) = read_section(folder, "drfh-table-2")
    used = f"{float(best['cpu_utilisation']):.1%} and {float(best['memory_utilisation']):.1%}"
    assert ours.startswith(f"{best['slots']} are best")
    assert f": {used}; 14: " in ours
    assert ("no more were tried" in ours) is (best is table[-1])
    assert read_section(folder, "drfh-figure-6")[0][1].endswith(f"; slots {used}")


def test_runs_that_are_kept_are_not_made_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "runs")
    assert Lab(False, lambda: 0.0, known=kept).remember(("run", "p", 1), lambda: (1, 2)) == (1, 2)
    kept["day"] = None

    later = Lab(False, lambda: 0.0, known=Kept(tmp_path / "runs"))
    assert later.remember(("run", "p", 1), lambda: (3, 4)) == (1, 2)
    assert later.remember("day", lambda: 5) is None
    assert later.remember(("run", "p", 2), lambda: (3, 4)) == (3, 4)


def test_a_figure_is_published_alone_among_the_others_of_its_paper() -> None:
    page = "A\n\n<!-- begin drbf -->\n\n{}\n<!-- end drbf -->\n\nB\n"
    old = {name: f"### {name}\n\nold\n" for name in ("drbf-figure-3", "drbf-figure-5", "drbf-figure-99")}
    before = page.format("\n".join(old.values()))

    fourth = place_sections(before, "drbf", {"drbf-figure-4": "### drbf-figure-4\n\nnew\n"})
    assert fourth == page.format("\n".join([old["drbf-figure-3"], "### drbf-figure-4\n\nnew\n", old["drbf-figure-5"]]))
    third = place_sections(fourth, "drbf", {"drbf-figure-3": "### drbf-figure-3\n\nnew\n"})
    assert third == fourth.replace("### drbf-figure-3\n\nold", "### drbf-figure-3\n\nnew")
    assert place_sections(third, "ps-dsf", {"ps-dsf-figure-1": "x"}) == third


def test_use_is_that_of_the_tasks_that_run() -> None:
    servers = [0] * len(SERVERS)
    servers[0] = servers[3] = 1  # 1.5 cpu and 1.5 memory
    day = Day(servers, 10, [Job("a", 2, 0.0, 0.3, 0.15, (1.0, 1.0)), Job("b", 1, 0.0, 0.6, 0.3, (1.0,))])

    def row(task: str, start: int | None, end: int | None) -> TaskRow:
        at = [None if each is None else each * NANOSECONDS for each in (start, end)]
        return TaskRow("p", "a", task, 0, at[0], at[1], "s", 1)

    rows = [row("job-0-0", 1, 4), row("job-0-1", None, None), row("job-1-0", 2, None)]

    use = compute_use(day, rows, np.array([0.0, 1.0, 3.0, 4.0]))
    np.testing.assert_allclose(use, np.array([[0.0, 0.0], [0.2, 0.1], [0.6, 0.3], [0.4, 0.2]]), atol=1e-12)


# --- PS-DSF ---


@pytest.mark.parametrize(
    ("figure", "mechanism", "tasks"),
    [
        (1, "PS-DSF", (2, 6, 8, 8)),
        (1, "TSF", (5 / 3, 5, 25 / 3, 25 / 3)),
        (2, "DRFH", (3, 3, 6.4, 6.4)),
        (2, "TSF", tuple(16 / 37 * each for each in (4, 12, 20, 16))),
        (3, "alpha = 1", (2, 6, 96 / 7, 32 / 7)),
        (3, "alpha = 3", (2, 6, 12.367622706, 4.908094323)),
    ],
)
def test_ps_dsf_examples_give_the_papers_tasks(
    folder: Path, figure: int, mechanism: str, tasks: tuple[float, ...]
) -> None:
    rows = [row for row in read(folder, f"ps-dsf-figure-{figure}") if row["mechanism"] == mechanism]

    assert [float(r["server_1_tasks"]) + float(r["server_2_tasks"]) for r in rows] == pytest.approx(tasks, rel=1e-6)


def test_ps_dsf_deviates_from_itself_by_nothing_and_the_others_by_more_for_a_smaller_alpha(folder: Path) -> None:
    means = read_means(folder, "ps-dsf-figure-10", "mechanism", "average_deviation")

    assert means["alpha = 1"] > means["alpha = 3"] > means["PS-DSF"]
    assert means["PS-DSF"] == pytest.approx(0.0, abs=1e-6)


def test_a_smaller_alpha_uses_more(folder: Path) -> None:
    means = read_means(folder, "ps-dsf-figure-7", "mechanism", "utilisation")

    assert means["alpha = 1"] > means["alpha = 3"] > means["PS-DSF"]


def test_the_distributed_algorithm_comes_nearer_to_the_exact_answer_with_a_smaller_epsilon() -> None:
    problem = make_problem([[1, 1], [2, 1]], [[1, 0.2], [0.2, 1], [0.5, 0.4]], eligible_ik=[[1, 0], [1, 1], [0, 1]])
    (*_, (_, _, _, coarse)), (*_, (_, merit, residual, fine)) = (
        iterate(problem, 3.0, each, 20_000) for each in (0.2, 0.1)
    )

    assert merit < 1e-6
    assert residual < 1e-3
    assert fine < min(coarse / 1.5, 0.12)


@pytest.mark.parametrize("variant", [ALPHAS[0], *RIVALS], ids=lambda variant: variant.name)
def test_jobs_get_what_they_need_and_no_more(variant: Variant) -> None:
    jobs = draw_jobs(600.0)
    history = live(jobs, variant, 600.0)
    served = np.zeros(jobs.quanta_n.size)
    for spell in history.spells:
        assert spell.end > spell.begin
        if spell.allocation is not None:
            is_there = (jobs.arrival_n <= spell.begin) & ~(history.end_n <= spell.begin)
            served[is_there] += spell.allocation.totals_i * (spell.end - spell.begin)
    ended = ~np.isnan(history.end_n)

    assert ended.any()
    np.testing.assert_allclose(served[ended], jobs.quanta_n[ended], rtol=1e-6)
    assert (served <= jobs.quanta_n * (1 + 1e-6)).all()


# --- DRBF and dynamic DRF ---


def test_drbf_table_3_is_the_recomputed_one(folder: Path) -> None:
    found = [[float(row[f"resource_{r}"]) for r in (1, 2, 3)] for row in read(folder, "drbf-table-3")]
    exact = [
        [22.99, 5.75, 17.24], [22.99, 13.79, 9.20], [15.48, 30.96, 10.32],
        [18.58, 30.96, 6.19], [14.26, 7.13, 28.53], [5.71, 11.41, 28.53],
    ]  # fmt: skip

    np.testing.assert_allclose(found, exact, atol=0.006)


def test_drbf_uses_at_least_what_drf_uses(folder: Path) -> None:
    means = read_means(folder, "drbf-figure-8", "mechanism", "utilisation")

    assert means["drbf"] == pytest.approx(1.0)
    assert means["drf"] == pytest.approx((1 + 0.921 + 0.969) / 3, abs=2e-3)


def test_the_linear_programs_of_dynamic_drf_say_the_same(folder: Path) -> None:
    np.testing.assert_allclose(solve_by_programs(np.array([[0.5, 1.0], [1.0, 1 / 6]])), [2 / 3, 2 / 3], atol=1e-9)
    for row in read(folder, "dynamic-drf-figure-2"):
        assert float(row["lower_bound"]) <= float(row["ratio"]) <= float(row["upper_bound"]) + 1e-4
        assert math.isclose(float(row["lower_bound"]), 1 / int(row["resources"]), rel_tol=1e-6)


# --- the command ---


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["drhf"], "fairbind: PAPER: there is no paper drhf; did you mean drf?"),
        (["x"], "fairbind: PAPER: there is no paper x; known are drf, drfh, ps-dsf, drbf, dynamic-drf, all"),
        (
            ["dynamic-drf", "--figure", "9"],
            "fairbind: --figure: dynamic-drf has no 9 that is reproduced; it has 1, algorithm-1, section-4, 2",
        ),
        (
            ["ps-dsf", "--trace", "openb:pods.csv"],
            "fairbind: --trace: openb:pods.csv must be bitbrains:FILE, with the list of machines",
        ),
    ],
)
def test_what_does_not_exist_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    assert main(["reproduce", *arguments, "--out", str(tmp_path / "out")]) == 2

    assert capsys.readouterr().err == f"{line}\n"
    assert not (tmp_path / "out").exists()


def test_one_figure_alone_is_the_same_as_among_all(tmp_path: Path, folder: Path) -> None:
    assert main(["reproduce", "ps-dsf", "--figure", "2", "--out", str(tmp_path)]) == 0

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "index.html", "ps-dsf-figure-2.csv", "ps-dsf-figure-2.svg",
    ]  # fmt: skip
    for kind in ("csv", "svg"):
        name = f"ps-dsf-figure-2.{kind}"
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_users_of_the_data_centre_are_drawn_from_the_machines_of_a_trace(tmp_path: Path, folder: Path) -> None:
    file = tmp_path / "machines.csv"
    head = "id,submission_time,duration,cpu_count,cpu_capacity,mem_capacity"
    file.write_text(f"{head}\n1,0,1000,2,5200.0,1953125\n2,0,,1,1.0,1.0\n", encoding="utf-8")
    words = ["reproduce", "ps-dsf", "--figure", "12", "--trace", f"bitbrains:{file}", "--out", str(tmp_path / "out")]
    assert main(words) == 0
    problem = make_data_centre(0, 20, [(5.2, 2.0)])

    assert problem.demand_ir[:, :2].tolist() == [[5.2, 2.0]] * 20
    assert len(set(problem.demand_ir[:, 2].tolist())) == 20
    assert "cpu and memory of 1 machines of a trace" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert read(tmp_path / "out", "ps-dsf-figure-12") != read(folder, "ps-dsf-figure-12")


def test_jobs_ask_for_more_memory_where_a_setting_says_so() -> None:
    """The largest part of a demand is 1, so with three times the memory more jobs have all of it."""
    means = [draw_jobs(3600, setting).demand_nr[:, 1].mean() for setting in (GOOGLE, Setting(memory=3.0))]

    assert means[0] < 0.85
    assert means[1] > 0.95


def test_section_6_3_is_tried_on_other_classes_and_demands(folder: Path) -> None:
    rows = read(folder, "ps-dsf-section-6.3")

    assert {(row["setting"], row["mechanism"]) for row in rows} == {
        (setting, variant.name) for setting in SETTINGS for variant in RIVALS
    }
    uses = {setting: [row["utilisation"] for row in rows if row["setting"] == setting] for setting in SETTINGS}
    assert len(set(map(tuple, uses.values()))) == len(SETTINGS)
    assert all(0 < float(row["utilisation"]) <= 1 + 1e-9 for row in rows)


def test_the_claim_of_drfhs_section_6_1_holds_better_for_small_tasks(folder: Path) -> None:
    """The parts of exact DRFH stand in the page: three for the printed tasks, three for small ones."""
    page = (folder / "index.html").read_text(encoding="utf-8")
    said = page[page.index("the least share in parts of exact DRFH") :][:200]
    parts = [float(each) for each in re.findall(r"([0-9.]+)%", said)]

    assert len(parts) == 6
    assert sum(parts[:3]) < sum(parts[3:])


def test_a_problem_of_the_data_centre_uses_only_servers_nearby() -> None:
    problem = make_data_centre(0, 20)

    assert (solve(problem, RIVALS[1]).tasks_ik[~problem.eligible_ik] == 0).all()
    assert not problem.eligible_ik.all()
