"""What kube-scheduler is answered: whose permit it is, on which nodes, and which evictions are fair."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.builders import SCHEDULER, Cluster, Json, make_node, make_pod
from fairbind.cluster.objects.extender_wire import Identity, MetaPod, MetaVictims
from fairbind.cluster.other_schedulers import extender
from fairbind.cluster.other_schedulers.extender import MOST_NAMED, Extender, Shares
from fairbind.cluster.other_schedulers.laps import Laps
from fairbind.cluster.other_schedulers.permits import DELAY_SECONDS, Permit, Permits
from fairbind.cluster.tenancy.tenants import TenantSpec
from fairbind.model import PolicySettings, Targets
from fairbind.scheduling import run_cycle

OTHER = "default-scheduler"


class World(Cluster):
    """Nodes, tenants with weights, and the extender's answers. passed: whose permit went to whom."""

    def __init__(self, policy: str = "best-fit-drfh", **weights: int) -> None:
        super().__init__(asking=frozenset({OTHER}))
        self.permits = Permits()
        self.passed: list[tuple[str, str]] = []
        self.extender = Extender(self.cache, self.permits, Laps(10.0), on_passed=self._note_passed)
        self.now = 0.0
        self.cache.set_policy(PolicySettings(policy=policy))
        for name, weight in weights.items():
            self.cache.set_tenant(TenantSpec(name, weight=Fraction(weight), namespaces=frozenset({name})))

    def _note_passed(self, other: str, uid: str, _turn: Permit) -> None:
        self.passed.append((other, uid))

    def give(self, uid: str, node: str) -> None:
        """Carry out what a cycle decided."""
        pod = self.cache.find_pod(uid)
        assert pod is not None
        permit = self.extender.make_permit(uid, pod.tenant, node)
        assert self.cache.assume(uid, node)
        permit.is_given = True
        self.permits.give(uid, permit)

    def decide(self, limit: int = 100) -> list[str]:
        """Run a cycle, give the permits, and return whose they are."""
        report = run_cycle(self.cache.build_snapshot(), self.cache.settings, 0.0, limit=limit)
        for bind in report.bindings:
            self.give(bind.task.uid, bind.server)
        return [bind.task.uid for bind in report.bindings]

    def filter(self, uid: str, *names: str, namespace: str = "") -> list[str]:
        found = self.extender.filter(Identity(uid, namespace), names, self.now)
        assert set(found.NodeNames) <= set(names)
        assert found.FailedNodes == found.FailedAndUnresolvableNodes
        assert not set(found.NodeNames) & found.FailedNodes.keys()
        return found.NodeNames

    def find_reason(self, uid: str, namespace: str = "") -> str:
        return self.extender.filter(Identity(uid, namespace), ["n"], self.now).FailedNodes["n"]

    def bind(self, pod: Json, node: str) -> None:
        """Bind a pod, and let the watch say so."""
        assert self.extender.begin_binding(Identity(pod["metadata"]["uid"]), node) is None
        self.change_pod(pod, lambda changed: changed["spec"].update(nodeName=node))
        self.permits.end(pod["metadata"]["uid"])


def make(name: str, namespace: str = "a", *, cpu: str = "1", **fields: Any) -> Json:
    fields.setdefault("scheduler", OTHER)
    return make_pod(name, namespace=namespace, requests={"cpu": cpu}, **fields)


@pytest.fixture
def world() -> World:
    world = World(a=1, b=1)
    world.add_nodes(make_node("n"), make_node("m"))
    return world


def test_a_pod_passes_when_it_has_its_turn_and_not_before(world: World) -> None:
    world.add_pods(make("p"))
    assert world.filter("uid-p", "m", "n") == []
    assert world.find_reason("uid-p") == extender.NOT_DECIDED
    assert world.decide() == ["uid-p"]
    assert world.filter("uid-p", "m", "n") == ["m", "n"]
    world.cache.check_consistent()


def test_asking_books_nothing(world: World) -> None:
    world.add_pods(make("p"), make("q", "b"))
    world.decide(1)
    before = world.get_free("n"), world.get_free("m"), world.get_allocated("a"), world.get_allocated("b")
    for _ in range(3):
        world.filter("uid-p", "m", "n")
        world.filter("uid-q", "m", "n")
        world.extender.prioritize(Identity("uid-p"), ["m", "n"])
    assert before == (world.get_free("n"), world.get_free("m"), world.get_allocated("a"), world.get_allocated("b"))


