"""`fairbind mechanisms`: what there is to choose from, and the story of each."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import Any

from fairbind.cli.documents import format_document
from fairbind.cli.mechanisms.tables import find_width, lay_out_wrapped
from fairbind.fairness.mechanisms.mechanism import Mechanism, Option, Standing
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.solve import get_mechanism

_WIDEST_STORY = 100
# How assumptions read: a property that fails in general may be proved for some problems all the same.
_CONDITIONS = {Standing.PROVED: "if", Standing.FAILS: "unless", Standing.NOT_REFUTED: "searched where"}


def compute_list(output: str = "table") -> str:
    """Return the table of all mechanisms, or the same as JSON or YAML."""
    if output != "table":
        return format_document({"mechanisms": [_describe(mechanism) for mechanism in MECHANISMS.values()]}, output)
    rows = [["id", "name, and what it takes"]]
    for mechanism in MECHANISMS.values():
        rows += [[mechanism.id, mechanism.name], ["", show_options(mechanism)]]
    lines = lay_out_wrapped(rows, width=find_width())
    return "\n".join([*lines, "", "`fairbind mechanisms ID` tells what a mechanism does, guarantees and does not."])


def compute_story(mechanism_id: str, output: str = "table") -> str:
    """Return what is to be known of one mechanism. Raises InvalidProblemError for an unknown one."""
    mechanism = get_mechanism(mechanism_id)
    if output != "table":
        return format_document(_describe_story(mechanism), output)
    return "\n".join(_compute_story(mechanism, find_width()))


def _describe(mechanism: Mechanism) -> dict[str, Any]:
    takes = [option.value for option in Option if option in mechanism.options]
    return {"id": mechanism.id, "name": mechanism.name, "takes": takes}


def _describe_story(mechanism: Mechanism) -> dict[str, Any]:
    from fairbind.fairness.mechanisms.guarantees import (  # noqa: PLC0415 - the list does without
        GUARANTEES,
        split_assumptions,
    )

    return {
        **_describe(mechanism),
        "paper": mechanism.paper,
        "section": mechanism.section,
        "story": mechanism.story,
        "properties": [
            {
                "property": name,
                "standing": guarantee.standing.value,
                "assumptions": list(split_assumptions(guarantee)),
                "source": guarantee.source,
            }
            for name, guarantee in GUARANTEES[mechanism.id].items()
        ],
    }


def show_options(mechanism: Mechanism) -> str:
    """Return what a mechanism takes, in the words of a problem's fields."""
    takes = [option.value for option in Option if option in mechanism.options and option is not Option.SERVERS]
    kind = "many servers" if Option.SERVERS in mechanism.options else "one pool"
    return "; ".join([kind, ", ".join(takes)] if takes else [kind])


def _compute_story(mechanism: Mechanism, width: int) -> Iterator[str]:
    from fairbind.fairness.mechanisms.guarantees import (  # noqa: PLC0415 - the list does without
        GUARANTEES,
        split_assumptions,
    )

    yield f"{mechanism.id}: {mechanism.name}"
    where = f"section {mechanism.section}" if mechanism.section[:1].isdigit() else mechanism.section
    yield from textwrap.wrap(f"{mechanism.paper}, {where}", min(width, _WIDEST_STORY))
    yield ""
    for paragraph in mechanism.story.split("\n\n"):
        yield from textwrap.wrap(paragraph, min(width, _WIDEST_STORY))
        yield ""
    yield f"takes: {show_options(mechanism)}"
    yield ""
    rows = [["property", "standing", "why"]]
    for name, guarantee in GUARANTEES[mechanism.id].items():
        assumed = " and ".join(split_assumptions(guarantee))
        when = [f"{_CONDITIONS[guarantee.standing]} {assumed}"] if assumed else []
        rows.append([name, guarantee.standing.value, "; ".join(part for part in (*when, guarantee.source) if part)])
    yield from lay_out_wrapped(rows, width=width)
