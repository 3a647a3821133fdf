"""The papers' printed examples, as far as their numbers are whole."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from fairbind.model import Snapshot
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


def build_example(example: dict[str, Any]) -> Snapshot:
    servers = build_servers(example["servers"])
    everywhere = build_placement(servers)
    tenants = example["tenants"]
    return build_snapshot(
        servers,
        [build_class(name, tenant["demand"], everywhere, example["tasks_each"]) for name, tenant in tenants.items()],
        tenants=[weigh(name, tenant.get("weight", 1)) for name, tenant in tenants.items()],
        resources=example["resources"],
    )


@pytest.mark.parametrize(("name", "policy"), CASES)
def test_the_printed_allocation_comes_out(name: str, policy: str) -> None:
    example = EXAMPLES[name]
    snapshot = build_example(example)

    report = decide(snapshot, policy)

    assert count_by_tenant(report) == example["expected"][policy]
    if "order" in example:
        assert "".join(order_of(report)) == example["order"]
    if "shares" in example:
        assert dict(report.weighted_shares) == {t: float(Fraction(s)) for t, s in example["shares"].items()}
    check_report(snapshot, report)


def test_every_printed_example_has_a_source() -> None:
    assert len(EXAMPLES) >= 4
    assert all(example["source"] for example in EXAMPLES.values())
