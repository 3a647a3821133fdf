"""A mechanism is one entry: what the exact problem asks of it are fields, so that a new one needs one line.

Each test adds one line to the registry, a mechanism under an id that no code knows. What comes out must be what the
fields say, and something else when they say something else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from fairbind.fairness.mechanisms.mechanism import LevelScope, Mechanism, ShareSum
from fairbind.fairness.mechanisms.registry import MECHANISMS, make_registry
from fairbind.model import PolicySettings, Snapshot
from fairbind.model.errors import InvalidProblemError
from fairbind.scheduling import POLICIES
from fairbind.scheduling.fair_shares.problem import ExactProblem, make_exact_problem, solve_exactly
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot

NEW = "newcomer"
FOLLOWS_NEW = {NEW: replace(POLICIES["drfh"], id=NEW, mechanism=NEW)}


def add(mechanism: Mechanism) -> Mapping[str, Mechanism]:
    """The registry with one line more."""
    return make_registry([*MECHANISMS.values(), replace(mechanism, id=NEW)])


def pose(snapshot: Snapshot, mechanisms: Mapping[str, Mechanism]) -> ExactProblem:
    exact = make_exact_problem(snapshot, PolicySettings(NEW), policies=FOLLOWS_NEW, mechanisms=mechanisms)
    assert exact is not None
    return exact


def solve(snapshot: Snapshot, mechanism: Mechanism) -> Mapping[str, float]:
    mechanisms = add(mechanism)
    return solve_exactly(pose(snapshot, mechanisms), mechanisms=mechanisms).fair_shares


def build_mixed(*servers: tuple[int, int]) -> Snapshot:
    """Tenant a has CPU tasks and smaller memory tasks, b CPU tasks only; no end of any."""
    table = build_servers({f"s{k}": server for k, server in enumerate(servers)})
    placement = build_placement(table)
    classes = [build_class(name, demand_r, placement, 9000) for name, demand_r in (("a", (2, 0)), ("a", (0, 1)))]
    return build_snapshot(table, [*classes, build_class("b", (1, 0), placement, 9000)])


def build_uneven() -> Snapshot:
    """Two unlike servers; a has tasks of two shapes, b of a third one."""
    table = build_servers({"c": (1200, 300), "m": (200, 900)})
    placement = build_placement(table)
    classes = [build_class("a", demand_r, placement, 9000) for demand_r in ((3, 1), (1, 4))]
    return build_snapshot(table, [*classes, build_class("b", (1, 1), placement, 9000)])


def test_one_bidder_is_one_average_task() -> None:
    """As one bidder a has a task of a CPU and half a memory: both get half. In parts it has all of the memory."""
    snapshot = build_mixed((1000, 1000))
    whole = replace(MECHANISMS["drf"], is_one_bidder=True)

    exact = pose(snapshot, add(whole))

    assert exact.problem.tenant_names == ("a", "b")
    assert exact.problem.demand_ir.tolist() == [[1.0, 0.5], [1.0, 0.0]]
    assert solve(snapshot, whole) == pytest.approx({"a": 0.5, "b": 0.5})
    assert solve(snapshot, replace(whole, is_one_bidder=False)) == pytest.approx({"a": 1.0, "b": 0.5})


@pytest.mark.parametrize("model", ["drf", "drfh", "ps-dsf", "per-server-drf"])
@pytest.mark.parametrize(
    ("share_sum", "b"), [(ShareSum.DOMINANT, 1 / 2), (ShareSum.SUM_OF_SHARES, 3 / 5), (ShareSum.TASK_SHARE, 3 / 5)]
)
def test_shares_of_unlike_tasks_add_up_as_the_entry_says(model: str, share_sum: ShareSum, b: float) -> None:
    """By dominant shares a's memory tasks cost it no CPU. Added up, its CPU tasks have 2/3 of its weight."""
    mechanism = replace(MECHANISMS[model], share_sum=share_sum)

    assert solve(build_mixed((1000, 1000)), mechanism) == pytest.approx({"a": 1.0, "b": b})


@pytest.mark.parametrize(
    ("model", "scope", "a"),
    [
        ("per-server-drf", LevelScope.SERVER, 1 / 2),  # half of each server
        ("ps-dsf", LevelScope.SERVER_CLASS, 1 / 2),  # half of everything
        ("drfh", LevelScope.CLUSTER, 1 / 2),
        ("ps-dsf", LevelScope.SERVER, 5 / 8),  # all of x, where only its own part is, and half of y
        ("drfh", LevelScope.SERVER, 5 / 8),
    ],
)
def test_parts_on_different_servers_share_a_weight_if_all_tasks_count(model: str, scope: LevelScope, a: float) -> None:
    """Half of a's tasks may use x only and half y only; b may use both."""
    table = build_servers({"x": (1000, 9000), "y": (3000, 9000)})
    classes = [build_class("a", (1, 0), build_placement(table, only=[server]), 9000) for server in ("x", "y")]
    snapshot = build_snapshot(table, [*classes, build_class("b", (1, 0), build_placement(table), 9000)])

    answer = solve(snapshot, replace(MECHANISMS[model], level_scope=scope))

    assert answer == pytest.approx({"a": a, "b": 1 - a})


@pytest.mark.parametrize(
    ("model", "trait"),
    [
        ("tsf", {"share_sum": ShareSum.DOMINANT}),
        ("tsf", {"share_sum": ShareSum.SUM_OF_SHARES}),
        ("asset-fairness", {"share_sum": ShareSum.DOMINANT}),
        ("ps-dsf", {"level_scope": LevelScope.CLUSTER}),
        ("ps-dsf", {"level_scope": LevelScope.SERVER}),
        ("per-server-drf", {"level_scope": LevelScope.SERVER_CLASS}),
        ("per-server-drf", {"level_scope": LevelScope.CLUSTER}),
        ("drfh", {"level_scope": LevelScope.SERVER_CLASS}),
        ("drfh", {"share_sum": ShareSum.SUM_OF_SHARES}),
        ("drfh", {"share_sum": ShareSum.TASK_SHARE}),
        ("ceei", {"is_one_bidder": False}),
    ],
)
def test_a_new_entry_answers_as_its_model_and_otherwise_with_another_trait(
    model: str, trait: dict[str, object]
) -> None:
    snapshot = build_uneven()
    expected = make_exact_problem(snapshot, PolicySettings(model))
    assert expected is not None
    shares = solve_exactly(expected).fair_shares

    assert solve(snapshot, MECHANISMS[model]) == shares
    assert solve(snapshot, replace(MECHANISMS[model], **trait)) != pytest.approx(shares, rel=1e-6)  # type: ignore[arg-type]


def test_an_id_is_taken_once_and_one_that_is_not_in_the_registry_is_unknown() -> None:
    with pytest.raises(ValueError, match="two mechanisms have the id 'drf'"):
        make_registry([*MECHANISMS.values(), MECHANISMS["drf"]])
    with pytest.raises(InvalidProblemError, match="mechanism: 'newcomer' is unknown"):
        make_exact_problem(build_uneven(), PolicySettings(NEW), policies=FOLLOWS_NEW)
    exact = pose(build_uneven(), add(MECHANISMS["drf"]))
    with pytest.raises(InvalidProblemError, match="mechanism: 'newcomer' is unknown"):
        solve_exactly(exact)