def test_a_refusal_says_who_comes_before(world: World) -> None:
    world.add_pods(make("p", cpu="2"), make("p2", cpu="3"), make("q", "b"))
    world.give("uid-p", "n")
    assert world.find_reason("uid-q") == "not its turn: tenant a comes before"
    assert world.find_reason("uid-p2") == extender.OWN_TENANT
    assert world.find_reason("uid-x", "a") == extender.UNKNOWN


def test_users_of_a_tenant_come_before_each_other(world: World) -> None:
    world.cache.set_tenant(TenantSpec("a", namespaces=frozenset("a"), users_label="user"))
    x, y = {"user": "x"}, {"user": "y"}
    world.add_pods(make("p", cpu="2", labels=x), make("p2", cpu="3", labels=x), make("q", labels=y))
    world.give("uid-p", "n")
    assert world.find_reason("uid-q") == "not its turn: tenant x@a comes before"
    assert world.find_reason("uid-p2") == extender.OWN_TENANT


def test_a_pod_that_is_never_decided_says_why(world: World) -> None:
    world.add_pods(make("p", scheduler="third"))
    assert world.find_reason("uid-p") == extender.OTHER_SCHEDULER


def test_what_kube_scheduler_honours_itself_waits_for_its_turn_as_any_other(world: World) -> None:
    world.add_pods(make("p", resourceClaims=[{"name": "gpu", "resourceClaimName": "c"}]))
    assert world.decide() == ["uid-p"]


def test_only_so_many_nodes_are_named_with_the_reason(world: World) -> None:
    world.add_pods(make("p"))
    names = [f"n{n}" for n in range(3 * MOST_NAMED)]
    found = world.extender.filter(Identity("uid-p"), names, 0.0)
    assert found.NodeNames == []
    assert list(found.FailedNodes) == names[:MOST_NAMED]


@pytest.mark.parametrize("known", [True, False])
def test_pods_of_no_tenant_pass_everywhere(world: World, *, known: bool) -> None:
    if known:
        world.add_pods(make("p", "kube-system"))
    assert world.filter("uid-p", "x", "n", namespace="kube-system") == ["x", "n"]
    assert world.extender.begin_binding(Identity("uid-p", "kube-system"), "x") is None


def test_room_that_is_kept_for_another_turn_is_refused(world: World) -> None:
    world.add_pods(make("p", cpu="3"), make("q", "b", cpu="2"))
    world.give("uid-p", "n")
    world.give("uid-q", "m")
    assert world.filter("uid-q", "m", "n") == ["m"]
    found = world.extender.filter(Identity("uid-q"), ["m", "n"], 0.0)
    assert found.FailedNodes == {"n": extender.NOT_FREE}
    assert world.extender.begin_binding(Identity("uid-q"), "n") == extender.NOT_FREE


def test_a_policy_by_class_passes_exactly_the_nodes_of_the_decided_class() -> None:
    world = World("ps-dsf", a=1, b=1)
    big = {"cpu": "32", "memory": "8Gi", "pods": "110"}
    world.add_nodes(
        make_node("big1", allocatable=big), make_node("big2", allocatable=big), *map(make_node, ("s1", "s2"))
    )
    world.add_pods(make("p"), make("q", "b"))
    world.give("uid-p", "s1")
    world.give("uid-q", "big2")
    names = ("big1", "big2", "s1", "s2", "unknown")
    assert world.filter("uid-p", *names) == ["s1", "s2"]
    assert world.filter("uid-q", *names) == ["big1", "big2"]
    assert world.extender.begin_binding(Identity("uid-p"), "big1") == extender.OTHER_CLASS
    assert world.extender.begin_binding(Identity("uid-p"), "s2") is None


def test_a_policy_that_is_guided_passes_the_nodes_of_the_class_of_the_exact_answer() -> None:
    world = World(a=1, b=1)
    world.add_nodes(*map(make_node, ("s1", "s2", "s3")))
    world.cache.set_targets(
        Targets("drfh", ("cpu",), {}, ("one", "two"), {"s1": 0, "s2": 1, "s3": 1}, {"a": (0.0, 0.5), "b": (0.3, 0.0)})
    )
    world.add_pods(make("p"))
    world.give("uid-p", "s2")
    assert world.filter("uid-p", "s1", "s2", "s3") == ["s2", "s3"]


