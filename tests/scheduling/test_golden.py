"""The papers' printed examples, as far as their numbers are whole."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from fairbind.model import PolicySettings, Snapshot
from fairbind.scheduling import POLICIES
from fairbind.scheduling.fair_shares.problem import make_exact_problem, solve_exactly
from scheduling.reference import check_report
from scheduling.worlds import (
    build_class,
    build_placement,
    build_servers,
    build_snapshot,
    count_by_tenant,
    decide,
    order_of,
    weigh,
)

GOLDEN = Path(__file__).parents[1] / "golden"
EXAMPLES: dict[str, dict[str, Any]] = {
    path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(GOLDEN.glob("*.json"))
}
CASES = [(name, policy) for name, example in EXAMPLES.items() for policy in example["expected"]]


def build_example(example: dict[str, Any], policy: str) -> Snapshot:
    servers = build_servers(example["servers"])
    everywhere = build_placement(servers)
    tenants = example["tenants"]
    classes = []
    for name, tenant in tenants.items():
        placement = build_placement(servers, only=tenant["only"]) if "only" in tenant else everywhere
        classes.append(build_class(name, tenant["demand"], placement, example["tasks_each"]))
    snapshot = build_snapshot(
        servers,
        classes,
        tenants=[weigh(name, tenant.get("weight", 1)) for name, tenant in tenants.items()],
        resources=example["resources"],
    )
    exact = make_exact_problem(snapshot, PolicySettings(policy)) if POLICIES[policy].follows_targets else None
    return snapshot if exact is None else replace(snapshot, targets=solve_exactly(exact).targets)


@pytest.mark.parametrize(("name", "policy"), CASES)
def test_the_printed_allocation_comes_out(name: str, policy: str) -> None:
    example = EXAMPLES[name]
    snapshot = build_example(example, policy)

    report = decide(snapshot, policy)

    assert count_by_tenant(report) == example["expected"][policy]
    if "order" in example:
        assert "".join(order_of(report)) == example["order"]
    if "shares" in example:
        assert dict(report.weighted_shares) == {t: float(Fraction(s)) for t, s in example["shares"].items()}
    check_report(snapshot, report)


def test_the_page_about_policies_shows_what_comes_out() -> None:
    page = (GOLDEN.parents[1] / "docs" / "policies.md").read_text(encoding="utf-8")
    rows = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("|")]

    for policy, placed in EXAMPLES["policies-page-small-nodes"]["expected"].items():
        assert [policy, str(placed["edge"]), str(placed["batch"])] in rows


def test_every_printed_example_has_a_source() -> None:
    assert len(EXAMPLES) >= 4
    assert all(example["source"] for example in EXAMPLES.values())
