"""The command `fairbind advise`."""

from __future__ import annotations

from fairbind.cli.cluster_listing import Source, read_objects
from fairbind.cli.documents import format_document
from fairbind.cli.mechanisms.tables import find_width, lay_out, lay_out_columns, wrap, write_text
from fairbind.cli.pod_groups import MOST_TENANTS, choose_tenants
from fairbind.what_if.advice import Advice, advise


def print_advice(source: Source, output: str) -> None:
    """Advise and print. Raises InvalidProblemError for an invalid file, FairbindError when nothing can be listed."""
    found = advise(read_objects(source))
    if output in {"json", "yaml"}:
        write_text(format_document(found.describe(), output))
    else:
        write_text("\n".join(format_advice(found)))


def format_advice(found: Advice) -> list[str]:
    """Return the advice as lines for a terminal."""
    lines = [*_wrap(f"Recommended: {found.recommended} (now {found.policy}): {found.reason}."), ""]
    lines += _show_losses(found)
    lines += _wrap(
        "Fair shares for what tenants run and want now, by each policy's exact mechanism. Each is of the resource that "
        "the tenant needs most, so they may add up to more than 100%."
    )
    lines.append("")
    places = {loss.tenant: place for place, loss in enumerate(found.losses)}
    names = list(found.weights)
    shown, others = choose_tenants(names, lambda name: places.get(name, len(places)), "those that lose most")
    columns = [["weight", *(f"{found.weights[name]:g}" for name in shown)]]
    columns += [
        [policy, *(f"{shares.get(name, 0.0):.1%}" for name in shown)] for policy, shares in found.fair_shares.items()
    ]
    for table in lay_out_columns(["tenant", *shown], columns, width=find_width()):
        lines += [*table, ""]
    lines += [*others, ""] if others else []
    for policy, reason in found.left_out.items():
        lines += _wrap(f"No fair shares under {policy}: {reason}.")
    return lines


def _show_losses(found: Advice) -> list[str]:
    if not found.losses:
        return []
    rows = [["hurt by totals", "fair pods by totals", "by classes of nodes", "loses"]]
    rows += [
        [loss.tenant, f"{loss.pods_by_totals:.1f}", f"{loss.pods_by_classes:.1f}", f"{loss.part:.0%}"]
        for loss in found.losses[:MOST_TENANTS]
    ]
    more = []
    if len(found.losses) > MOST_TENANTS:
        more = [f"{MOST_TENANTS} of {len(found.losses)} that lose; -o json has all"]
    return [*lay_out(rows), *more, ""]


def _wrap(text: str) -> list[str]:
    return wrap(text, width=find_width())
