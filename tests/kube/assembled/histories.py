"""Random lives of a few operators: pods come and go while requests fail, watches break and replicas hang.

All of it follows from one seed. Each trouble lasts for some seconds; when all are over, everything must come right.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from cluster.builders import make_node, make_pod
from kube.assembled.apiserver import FINISHED, ApiServer
from kube.assembled.faults import BINDINGS, EVENTS, LEASES, POD_STATUSES, Fault, delay, ignore, lose_answer, refuse
from kube.assembled.replicas import Replica, Scene, judging

TROUBLED_SECONDS = 12.0
PATIENCE_SECONDS = 60.0
"""Longer than a lease, a pause after a refusal and a binding's give-up time take, one after the other."""
SETTLED_SECONDS = 2.0
"""All is well and stays so."""
NAMESPACES = ("team", "other")
WEBHOOK = 'admission webhook "policy.example.com" denied the request: not now'
FORBIDDEN = 'pods "p" is forbidden: User "fairbind" cannot create resource "pods/binding" in API group ""'

MakeFault = Callable[[random.Random, dict[str, Any]], Fault]
FAULTS: dict[str, MakeFault] = {
    "binding refused for now": lambda dice, when: refuse(429, BINDINGS, retry_after=dice.choice([None, 1, 5]), **when),
    "binding uncertain": lambda dice, when: refuse(dice.choice([500, 502, 503, 504]), BINDINGS, **when),
    "binding carried out, answer 500": lambda dice, when: Fault(
        BINDINGS, happens=True, answer=refuse(dice.choice([500, 504])).answer, **when
    ),
    "webhook": lambda dice, when: refuse(dice.choice([403, 500, 422]), BINDINGS, message=WEBHOOK, **when),
    "right missing": lambda _, when: refuse(403, BINDINGS, message=FORBIDDEN, **when),
    "answer lost": lambda dice, when: lose_answer(BINDINGS, happens=dice.random() < 0.7, **when),
    "answer never": lambda dice, when: ignore(BINDINGS, happens=dice.random() < 0.7, **when),
    "binding slow": lambda dice, when: delay(dice.uniform(0.5, 3.5), BINDINGS, **when),
    "look fails": lambda dice, when: refuse(dice.choice([429, 500]), r"/pods/[^/]+$", method="GET", **when),
    "lists fail": lambda dice, when: refuse(dice.choice([429, 500, 503]), r"/(pods|nodes|namespaces)$", **when),
    "tenants fail": lambda _, when: refuse(503, r"fairbind\.io", **when),
    "lease out of reach": lambda dice, when: ignore(LEASES, happens=dice.random() < 0.3, **when),
    "lease refused": lambda dice, when: refuse(dice.choice([409, 429, 500]), LEASES, **when),
    "events refused": lambda _, when: refuse(429, EVENTS, retry_after=3.0, **when),
    "conditions refused": lambda dice, when: refuse(dice.choice([403, 409, 500]), POD_STATUSES, **when),
    "everything slow": lambda dice, when: delay(dice.uniform(0.2, 1.5), **when),
    "everything down": lambda _, when: lose_answer(happens=False, **when),
}


