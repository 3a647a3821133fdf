"""Each rule on an example that was computed by hand, beside what fairbind's own policy makes of it."""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest

from fairbind.model import InvalidProblemError
from fairbind.simulator.baselines.kai import divide
from fairbind.simulator.baselines.registry import KNOWN_POLICIES, RULES, make_fgd
from fairbind.simulator.driver import _make_cache, name_node
from fairbind.simulator.parsing import parse_scenario
from fairbind.what_if.virtual_operator import VirtualOperator
from simulator.scenarios import Json, find_attempts, make_entry, run

Counts = dict[str, int]


def make_cluster(*shapes: Json, workload: list[Json], tenants: list[Json], **more: Any) -> Json:
    """Shapes with one node each, in which memory counts only where it is named. Nothing ends before the horizon."""
    return {"cluster": list(shapes), "tenants": tenants, "workload": workload, "horizon": 5, **more}


def make_tasks(tenant: str, *, tasks: int = 20, **requests: Any) -> Json:
    return make_entry(tenant, tenant=tenant, tasks=tasks, duration="forever", pod={"requests": requests})


def count_running(document: Json, policy: str) -> Counts:
    rows = [row for row in run(document, policy).shares if row.time == 0]
    return {row.tenant: row.running for row in rows}


def name_tenants(names: str = "ab", **weights: int) -> list[Json]:
    return [{"name": name, "weight": weights.get(name, 1)} for name in names]


def test_volcanos_rule_counts_nodes_that_take_no_pods() -> None:
    """Usable are 8 cpus and 8 of memory, so both tasks are 1/8. With the cordoned node b's are 0.5/16, a's 1/16."""
    document = make_cluster(
        {"shape": "open", "capacity": {"cpu": 8, "memory": "8Gi"}},
        {"shape": "shut", "capacity": {"cpu": 8, "memory": "64Gi"}},
        workload=[make_tasks("a", cpu=1, memory="512Mi"), make_tasks("b", cpu=0.5, memory="1Gi")],
        tenants=name_tenants(),
        events=[{"at": 0, "cordon": ["shut-0"]}],
    )
    assert count_running(document, "volcano-rule") == {"a": 4, "b": 6}
    assert count_running(document, "best-fit-drfh") == {"a": 5, "b": 5}


def test_yunikorns_rule_knows_no_weights() -> None:
    document = make_cluster(
        {"shape": "n", "capacity": {"cpu": 8}},
        workload=[make_tasks("a", cpu=1), make_tasks("b", cpu=1)],
        tenants=name_tenants(a=3),
    )
    assert count_running(document, "yunikorn-rule") == {"a": 4, "b": 4}
    assert count_running(document, "best-fit-drfh") == {"a": 6, "b": 2}


def test_kueues_rule_does_not_look_below_the_quota() -> None:
    """Half of 8 cpus is each one's quota. Up to it a goes on, on the only node that b may use, which is full then."""
    document = make_cluster(
        {"shape": "d", "capacity": {"cpu": 4}, "labels": {"disk": "ssd"}},
        {"shape": "e", "capacity": {"cpu": 4}},
        workload=[
            make_tasks("a", cpu=1),
            make_entry(
                "b",
                tenant="b",
                tasks=20,
                duration="forever",
                pod={"requests": {"cpu": 1}, "nodeSelector": {"disk": "ssd"}},
            ),
        ],
        tenants=name_tenants(),
    )
    assert count_running(document, "kueue-rule") == {"a": 8, "b": 0}
    assert count_running({**document, "guided": False}, "best-fit-drfh") == {"a": 6, "b": 2}
    assert count_running(document, "best-fit-drfh") == {"a": 4, "b": 4}


@pytest.mark.parametrize(("fit", "shape"), [("dominant-resource", "a"), ("first-resource", "a"), ("cosine", "b")])
def test_a_scenario_chooses_the_fit(fit: str, shape: str) -> None:
    """Of 120 cpus and 120 GiB a task asks for 8 of both: from b it is further away by distance, nearer by angle."""
    document = make_cluster(
        {"shape": "a", "capacity": {"cpu": 20, "memory": "8Gi"}, "labels": {"open": "true"}},
        {"shape": "b", "capacity": {"cpu": 20, "memory": "34Gi"}, "labels": {"open": "true"}},
        {"shape": "rest", "capacity": {"cpu": 80, "memory": "78Gi"}},
        workload=[make_entry("a", pod={"requests": {"cpu": 8, "memory": "8Gi"}, "nodeSelector": {"open": "true"}})],
        tenants=name_tenants(),
    )
    ((attempt,),) = find_attempts(run({**document, "fit": fit, "guided": False})).values()
    assert attempt[3] == f"{shape}-0"


def test_a_scenario_has_no_other_fits() -> None:
    with pytest.raises(InvalidProblemError, match="fit must be one of dominant-resource, first-resource, cosine"):
        parse_scenario({**make_gpu_cluster(), "fit": "best"})