def test_the_decided_node_is_best_and_the_others_follow_by_fit(world: World) -> None:
    world.add_nodes(make_node("odd", allocatable={"cpu": "4", "memory": "1Mi", "pods": "110"}))
    pod = make_pod("p", namespace="a", scheduler=OTHER, requests={"cpu": "1", "memory": "2Gi"})
    world.add_pods(pod)
    assert [each.Score for each in world.extender.prioritize(Identity("uid-p"), ["m", "n"])] == [0, 0]
    world.give("uid-p", "n")
    scores = {each.Host: each.Score for each in world.extender.prioritize(Identity("uid-p"), ["odd", "m", "n", "gone"])}
    assert scores["n"] == 10
    assert 9 >= scores["m"] > scores["odd"]
    assert scores["gone"] == 0


def test_a_turn_goes_to_the_equal_pod_that_asks_first(world: World) -> None:
    world.add_pods(make("p"), make("p2"), make("other", cpu="2"), make("urgent", priority=7))
    world.give("uid-p", "n")
    assert world.filter("uid-other", "n") == []
    assert world.filter("uid-urgent", "n") == []
    assert world.filter("uid-p2", "n") == ["n"]
    assert world.passed == [("uid-p", "uid-p2")]
    assert world.filter("uid-p", "n") == [], "the other one was told yes a moment ago"
    assert world.find_class("uid-p") is not None
    world.cache.check_consistent()
    world.now += DELAY_SECONDS
    assert world.filter("uid-p", "n") == ["n"]
    assert world.get_free("n")["cpu"] == 3000


def test_binding_elsewhere_moves_the_room(world: World) -> None:
    world.add_pods(make("p"))
    world.give("uid-p", "n")
    woken = world.changes
    assert world.extender.begin_binding(Identity("uid-p"), "m") is None
    assert (world.get_free("n")["cpu"], world.get_free("m")["cpu"]) == (4000, 3000)
    assert world.changes > woken, "what became free is decided at once"
    assert world.extender.begin_binding(Identity("uid-p"), "m") == extender.BEING_BOUND
    assert world.find_reason("uid-p") == extender.BEING_BOUND
    assert world.extender.begin_binding(Identity("uid-none", "a"), "m") == extender.UNKNOWN


def test_without_a_turn_nothing_is_bound(world: World) -> None:
    world.add_pods(make("p"))
    assert world.extender.begin_binding(Identity("uid-p"), "n") == extender.NOT_DECIDED
    assert world.get_free("n")["cpu"] == 4000


SHARES: Shares = {"a": (0.1, 0.5), "b": (3 / 7, 2 / 7)}


PREEMPTOR = Identity("uid-p", "a")


def test_pods_of_schedulers_that_do_not_ask_are_not_bound(world: World) -> None:
    world.add_pods(make("own", scheduler=SCHEDULER), make("third", scheduler="third"))
    assert world.cache.assume("uid-own", "n"), "its turn is ours to carry out"
    for uid in ("uid-own", "uid-third"):
        assert world.extender.begin_binding(Identity(uid, "a"), "n") == extender.OTHER_SCHEDULER
        assert world.find_reason(uid, "a") == extender.OTHER_SCHEDULER


def test_a_turn_does_not_go_to_an_equal_pod_that_fairbind_binds_itself(world: World) -> None:
    world.add_pods(make("p"), make("own", scheduler=SCHEDULER))
    world.give("uid-p", "n")
    assert world.filter("uid-own", "n") == []
    assert world.permits.find("uid-p")


class TestNodesThatThePolicyRulesOut:
    """kube-scheduler knows nothing of the policy's server selector."""

    @pytest.fixture
    def outside(self) -> World:
        world = World(a=1)
        world.cache.set_policy(PolicySettings(server_selector=(("pool", "shared"),)))
        world.add_nodes(make_node("in", labels={"pool": "shared"}), make_node("out"))
        return world

    def test_a_tenants_pod_does_not_pass_there(self, outside: World) -> None:
        outside.add_pods(make("p"))
        assert outside.decide() == ["uid-p"]
        assert outside.filter("uid-p", "in", "out") == ["in"]
        found = outside.extender.filter(Identity("uid-p"), ["in", "out"], 0.0)
        assert found.FailedNodes == {"out": extender.NOT_USED}

    def test_a_pod_of_no_tenant_is_bound_there(self, outside: World) -> None:
        outside.add_pods(make("dns", "kube-system"), make("p"))
        assert outside.filter("uid-dns", "in", "out", namespace="kube-system") == ["in", "out"]
        assert outside.extender.begin_binding(Identity("uid-dns", "kube-system"), "out") is None
        assert outside.cache.queries.may_use("uid-dns", "out"), "so the binder sends it"
        assert not outside.cache.queries.may_use("uid-p", "out")