class History:
    """One random life. Replicas: two at most at a time, so the names of faults' victims are known beforehand."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._pods = 0
        self.scene = Scene(seed, solves=False)
        self.story: list[str] = []

    async def live(self) -> None:
        """Live through all of it and check what must hold at the end."""
        async with judging(self.scene):
            await self._live_through_troubles()
            self._tell("all troubles are over")
            self._make_peace()
            await self.scene.pass_until(lambda: not self.find_unfinished(), PATIENCE_SECONDS, step=0.5)
            await asyncio.sleep(SETTLED_SECONDS)
            assert self.find_unfinished() == []
            for replica in self._find_living():
                replica.operator.parts.cache.check_consistent()

    async def _live_through_troubles(self) -> None:
        scene, dice = self.scene, self._dice
        for _ in range(dice.randint(1, 2)):
            self._start_replica()
        for number in range(dice.randint(1, 4)):
            cores = dice.randint(1, 6)
            scene.server.put("nodes", make_node(f"n{number}", allocatable={"cpu": str(cores), "pods": "6"}))
        self._add_pods()
        scene.cause(*(self._draw_fault() for _ in range(dice.randint(3, 7))))
        while scene.now < TROUBLED_SECONDS:
            await asyncio.sleep(dice.expovariate(1.5))
            self._act()

    def _make_peace(self) -> None:
        self.scene.heal()
        for replica in self.scene.replicas:
            replica.connection.lag_seconds = 0.0
            self._wake_up(replica)
        if not self._find_living():
            self._start_replica()

    def _find_living(self) -> list[Replica]:
        return [
            replica
            for replica in self.scene.replicas
            if not (replica.connection.is_cut or replica.stop_asked.is_set() or replica.task.done())
        ]

    def _start_replica(self) -> None:
        dice = random.Random(self._dice.random())
        self.scene.start().connection.latency = lambda: dice.uniform(0.001, 0.03)

    def _tell(self, what: str) -> None:
        self.story.append(f"{self.scene.now:.2f}: {what}")

    def _draw_fault(self) -> Fault:
        dice = self._dice
        since = dice.uniform(0.0, TROUBLED_SECONDS - 3.0)
        name = dice.choice(list(FAULTS))
        when: dict[str, Any] = {
            "since": since,
            "until": min(since + dice.uniform(1.0, 12.0), TROUBLED_SECONDS),
            "who": dice.choice(["", "", "replica-0", "replica-1"]),
            "times": dice.choice([1, 3, 1000]),
        }
        fault = FAULTS[name](dice, when)
        self._tell(f"{name}: {fault}")
        return fault

    def _act(self) -> None:
        deeds: dict[Callable[[], None], int] = {
            self._add_pods: 6,
            self._remove_a_pod: 3,
            self._finish_a_pod: 4,
            self._turn_a_node: 1,
            self._hang: 2,
            self._lag: 3,
            self._replace_a_replica: 1,
            self.scene.server.break_watches: 1,
            self.scene.server.compact: 1,
        }
        (deed,) = self._dice.choices(list(deeds), list(deeds.values()))
        self._tell(deed.__name__)
        deed()

    def _add_pods(self) -> None:
        dice = self._dice
        for _ in range(dice.randint(1, 5)):
            name, self._pods = f"p{self._pods}", self._pods + 1
            requests = {"cpu": dice.choice(["500m", "1", "2"])}
            self.scene.server.put("pods", make_pod(name, namespace=dice.choice(NAMESPACES), requests=requests))

    def _choose_pod(self, *, bound: bool) -> str | None:
        pods = [
            key
            for key, pod in self.scene.server.kinds["pods"].objects.items()
            if bool(pod["spec"].get("nodeName")) == bound and pod["status"]["phase"] not in FINISHED
        ]
        return self._dice.choice(pods) if pods else None

    def _remove_a_pod(self) -> None:
        if (key := self._choose_pod(bound=self._dice.random() < 0.5)) is not None:
            self.scene.server.delete("pods", key)

    def _finish_a_pod(self) -> None:
        if (key := self._choose_pod(bound=True)) is not None:
            self.scene.server.finish(key)

    def _turn_a_node(self) -> None:
        """Cordon or uncordon one."""
        node = self._dice.choice(list(self.scene.server.kinds["nodes"].objects))

        def turn(item: dict[str, Any]) -> None:
            item["spec"]["unschedulable"] = not item["spec"].get("unschedulable", False)

        self.scene.server.change("nodes", node, turn)

    def _hang(self) -> None:
        replica = self._dice.choice(
            [replica for replica in self.scene.replicas if replica.leads] or self.scene.replicas
        )
        replica.process.freeze()
        asyncio.get_running_loop().call_later(self._dice.uniform(0.5, 15.0), self._wake_up, replica)

    def _wake_up(self, replica: Replica) -> None:
        if not replica.connection.is_cut:
            replica.process.thaw()

    def _lag(self) -> None:
        self._choose_replica().connection.lag_seconds = self._dice.choice([0.0, 0.5, 3.0, 10.0])

    def _choose_replica(self) -> Replica:
        """Return who leads, if anybody does: what happens to others matters less."""
        leaders = [replica for replica in self.scene.replicas if replica.leads]
        return self._dice.choice(leaders or self.scene.replicas)

    def _replace_a_replica(self) -> None:
        replica = self._dice.choice(self.scene.replicas)
        if self._dice.random() < 0.5:
            replica.kill()
        else:
            replica.ask_to_stop()
        self._start_replica()

    def find_unfinished(self) -> list[str]:
        """Return what is not yet as it must be in the end."""
        server = self.scene.server
        unfinished = [] if any(replica.leads for replica in self.scene.replicas) else ["nobody leads"]
        for key, pod in server.kinds["pods"].objects.items():
            if not pod["spec"].get("nodeName"):
                if free := find_room(server, pod):
                    unfinished.append(f"{key} would fit on {free}")
                elif not _says_why_it_waits(pod):
                    unfinished.append(f"{key} waits and says nothing")
        return unfinished


def find_room(server: ApiServer, pod: dict[str, Any]) -> list[str]:
    """Return the nodes on which a pod would fit."""
    demand = server.find_demand(pod)
    nodes = server.kinds["nodes"].objects
    return [
        name
        for name, node in nodes.items()
        if not node["spec"].get("unschedulable") and _fits(demand, server.find_free(name))
    ]


def _fits(demand: dict[str, Fraction], free: dict[str, Fraction]) -> bool:
    return all(amount <= free.get(resource, 0) for resource, amount in demand.items())


def _says_why_it_waits(pod: dict[str, Any]) -> bool:
    conditions = {condition["type"]: condition for condition in pod["status"].get("conditions") or []}
    return "PodScheduled" in conditions and conditions["PodScheduled"]["status"] == "False"
