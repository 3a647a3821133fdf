"""The baseline `slots`: a scheduler that knows one resource, as the papers compare with.

The largest server (the most of each resource that any shape has) is divided into so many slots. A slot has a fixed
amount of cpu and memory, every server has as many slots as it has free capacity for, and a task takes as many whole
slots as cover its requests. Slots are given to tenants evenly, by weight, each on the first server that has them: the
operator's own cycle does that, with slots as one more resource that alone counts for shares. What a task asks for of
other resources counts as ever, and so does what other schedulers' pods of a snapshot take: they have no slots.

Source: Wang, Liang, Li, "Multi-Resource Fair Allocation in Heterogeneous Cloud Computing Systems", TPDS 2015, 6.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from math import ceil, floor
from typing import Final

import msgspec

from fairbind.cluster.objects.facts import CPU, MEMORY, NodeFacts, PodFacts
from fairbind.cluster.objects.requests import make_demand
from fairbind.model import PolicySettings
from fairbind.model.reservations import NO_RESERVATIONS
from fairbind.scheduling import POLICIES
from fairbind.simulator.baselines.base import DECIDED_OUTSIDE, find_base
from fairbind.simulator.scenario import Scenario, Shape

SLOTS: Final = "slots"
SLOT_RESOURCE: Final = "fairbind.io/slots"
DEFAULT_SLOTS: Final = 14
"""What the paper found best for the servers of Google's trace."""


def set_policy(settings: PolicySettings, policy: str) -> PolicySettings:
    """Return settings with which the operator's code decides as a policy does."""
    if policy == SLOTS:
        settings = replace(settings, fairness_resources=(SLOT_RESOURCE,), reservations=NO_RESERVATIONS)
        return replace(settings, policy="first-fit-drfh", guided=False)
    is_own = policy in POLICIES  # of the rules of others, and of other choices of servers, nothing is guided
    return replace(settings, policy=find_base(policy) or DECIDED_OUTSIDE, guided=settings.guided and is_own)


def divide_into_slots(scenario: Scenario) -> Scenario:
    """Return the scenario with slots on its nodes and in its pods' requests."""
    slot = compute_slot((shape.node for shape in scenario.shapes.values()), scenario.slots)
    shapes = {name: _divide_shape(shape, slot) for name, shape in scenario.shapes.items()}
    workload = [
        replace(
            entry,
            waiting=_cover(entry.waiting, slot),
            placed=_cover(entry.placed, slot),
            pods=tuple(
                replace(pod, waiting=_cover(pod.waiting, slot), placed=_cover(pod.placed, slot)) for pod in entry.pods
            ),
        )
        for entry in scenario.workload
    ]
    return replace(scenario, shapes=shapes, workload=tuple(workload))


def compute_slot(nodes: Iterable[NodeFacts], count: int) -> dict[str, Fraction]:
    """Return what a slot has of cpu and memory, in base units. count: slots of the largest server."""
    largest: dict[str, int] = {}
    for node in nodes:
        for resource, amount in node.allocatable:
            if resource in {CPU, MEMORY}:
                largest[resource] = max(amount, largest.get(resource, 0))
    return {resource: Fraction(amount, count) for resource, amount in largest.items()}


def _divide_shape(shape: Shape, slot: Mapping[str, Fraction]) -> Shape:
    present = tuple(_divide_node(node, slot) for node in shape.present)
    return replace(shape, node=_divide_node(shape.node, slot), present=present)


def _divide_node(node: NodeFacts, slot: Mapping[str, Fraction]) -> NodeFacts:
    amounts = dict(node.allocatable)
    slots = min((floor(amounts.get(resource, 0) / size) for resource, size in slot.items()), default=0)
    allocatable = tuple(sorted((amounts | {SLOT_RESOURCE: slots}).items()))
    divided: NodeFacts = msgspec.structs.replace(node, allocatable=allocatable)
    return divided


def _cover(pod: PodFacts, slot: Mapping[str, Fraction]) -> PodFacts:
    amounts = dict(pod.demand.real)
    slots = max((ceil(amounts.get(resource, 0) / size) for resource, size in slot.items()), default=0)
    covered: PodFacts = msgspec.structs.replace(pod, demand=make_demand(amounts | {SLOT_RESOURCE: max(1, slots)}))
    return covered
