"""A slow reference for trees: give the least a little, again and again, and read the rules from the page on trees.

It shares no code with the solver: no events, no rates, no inequalities. One step is at most `step` of everything that
there is, so an answer is right to a few steps. Several servers are asked by a linear program whether they can hold it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog  # type: ignore[import-untyped]  # scipy has no types


class TreeOracle:
    """The filling of a problem document, without weights per resource."""

    def __init__(self, document: dict[str, Any], *, measure: str = "dominant", step: float = 1 / 400) -> None:
        self.resources: list[str] = document["resources"]
        self.servers: list[dict[str, Any]] = document["servers"]
        self.tenants: dict[str, dict[str, Any]] = {tenant["name"]: tenant for tenant in document["tenants"]}
        self.measure, self.step = measure, step
        self.children: dict[str | None, list[str]] = {None: []}
        for name, tenant in self.tenants.items():
            self.children.setdefault(tenant.get("parent"), []).append(name)
        self.demand: dict[str, dict[str, float]] = {
            name: {r: float(d) for r, d in tenant["demand"].items() if d > 0}
            for name, tenant in self.tenants.items()
            if "demand" in tenant
        }
        self.has: list[dict[str, float]] = [dict.fromkeys(self.resources, 0.0) | s["capacity"] for s in self.servers]
        self.total = {r: sum(has[r] for has in self.has) for r in self.resources}
        self.tasks = dict.fromkeys(self.demand, 0.0)
        self.stopped = {name for name in self.tasks if not self._usable(name)}

    def run(self) -> dict[str, float]:
        """Return the tasks at the end."""
        while True:
            leaf = self._choose(None, set(self.tasks) - self.stopped)
            if leaf is None:
                return self.tasks
            before = self.tasks[leaf]
            most = self.tenants[leaf].get("tasks", float("inf"))
            self.tasks[leaf] = min(before + self._step_of(leaf), most)
            if not self._fits():
                self.tasks[leaf] = before
                self.stopped.add(leaf)
            elif self.tasks[leaf] >= most:
                self.stopped.add(leaf)

    def _usable(self, leaf: str) -> list[int]:
        tenant = self.tenants[leaf]
        return [
            k
            for k, server in enumerate(self.servers)
            if server["name"] in tenant.get("eligible", [server["name"]])
            and all(self.has[k][r] > 0 for r in self.demand[leaf])
        ]

    def _step_of(self, leaf: str) -> float:
        return self.step / max(d / self.total[r] for r, d in self.demand[leaf].items())

    def _below(self, name: str) -> list[str]:
        return (
            [leaf for child in self.children.get(name, []) for leaf in self._below(child)]
            if name not in self.tasks
            else [name]
        )

    def _held(self, name: str, r: str) -> float:
        return sum(self.tasks[leaf] * self.demand[leaf].get(r, 0.0) for leaf in self._below(name))

    def _free(self, r: str) -> float:
        there: set[int] = set()
        for leaf in self.tasks:
            if self.demand[leaf].get(r, 0.0) > 0:
                there |= set(self._usable(leaf))
        return sum(self.has[k][r] for k in there) - self._held_all(r)

    def _alone(self, leaf: str, counted: list[str]) -> float:
        demand = {r: d for r, d in self.demand[leaf].items() if r in counted}
        if not demand:
            return float("inf")
        return sum(min(has[r] / d for r, d in demand.items()) for has in self.has)

    def _level(self, name: str) -> float:
        everything = [r for r in self.resources if self.total[r] > 0]
        counted = everything
        if name not in self.tasks:
            counted = [r for r in everything if self._free(r) > self.total[r] * self.step]
        if self.measure == "dominant":
            level = max((self._held(name, r) / self.total[r] for r in counted), default=0.0)
        else:
            level = sum(self.tasks[leaf] / self._alone(leaf, counted) for leaf in self._below(name))
        return level / float(self.tenants[name].get("weight", 1.0))

    def _promised(self, name: str, leaf: str) -> bool:
        entries = [
            (r, amount)
            for entry in self.tenants[name].get("guarantee", [])
            for r, amount in entry["resources"].items()
            if self.demand[leaf].get(r, 0.0) > 0
        ]
        return bool(entries) and all(self._held(name, r) < amount * (1 - 1e-9) for r, amount in entries)

    def _choose(self, name: str | None, allowed: set[str]) -> str | None:
        if name in self.tasks:
            return name
        found = {child: set(self._below(child)) & allowed for child in self.children[name]}
        found = {child: leaves for child, leaves in found.items() if leaves}
        if not found:
            return None
        promised = {child: {leaf for leaf in leaves if self._promised(child, leaf)} for child, leaves in found.items()}
        promised = {child: leaves for child, leaves in promised.items() if leaves}
        if not promised:
            highest = max(self.tenants[child].get("priority", 0) for child in found)
            promised = {c: leaves for c, leaves in found.items() if self.tenants[c].get("priority", 0) == highest}
        least = min(promised, key=lambda child: (round(self._level(child), 12), child))
        return self._choose(least, promised[least])

    def _fits(self) -> bool:
        for name, tenant in self.tenants.items():
            for entry in tenant.get("limit", []):
                if "servers" not in entry and any(
                    self._held(name, r) > amount + 1e-12 for r, amount in entry["resources"].items()
                ):
                    return False
        if len(self.servers) == 1:
            return all(self._held_all(r) <= self.total[r] * (1 + 1e-12) for r in self.resources)
        return self._can_place()

    def _held_all(self, r: str) -> float:
        return sum(self._held(leaf, r) for leaf in self.tasks)

    def _can_place(self) -> bool:
        pairs = [(leaf, k) for leaf in self.tasks for k in self._usable(leaf)]
        names = [server["name"] for server in self.servers]
        # Each row: who counts, on which servers, of what, and how much there may be.
        everybody = set(self.tasks)
        rows = [(everybody, {k}, r, amount) for k, has in enumerate(self.has) for r, amount in has.items()]
        for name, tenant in self.tenants.items():
            for entry in tenant.get("limit", []):
                on = {names.index(server) for server in entry.get("servers", names)}
                rows += [(set(self._below(name)), on, r, amount) for r, amount in entry["resources"].items()]
        upper = [
            [self.demand[leaf].get(r, 0.0) if leaf in who and k in on else 0.0 for leaf, k in pairs]
            for who, on, r, _ in rows
        ]
        leaves = [leaf for leaf in self.tasks if self._usable(leaf)]
        equal = [[1.0 if pair[0] == leaf else 0.0 for pair in pairs] for leaf in leaves]
        answer = linprog(
            np.zeros(len(pairs)),
            A_ub=upper,
            b_ub=[amount + 1e-9 for *_, amount in rows],
            A_eq=equal,
            b_eq=[self.tasks[leaf] for leaf in leaves],
        )
        return bool(answer.status == 0)
