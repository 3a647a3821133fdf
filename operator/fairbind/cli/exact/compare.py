"""`fairbind compare`: several mechanisms on one problem, a column each."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from fairbind.cli.exact.solving import Summary, compute_summary, read_problem
from fairbind.cli.exact.tables import find_width, format_numbers, format_percents, lay_out_blocks
from fairbind.fairness.allocation import Allocation
from fairbind.fairness.mechanism import Option
from fairbind.fairness.problem import FloatArray, Problem
from fairbind.fairness.properties import PROPERTIES, Witness, properties_for
from fairbind.fairness.registry import MECHANISMS
from fairbind.fairness.solve import compute_allocation, get_mechanism
from fairbind.model.errors import InvalidProblemError, SolverError

MOST_TENANTS_SHOWN = 30
WIDEST_HEADING = 8


@dataclass(frozen=True, slots=True)
class Entry:
    """One mechanism's column. witnesses: None where a property holds here; only those that were looked for."""

    allocation: Allocation
    summary: Summary
    witnesses: dict[str, Witness | None]

    def to_document(self) -> dict[str, Any]:
        """Return plain JSON values."""
        names = self.allocation.problem.tenant_names
        return {
            "mechanism": self.allocation.mechanism,
            "status": self.allocation.status,
            "totals": dict(zip(names, self.allocation.totals_i.tolist(), strict=True)),
            "dominantShares": dict(zip(names, self.allocation.dominant_shares_i.tolist(), strict=True)),
            "utilisation": dict(self.summary.utilisation),
            "sum": self.summary.total,
            "minimum": self.summary.minimum,
            "jain": self.summary.jain,
            "properties": {
                name: {"holds": witness is None, "witness": None if witness is None else witness.to_document()}
                for name, witness in self.witnesses.items()
            },
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """All columns. refused: why a mechanism cannot take the problem; failed: why it found no certified answer."""

    entries: tuple[Entry, ...]
    refused: dict[str, str]
    failed: dict[str, str]

    @property
    def allocations(self) -> list[Allocation]:
        """Return the answers."""
        return [entry.allocation for entry in self.entries]

    def to_json(self) -> str:
        """Return everything as JSON."""
        document = {
            "mechanisms": [entry.to_document() for entry in self.entries],
            "refused": self.refused,
            "failed": self.failed,
        }
        return json.dumps(document, indent=2, allow_nan=False)

    def to_lines(self) -> str:
        """Return tables with a column for each mechanism."""
        labels, columns, headings = _compute_columns(self.entries)
        lines, width = [], find_width()
        for block in lay_out_blocks(labels, columns, width=width, headings=headings):
            lines += [*block, ""]
        for title, reasons in (("cannot take this problem", self.refused), ("failed", self.failed)):
            if reasons:
                lines.append(f"{title}:")
                for name, reason in reasons.items():
                    lines += textwrap.wrap(
                        f"{name}: {reason}",
                        width,
                        initial_indent="  ",
                        subsequent_indent="    ",
                        break_on_hyphens=False,
                    )
                lines.append("")
        return "\n".join(lines[:-1])

    def check_failures(self) -> None:
        """Raise SolverError if a mechanism found no certified answer."""
        if self.failed:
            raise SolverError(f"no certified answer from {', '.join(self.failed)}")


def compute_comparison(source: str, mechanism_ids: Sequence[str], *, alpha: float | None, pools: bool) -> Comparison:
    """Solve the problem with each mechanism. One that was asked for by name and cannot take it is an error."""
    wanted = [get_mechanism(mechanism_id) for mechanism_id in dict.fromkeys(mechanism_ids)]
    problem = read_problem(source, pools=pools)
    entries, refused, failed = [], {}, {}
    for mechanism in wanted or MECHANISMS.values():
        # Without names, --alpha is for those that take it.
        its_alpha = alpha if wanted or Option.ALPHA in mechanism.options else None
        try:
            entries.append(_compute_entry(problem, mechanism.id, its_alpha))
        except InvalidProblemError as error:
            if wanted:
                raise
            refused[mechanism.id] = str(error)
        except SolverError as error:
            failed[mechanism.id] = str(error)
    if not entries:
        _raise_all(refused, failed)
    return Comparison(tuple(entries), refused, failed)


def _raise_all(refused: dict[str, str], failed: dict[str, str]) -> NoReturn:
    if failed:
        raise SolverError(f"no mechanism found a certified answer: {'; '.join(failed.values())}")
    raise InvalidProblemError(f"no mechanism takes this problem: {'; '.join(refused.values())}")


def _compute_entry(problem: Problem, mechanism_id: str, alpha: float | None) -> Entry:
    allocation = compute_allocation(problem, mechanism_id, alpha=alpha)
    witnesses = {
        one.id: one.find(problem, mechanism_id, allocation, alpha=alpha)
        for one in properties_for(mechanism_id)
        if not one.is_searched
    }
    return Entry(allocation, compute_summary(allocation), witnesses)


def _compute_columns(entries: Sequence[Entry]) -> tuple[list[str], list[list[str]], int]:
    """Return the labels on the left, a column for each entry, and how many rows of both are headings."""
    names = [_break_name(entry.allocation.mechanism) for entry in entries]
    headings = max(len(name) for name in names)
    labels = [""] * headings
    columns = [[""] * (headings - len(name)) + name for name in names]
    for title, section in _compute_sections(entries):
        labels += [title, *section.labels]
        for column, cells in zip(columns, section.columns, strict=True):
            column += ["", *cells]
    return labels, columns, headings


@dataclass(frozen=True, slots=True)
class _Section:
    labels: list[str]
    columns: list[list[str]]


def _compute_sections(entries: Sequence[Entry]) -> Iterator[tuple[str, _Section]]:
    tenants = entries[0].allocation.problem.tenant_names
    yield "dominant share", _show_tenants(tenants, [entry.allocation.dominant_shares_i for entry in entries])
    yield "tasks", _show_tenants(tenants, [entry.allocation.totals_i for entry in entries])
    resources = list(entries[0].summary.utilisation)
    parts = [format_percents([entry.summary.utilisation[name] for name in resources]) for entry in entries]
    yield "used", _Section(_indent(resources), parts)
    weights = entries[0].allocation.problem.weight_i
    of_what = "" if (weights == weights[0]).all() else " of share / weight"
    numbers = [[entry.summary.total, entry.summary.minimum, entry.summary.jain] for entry in entries]
    yield "shares", _Section(_indent(["sum", f"least{of_what}", f"Jain's index{of_what}"]), _format_rows(numbers))
    looked_for = [one for one in PROPERTIES if any(one in entry.witnesses for entry in entries)]
    yield (
        "property",
        _Section(_indent(looked_for), [[_show_witness(entry, one) for one in looked_for] for entry in entries]),
    )


def _show_tenants(names: Sequence[str], values_by_entry: Sequence[FloatArray]) -> _Section:
    columns = _format_rows([values[:MOST_TENANTS_SHOWN].tolist() for values in values_by_entry])
    more = len(names) - MOST_TENANTS_SHOWN
    if more <= 0:
        return _Section(_indent(names), columns)
    labels = [*names[:MOST_TENANTS_SHOWN], f"... and {more} more (--output json)"]
    return _Section(_indent(labels), [[*column, ""] for column in columns])


def _format_rows(columns: Sequence[Sequence[float]]) -> list[list[str]]:
    """Return the columns as text, numbers that stand beside each other with as many decimals."""
    rows = [format_numbers(row) for row in zip(*columns, strict=True)]
    return [list(column) for column in zip(*rows, strict=True)]


def _show_witness(entry: Entry, property_id: str) -> str:
    if property_id not in entry.witnesses:
        return ""
    return "yes" if entry.witnesses[property_id] is None else "no"


def _indent(labels: Iterable[str]) -> list[str]:
    return [f"  {label}" for label in labels]


def _break_name(mechanism_id: str) -> list[str]:
    """Return a name in lines that are not much wider than a number.

    >>> _break_name("per-server-drf"), _break_name("ps-dsf")
    (['per-', 'server-', 'drf'], ['ps-dsf'])
    """
    lines = [""]
    for part in mechanism_id.replace("-", "- ").split():
        if lines[-1] and len(lines[-1]) + len(part) > WIDEST_HEADING:
            lines.append("")
        lines[-1] += part
    return lines