class TestPreempt:
    """a wants to evict pods of b (3 of the 7 cores of tenants, fair share two), of a itself and of the system."""

    def preempt(self, shares: Shares | None, who: Identity = PREEMPTOR, **uids: list[str]) -> set[str]:
        world = World(a=1, b=1)
        world.add_nodes(make_node("n"), make_node("m"))
        held = [make(f"b{n}", "b", node="n", phase="Running") for n in range(3)]
        world.add_pods(
            *held, make("p", cpu="4", priority=9), make("own", node="m"), make("sys", "kube-system", node="m")
        )
        victims = {node: MetaVictims([MetaPod(uid) for uid in those], 1) for node, those in uids.items()}
        found = world.extender.preempt(who, victims, shares).NodeNameToMetaVictims
        assert all(found[node] is victims[node] for node in found)
        return set(found)

    def test_a_tenant_above_its_fair_share_loses_pods_until_it_has_that(self) -> None:
        assert self.preempt(SHARES, n=["uid-b0"]) == {"n"}
        assert self.preempt(SHARES, n=["uid-b0", "uid-b1"]) == set()

    def test_own_pods_and_those_of_no_tenant_are_not_protected(self) -> None:
        assert self.preempt(None, m=["uid-own", "uid-sys"], n=["uid-b0"]) == {"m"}

    def test_a_tenant_that_has_its_fair_share_takes_nothing_from_others(self) -> None:
        shares = {**SHARES, "a": (0.5, 0.5)}
        assert self.preempt(shares, n=["uid-b0"], m=["uid-own"]) == {"m"}

    def test_pods_of_no_tenant_may_evict_any(self) -> None:
        assert self.preempt(None, Identity("uid-new", "kube-system"), n=["uid-b0", "uid-b1"], m=["uid-own"]) == {
            "n",
            "m",
        }

    def test_pods_that_are_not_known_evict_none(self) -> None:
        assert self.preempt(SHARES, Identity("uid-new", "a"), n=["uid-b0"], m=["uid-own"]) == set()

    def test_what_is_not_known_is_protected(self) -> None:
        assert self.preempt({**SHARES, "b": (3 / 7, None)}, n=["uid-b0"], m=["uid-unknown"]) == set()
        assert self.preempt(SHARES, n=[]) == set()


@given(
    st.sampled_from(("best-fit-drfh", "ps-dsf")),
    st.lists(st.integers(1, 4), min_size=2, max_size=3),
    st.integers(1, 6),
    st.integers(0, 1000),
)
def test_in_whatever_order_kube_scheduler_asks_shares_follow_the_weights(
    policy: str, weights: list[int], most: int, seed: int
) -> None:
    """kube-scheduler asks for any pod at any time, and binds to any node that passes."""
    order = random.Random(seed)
    tenants = {f"t{n}": weight for n, weight in enumerate(weights)}
    world = World(policy, **tenants)
    world.add_nodes(make_node("n"), make_node("m"), make_node("o"))
    waiting = {
        f"uid-{tenant}-{n}": make(f"{tenant}-{n}", tenant, uid=f"uid-{tenant}-{n}")
        for tenant in tenants
        for n in range(12)
    }
    world.add_pods(*waiting.values())
    bound = dict.fromkeys(tenants, 0)
    for _ in range(400):
        if len(world.permits) < most:
            world.decide(most - len(world.permits))
        uid = order.choice(sorted(waiting))
        passed = world.filter(uid, "n", "m", "o")
        world.now += order.choice((0.0, DELAY_SECONDS))
        if passed:
            pod = waiting.pop(uid)
            world.bind(pod, order.choice(passed))
            bound[pod["metadata"]["namespace"]] += 1
        if sum(bound.values()) == 12:
            break
    world.cache.check_consistent()
    assert sum(bound.values()) == 12, "what fits is placed"
    fair = {tenant: 12 * weight / sum(weights) for tenant, weight in tenants.items()}
    assert all(abs(bound[tenant] - fair[tenant]) <= 2 for tenant in tenants), (bound, fair)
    assert min(world.get_free(node)["cpu"] for node in ("n", "m", "o")) == 0
