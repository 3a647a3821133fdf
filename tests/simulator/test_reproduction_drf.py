"""The examples of the papers on DRF and dynamic DRF: what is printed there, in exact fractions."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from fractions import Fraction

import pytest

from fairbind.simulator.reproduction import drf, drf_properties, dynamic_drf_steps
from fairbind.simulator.reproduction.judging import AGREE, DIFFER, judge
from fairbind.simulator.reproduction.outcome import Lab, Outcome, Value
from fairbind.simulator.reproduction.registry import PAPERS

LAB = Lab(is_full=False, clock=lambda: 0.0)


def list_rows(outcome: Outcome) -> list[dict[str, Value]]:
    return [dict(zip(outcome.columns, row, strict=True)) for row in outcome.rows]


def read_column(outcome: Outcome, column: str) -> list[float]:
    return [float(row[column]) for row in list_rows(outcome)]


@pytest.mark.parametrize("reproduce", PAPERS["drf"].figures.values(), ids=PAPERS["drf"].figures)
def test_every_printed_statement_comes_out(reproduce: Callable[[Lab], Outcome]) -> None:
    outcome = reproduce(LAB)

    assert [each for each in outcome.comparisons if each.why != AGREE] == []
    assert outcome.comparisons
    assert outcome.panels
    assert list_rows(outcome)


@pytest.mark.parametrize(
    ("reproduce", "tasks"),
    [
        (drf.reproduce_figure_3, ("3", "2")),
        (drf.reproduce_figure_4, ("3", "2", "63/25", "54/25", "45/11", "18/11")),
        (drf_properties.reproduce_figure_5, ("6", "12")),
        (drf_properties.reproduce_theorem_2, ("3", "3", "7/2", "21/8")),
        (drf_properties.reproduce_theorem_3, ("11", "33", "21/2", "35")),
        (drf_properties.reproduce_figure_6, ("100/31", "1500/31", "25/6", "100/3")),
    ],
)
def test_tables_have_the_printed_tasks(reproduce: Callable[[Lab], Outcome], tasks: tuple[str, ...]) -> None:
    exact = [float(Fraction(each)) for each in tasks]

    assert read_column(reproduce(LAB), "tasks") == pytest.approx(exact, rel=1e-7)


def test_a_loses_and_b_gains_what_theorem_3_says() -> None:
    outcome = drf_properties.reproduce_theorem_3(LAB)

    assert read_column(outcome, "resource_1") == pytest.approx([44, 33, 42, 35])
    assert read_column(outcome, "resource_2") == pytest.approx([22, 33, 21, 35])


def test_table_1_is_in_the_paper_s_order_and_ours() -> None:
    rows = [row for row in list_rows(drf.reproduce_table_1(LAB)) if row["first"] == "B"]

    assert [row["user"] for row in rows] == list("BAABA")
    assert [float(row["cpu"]) * 9 for row in rows] == pytest.approx([3, 4, 5, 8, 9])
    assert [float(row["memory"]) * 18 for row in rows] == pytest.approx([1, 5, 9, 10, 14])
    assert [float(row["a_dominant"]) * 9 for row in rows] == pytest.approx([0, 2, 4, 4, 6])
    assert [float(row["b_dominant"]) * 3 for row in rows] == pytest.approx([1, 1, 1, 2, 2])
    assert drf.trace("A") == list("ABABA")


def test_table_2_shows_each_property_that_does_not_hold_by_an_example() -> None:
    rows = list_rows(drf_properties.reproduce_table_2(LAB))

    assert len(rows) == 24
    assert {row["paper"] == row["ours"] for row in rows} == {True}
    assert [bool(row["violation"]) for row in rows] == [row["ours"] == "no" for row in rows]
    lie = next(row for row in rows if (row["property"], row["mechanism"]) == ("strategy-proofness", "ceei"))
    assert "by claiming a demand of" in str(lie["violation"])


def test_what_is_not_printed_so_is_not_said_to_agree() -> None:
    assert judge((3, 2), (3, 2.00001)) == DIFFER
    assert judge((2.5, 6.5), (2.52, 6.48), by=0.05) == AGREE


# --- dynamic DRF ---


def test_shares_of_section_4_tend_to_what_is_printed() -> None:
    rows = list_rows(dynamic_drf_steps.reproduce_sums(LAB))

    for row in rows:
        m = int(row["resources"])
        assert float(row["first_share"]) == pytest.approx(m / (m + 1), rel=1e-4)
        assert float(row["last_share"]) == pytest.approx(1 / (m + 1))
        assert float(row["sum"]) == pytest.approx((m * m + 1) / (m + 1), rel=1e-4)
        assert float(row["drf_sum"]) == pytest.approx((m + 1) / 2, rel=1e-4)
    assert all(each.why.startswith("they agree") for each in dynamic_drf_steps.reproduce_sums(LAB).comparisons)


def test_algorithm_1_has_our_shares_and_as_printed_uses_more_than_there_is() -> None:
    ticks = itertools.count()
    outcome = dynamic_drf_steps.reproduce_algorithm_1(Lab(is_full=False, clock=lambda: float(next(ticks))))

    assert outcome.comparisons[0].why == AGREE
    assert max(read_column(outcome, "largest_difference")) < 1e-12
    assert max(read_column(outcome, "excess")) < 1e-12
    assert max(read_column(outcome, "excess_as_printed")) > 0.01


def test_times_are_the_least_of_several() -> None:
    times = itertools.cycle([0.0, 5.0, 5.0, 6.0, 6.0, 9.0])
    outcome = dynamic_drf_steps.reproduce_algorithm_1(Lab(is_full=False, clock=lambda: next(times)))

    assert set(read_column(outcome, "fairbind_seconds")) == {1.0}
    assert set(read_column(outcome, "bisection_seconds")) == {1.0}
