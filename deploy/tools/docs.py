"""Write the references that follow from the code, or check that they are what they should be.

    python deploy/tools/docs.py           write what is made in docs/reference and docs/mechanisms, the pictures of
                                          the guides, what README.md shows of a cluster that is asked, and what
                                          pages say of what is published
    python deploy/tools/docs.py --check   write nothing; exit 1 and name what differs

The references of the custom resources and of the chart's values follow from YAML and are `deploy/tools/chart.py`'s.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

import claims
import derived_values
import mechanism_pages
import pictures
import publishing
import readme
import scenario_page
from fairbind.cli import commands
from fairbind.cli.exit_status import EXIT_BAD_INPUT, EXIT_FAILURE
from fairbind.cli.kubectl import NAME as PLUGIN
from fairbind.cli.kubectl import commands as plugin_commands
from fairbind.cli.logs import LOG_LEVELS
from fairbind.model.overview import PENDING_REASONS
from fairbind.scheduling.fair_shares.audit import Cause
from fairbind.web.metric_specs import AUDIT_METRICS, CLUSTER_METRICS, OWN_METRICS, TENANT_METRICS
from fairbind.web.metrics import (
    BINDING_RESULTS,
    EVICTION_RESULTS,
    REJECTIONS,
    RESTART_REASONS,
    SOLVE_RESULTS,
    WATCHED_RESOURCES,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from fairbind.web.metric_specs import MetricSpec

ROOT = Path(__file__).resolve().parents[2]
HELP_WIDTH = 100
MADE = "<!-- Made from the code by deploy/tools/docs.py; change the code and run it again. -->"

PENDING = {
    "queued": "other pods come first, its last binding failed a moment ago, or this replica does not lead",
    "insufficient": "nodes that it may use lack free capacity",
    "ineligible": "no node may take it, whatever is free",
    "unsupported": "it asks for something that is not honoured yet",
    "gated": "it has scheduling gates",
    "at_limit": "its tenant would hold more than its limit",
    "placing": "it has its turn and counts in the share, and the other scheduler has not placed it yet",
}
RESULTS = {
    "bound": "the pod is on its node",
    "conflict": "it was bound elsewhere, made again under its name, gated or being deleted meanwhile",
    "gone": "it was deleted meanwhile",
    "invalid": "the API server will never take this binding",
    "fenced": "this replica was about to lose the lease, or was ending, so it sent nothing",
    "stale": "its node was deleted, cordoned or not ready any more, so nothing was sent; the pod is decided on again",
    "crowded": "another scheduler took its capacity or host port meanwhile, so nothing was sent; it is decided again",
    "deferred": "bindings of its namespace came to take long before it was sent; it is decided again later",
    "failed": "not bound for now; the log says why",
}
REJECTED = {
    "resources": "its node had too little free capacity (OutOfcpu, OutOfmemory, OutOfpods and similar)",
    "ports": "a host port was taken (NodePorts)",
    "node": "the node's labels, taints or state did not suit it any more (NodeAffinity and similar)",
    "other": "anything else that a kubelet checks (UnexpectedAdmissionError and similar)",
}
EVICTIONS = {
    "evicted": "the API server took it",
    "blocked": "it forbids it for now (429), as for a PodDisruptionBudget; it is tried again later",
    "failed": "anything else; it is tried again, and the log says why",
}
REASONS = {
    "expired": "the API server had forgotten where the watch was (410 Gone), so everything was listed again",
    "connection": "the connection broke and the watch went on where it was",
    "unreadable": "something on the watch was no JSON, so everything was listed again",
    "unconfirmed": "an accepted binding did not show on the watch within 10 s, so all pods were listed again",
}
SOLVES = {
    "solved": "there is an answer, and its certificate holds",
    "failed": "no answer could be certified, or the solver's process ended; the log and the policy's condition say why",
    "timeout": "there was no answer in time, and the solver's process was ended",
}
CAUSES: dict[str, str] = {
    Cause.MISSING_DEMAND: "the tenant has nothing waiting that could be placed, so it asks for no more",
    Cause.INDIVISIBLE: "it is less than one pod, or no single node has enough of the free capacity",
    Cause.OTHER_PODS: "the capacity is free, and pods wait for what they require about other pods (affinity, spread)",
    Cause.MECHANISM: "the tenant has what the policy's exact mechanism gives it: this is what the policy means by fair",
    Cause.HISTORY: "pods run on that would not be placed today",
}


def compute_metrics_page() -> str:
    """Return the reference of the metrics."""
    lines = [
        "# Metrics",
        "",
        MADE,
        "",
        "Served on `/metrics` by every replica, as Prometheus text or OpenMetrics, whichever is asked for. Amounts are",
        "in base units: cores, bytes, seconds, counts. A deleted tenant's series go away. A tenant is a Tenant's name,",
        "or `ns/NAME` for a namespace that no Tenant claims. A Tenant whose spec is invalid counts as if it did not",
        "exist, and has no series; its namespaces appear as `ns/NAME`.",
        "",
        "Every replica shows the cluster as it sees it; to count things once, take the leader's:",
        "`fairbind_tenant_dominant_share and on (instance) (fairbind_leader == 1)`.",
        "",
        *_compute_table("Tenants", TENANT_METRICS),
        *_compute_table("The cluster", CLUSTER_METRICS),
        *_compute_table("The audit", AUDIT_METRICS),
        *_compute_table("The operator itself", OWN_METRICS),
        "The usual `process_*` and `python_gc_*` metrics are there too.",
        "",
        "## Values of labels",
        "",
        *_compute_values("`reason` of `fairbind_tenant_pending_pods`: why a pod waits.", PENDING, PENDING_REASONS),
        *_compute_values("`result` of `fairbind_bindings_total`: what became of a decision.", RESULTS, BINDING_RESULTS),
        *_compute_values("`reason` of `fairbind_rejected_pods_total`: why a kubelet refused it.", REJECTED, REJECTIONS),
        *_compute_values(
            "`result` of `fairbind_group_evictions_total`: what became of an eviction.", EVICTIONS, EVICTION_RESULTS
        ),
        *_compute_values("`reason` of `fairbind_watch_restarts_total`.", REASONS, RESTART_REASONS),
        *_compute_values("`result` of `fairbind_exact_solves_total`.", SOLVES, SOLVE_RESULTS),
        *_compute_values("`cause` of the audit's findings; the first that holds.", CAUSES, list(Cause)),
        f"`resource` of `fairbind_watch_restarts_total`: {', '.join(f'`{name}`' for name in WATCHED_RESOURCES)}.",
        "",
        "`server_class` of `fairbind_tenant_virtual_dominant_share`: the first node's name of a group of nodes that",
        "are equal (capacities within the policy's `serverClassTolerance`, and equal for every waiting pod).",
        "",
        "`unit` is `core`, `byte` or `integer`, as in kube-state-metrics.",
        "",
        "`namespace` of `fairbind_namespace_tenant_info`: Prometheus gives each target a label of this name",
        "too and renames ours to `exported_namespace`, unless the scrape's `honor_labels` is true (`honorLabels` of a",
        "ServiceMonitor).",
    ]
    return "\n".join(lines) + "\n"


def _compute_table(title: str, specs: Iterable[MetricSpec]) -> Iterator[str]:
    yield from (f"## {title}", "", "| metric | type | labels | meaning |", "|---|---|---|---|")
    for spec in specs:
        labels = ", ".join(f"`{label}`" for label in spec.labels)
        yield f"| `{spec.name}` | {spec.kind} | {labels} | {spec.description} |"
    yield ""


def _compute_values(title: str, meanings: dict[str, str], values: Sequence[str]) -> Iterator[str]:
    yield from (title, "", "| value | meaning |", "|---|---|")
    for value in values:
        yield f"| `{value}` | {meanings[value]} |"
    yield ""


def compute_command_page() -> str:
    """Return the reference of the command line."""
    lines = [
        "# Command line",
        "",
        MADE,
        "",
        *_compute_program("fairbind", commands),
        "## Completion",
        "",
        "The shell completes commands, options, files, and ids of policies, mechanisms and properties. For good:",
        "",
        "| shell | line | in |",
        "|---|---|---|",
        '| bash 4.4 | `eval "$(_FAIRBIND_COMPLETE=bash_source fairbind)"` | `~/.bashrc` |',
        '| zsh | `eval "$(_FAIRBIND_COMPLETE=zsh_source fairbind)"` | `~/.zshrc` |',
        "| fish | `_FAIRBIND_COMPLETE=fish_source fairbind \\| source` | `~/.config/fish/completions/fairbind.fish` |",
        "",
        "## kubectl fairbind",
        "",
        "The program `kubectl-fairbind`, which kubectl finds on the PATH.",
        "",
        *_compute_program(PLUGIN, plugin_commands),
        "## Exit status",
        "",
        "| status | meaning |",
        "|---|---|",
        "| 0 | it did what it was asked, or ended in order after SIGTERM or SIGINT; `check` found what it found |",
        f"| {EXIT_FAILURE} | it failed, or no answer was found that could be certified; one line on stderr says why |",
        f"| {EXIT_BAD_INPUT} | options, problem or kubeconfig are invalid; one line on stderr says which and why |",
        "| 130, 143 | a second SIGINT or SIGTERM ended it at once |",
        "",
        "A traceback is shown only with `--debug`. With status 2 nothing is on stdout, and the line on stderr names a",
        "field of a problem by its path (`tenants[1].demand.cpu`), with its value and what would be right.",
        "",
        "## Log",
        "",
        f"On stderr. Levels, from most to least: {', '.join(LOG_LEVELS)}. `debug` has every binding and every cycle;",
        "`info` what one wants to see once (listed, leading, a new policy, ending); `warning` what is wrong outside",
        "and is waited for. With `--log-format json` a record is a JSON object with `time`, `level`, `logger`,",
        "`message` and, after a fault, `traceback`.",
    ]
    return "\n".join(lines) + "\n"


def _compute_program(program: str, group: click.Group) -> Iterator[str]:
    settings = {**group.context_settings, "terminal_width": HELP_WIDTH}
    context = click.Context(group, info_name=program, **settings)
    yield from ("```text", *_compute_help(context), "```", "")
    for name, command in sorted(group.commands.items()):
        of_command = click.Context(command, parent=context, info_name=name, **settings)
        yield from (f"## {program} {name}", "", "```text", *_compute_help(of_command), "```", "")


def _compute_help(context: click.Context) -> list[str]:
    """Return what --help prints, at a width that does not depend on the user's terminal."""
    return [line.rstrip() for line in context.command.get_help(context).splitlines()]


