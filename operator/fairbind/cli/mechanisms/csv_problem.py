"""A problem as one CSV table: a line for each server entry and each tenant.

The columns `kind` (server or tenant) and `name` are required. Every other column is a resource, unless it has a meaning
of its own. The cell is the server's capacity, or the demand of one task of the tenant. `weight:RESOURCE` is a tenant's
weight of a resource. Errors name the file, the line and the column.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from fairbind.fairness.problems.fields import FieldError, Path, show_path, show_value, suggest_name
from fairbind.model.errors import InvalidProblemError

SERVER, TENANT = "server", "tenant"
REQUIRED: Final = ("kind", "name")
SERVER_COLUMNS: Final = ("count", "alpha", "utilityA", "utilityB", "divisible")
TENANT_COLUMNS: Final = ("weight", "tasks", "eligible", "parent", "priority", "mixed")
WEIGHT: Final = "weight:"
SEPARATOR: Final = ";"
_KNOWN: Final = (*REQUIRED, *SERVER_COLUMNS, *TENANT_COLUMNS)
_TRUTHS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Table:
    """A table and the document that it stands for.

    source: the file, for messages. lines: of each server and tenant, by the start of the path of its fields. names: the
    lines again, by kind and name.
    """

    source: str
    document: dict[str, Any]
    lines: dict[Path, int] = field(default_factory=dict)
    names: dict[tuple[str, str], int] = field(default_factory=dict)

    @contextmanager
    def naming_places(self) -> Iterator[None]:
        """Put the file, the line and the column into errors about fields of the document."""
        try:
            yield
        except FieldError as error:
            raise InvalidProblemError(f"{self.locate(error.path)}: {error.complaint}") from error

    def locate(self, path: Path) -> str:
        """Return where a field stands, as `_locate` says it; the name of the list where it has no line."""
        line = self.lines.get(path[:2])
        return f"{self.source}: {show_path(path)}" if line is None else _locate(self.source, line, _find_column(path))


def _find_column(path: Path) -> str:
    """Return the column of a field of a server or a tenant; empty for one that has none."""
    match path[2:]:
        case ("capacity" | "demand", str(resource)):
            return resource
        case ("resourceWeights", str(resource)):
            return f"{WEIGHT}{resource}"
        case ("capacity" | "demand" | "resourceWeights",):
            return ""
        case (str(column), *_):
            return column
    return ""


def _locate(source: str, line: int, column: str = "") -> str:
    return f"{source} line {line}, column {show_value(column)}" if column else f"{source} line {line}"


def read_csv(text: str, source: str) -> Table:
    r"""Return the table with the document that it stands for; what is wrong with an amount is for the parser to say.

    source: the file, for messages. Raises InvalidProblemError for a table that is no problem.

    >>> table = read_csv("kind,name,tasks,cpu\nserver,a,,9\ntenant,ada,2,500m\n", "p.csv")
    >>> table.document["tenants"]
    [{'name': 'ada', 'demand': {'cpu': '500m'}, 'tasks': 2.0}]
    >>> table.locate(("tenants", 0, "demand", "cpu"))
    'p.csv line 3, column "cpu"'
    """
    rows = csv.reader(io.StringIO(text))
    try:
        columns = [column.strip() for column in next(rows, [])]
        _check_columns(columns, source)
        resources = [column for column in columns if column not in _KNOWN and not column.startswith(WEIGHT)]
        table = Table(source, {"resources": resources, "servers": [], "tenants": []})
        for cells in rows:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(columns):
                where = _locate(source, rows.line_num)
                raise InvalidProblemError(f"{where}: has {len(cells)} cells, but there are {len(columns)} columns")
            _add(table, dict(zip(columns, (cell.strip() for cell in cells), strict=True)), rows.line_num)
        parents = {entry.get("parent") for entry in table.document["tenants"]}
        for entry in table.document["tenants"]:
            if entry["name"] in parents and not entry["demand"]:
                del entry["demand"]
    except csv.Error as error:
        raise InvalidProblemError(f"{_locate(source, rows.line_num)}: {error}") from error
    return table


def _check_columns(columns: Sequence[str], source: str) -> None:
    missing = [column for column in REQUIRED if column not in columns]
    if missing:
        where = _locate(source, 1)
        raise InvalidProblemError(f"{where}: must name the columns kind, name and the resources")
    counts = Counter(columns)
    repeated = [column for column in columns if counts[column] > 1]
    if repeated:
        raise InvalidProblemError(f"{_locate(source, 1, repeated[0])}: stands there twice")


def _add(table: Table, row: Mapping[str, str], line: int) -> None:
    kind = row["kind"]
    if kind not in {SERVER, TENANT}:
        suggestion = suggest_name(kind, (SERVER, TENANT))
        where = _locate(table.source, line, "kind")
        raise InvalidProblemError(f"{where}: must be server or tenant, not {show_value(kind)}{suggestion}")
    own, others = (SERVER_COLUMNS, TENANT_COLUMNS) if kind == SERVER else (TENANT_COLUMNS, SERVER_COLUMNS)
    for column in (*others, *(column for column in row if column.startswith(WEIGHT) and kind == SERVER)):
        if row.get(column):
            where = _locate(table.source, line, column)
            raise InvalidProblemError(f"{where}: must be empty for a {kind}, not {show_value(row[column])}")
    amounts = {resource: _read_number(row[resource]) for resource in table.document["resources"] if row[resource]}
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
    collection = "servers" if kind == SERVER else "tenants"
    entries = table.document[collection]
    first = table.names.setdefault((kind, row["name"]), line)
    if first != line:
        where = _locate(table.source, line, "name")
        raise InvalidProblemError(f"{where}: {show_value(row['name'])} is the name of the {kind} of line {first}")
    table.lines[collection, len(entries)] = line
    entries.append(entry)


def _read_cell(column: str, cell: str) -> object:
    if column == "parent":
        return cell
    if column == "eligible":
        return [name.strip() for name in cell.split(SEPARATOR)]
    return _TRUTHS.get(cell.lower(), cell) if column in {"divisible", "mixed"} else _read_number(cell)


def _read_number(cell: str) -> object:
    """Return a number, or the text where it is none."""
    try:
        return float(cell)
    except ValueError:
        return cell


def format_csv(document: Mapping[str, Any]) -> str:
    """Return the table of a document that `parse_problem` takes, without a last line break.

    Raises InvalidProblemError for what a table cannot say: expected tenants, a pool, guarantees, limits, names with
    semicolons, and resources that are named like a column.
    """
    for option in ("expectedTenants", "pool"):
        if option in document:
            raise InvalidProblemError(f"{option}: cannot be said in CSV; write JSON or YAML")
    for i, tenant in enumerate(document["tenants"]):
        for field_ in ("guarantee", "limit"):
            if field_ in tenant:
                where = f"tenants[{i}].{field_} of {tenant['name']}"
                raise InvalidProblemError(f"{where}: cannot be said in CSV; write JSON or YAML")
    resources = list(document["resources"])
    for resource in resources:
        if resource in _KNOWN or resource.startswith(WEIGHT):
            raise InvalidProblemError(f"resources: {show_value(resource)} is a column of its own in CSV; write YAML")
    entries = [
        *((SERVER, server["capacity"], server) for server in document["servers"]),
        *((TENANT, tenant.get("demand", {}), tenant) for tenant in document["tenants"]),
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
