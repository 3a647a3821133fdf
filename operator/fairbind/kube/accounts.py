"""The tenants' books: what each holds, how many of its pods run and wait.

A declared tenant has a book as long as it is declared. An implicit one (`ns/NAME`) has one as long as it has pods that
hold something or wait for us.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from fairbind.kube.facts import Constraints, Demand
from fairbind.kube.queues import compute_vector
from fairbind.kube.servers import Axes, add_amounts
from fairbind.kube.tenants import TenantSpec
from fairbind.model import Placement, Tenant
from fairbind.model.tenants import Holding

_ONE = Fraction(1)
_NEVER = float("inf")

Kind = tuple[Demand, Constraints]
"""What makes two held pods of a tenant the same to a mechanism."""


@dataclass(slots=True)
class Account:
    """One tenant's book. real: requests. share: what counts in shares. nodes: how many of its pods are on each node.

    kinds: how many of its pods are of each kind. share_by_node: what counts in shares, node by node. since: when the
    tenant came, seconds since the epoch: its Tenant object, or the oldest pod that it has had since it has one.
    """

    name: str
    weight: Fraction = _ONE
    resource_weights: Mapping[str, Fraction] = field(default_factory=dict)
    is_declared: bool = False
    real: dict[str, int] = field(default_factory=dict)
    share: dict[str, int] = field(default_factory=dict)
    nodes: Counter[str] = field(default_factory=Counter)
    kinds: Counter[Kind] = field(default_factory=Counter)
    share_by_node: dict[str, dict[str, int]] = field(default_factory=dict)
    since: float = _NEVER
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
        self._made_for: tuple[Axes, bool] = (), False
        self._specs: Mapping[str, TenantSpec] = {}

    def hold(self, name: str, node: str, kind: Kind, sign: int = 1) -> None:
        """Add a pod that holds something on a node, or take it away."""
        demand, _ = kind
        account = self._get(name)
        add_amounts(account.real, demand.real, sign)
        add_amounts(account.share, demand.share, sign)
        account.running += sign
        account.nodes[node] += sign
        account.kinds[kind] += sign
        add_amounts(account.share_by_node.setdefault(node, {}), demand.share, sign)
        if not account.nodes[node]:
            del account.nodes[node], account.share_by_node[node]
        if not account.kinds[kind]:
            del account.kinds[kind]
        account.tenant = None
        self._drop_if_over(account)

    def note_pod(self, name: str, created: float) -> None:
        """Take when one of an implicit tenant's pods was made; a declared tenant came with its object."""
        account = self.by_name.get(name)
        if account is not None and not account.is_declared and created < account.since:
            account.since, account.tenant = created, None

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
            known = account.is_declared, account.weight, account.resource_weights, account.since
            declared = True, spec.weight, spec.resource_weights, spec.created
            if known != declared:
                account.is_declared, account.weight, account.resource_weights, account.since = declared
                account.tenant = None
        for account in [a for a in self.by_name.values() if a.is_declared and a.name not in specs]:
            account.is_declared, account.tenant = False, None
            self._drop_if_over(account)
        self._specs = specs

    def build_tenants(self, axes: Axes, *, detailed: bool = False) -> tuple[Tenant, ...]:
        """Return all tenants by name; what did not change is the same object as before.

        detailed: with what they hold, task by task and server by server, for policies that ask for it.
        """
        is_known = (axes, detailed) == self._made_for
        self._made_for = axes, detailed
        tenants = []
        for _, account in sorted(self.by_name.items()):
            if account.tenant is None or not is_known:
                account.tenant = _make_tenant(account, axes)
                if detailed:
                    account.tenant = _add_detail(account.tenant, account, axes, lambda _: None)
            tenants.append(account.tenant)
        return tuple(tenants)

    def build_detailed_tenants(
        self, axes: Axes, get_placement: Callable[[Constraints], Placement | None]
    ) -> tuple[Tenant, ...]:
        """Return all tenants by name with what they hold, and where such tasks could run."""
        return tuple(
            _add_detail(_make_tenant(account, axes), account, axes, get_placement)
            for _, account in sorted(self.by_name.items())
        )

    def _get(self, name: str) -> Account:
        account = self.by_name.get(name)
        if account is None:
            account = self.by_name[name] = Account(name)
        return account

    def _drop_if_over(self, account: Account) -> None:
        if account.is_empty and not account.is_declared:
            del self.by_name[account.name]


def _make_tenant(account: Account, axes: Axes) -> Tenant:
    allocated_r = compute_vector(tuple(account.share.items()), axes)
    return Tenant(account.name, account.weight, account.resource_weights, allocated_r, since=account.since)


def _add_detail(
    tenant: Tenant, account: Account, axes: Axes, get_placement: Callable[[Constraints], Placement | None]
) -> Tenant:
    return replace(
        tenant,
        holdings=tuple(
            Holding(
                compute_vector(demand.real, axes), compute_vector(demand.share, axes), count, get_placement(constraints)
            )
            for (demand, constraints), count in account.kinds.items()
        ),
        allocated_by_server={
            node: compute_vector(tuple(share.items()), axes) for node, share in account.share_by_node.items()
        },
    )
