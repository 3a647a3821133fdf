"""Section 6.1 of the DRF paper: which mechanism has which property, and the examples of what is violated.

Source: Ghodsi, Zaharia, Hindman, Konwinski, Shenker, Stoica, "Dominant Resource Fairness: Fair Allocation of Multiple
Resource Types", NSDI 2011.
"""

from __future__ import annotations

from typing import Final

from fairbind.fairness import compute_allocation, parse_problem
from fairbind.fairness.mechanisms.guarantees import GUARANTEES, is_guaranteed
from fairbind.fairness.properties import PROPERTIES
from fairbind.fairness.properties.strategy import compute_true_tasks, read_lie
from fairbind.simulator.reproduction.drf import MECHANISMS, divide_example
from fairbind.simulator.reproduction.drf_divisions import (
    divide,
    list_columns,
    write_number,
    write_numbers,
)
from fairbind.simulator.reproduction.judging import AGREE, DIFFER, judge
from fairbind.simulator.reproduction.outcome import Comparison, Lab, Outcome, Panel, Series, Value

FIGURE_6: Final = ((16, 1), (1, 2))
LIE: Final = (16, 8)
HUNDRED: Final = (100, 100)
WITH_THREE: Final = ((4, 1), (1, 16), (16, 1))
"""Section 6.1.2: demands of three users, of whom the third leaves."""
PRINTED_HOLDERS: Final = {
    "sharing-incentive": {"ceei", "drf"},
    "strategy-proofness": {"asset-fairness", "drf"},
    "envy-freeness": {"asset-fairness", "ceei", "drf"},
    "pareto-optimality": {"asset-fairness", "ceei", "drf"},
    "single-resource-reduction": {"asset-fairness", "ceei", "drf"},
    "bottleneck-fairness": {"ceei", "drf"},
    "population-monotonicity": {"asset-fairness", "drf"},
    "resource-monotonicity": set(),
}
"""Table 2."""


def reproduce_figure_5(_: Lab) -> Outcome:
    """Theorem 1: asset fairness has no sharing incentive."""
    found = divide("asset-fairness", (30, 30), [(1, 3), (1, 1)])
    printed = ((6, 18), (12, 12))
    half = found.allocation.problem.capacity_kr[0] / 2
    return Outcome(
        "drf-figure-5",
        "Asset fairness without a sharing incentive",
        "Theorem 1 as printed: 30 of each of two resources; a task of user 1 needs (1, 3), one of user 2 (1, 1). "
        "Divisible tasks.",
        (*list_columns(), "paper_resource_1", "paper_resource_2"),
        [(*row, *paper) for row, paper in zip(found.list_rows(), printed, strict=True)],
        [found.draw()],
        [
            Comparison(
                "6 and 12 tasks: (6, 18) and (12, 12)",
                f"{write_numbers(found.tasks_i)} tasks: {write_numbers(found.held_ir)}",
                judge(printed, found.held_ir),
            ),
            Comparison(
                "each has 24 of both together",
                write_numbers(found.held_ir.sum(axis=1)),
                judge((24, 24), found.held_ir.sum(axis=1)),
            ),
            Comparison(
                "user 2 has less than half, 15, of either",
                found.describe("sharing-incentive"),
                AGREE if (found.held_ir[1] < half).all() else DIFFER,
            ),
        ],
    )


def reproduce_theorem_2(_: Lab) -> Outcome:
    """Theorem 2: asset fairness is not fair at a bottleneck."""
    found = {name: divide(name, (21, 21), [(3, 2), (4, 1)]) for name in ("asset-fairness", "drf")}
    asset, drf = found["asset-fairness"], found["drf"]
    return Outcome(
        "drf-theorem-2",
        "Asset fairness without bottleneck fairness",
        "Theorem 2 as printed: 21 of each of two resources; a task of user 1 needs (3, 2), one of user 2 (4, 1). "
        "Divisible tasks. DRF beside it is ours.",
        ("mechanism", *list_columns()),
        [(name, *row) for name, each in found.items() for row in each.list_rows()],
        [each.draw(MECHANISMS[name]) for name, each in found.items()],
        [
            Comparison("3 tasks each", write_numbers(asset.tasks_i), judge((3, 3), asset.tasks_i)),
            Comparison(
                "each has 15 of both together",
                write_numbers(asset.held_ir.sum(axis=1)),
                judge((15, 15), asset.held_ir.sum(axis=1)),
            ),
            Comparison(
                "user 1 has 3/7 of resource 1, the bottleneck",
                f"{write_numbers(asset.part_ir[:, 0])} of it; {asset.describe('bottleneck-fairness')}; DRF gives "
                f"{write_numbers(drf.part_ir[:, 0])}",
                judge(3 / 7, asset.part_ir[0, 0]),
            ),
        ],
    )


