"""The command `fairbind advise`."""

from __future__ import annotations

from fairbind.cli.cluster_listing import Source, read_objects
from fairbind.cli.documents import format_document
from fairbind.cli.mechanisms.tables import find_width, lay_out, lay_out_columns, write_text
from fairbind.what_if.advice import Advice, advise

MOST_TENANTS = 30
"""A table shows so many tenants; JSON and YAML have all."""


def print_advice(source: Source, output: str) -> None:
    """Advise and print. Raises InvalidProblemError for an invalid file, FairbindError when nothing can be listed."""
    found = advise(read_objects(source))
    if output in {"json", "yaml"}:
        write_text(format_document(found.describe(), output))
    else:
        write_text("\n".join(format_advice(found)))


def format_advice(found: Advice) -> list[str]:
    """Return the advice as lines for a terminal."""
    lines = [f"Policy {found.policy}. Fair shares (exact dominant shares) for what tenants run and want now:", ""]
    shown = list(found.weights)
    if len(shown) > MOST_TENANTS:
        shown = list(dict.fromkeys([*(loss.tenant for loss in found.losses), *shown]))[:MOST_TENANTS]
    columns = [["weight", *(f"{found.weights[name]:g}" for name in shown)]]
    columns += [
        [policy, *(f"{shares.get(name, 0.0):.3f}" for name in shown)] for policy, shares in found.fair_shares.items()
    ]
    for table in lay_out_columns(["tenant", *shown], columns, width=find_width()):
        lines += [*table, ""]
    if len(found.weights) > MOST_TENANTS:
        lines += [f"{MOST_TENANTS} of {len(found.weights)} tenants, those that lose most first; -o json has all", ""]
    lines += [f"No fair shares under {policy}: {reason}." for policy, reason in found.left_out.items()]
    if found.losses:
        rows = [["loses by totals", "by totals", "by classes of nodes", "loses"]]
        rows += [
            [loss.tenant, f"{loss.by_totals:.3f}", f"{loss.by_classes:.3f}", f"{loss.part:.0%}"]
            for loss in found.losses[:MOST_TENANTS]
        ]
        lines += lay_out(rows)
        if len(found.losses) > MOST_TENANTS:
            lines.append(f"{MOST_TENANTS} of {len(found.losses)} that lose; -o json has all")
    else:
        lines.append("No tenant loses a fifth or more by totals.")
    return [*lines, "", f"Recommended: {found.recommended}: {found.reason}."]
