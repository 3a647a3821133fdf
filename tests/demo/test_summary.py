from __future__ import annotations

from dataclasses import replace

import pytest

from demo.observe import Sample
from demo.scenes import make_sample
from demo.summary import GpuUse, Outcome, compute_outcome, explain, format_summary
from demo.workload import CAST, VISION

LIMITED = replace(VISION, guarantee={"T4": 12}, limit={"A100": 4})
GPUS = {"A100": GpuUse(4, 32), "T4": GpuUse(15, 16)}


def sum_up(*samples: Sample, policy: str = "best-fit-drfh") -> Outcome:
    return compute_outcome(samples, policy=policy, limited=LIMITED, gpus=GPUS)


def test_shares_are_means_of_the_last_part() -> None:
    outcome = sum_up(make_sample(10.0, web=0.9), make_sample(55.0, web=0.3), make_sample(60.0, web=0.4))
    assert outcome.window_seconds == 10.0
    assert outcome.share["web"] == pytest.approx(0.35)
    assert outcome.weighted_share["web"] == pytest.approx(0.175)


def test_a_tenant_that_came_within_the_window_is_averaged_over_its_own_samples() -> None:
    early = make_sample(58.0)
    early = replace(early, tenants=early.tenants[: len(CAST.first)])
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
        "(the limit is 4)",
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


def test_what_is_held_of_each_model_is_told_with_what_is_promised() -> None:
    text = " ".join(explain(sum_up(make_sample())))
    assert "vision needs a GPU. It holds 4 of 32 A100 (the limit is 4), 15 of 16 T4 (12 are guaranteed)." in text
    assert "guaranteed" not in " ".join(explain(sum_up(make_sample(), policy="fifo"))), "fifo looks at no guarantee"


def test_children_share_what_their_parent_gets() -> None:
    outcome = sum_up(make_sample(web=0.38, shop=0.25, search=0.13))
    assert "Of the 0.380 of web its children hold: shop (weight 2) 0.250, search (weight 1) 0.130." in explain(outcome)
    assert "web" in outcome.backlogged
    assert {"shop", "search"}.isdisjoint(outcome.backlogged), "they are compared with each other alone"
    assert "\n    shop          2  cpu       0.250" in format_summary(outcome)
