"""`fairbind compare`: several mechanisms on one problem, a column each."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from fairbind.cli.documents import format_document
from fairbind.cli.mechanisms.solving import Summary, compute_summary, read_problem
from fairbind.cli.mechanisms.tables import find_width, format_numbers, format_percents, lay_out, measure
from fairbind.fairness.mechanisms.mechanism import Option
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.problem import FloatArray, Problem
from fairbind.fairness.properties import PROPERTIES, Witness, properties_for
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

    def to_document(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {
            "mechanisms": [entry.to_document() for entry in self.entries],
            "refused": self.refused,
            "failed": self.failed,
        }

    def to_text(self, output: str) -> str:
        """Return everything as JSON or YAML, or as tables."""
        if output in {"json", "yaml"}:
            return format_document(self.to_document(), output)
        return self.to_lines()

    def to_lines(self) -> str:
        """Return tables with a column for each mechanism."""
        width = find_width()
        lines = []
        for table in _lay_out(self.entries, width):
            lines += [*table, ""]
        for title, reasons in (("cannot take this problem", self.refused), ("failed", self.failed)):
            if reasons:
                lines.append(f"{title}:")
                for reason, names in _group_reasons(reasons).items():
                    lines += textwrap.wrap(
                        f"{', '.join(names)}: {reason}",
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


def _group_reasons(reasons: dict[str, str]) -> dict[str, list[str]]:
    """Return the mechanisms that are left out by reason, so that each reason is told once.

    >>> _group_reasons({name: f"tasks: mechanism {name} does not take tasks" for name in ("drf", "drbf")})
    {'tasks: does not take tasks': ['drf', 'drbf']}
    """
    names_by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names_by_reason.setdefault(reason.replace(f"mechanism {name} ", ""), []).append(name)
    return names_by_reason


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
    wrong: list[str] = []  # whatever the mechanism
    ids_by_field: dict[str, list[str]] = {}
    for mechanism_id, reason in refused.items():
        field, _, what = reason.partition(": ")
        if what.startswith(f"mechanism {mechanism_id} "):
            ids_by_field.setdefault(field, []).append(mechanism_id)
        elif reason not in wrong:
            wrong.append(reason)
    reasons = "; ".join([*wrong, *(f"{field}: not for {', '.join(ids)}" for field, ids in ids_by_field.items())])
    raise InvalidProblemError(f"no mechanism takes all that this problem asks for: {reasons}")


def _compute_entry(problem: Problem, mechanism_id: str, alpha: float | None) -> Entry:
    allocation = compute_allocation(problem, mechanism_id, alpha=alpha)
    witnesses = {
        one.id: one.find(problem, mechanism_id, allocation, alpha=alpha)
        for one in properties_for(mechanism_id, problem)
        if not one.is_searched
    }
    return Entry(allocation, compute_summary(allocation), witnesses)


def _lay_out(entries: Sequence[Entry], width: int) -> list[list[str]]:
    """Return as few tables as fit the width, with about as many mechanisms in each."""
    for count in range(1, len(entries) + 1):
        size = -(-len(entries) // count)
        tables = [_compute_table(entries[start : start + size]) for start in range(0, len(entries), size)]
        if size == 1 or max(measure(line) for table in tables for line in table) <= width:
            break
    return tables


def _compute_table(entries: Sequence[Entry]) -> list[str]:
    names = [_break_name(entry.allocation.mechanism) for entry in entries]
    headings = max(len(name) for name in names)
    labels = [""] * headings
    columns = [[""] * (headings - len(name)) + name for name in names]
    for title, section in _compute_sections(entries):
        labels += [title, *(f"  {label}" for label in section.labels)]
        for column, cells in zip(columns, section.columns, strict=True):
            column += ["", *cells]
    return lay_out(list(zip(labels, *columns, strict=True)), headings=headings)


@dataclass(frozen=True, slots=True)
class _Section:
    labels: list[str]
    columns: list[list[str]]


def _compute_sections(entries: Sequence[Entry]) -> Iterator[tuple[str, _Section]]:
    problem = entries[0].allocation.problem
    yield "dominant share", _show_tenants(problem, [entry.allocation.dominant_shares_i for entry in entries])
    yield "tasks", _show_tenants(problem, [entry.allocation.totals_i for entry in entries])
    resources = list(entries[0].summary.utilisation)
    parts = [format_percents([entry.summary.utilisation[name] for name in resources]) for entry in entries]
    yield "used", _Section(resources, parts)
    totals = _format_rows([[entry.summary.total] for entry in entries])
    levels = _format_rows([[entry.summary.minimum, entry.summary.jain] for entry in entries])
    if problem.tree is None and (problem.weight_i == problem.weight_i[0]).all():
        together = [total + level for total, level in zip(totals, levels, strict=True)]
        yield "shares", _Section(["sum", "least", "Jain's index"], together)
    else:
        yield "shares", _Section(["sum"], totals)
        yield "shares / weight", _Section(["least", "Jain's index"], levels)
    looked_for = [name for name in PROPERTIES if any(name in entry.witnesses for entry in entries)]
    yield "property", _Section(looked_for, [[_show_witness(entry, name) for name in looked_for] for entry in entries])


def _show_tenants(problem: Problem, values_by_entry: Sequence[FloatArray]) -> _Section:
    shown = [values[:MOST_TENANTS_SHOWN].tolist() for values in values_by_entry]
    together = iter(format_numbers([value for values in shown for value in values]))
    columns = [[next(together) for _ in values] for values in shown]
    labels = list(problem.tenant_names[:MOST_TENANTS_SHOWN])
    more = len(problem.tenant_names) - len(labels)
    if more == 0:
        return _Section(labels, columns)
    return _Section([*labels, f"... and {more} more (--output json)"], [[*column, ""] for column in columns])


def _format_rows(columns: Sequence[Sequence[float]]) -> list[list[str]]:
    """Return the columns as text, numbers that stand beside each other with as many decimals."""
    rows = [format_numbers(row) for row in zip(*columns, strict=True)]
    return [list(column) for column in zip(*rows, strict=True)]


def _show_witness(entry: Entry, property_id: str) -> str:
    if property_id not in entry.witnesses:
        return ""
    return "yes" if entry.witnesses[property_id] is None else "no"


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
