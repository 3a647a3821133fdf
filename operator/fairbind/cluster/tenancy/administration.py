"""What administrators want: Tenant and SchedulingPolicy objects, read and handed to the cache.

An invalid object stops nothing: its Tenant counts as if it did not exist, and a wrong policy as if there
were none; both are told so in their conditions. Every change reads all objects again (there are few), so that what
counts never depends on the order in which things happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from fairbind.cluster.tenancy.object_table import ObjectTable
from fairbind.cluster.tenancy.policies import APPLIED_NAME, parse_policy
from fairbind.cluster.tenancy.tenants import TenantSpec, parse_tenant
from fairbind.fairness.mechanisms.mechanism import Option
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.model import InvalidProblemError, PolicySettings, Unclaimed
from fairbind.scheduling import POLICIES


class AdministrationObserver(Protocol):
    """Told of what administrators should know; each is said once as long as it stays so."""

    def object_left_out(self, kind: str, name: str, problem: str) -> None:
        """This object counts as if it did not exist."""

    def policy_applied(self, description: str) -> None:
        """From now on these settings apply."""


class AdministeredWorld(Protocol):
    """The cache, as administrators change it."""

    def replace_tenants(self, specs: list[TenantSpec]) -> None: ...  # noqa: D102
    def set_policy(self, settings: PolicySettings | None) -> None: ...  # noqa: D102


class Administration:
    """Both tables, and what could not be read in them.

    invalid_tenants, invalid_policies: what is wrong, by the object's name.
    """

    def __init__(
        self, world: AdministeredWorld, on_change: Callable[[], None], observer: AdministrationObserver
    ) -> None:
        self._world = world
        self._observer = observer
        self._on_change = on_change
        self.tenants = ObjectTable(self._read_tenants)
        self.policies = ObjectTable(self._read_policies)
        self.invalid_tenants: dict[str, str] = {}
        self.invalid_policies: dict[str, str] = {}
        self._settings: PolicySettings | None = None

    def _read_tenants(self) -> None:
        specs: list[TenantSpec] = []
        problems: dict[str, str] = {}
        for name, tenant_object in sorted(self.tenants.objects.items()):
            try:
                specs.append(parse_tenant(tenant_object))
            except InvalidProblemError as error:
                problems[name] = str(error)
        self._report_new_problems("Tenant", problems, self.invalid_tenants)
        self.invalid_tenants = problems
        self._world.replace_tenants(specs)
        self._on_change()

    def _read_policies(self) -> None:
        settings: PolicySettings | None = None
        problems: dict[str, str] = {}
        for name, policy_object in sorted(self.policies.objects.items()):
            try:
                settings = parse_policy(policy_object)
            except InvalidProblemError as error:
                problems[name] = str(error)
        self._report_new_problems("SchedulingPolicy", problems, self.invalid_policies)
        self.invalid_policies = problems
        if settings != self._settings:
            self._observer.policy_applied(_describe(settings))
        self._settings = settings
        self._world.set_policy(settings)
        self._on_change()

    def _report_new_problems(self, kind: str, problems: Mapping[str, str], known: Mapping[str, str]) -> None:
        for name, problem in problems.items():
            if known.get(name) != problem:
                self._observer.object_left_out(kind, name, problem)


def _describe(settings: PolicySettings | None) -> str:
    if settings is None:
        return f"{_describe(PolicySettings())} (the defaults; there is no valid SchedulingPolicy {APPLIED_NAME!r})"
    parts = [settings.policy, f"server class tolerance {settings.server_class_tolerance:g}"]
    if settings.fairness_resources is not None:
        parts.append(f"shares count {', '.join(settings.fairness_resources)}")
    if settings.server_selector:
        parts.append(f"nodes with {', '.join(f'{key}={value}' for key, value in settings.server_selector)}")
    mechanism = POLICIES[settings.policy].mechanism
    if mechanism is not None and Option.ALPHA in MECHANISMS[mechanism].options:
        parts.append(f"alpha {settings.alpha:g}")
    if settings.expected_tenants is not None:
        parts.append(f"{settings.expected_tenants} tenants expected")
    if settings.unclaimed != Unclaimed.TENANT:
        parts.append(f"unclaimed namespaces: {settings.unclaimed}")
    return "; ".join(parts)
