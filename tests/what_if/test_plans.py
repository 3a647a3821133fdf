"""What-if starts all pods of a plan or none; those of one that is taken back are decided again."""

from __future__ import annotations

from cluster.builders import make_node, make_pod
from fairbind.cluster.loop.pacing import MAX_OUTSTANDING
from fairbind.what_if.trial import Trial
from what_if.snapshots import make_snapshot, make_tenant
from what_if.torn import JoiningDecider, TornDecider


def test_no_pod_of_a_plan_starts_of_which_one_is_not_there() -> None:
    pods = [make_pod(f"p{n}", namespace="a", requests={"cpu": "1"}) for n in range(3)]
    trial = Trial(make_snapshot(nodes=[make_node()], pods=pods, tenants=[make_tenant("a")]))
    decider = trial.operator._decider = TornDecider()
    assumed: list[str] = []
    forget = trial.cache.forget

    def note(uid: str, *, postponed: bool = False) -> None:
        assumed.append(uid)
        assert trial.binds == []
        forget(uid, postponed=postponed)

    trial.cache.forget = note  # type: ignore[method-assign]
    trial.decide()

    (plan,) = decider.plans
    assert len(plan.binds) == 3
    assert assumed == [plan.binds[0].task.uid]
    assert sorted(bind.task.name for bind in trial.binds) == ["a/p0", "a/p1", "a/p2"]
    assert trial.operator._pacing.get_state().outstanding == 0


def test_a_plan_larger_than_the_limits_starts_beside_others_of_its_namespace() -> None:
    pods = [make_pod(f"p{n}", namespace="a", requests={"cpu": "1m"}) for n in range(MAX_OUTSTANDING + 50)]
    node = make_node(allocatable={"cpu": "8", "memory": "1Gi", "pods": "1000"})
    trial = Trial(make_snapshot(nodes=[node], pods=pods, tenants=[make_tenant("a")]))
    decider = trial.operator._decider = JoiningDecider()
    decider.singles = 1
    trial.decide()

    assert [len(plan.binds) for plan in decider.plans] == [1, MAX_OUTSTANDING + 49]
    assert len(trial.binds) == MAX_OUTSTANDING + 50


def test_a_plan_whose_second_pod_finds_no_volume_beside_the_first_ends_no_trial() -> None:
    pods = [make_pod(f"p{n}", namespace="a", requests={"cpu": "1"}) for n in range(3)]
    trial = Trial(make_snapshot(nodes=[make_node()], pods=pods, tenants=[make_tenant("a")]))
    decider = trial.operator._decider = JoiningDecider()
    decider.joins_always = True
    assume = trial.cache.assume
    trial.cache.assume = lambda uid, node, joins=False: not joins and assume(uid, node)  # type: ignore[method-assign, misc]
    trial.decide()

    assert trial.binds == []
    assert [len(plan.binds) for plan in decider.plans] == [3]
    assert trial.operator._pacing.get_state().outstanding == 0
