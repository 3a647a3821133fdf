"""Runs one policy on one workload, and measures how fair it was by two yardsticks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from fairbind.scheduling.fair_shares.audit import Cause
from fairbind.simulator.driver import simulate
from fairbind.simulator.parsing import parse_scenario
from fairbind.simulator.results import FindingRow, Run
from fairbind.simulator.workload import Workload, draw_workload

YARDSTICKS: Final = {"drfh": "best-fit-drfh", "ps-dsf": "ps-dsf"}
"""By mechanism: a policy to whose exact fair shares all are held."""
OURS: Final = ("best-fit-drfh", "first-fit-drfh", "ps-dsf", "tsf")
THEIRS: Final = (
    "volcano-rule",
    "yunikorn-rule",
    "kueue-rule",
    "kai-rule",
    "armada-rule",
    "kube-scheduler-rule",
    "fifo",
)
POLICIES: Final = (*OURS, *THEIRS)
TAIL_PERCENT: Final = 95.0
GPU_SUFFIX: Final = "/gpu"
HARMLESS: Final = frozenset({Cause.MISSING_DEMAND.value, Cause.INDIVISIBLE.value})
"""Causes of what a whole task more or less would undo, or more demand."""

Row = dict[str, Any]


def measure(document: Mapping[str, Any], policies: Sequence[str]) -> list[Row]:
    """Return a row for each policy: the columns of the table by name; None where there is nothing to say."""
    scenario = parse_scenario(document)
    workload = draw_workload(scenario)
    bases = tuple(YARDSTICKS.values())
    return [describe(simulate(scenario, workload, policy, yardsticks=bases), workload) for policy in policies]


def join_seeds(rows_of: Sequence[Sequence[Row]]) -> list[Row]:
    """Return a row for each policy, in which each number has become the list of it by seed. rows_of: by seed."""
    return [
        {"policy": same[0]["policy"]}
        | {key: [_round(row[key]) for row in same] for key in same[0] if key not in {"policy", "utilisation"}}
        | {"utilisation": {r: [_round(row["utilisation"][r]) for row in same] for r in same[0]["utilisation"]}}
        for same in zip(*rows_of, strict=True)
    ]


def _round(value: float | None) -> float | None:
    return value if value is None or isinstance(value, int) else float(f"{value:.6g}")


def describe(run: Run, workload: Workload) -> Row:
    """Return the row of one policy."""
    row: Row = {"policy": run.policy}
    for name, base in YARDSTICKS.items():
        row[f"share_error_{name}"], row[f"worst_part_{name}"] = run.closeness[base]
    measurements = len({share.time for share in run.shares})
    for key, is_envy in (("envies", True), ("alone_better", False)):
        row[key] = None if run.findings is None else count_findings(run.findings, is_envy=is_envy) / measurements
    row["deviation"] = run.summary["deviation"]["mean"]
    row["jain"] = run.summary["jain"]
    row["utilisation"] = dict(run.summary["utilisation"])
    row["slowdown_mean"], row["slowdown_p95"] = _find_slowdowns(run, workload)
    row["completed"], row["unfinished"] = run.summary["completed"], run.summary["unfinished"]
    row["gpus_unallocated"] = _find_idle_gpus(run)
    return row


def count_findings(findings: Sequence[FindingRow], *, is_envy: bool) -> int:
    """Return how often audits found that, beyond one task and of tenants that want more."""
    return sum(row.times for row in findings if row.cause not in HARMLESS and (row.envied is not None) == is_envy)


def _find_slowdowns(run: Run, workload: Workload) -> tuple[float | None, float | None]:
    """Return mean and 95th percentile over all tasks that ended."""
    durations = workload.duration_t.tolist()
    number, slowdowns = -1, []
    for row in run.tasks:  # in the order of their numbers, each with all its attempts
        number += row.attempts <= 1
        if row.end is not None:
            slowdowns.append((row.end - row.arrival) / durations[number])
    if not slowdowns:
        return None, None
    return float(np.mean(slowdowns)), float(np.percentile(slowdowns, TAIL_PERCENT))


def _find_idle_gpus(run: Run) -> float | None:
    """Return how many GPUs no task held, mean over the measurements; None where there are none."""
    times = {row.time for row in run.utilisation}
    idle = [row.capacity - row.used for row in run.utilisation if row.resource.endswith(GPU_SUFFIX)]
    return sum(idle) / len(times) if idle else None
