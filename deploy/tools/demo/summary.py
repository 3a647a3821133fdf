"""What is said at the end: the shares, whether they are fair, and why they are as they are.

Single moments jump by a pod, so shares are means over the last part of the run.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from demo.observe import Sample, TenantSight
from demo.view import BOUND, LET_THROUGH, format_share, indent, shorten_resource
from demo.workload import DemoTenant
from fairbind.model.overview import compute_jain_index

WIDTH = 80
COMMAND = "make demo"
KIND_COMMAND = "make demo CLUSTER=kind"
GATE_COMMAND = "make demo MODE=gate"
EQUAL_ENOUGH = 0.99
SHARE_BLIND_POLICIES = ("fifo",)
WINDOW_FRACTION = 6
SHORTEST_WINDOW_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class GpuUse:
    """GPUs of one model: how many a tenant holds, and how many there are."""

    held: int
    total: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The run in numbers.

    tenants: as seen last. share, weighted_share: means of the last window, by tenant. backlogged: tenants without a
    parent that had pods waiting in most of it. bound: pods over the whole run. limited: the tenant with a guarantee and
    a limit. gpus: by model, what it holds at the end. share_error, envy: as seen last.
    """

    seconds: float
    window_seconds: float
    tenants: tuple[TenantSight, ...]
    share: dict[str, float]
    weighted_share: dict[str, float]
    backlogged: tuple[str, ...]
    bound: int
    limited: DemoTenant
    gpus: Mapping[str, GpuUse]
    policy: str
    share_error: float | None = None
    envy: Mapping[str, int] = field(default_factory=dict)

    @property
    def free(self) -> tuple[str, ...]:
        """Tenants that have pods waiting and can use every node."""
        return tuple(name for name in self.backlogged if name != self.limited.name)

    def compute_jain(self, names: Sequence[str]) -> float:
        """Return the Jain index of the mean weighted shares of these tenants."""
        return compute_jain_index(tuple(self.weighted_share[name] for name in names))


def compute_outcome(
    samples: Sequence[Sample], *, policy: str, limited: DemoTenant, gpus: Mapping[str, GpuUse]
) -> Outcome:
    """Sum a run up. samples: at least one, in the order of time."""
    last = samples[-1]
    window_seconds = max(SHORTEST_WINDOW_SECONDS, last.seconds / WINDOW_FRACTION)
    recent = [sample for sample in samples if sample.seconds >= last.seconds - window_seconds]
    share: dict[str, float] = {}
    weighted_share: dict[str, float] = {}
    backlogged = []
    for name, parent in ((tenant.name, tenant.parent) for tenant in last.tenants):
        sights = [tenant for sample in recent for tenant in sample.tenants if tenant.name == name]
        share[name] = sum(sight.share for sight in sights) / len(sights)
        weighted_share[name] = sum(sight.weighted_share for sight in sights) / len(sights)
        if not parent and 2 * sum(sight.waiting > 0 for sight in sights) > len(sights):
            backlogged.append(name)
    return Outcome(
        seconds=last.seconds,
        window_seconds=window_seconds,
        tenants=last.tenants,
        share=share,
        weighted_share=weighted_share,
        backlogged=tuple(backlogged),
        bound=last.bound,
        limited=limited,
        gpus=gpus,
        policy=policy,
        share_error=last.share_error,
        envy=last.envy,
    )


def format_summary(outcome: Outcome, command: str = COMMAND, report: str = "") -> str:
    """Return the whole closing text, at most `WIDTH` columns wide.

    command: what started this demo. report: what others have seen of it.
    """
    jain_all, jain_free = (outcome.compute_jain(names) for names in (outcome.backlogged, outcome.free))
    done = LET_THROUGH if outcome.limited.is_gated else BOUND
    window = f"shares: means of the last {outcome.window_seconds:.0f} s"
    lines = [
        f"Summary after {outcome.seconds:.0f} s of {outcome.policy} ({window})",
        "",
        "  tenant     weight  dominant  share   fair  share/weight  running  waiting",
        *(_format_tenant(outcome, tenant) for tenant in outcome.tenants),
        "",
        f"  Jain index of the weighted shares over the tenants with backlog: {jain_all:.3f};",
        f"  over those of them that can use every node: {jain_free:.3f} (1 is equal)",
        *_format_distance(outcome),
        f"  {outcome.bound} pods {done}, {outcome.bound / max(outcome.seconds, 1e-9):.1f} pods/s",
        "",
        *textwrap.wrap(" ".join(explain(outcome)), WIDTH, initial_indent="  ", subsequent_indent="  "),
        "",
        *([report, ""] if report else []),
        "What to try next",
        *_format_advice(command),
    ]
    return "\n".join(lines)