def reproduce_theorem_3(_: Lab) -> Outcome:
    """Theorem 3: with asset fairness more of a resource can leave a user with less."""
    pools = {"before": (77, 77), "after": (77, 154)}
    found = {name: divide("asset-fairness", pool, [(4, 2), (1, 1)], users=("A", "B")) for name, pool in pools.items()}
    printed = {"before": ((44, 22), (33, 33)), "after": ((42, 21), (35, 35))}
    sums = {"before": (66 / 77, 66 / 77), "after": (105 / 154, 105 / 154)}
    said = {
        "before": "A has (44, 22), B has (33, 33); shares sum to 66/77 each",
        "after": "with twice as much of resource 2, A has (42, 21), B has (35, 35); shares sum to 105/154 each",
    }
    comparisons = []
    for name, each in found.items():
        sum_i = each.part_ir.sum(axis=1)
        near = judge(printed[name], each.held_ir), judge(sums[name], sum_i)
        ours = f"{write_numbers(each.held_ir)}; {write_numbers(sum_i)}"
        comparisons.append(Comparison(said[name], ours, DIFFER if DIFFER in near else AGREE))
    return Outcome(
        "drf-theorem-3",
        "Asset fairness without resource monotonicity",
        "Theorem 3 as printed: 77 of each of two resources, then 154 of the second; a task of A needs (4, 2), one of B "
        "(1, 1). Divisible tasks.",
        ("pool", *list_columns(), "paper_resource_1", "paper_resource_2"),
        [
            (name, *row, *paper)
            for name, each in found.items()
            for row, paper in zip(each.list_rows(), printed[name], strict=True)
        ],
        [each.draw(f"Pool of {write_numbers(pools[name])}") for name, each in found.items()],
        comparisons,
    )


def reproduce_figure_6(_: Lab) -> Outcome:
    """CEEI is not strategy-proof: user 1 lies."""
    found = {"truth": divide("ceei", HUNDRED, FIGURE_6), "lie": divide("ceei", HUNDRED, (LIE, FIGURE_6[1]))}
    printed = {"truth": (100 / 31, 1500 / 31), "lie": (25 / 6, 100 / 3)}
    problem = found["truth"].allocation.problem
    told = {"tenant": "user 1", "demand": dict(zip(problem.resources, LIE, strict=True))}
    (gained,) = compute_true_tasks(problem, "ceei", [read_lie(problem, told)])
    true_tasks = float(found["truth"].tasks_i[0])
    return Outcome(
        "drf-figure-6",
        "CEEI, and a user who lies",
        "Section 6.1.2 as printed: 100 of each of two resources; a task of user 1 needs (16, 1), and it says (16, 8); "
        "one of user 2 needs (1, 2). Divisible tasks.",
        ("user_1_says", *list_columns(), "paper_tasks"),
        [
            (name, *row, paper)
            for name, each in found.items()
            for row, paper in zip(each.list_rows(), printed[name], strict=True)
        ],
        [found["truth"].draw("With the truth"), found["lie"].draw("With user 1 lying")],
        [
            Comparison(
                "with the truth 100/31 and 1500/31 tasks",
                write_numbers(found["truth"].tasks_i),
                judge(printed["truth"], found["truth"].tasks_i),
            ),
            Comparison(
                "with the lie 25/6 and 100/3",
                write_numbers(found["lie"].tasks_i),
                judge(printed["lie"], found["lie"].tasks_i),
            ),
            Comparison(
                "so user 1 runs more by lying",
                f"{write_number(gained)} of its true tasks in place of {write_number(true_tasks)}, "
                f"{gained / true_tasks - 1:.0%} more",
                AGREE if gained > true_tasks else DIFFER,
            ),
        ],
    )


