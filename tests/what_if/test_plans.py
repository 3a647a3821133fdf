"""What-if takes a plan of three back of which the second pod is not there, and decides its pods again."""

from __future__ import annotations

from cluster.builders import make_node, make_pod
from fairbind.what_if.trial import Trial
from what_if.snapshots import make_snapshot, make_tenant
from what_if.torn import TornDecider


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