def compute_outputs(root: Path) -> dict[Path, str]:
    """Return the text of every file, by path."""
    reference = root / "docs" / "reference"
    return {
        reference / "metrics.md": compute_metrics_page(),
        reference / "cli.md": compute_command_page(),
        reference / "scenario.md": scenario_page.compute_page(MADE),
        reference / "claims.md": claims.compute_page(root, MADE),
        reference / "derived-values.md": derived_values.compute_page(root, MADE),
        reference / "sweep.md": scenario_page.compute_sweep_page(MADE),
        **mechanism_pages.compute_pages(root),
        **pictures.compute_pictures(root),
        **publishing.compute_pages(root, readme.compute_page(root)),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the files; return the exit status."""
    parser = argparse.ArgumentParser(description="Write the references that follow from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 and name the files that differ")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    differing = 0
    for path, text in compute_outputs(options.root).items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        differing += 1
        name = path.relative_to(options.root)
        if options.check:
            print(f"{name} is out of date: run python deploy/tools/docs.py", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")
    stale = mechanism_pages.find_stale_pictures(options.root)
    if options.check:
        for mechanism in stale:
            picture = mechanism_pages.FOLDER / "examples" / f"{mechanism}.svg"
            print(f"{picture} shows other numbers: run python deploy/tools/docs.py", file=sys.stderr)
    elif stale:
        mechanism_pages.draw_pictures(options.root, stale)
        print(f"drew the pictures of {', '.join(stale)}")
    return 1 if options.check and (differing or stale) else 0


if __name__ == "__main__":
    sys.exit(main())
