"""A problem as one CSV table: a line for each server entry and each tenant.

The columns `kind` (server or tenant) and `name` are required. Every other column is a resource, unless it has a meaning
of its own. The cell is the server's capacity, or the demand of one task of the tenant. `weight:RESOURCE` is a tenant's
weight of a resource.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fairbind.fairness.problems.parse import show_value, suggest_name
from fairbind.model.errors import InvalidProblemError

SERVER, TENANT = "server", "tenant"
REQUIRED: Final = ("kind", "name")
SERVER_COLUMNS: Final = ("count", "alpha", "divisible")
TENANT_COLUMNS: Final = ("weight", "tasks", "eligible")
WEIGHT: Final = "weight:"
SEPARATOR: Final = ";"
_KNOWN: Final = (*REQUIRED, *SERVER_COLUMNS, *TENANT_COLUMNS)
_TRUTHS: Final = {"true": True, "false": False}


def read_csv(text: str, source: str) -> dict[str, Any]:
    r"""Return the document that the table stands for; what is wrong with an amount is for the parser to say.

    source: the file, for messages. Raises InvalidProblemError for a table that is no problem.

    >>> document = read_csv("kind,name,tasks,cpu\nserver,a,,9\ntenant,ada,2,500m\n", "p.csv")
    >>> document["tenants"]
    [{'name': 'ada', 'demand': {'cpu': '500m'}, 'tasks': 2.0}]
    """
    rows = csv.reader(io.StringIO(text))
    try:
        columns = [column.strip() for column in next(rows, [])]
        _check_columns(columns, source)
        resources = [column for column in columns if column not in _KNOWN and not column.startswith(WEIGHT)]
        document: dict[str, Any] = {"resources": resources, "servers": [], "tenants": []}
        for cells in rows:
            if not any(cell.strip() for cell in cells):
                continue
            where = f"{source} line {rows.line_num}"
            if len(cells) != len(columns):
                raise InvalidProblemError(f"{where}: has {len(cells)} cells, but there are {len(columns)} columns")
            _add(document, dict(zip(columns, (cell.strip() for cell in cells), strict=True)), where)
    except csv.Error as error:
        raise InvalidProblemError(f"{source} line {rows.line_num}: {error}") from error
    return document


def _check_columns(columns: Sequence[str], source: str) -> None:
    missing = [column for column in REQUIRED if column not in columns]
    if missing:
        raise InvalidProblemError(f"{source}: the first line must name the columns kind, name and the resources")
    repeated = [column for column in columns if columns.count(column) > 1]
    if repeated:
        raise InvalidProblemError(f"{source}: the column {show_value(repeated[0])} stands there twice")


def _add(document: dict[str, Any], row: Mapping[str, str], where: str) -> None:
    kind = row["kind"]
    if kind not in {SERVER, TENANT}:
        suggestion = suggest_name(kind, (SERVER, TENANT))
        raise InvalidProblemError(f"{where}: kind must be server or tenant, not {show_value(kind)}{suggestion}")
    own, others = (SERVER_COLUMNS, TENANT_COLUMNS) if kind == SERVER else (TENANT_COLUMNS, SERVER_COLUMNS)
    for column in (*others, *(column for column in row if column.startswith(WEIGHT) and kind == SERVER)):
        if row.get(column):
            raise InvalidProblemError(f"{where}: {column} must be empty for a {kind}, not {show_value(row[column])}")
    amounts = {resource: _read_number(row[resource]) for resource in document["resources"] if row[resource]}
    entry: dict[str, Any] = {"name": row["name"], "capacity" if kind == SERVER else "demand": amounts}
    for column in own:
        if row.get(column):
            entry[column] = _read_cell(column, row[column])
    weights = {
        column.removeprefix(WEIGHT): _read_number(cell)
        for column, cell in row.items()
        if column.startswith(WEIGHT) and cell
    }
    if weights:
        entry["resourceWeights"] = weights
    document["servers" if kind == SERVER else "tenants"].append(entry)


def _read_cell(column: str, cell: str) -> object:
    if column == "eligible":
        return [name.strip() for name in cell.split(SEPARATOR)]
    return _TRUTHS.get(cell.lower(), cell) if column == "divisible" else _read_number(cell)


def _read_number(cell: str) -> object:
    """Return a number, or the text where it is none."""
    try:
        return float(cell)
    except ValueError:
        return cell


def format_csv(document: Mapping[str, Any]) -> str:
    """Return the table of a document that `parse_problem` takes, without a last line break.

    Raises InvalidProblemError for what a table cannot say: expected tenants, a pool, names with semicolons, and
    resources that are named like a column.
    """
    for field in ("expectedTenants", "pool"):
        if field in document:
            raise InvalidProblemError(f"{field}: cannot be said in CSV; write JSON or YAML")
    resources = list(document["resources"])
    for resource in resources:
        if resource in _KNOWN or resource.startswith(WEIGHT):
            raise InvalidProblemError(f"resources: {show_value(resource)} is a column of its own in CSV; write YAML")
    entries = [
        *((SERVER, server["capacity"], server) for server in document["servers"]),
        *((TENANT, tenant["demand"], tenant) for tenant in document["tenants"]),
    ]
    used = [column for column in (*SERVER_COLUMNS, *TENANT_COLUMNS) if any(column in entry for *_, entry in entries)]
    weighed = [r for r in resources if any(r in entry.get("resourceWeights", ()) for *_, entry in entries)]
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n")
    writer.writerow([*REQUIRED, *used, *resources, *(f"{WEIGHT}{resource}" for resource in weighed)])
    for kind, amounts, entry in entries:
        weights = entry.get("resourceWeights", {})
        writer.writerow(
            [
                kind,
                entry["name"],
                *(_format_cell(entry.get(column)) for column in used),
                *(_format_cell(amounts.get(resource)) for resource in resources),
                *(_format_cell(weights.get(resource)) for resource in weighed),
            ]
        )
    return output.getvalue().rstrip("\n")


def _format_cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, list):
        for name in value:
            if SEPARATOR in name:
                raise InvalidProblemError(f"eligible: {show_value(name)} cannot stand in a list in CSV; write YAML")
        return SEPARATOR.join(value)
    return (
        str(value).lower() if isinstance(value, bool) else f"{value:.17g}" if isinstance(value, float) else str(value)
    )