def reproduce_population(_: Lab) -> Outcome:
    """CEEI is not population-monotonic: a user loses when another leaves."""
    found = {"before": divide("ceei", HUNDRED, WITH_THREE), "after": divide("ceei", HUNDRED, WITH_THREE[:2])}
    printed = {"before": (11.3, 5.4, 3.1), "after": (23.8, 4.8)}
    said = {"before": "11.3, 5.4 and 3.1 tasks", "after": "23.8 and 4.8 when user 3 has left, so user 2 loses"}
    return Outcome(
        "drf-section-6.1.2",
        "CEEI, and a user who leaves",
        "Section 6.1.2 as printed: 100 of each of two resources; tasks need (4, 1), (1, 16), (16, 1). Divisible tasks; "
        "the paper rounds to one digit.",
        ("users", *list_columns(), "paper_tasks"),
        [
            (name, *row, paper)
            for name, each in found.items()
            for row, paper in zip(each.list_rows(), printed[name], strict=True)
        ],
        [found["before"].draw("With user 3"), found["after"].draw("Without user 3")],
        [
            Comparison(
                said[name],
                ", ".join(f"{tasks:.4g}" for tasks in each.tasks_i),
                judge(printed[name], each.tasks_i, by=0.05),
            )
            for name, each in found.items()
        ],
    )


def _find_violation(mechanism: str, property_id: str) -> str:
    """Return what violates a property in the guarantee's own example, where it has one."""
    example = GUARANTEES[mechanism][property_id].counterexample
    if example is None:
        return ""
    problem = parse_problem(example["problem"])
    witness = PROPERTIES[property_id].find(problem, mechanism, compute_allocation(problem, mechanism))
    return "" if witness is None else witness.text


def reproduce_table_2(_: Lab) -> Outcome:
    """Who has which property, from the guarantees."""
    problem = divide_example("drf").allocation.problem
    order = ("asset-fairness", "ceei", "drf")
    holders = {each: {name for name in order if is_guaranteed(name, each, problem)} for each in PRINTED_HOLDERS}
    rows: list[tuple[Value, ...]] = []
    for property_id, printed in PRINTED_HOLDERS.items():
        for name in order:
            guarantee = GUARANTEES[name][property_id]
            marks = ("yes" if name in each else "no" for each in (printed, holders[property_id]))
            violation = "" if name in holders[property_id] else _find_violation(name, property_id)
            rows.append((property_id, name, *marks, guarantee.assumptions, guarantee.source, violation))
    shown = [row for row in rows if row[3] == "no"]
    comparisons = [
        Comparison(
            f"{PROPERTIES[each].name}: {_list_names(printed)}",
            _list_names(holders[each]),
            AGREE if printed == holders[each] else DIFFER,
        )
        for each, printed in PRINTED_HOLDERS.items()
    ]
    comparisons.append(
        Comparison(
            f"{sum(row[2] == 'no' for row in rows)} of {len(rows)} do not hold",
            f"{len(shown)}, and an example shows {sum(bool(row[-1]) for row in shown)} of them",
            AGREE if all((row[2] == "no") is (row[3] == "no") is bool(row[-1]) for row in rows) else DIFFER,
        )
    )
    names = [MECHANISMS[name] for name in order]
    return Outcome(
        "drf-table-2",
        "Properties of asset fairness, CEEI and DRF",
        "Ours are the guarantees of the library, for problems as that of section 4.1: one pool, every demand positive, "
        "endless tasks. Where a property does not hold, the guarantee's own example was solved.",
        ("property", "mechanism", "paper", "ours", "assumptions", "source", "violation"),
        rows,
        [
            Panel(
                "bars",
                "Mechanism",
                "Properties that hold, of 8",
                [
                    Series(title, names, [float(sum(name in each for each in marks.values())) for name in order])
                    for title, marks in (("paper", PRINTED_HOLDERS), ("fairbind", holders))
                ],
            )
        ],
        comparisons,
    )


def _list_names(holders: set[str]) -> str:
    return ", ".join(name for key, name in MECHANISMS.items() if key in holders) or "none"
