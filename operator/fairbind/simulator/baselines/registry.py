"""All baselines by id, and the policy that each one is in a simulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from fairbind.model import Snapshot
from fairbind.scheduling import POLICIES, Policy
from fairbind.scheduling.policies.fit import BestFit
from fairbind.scheduling.policies.measures import Measure, build_cluster_shares
from fairbind.simulator.baselines import volcano
from fairbind.simulator.baselines.armada import CostsWithNextTask
from fairbind.simulator.baselines.base import FGD_PREFIX
from fairbind.simulator.baselines.fgd import FragmentationGradient, Typical, find_typical_tasks
from fairbind.simulator.baselines.kai import PartsOfDividedResources
from fairbind.simulator.baselines.kube_scheduler import LeastAllocated
from fairbind.simulator.baselines.kueue import SharesAboveQuota
from fairbind.simulator.baselines.outside import find_rules, load_rule
from fairbind.simulator.baselines.yunikorn import LargestFractions
from fairbind.simulator.scenario import Scenario
from fairbind.simulator.slots import SLOTS
from fairbind.simulator.workload import Workload

_WITH_FGD: Final = ("best-fit-drfh", "ps-dsf", "fifo")
"""The policies that can have their servers chosen by fragmentation."""


def _rule_of(name: str, baseline: str, order: str, build_measure: Callable[[Snapshot], Measure]) -> Policy:
    return Policy(
        id=baseline,
        name=f"The rule of {name}, by our reading",
        paper=f"its public documentation; see fairbind.simulator.baselines.{baseline.removesuffix('-rule')}",
        order=order,
        server=POLICIES["best-fit-drfh"].server,
        build_measure=build_measure,
        build_fit=BestFit,
        mechanism=None,
    )


_RULES = (
    _rule_of("Volcano", "volcano-rule", "the least weighted dominant share of all nodes", volcano.build_measure),
    _rule_of("YuniKorn", "yunikorn-rule", "the least of the largest fractions, without weights", LargestFractions),
    _rule_of("Kueue", "kueue-rule", "the least weighted share above the nominal quota", SharesAboveQuota),
    _rule_of("KAI", "kai-rule", "the least part of a fair share, divided by resource", PartsOfDividedResources),
    _rule_of("Armada", "armada-rule", "the least weighted cost with the next task", CostsWithNextTask),
    Policy(
        id="kube-scheduler-rule",
        name="The rule of kube-scheduler, by our reading",
        paper="its public documentation; see fairbind.simulator.baselines.kube_scheduler",
        order="the task of any tenant with the highest priority, then the one that has waited longest",
        server="the one with the most cpu and memory left after the task",
        build_measure=build_cluster_shares,
        build_fit=LeastAllocated,
        mechanism=None,
        is_fair=False,
    ),
)
RULES: Mapping[str, Policy] = {rule.id: rule for rule in _RULES}
"""The rules of other schedulers, by id."""

BASELINES: Final = (SLOTS, *RULES, *(FGD_PREFIX + policy for policy in _WITH_FGD))
KNOWN_POLICIES: Final = (*POLICIES, *BASELINES)
"""The ids of fairbind's own policies that can be simulated."""


def list_policies() -> list[str]:
    """Return the ids of all policies that can be simulated, those from outside last."""
    return list(dict.fromkeys((*KNOWN_POLICIES, *find_rules())))


def load_outside(policy: str) -> Policy | None:
    """Return the policy of this id that another package brings; None for one of fairbind's own.

    Raises InvalidProblemError where it cannot be used.
    """
    return load_rule(policy, KNOWN_POLICIES)


def build_baseline(policy: str, scenario: Scenario, workload: Workload) -> Policy | None:
    """Return what decides in place of a policy of the operator; None where one of those decides."""
    if policy in BASELINES and policy.startswith(FGD_PREFIX):
        return make_fgd(policy.removeprefix(FGD_PREFIX), find_typical_tasks(scenario, workload))
    return RULES.get(policy) if policy in KNOWN_POLICIES else load_outside(policy)


def make_fgd(policy: str, typical: Typical) -> Policy:
    """Return a policy whose servers are chosen by fragmentation, for these typical tasks."""
    base = POLICIES[policy]
    return replace(
        base,
        id=FGD_PREFIX + policy,
        name=f"{base.name}, with fragmentation gradient descent",
        server="the one where the fewest GPUs become useless to typical tasks",
        build_fit=lambda snapshot: FragmentationGradient(snapshot, typical),
    )