def test_kueues_rule_gives_what_is_above_quotas_by_weight() -> None:
    """Quotas of 12 cpus by weights 1, 2 and 1 are 3, 6 and 3; c wants nothing, so 3 cpus go as 1 and 2."""
    document = make_cluster(
        {"shape": "n", "capacity": {"cpu": 12}},
        workload=[make_tasks("a", cpu=1), make_tasks("b", cpu=1)],
        tenants=name_tenants("abc", b=2),
    )
    assert count_running(document, "kueue-rule") == {"a": 4, "b": 8, "c": 0}


def test_kais_rule_divides_each_resource_by_itself() -> None:
    """B wants 2 cpus in all, so a's share is 10 cpus and 6 of memory, b's 2 and 6: parts of 1/5 and 1/6 a task."""
    document = make_cluster(
        {"shape": "n", "capacity": {"cpu": 12, "memory": "12Gi"}},
        workload=[make_tasks("a", cpu=2, memory="1Gi"), make_tasks("b", cpu=0.1, memory="1Gi")],
        tenants=name_tenants(),
    )
    assert count_running(document, "kai-rule") == {"a": 5, "b": 7}
    assert count_running(document, "best-fit-drfh") == {"a": 4, "b": 8}


def test_a_resource_is_divided_by_weight_up_to_the_demand() -> None:
    one = Fraction(1)

    assert divide(10, {"a": 9, "b": 9}, {"a": one, "b": 4 * one}) == {"a": 2, "b": 8}
    assert divide(10, {"a": 1, "b": 2, "c": 9}, {"a": one, "b": one, "c": one}) == {"a": 1, "b": 2, "c": 7}
    assert divide(10, {"a": 3, "b": 3}, {"a": one, "b": one}) == {"a": 3, "b": 3}


def test_armadas_rule_counts_the_next_task_too() -> None:
    """With its task a would have all of 4 cpus, so b starts three; then both would have all, and a's does not fit."""
    document = make_cluster(
        {"shape": "n", "capacity": {"cpu": 4}},
        workload=[make_tasks("a", cpu=4), make_tasks("b", cpu=1)],
        tenants=name_tenants(),
    )
    assert count_running(document, "armada-rule") == {"a": 0, "b": 4}
    assert count_running(document, "best-fit-drfh") == {"a": 1, "b": 0}


def test_armadas_rule_looks_at_the_task_after_those_that_started() -> None:
    """Of 8 cpus a wants 1, then 6; b three times 2. 1 < 2, then 7 > 2, 4, 6, so b comes before a's second."""
    document = make_cluster(
        {"shape": "n", "capacity": {"cpu": 8}},
        workload=[
            make_tasks("a", tasks=1, cpu=1),
            {**make_tasks("a", tasks=1, cpu=6), "name": "later"},
            make_tasks("b", tasks=3, cpu=2),
        ],
        tenants=name_tenants(),
    )
    assert count_running(document, "armada-rule") == {"a": 1, "b": 3}
    document["workload"][0]["pod"]["requests"]["cpu"] = 0.5
    document["workload"][1]["pod"]["requests"]["cpu"] = 1
    assert count_running(document, "armada-rule") == {"a": 2, "b": 3}, "0.5 and 1.5 are less than 2"


def test_armadas_rule_leaves_out_what_fits_nowhere() -> None:
    """Of 8 cpus the first task of a needs 9, so its next one counts, of 1: with it a has 1, 2, 3, 4 beside 2 and 4."""
    document = make_cluster(
        {"shape": "n", "capacity": {"cpu": 8}},
        workload=[
            {**make_tasks("a", tasks=1, cpu=9), "name": "first"},
            make_tasks("a", cpu=1),
            make_tasks("b", cpu=2),
        ],
        tenants=name_tenants(),
    )
    assert count_running(document, "armada-rule") == {"a": 4, "b": 2}


def test_kube_schedulers_rule_is_priority_then_time_and_spreads() -> None:
    """Two nodes with 2 cpus: b's task goes first for its priority, and the second to the emptier node."""
    document = make_cluster(
        {"shape": "n", "count": 2, "capacity": {"cpu": 4, "memory": "4Gi"}},
        workload=[
            make_tasks("a", tasks=2, cpu=1),
            make_entry("b", tenant="b", tasks=1, duration="forever", pod={"requests": {"cpu": 3}, "priority": 5}),
        ],
        tenants=name_tenants(),
    )
    servers = {task: one[0][3] for task, one in find_attempts(run(document, "kube-scheduler-rule")).items()}

    assert servers == {"b-0": "n-0", "a-0": "n-1", "a-1": "n-1"}


