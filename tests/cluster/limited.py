"""A cluster with limits of tenants whose decisions are carried out at once."""

from __future__ import annotations

from typing import Any

from cluster.builders import Cluster, Json, make_namespace, make_node, make_pod
from fairbind.cluster.tenancy.tenants import parse_tenant
from fairbind.model import CycleReport, PolicySettings, Wait
from fairbind.model.topology import LimitOf
from fairbind.scheduling import CycleState, UnschedulableCache, run_cycle

CPU = {"cpu": "1"}
GPU_NODES = {"matchLabels": {"gpu": "h100"}}


def make_tenant(name: str, *limit: Json, namespaces: list[str] | None = None, **spec: Any) -> Json:
    namespaces = [name] if namespaces is None else namespaces
    return {"metadata": {"name": name}, "spec": {"namespaces": namespaces, "limit": list(limit), **spec}}


class World(Cluster):
    """A cluster whose decisions are carried out at once, by cycles that remember."""

    def __init__(self, *tenants: Json, nodes: int = 4) -> None:
        super().__init__()
        self.memory, self.state = UnschedulableCache(), CycleState()
        self.set_tenants(*tenants)
        for n in range(nodes):
            self.add_nodes(make_node(f"n{n}", labels={"gpu": "h100"} if n % 2 else {"gpu": "a100"}))

    def set_tenants(self, *tenants: Json) -> None:
        self.cache.replace_tenants(map(parse_tenant, tenants))
        self.add_namespaces(*(make_namespace(name) for each in tenants for name in each["spec"]["namespaces"]))

    def decide(self, policy: str = "best-fit-drfh") -> CycleReport:
        snapshot = self.cache.build_snapshot()
        report = run_cycle(snapshot, PolicySettings(policy), 0.0, unschedulable=self.memory, state=self.state)
        for bind in report.bindings:
            assert self.cache.assume(bind.task.uid, bind.server)
        return report

    def find_wait(self, namespace: str = "a") -> Wait:
        (wait,) = [each for each in self.decide().waits if each.task_class.tenant == namespace]
        return wait

    def get_held(self, tenant: str, entry: int = 0, resource: str = "cpu") -> int:
        return self.cache.build_snapshot().held[LimitOf(tenant, entry, resource)]


def make_pods(namespace: str, count: int, prefix: str = "", **fields: Any) -> list[Json]:
    fields.setdefault("requests", CPU)
    return [make_pod(f"{namespace}{prefix}{n}", namespace=namespace, **fields) for n in range(count)]
