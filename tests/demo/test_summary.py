from __future__ import annotations

from dataclasses import replace

import pytest

from demo.observe import Sample
from demo.scenes import make_sample
from demo.summary import Outcome, compute_outcome, explain, format_summary
from demo.workload import CAST


def sum_up(*samples: Sample, policy: str = "best-fit-drfh") -> Outcome:
    return compute_outcome(samples, policy=policy, pinned=CAST.pinned, pinned_limit=16)


def test_shares_are_means_of_the_last_part() -> None:
    outcome = sum_up(make_sample(10.0, web=0.9), make_sample(55.0, web=0.3), make_sample(60.0, web=0.4))
    assert outcome.window_seconds == 10.0
    assert outcome.share["web"] == pytest.approx(0.35)
    assert outcome.weighted_share["web"] == pytest.approx(0.175)


def test_a_tenant_that_came_within_the_window_is_averaged_over_its_own_samples() -> None:
    early = make_sample(58.0)
    early = replace(early, tenants=early.tenants[:3])
    assert sum_up(early, make_sample(60.0, research=0.2)).share["research"] == pytest.approx(0.2)


def test_jain_index_counts_backlogged_tenants_only() -> None:
    sample = make_sample(60.0, analytics=0.2, web=0.4, vision=0.3, research=0.0)
    tenants = tuple(replace(tenant, waiting=0) if tenant.name == "research" else tenant for tenant in sample.tenants)
    outcome = sum_up(replace(sample, tenants=tenants))
    assert outcome.backlogged == ("analytics", "web", "vision")
    assert outcome.free == ("analytics", "web")
    assert outcome.compute_jain(outcome.free) == pytest.approx(1.0)
    assert outcome.compute_jain(outcome.backlogged) == pytest.approx(0.5**2 / (3 * (0.04 + 0.04 + 0.01)))


def test_summary_says_what_was_promised() -> None:
    text = format_summary(sum_up(make_sample(60.0, bound=1200)))
    for part in (
        "Summary after 60 s of best-fit-drfh",
        "web             2  cpu       0.380  0.410         0.190      330       40",
        "research        2  cpu       0.380      -         0.190      201       40",
        "over the tenants with backlog: 0.961;",
        "that can use every node: 1.000 (1 is equal)",
        "1200 pods bound, 20.0 pods/s",
        "The worst of those who wait is 0.030 below its fair share",
        "Audit: pairs of tenants with envy: 2 by indivisible_tasks, 3 by history",
        "all of",
        "What to try next",
    ):
        assert part in text
    assert max(map(len, text.splitlines())) <= 80


def test_a_policy_without_fair_shares_is_not_held_against_any() -> None:
    text = format_summary(sum_up(replace(make_sample(), share_error=None, envy={"history": 0}), policy="fifo"))
    assert "fair share" not in text
    assert "with envy: none" in text
    assert "Audit" not in format_summary(sum_up(replace(make_sample(), envy={})))


def test_equal_shares_are_called_equal_and_unequal_ones_are_not() -> None:
    assert "is equal" in explain(sum_up(make_sample()))[0]
    assert "Not equal yet" in explain(sum_up(make_sample(web=0.9)))[0]


def test_a_pinned_tenant_that_holds_less_is_not_said_to_hold_all() -> None:
    outcome = compute_outcome([make_sample()], policy="best-fit-drfh", pinned=CAST.pinned, pinned_limit=20)
    assert "holds 16 of their 20 GPUs" in " ".join(explain(outcome))