def test_kube_schedulers_rule_judges_nodes_with_the_task_on_them() -> None:
    """Of 4 cpus on a small node and 6 of 10 on a large one, both free parts; the task leaves 3/4 and 9/10."""
    document = make_cluster(
        {"shape": "a-small", "capacity": {"cpu": 4}},
        {"shape": "large", "capacity": {"cpu": 10}},
        workload=[make_tasks("a", tasks=1, cpu=1)],
        tenants=name_tenants("a"),
    )
    assert find_attempts(run(document, "kube-scheduler-rule"))["a-0"][0][3] == "large-0"


def make_gpu_cluster() -> Json:
    """A node with two GPUs whose name comes first, and one without. A GPU needs 6 cpus, the other task takes 4."""
    return make_cluster(
        {"shape": "gpu", "capacity": {"cpu": 12, "example.com/gpu": 2}},
        {"shape": "plain", "capacity": {"cpu": 12}},
        workload=[
            make_tasks("a", tasks=2, cpu=4),
            {**make_tasks("b", tasks=2, cpu=6, **{"example.com/gpu": 1}), "arrival": {"at": 1}},
        ],
        tenants=name_tenants(),
    )


@pytest.mark.parametrize("policy", ["fgd-best-fit-drfh", "fgd-fifo"])
def test_fragmentation_keeps_cpus_for_gpus(policy: str) -> None:
    """The node with GPUs has 12 cpus, so a's first task leaves enough for one of b's there and costs nothing.

    The second would leave 4, and both GPUs would be useless to b. First fit in its place would have done that.
    """
    servers = {task: one[0][3] for task, one in find_attempts(run(make_gpu_cluster(), policy)).items()}

    assert servers == {"a-0": "gpu-0", "a-1": "plain-0", "b-0": "gpu-0", "b-1": None}
    first_fit = find_attempts(run({**make_gpu_cluster(), "guided": False}, "first-fit-drfh"))
    assert [one[0][3] for one in first_fit.values()] == ["gpu-0", "gpu-0", None, None]


def build_operator(document: Json) -> VirtualOperator:
    scenario = parse_scenario(document)
    operator = VirtualOperator(partial(_make_cache, scenario, "fifo"), "fifo", lambda _bind: None)
    for shape in scenario.shapes.values():
        operator.cache.nodes.apply(name_node(shape.node, f"{shape.name}-0"))
    return operator


def test_fragmentation_by_hand() -> None:
    """2 tasks of 6 cpus and a GPU, 3 of 4 cpus: what a placement adds, times the number of typical tasks."""
    snapshot = build_operator(make_gpu_cluster()).cache.build_snapshot()
    axis = {name: r for r, name in enumerate(snapshot.resources)}
    typical = {
        (("cpu", 6000), ("example.com/gpu", 1)): 2,
        (("cpu", 4000),): 3,
        (("cpu", 1), ("example.com/none", 1)): 1,
    }
    fit = make_fgd("fifo", typical).build_fit(snapshot)

    def grow(free: dict[str, int], demand: dict[str, int]) -> float:
        free_r, demand_r = ([some.get(name, 0) for name in axis] for some in (free, demand))
        score = fit.build_score(demand_r)
        left_rn = np.array(free_r, dtype=np.float64)[:, None].repeat(2, axis=1)
        many = score.score_many(np.array([0, 1]), left_rn)
        one = score.score_one(0, free_r)
        assert many.tolist() == [one, one]
        return one

    both = {"cpu": 12000, "example.com/gpu": 2}
    assert grow(both, {"cpu": 4000}) == 0, "8 cpus are enough for a task with a GPU"
    assert grow(both, {"cpu": 8000}) == 2 * 2, "both GPUs are lost to two tasks"
    assert grow(both, {"cpu": 6000, "example.com/gpu": 1}) == -4, "one GPU less is useless to 3 + 1 tasks"
    assert grow({"cpu": 6000, "example.com/gpu": 1}, {"cpu": 6000, "example.com/gpu": 1}) == -4
    assert grow({"cpu": 5000, "example.com/gpu": 1}, {"cpu": 1000}) == 0, "it was useless before"
    assert grow({"cpu": 12000}, {"cpu": 8000}) == 0


def test_a_baseline_has_no_fair_share_but_a_fit_rule_keeps_that_of_its_policy() -> None:
    document = make_gpu_cluster()

    assert all(row.fair_share is None for row in run(document, "kai-rule").shares)
    by_policy = {
        policy: [row.fair_share for row in run(document, policy).shares] for policy in ("ps-dsf", "fgd-ps-dsf")
    }
    assert by_policy["ps-dsf"] == by_policy["fgd-ps-dsf"]
    assert None not in by_policy["ps-dsf"]


def test_all_are_known_to_scenarios() -> None:
    document = {**make_gpu_cluster(), "policies": list(KNOWN_POLICIES)}

    assert parse_scenario(document).policies == KNOWN_POLICIES
    assert len(RULES) == 6