def _format_distance(outcome: Outcome) -> list[str]:
    """Return how far the last moment was from fair shares, and what the operator's audit found."""
    lines = []
    if outcome.share_error is not None:
        lines.append(f"  The worst of those who wait is {outcome.share_error:.3f} below its fair share")
    if outcome.envy:
        found = ", ".join(f"{count} by {cause}" for cause, count in outcome.envy.items() if count)
        lines.append(f"  Audit: pairs of tenants with envy: {found or 'none'}")
    return lines


def explain(outcome: Outcome) -> list[str]:
    """Return the outcome in sentences: who is equal, what children hold, and why the limited tenant is not equal."""
    if outcome.policy in SHARE_BLIND_POLICIES:
        return [_explain_free(outcome)]
    return [_explain_free(outcome), *_explain_children(outcome), *_explain_limited(outcome)]


def _explain_free(outcome: Outcome) -> str:
    values = ", ".join(f"{name} {outcome.weighted_share[name]:.3f}" for name in outcome.free)
    if outcome.policy in SHARE_BLIND_POLICIES:
        return f"{outcome.policy} looks at no shares and no weights: who asks first and most gets most ({values})."
    if outcome.compute_jain(outcome.free) >= EQUAL_ENOUGH:
        return f"Who can use every node holds as much as its weight says: share/weight is equal ({values})."
    return f"Not equal yet ({values}): pods that end make it so, so a longer run (DURATION=120) gets closer."


def _explain_children(outcome: Outcome) -> list[str]:
    """Return a sentence about each parent."""
    sentences = []
    for parent in outcome.tenants:
        children = [tenant for tenant in outcome.tenants if tenant.parent == parent.name]
        if children:
            held = [f"{child.name} (weight {child.weight:g}) {outcome.share[child.name]:.3f}" for child in children]
            parts = ", ".join(held)
            sentences.append(f"Of the {outcome.share[parent.name]:.3f} of {parent.name} its children hold: {parts}.")
    return sentences


def _explain_limited(outcome: Outcome) -> list[str]:
    """Return what the tenant with a guarantee and a limit holds of each model of GPU."""
    limited = outcome.limited
    if not outcome.gpus or limited.name not in outcome.share:
        return []
    models = ", ".join(_describe_model(limited, model, use) for model, use in outcome.gpus.items())
    return [f"Every pod of {limited.name} needs a GPU. It holds {models}. The others share what it may not use."]


def _describe_model(tenant: DemoTenant, model: str, use: GpuUse) -> str:
    promises = [
        *([f"{tenant.guarantee[model]} are guaranteed"] if model in tenant.guarantee else []),
        *([f"the limit is {tenant.limit[model]}"] if model in tenant.limit else []),
    ]
    told = f" ({', '.join(promises)})" if promises else ""
    return f"{use.held} of {use.total} {model}{told}"


def _format_tenant(outcome: Outcome, tenant: TenantSight) -> str:
    return (
        f"  {indent(tenant):<10} {tenant.weight:>6g}  {shorten_resource(tenant.dominant_resource):<8}  "
        f"{outcome.share[tenant.name]:.3f}  {format_share(tenant.fair_share):>5}  "
        f"{outcome.weighted_share[tenant.name]:>12.3f}  {tenant.running:>7}  {tenant.waiting:>7}"
    )


def _format_advice(command: str) -> list[str]:
    """Return what to try next, one line each."""
    others = {
        KIND_COMMAND: "with real kubelets and containers; needs Docker",
        GATE_COMMAND: "kube-scheduler places the pods, in fairbind's order",
    }
    advice = {
        f"POLICY=fifo {command}": "first come, first served, for comparison",
        f"KEEP=1 {command}": "keep the cluster and look around",
        **{other: why for other, why in others.items() if other != command},
        "make test": "run all tests; make help lists the rest",
        "README.md": "install fairbind on your own cluster",
    }
    width = max(map(len, advice))
    return [f"  {what:<{width}}  {why}" for what, why in advice.items()]
