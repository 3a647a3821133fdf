"""The tenants' books: what each holds, how many of its pods run and wait.

A declared tenant has a book as long as it is declared. An implicit one (`ns/NAME`) has one as long as it has pods that
hold something or wait for us.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from fairbind.kube.facts import Demand
from fairbind.kube.queues import compute_vector
from fairbind.kube.servers import Axes, add_amounts
from fairbind.kube.tenants import TenantSpec
from fairbind.model import Tenant

_ONE = Fraction(1)


@dataclass(slots=True)
class Account:
    """One tenant's book. real: requests. share: what counts in shares. nodes: how many of its pods are on each node."""

    name: str
    weight: Fraction = _ONE
    resource_weights: Mapping[str, Fraction] = field(default_factory=dict)
    is_declared: bool = False
    real: dict[str, int] = field(default_factory=dict)
    share: dict[str, int] = field(default_factory=dict)
    nodes: Counter[str] = field(default_factory=Counter)
    running: int = 0
    waiting: int = 0
    gated: int = 0
    postponed: int = 0
    tenant: Tenant | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no pod is in this book."""
        return self.running == self.waiting == self.gated == self.postponed == 0


class Accounts:
    """All books."""

    def __init__(self) -> None:
        self.by_name: dict[str, Account] = {}
        self._axes: Axes = ()
        self._specs: Mapping[str, TenantSpec] = {}

    def hold(self, name: str, node: str, demand: Demand, sign: int = 1) -> None:
        """Add a pod that holds something on a node, or take it away."""
        account = self._get(name)
        add_amounts(account.real, demand.real, sign)
        add_amounts(account.share, demand.share, sign)
        account.running += sign
        account.nodes[node] += sign
        if not account.nodes[node]:
            del account.nodes[node]
        account.tenant = None
        self._drop_if_over(account)

    def wait(self, name: str, sign: int = 1) -> None:
        """Add a pod that waits for its turn, or take it away."""
        account = self._get(name)
        account.waiting += sign
        self._drop_if_over(account)

    def idle(self, name: str, sign: int = 1, *, gated: bool) -> None:
        """Add a pod that will wait for its turn later, or take it away."""
        account = self._get(name)
        if gated:
            account.gated += sign
        else:
            account.postponed += sign
        self._drop_if_over(account)

    def declare(self, specs: Mapping[str, TenantSpec]) -> None:
        """Take the declared tenants."""
        if specs is self._specs:
            return
        for spec in specs.values():
            account = self._get(spec.name)
            if not account.is_declared or (account.weight, account.resource_weights) != (
                spec.weight,
                spec.resource_weights,
            ):
                account.weight, account.resource_weights = spec.weight, spec.resource_weights
                account.is_declared, account.tenant = True, None
        for account in [a for a in self.by_name.values() if a.is_declared and a.name not in specs]:
            account.is_declared, account.tenant = False, None
            self._drop_if_over(account)
        self._specs = specs

    def build_tenants(self, axes: Axes) -> tuple[Tenant, ...]:
        """Return all tenants by name; what did not change is the same object as before."""
        is_known = axes == self._axes
        self._axes = axes
        tenants = []
        for _, account in sorted(self.by_name.items()):
            if account.tenant is None or not is_known:
                allocated_r = compute_vector(tuple(account.share.items()), axes)
                account.tenant = Tenant(account.name, account.weight, account.resource_weights, allocated_r)
            tenants.append(account.tenant)
        return tuple(tenants)

    def _get(self, name: str) -> Account:
        account = self.by_name.get(name)
        if account is None:
            account = self.by_name[name] = Account(name)
        return account

    def _drop_if_over(self, account: Account) -> None:
        if account.is_empty and not account.is_declared:
            del self.by_name[account.name]
