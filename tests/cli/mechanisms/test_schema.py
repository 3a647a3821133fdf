"""The JSON Schema and the parser agree, as far as a schema can tell."""

from __future__ import annotations

import copy
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from cli.mechanisms.test_bad_input import VALUES
from cli.mechanisms.typed import POOL, SERVERS, Document, Terminal, document_with, document_without
from fairbind.cli.mechanisms.quantities import read_quantities
from fairbind.cli.mechanisms.schema import PROBLEM_SCHEMA
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems import parse
from fairbind.fairness.problems.parse import parse_problem
from fairbind.model.errors import InvalidProblemError

FOLDER = Path(__file__).parents[3] / "docs" / "mechanisms" / "examples"
EXAMPLES = sorted(path for path in FOLDER.glob("*.json") if path.stem in MECHANISMS)

# What only the parser knows: which names differ, which are known, that a demand is not all zero, how many came.
BEYOND_A_SCHEMA = (
    "must differ from all others",
    "is no resource of this problem",
    "is no server of this problem",
    "must ask for more than 0",
    "must be above 0 where utilityA is 0",
    "a name of printable characters",
    "a whole number from 2 to",
)


def is_valid(value: Any, schema: Document = PROBLEM_SCHEMA) -> bool:
    """Whether a value keeps to a schema, for the keywords that ours uses; another one is a KeyError."""
    if "$ref" in schema and not is_valid(value, PROBLEM_SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")]):
        return False
    if not all(KEYWORDS[keyword](value, wanted) for keyword, wanted in schema.items()):
        return False
    known, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    members: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        members = [(member, known.get(name, others)) for name, member in value.items()]
    if isinstance(value, list):
        members = [(member, schema.get("items", {})) for member in value]
    return all(inner is not False and is_valid(member, inner) for member, inner in members)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


TYPES: dict[str, Any] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "number": is_number,
    "integer": lambda value: is_number(value) and float(value).is_integer(),
}
KEYWORDS: dict[str, Any] = {
    "$schema": lambda _, __: True,
    "$defs": lambda _, __: True,
    "$ref": lambda _, __: True,
    "title": lambda _, __: True,
    "description": lambda _, __: True,
    "default": lambda _, __: True,
    "properties": lambda _, __: True,
    "items": lambda _, __: True,
    "additionalProperties": lambda _, __: True,
    "type": lambda value, wanted: TYPES[wanted](value),
    "const": lambda value, wanted: is_number(value) and value == wanted,
    "anyOf": lambda value, wanted: any(is_valid(value, one) for one in wanted),
    "required": lambda value, wanted: not isinstance(value, dict) or all(name in value for name in wanted),
    "minimum": lambda value, wanted: not is_number(value) or value >= wanted,
    "maximum": lambda value, wanted: not is_number(value) or value <= wanted,
    "pattern": lambda value, wanted: not isinstance(value, str) or re.search(wanted, value) is not None,
    "minItems": lambda value, wanted: not isinstance(value, list) or len(value) >= wanted,
    "minLength": lambda value, wanted: not isinstance(value, str) or len(value) >= wanted,
    "minProperties": lambda value, wanted: not isinstance(value, dict) or len(value) >= wanted,
    "uniqueItems": lambda value, wanted: (
        not isinstance(value, list) or not wanted or len({json.dumps(one) for one in value}) == len(value)
    ),
}


def is_parsed(document: Document) -> str | None:
    try:
        parse_problem(read_quantities(copy.deepcopy(document)))
    except InvalidProblemError as error:
        return str(error)
    return None


@pytest.mark.parametrize("text", ["500m", "8Gi", "+1.5", ".5k", "2e3", "1E-3", "3."])
def test_quantities_are_valid(text: str) -> None:
    document = document_with("servers[0].capacity.cpu", text)

    assert is_parsed(document) is None
    assert is_valid(document)


def test_the_command_prints_it(terminal: Terminal) -> None:
    assert terminal.succeed("schema", "problem").document == PROBLEM_SCHEMA


def full_document() -> Document:
    document = json.loads(json.dumps(SERVERS))
    document["servers"][0].update(alpha=1.5, divisible=False, count=4)
    document["tenants"][0].update(weight=2, tasks=0, eligible=["a"], resourceWeights={"cpu": 3})
    document.update(expectedTenants=9, pool=False)
    return dict(document)


@pytest.mark.parametrize("document", [POOL, SERVERS, full_document()], ids=["pool", "servers", "everything"])
def test_what_is_parsed_is_valid(document: Document) -> None:
    assert is_parsed(document) is None
    assert is_valid(document)


@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_the_examples_of_the_pages_are_valid(path: Path) -> None:
    assert is_valid(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    ("path", "value", "message"), VALUES, ids=[f"{path}={value!r:.20}" for path, value, _ in VALUES]
)
def test_what_is_refused_is_invalid_where_a_schema_can_tell(path: str, value: object, message: str) -> None:
    document = document_with(path, value)
    told = is_parsed(document)

    assert told is not None
    if not any(words in told for words in BEYOND_A_SCHEMA):
        assert not is_valid(document), message


@pytest.mark.parametrize(
    "path",
    [
        "resources",
        "servers",
        "tenants",
        "servers[0].name",
        "servers[0].capacity",
        "tenants[1].name",
    ],
)
def test_what_is_missing_is_invalid(path: str) -> None:
    assert not is_valid(document_without(path))


@pytest.mark.parametrize("number", [0, 1e-15, math.nextafter(1e-15, 0), 1e21, math.nextafter(1e21, math.inf), -1, 7])
@pytest.mark.parametrize(
    "path",
    [
        "tenants[0].weight",
        "tenants[0].tasks",
        "tenants[0].demand.cpu",
        "tenants[0].resourceWeights.cpu",
        "servers[0].capacity.cpu",
        "servers[0].alpha",
        "servers[0].count",
        "expectedTenants",
    ],
)
def test_both_draw_the_same_limits(path: str, number: float) -> None:
    document = document_with(path, number, full_document())

    assert (is_parsed(document) is None) == is_valid(document)


def test_both_know_the_same_fields() -> None:
    defined = PROBLEM_SCHEMA["$defs"]

    assert set(PROBLEM_SCHEMA["properties"]) == set(parse.PROBLEM_FIELDS)
    assert set(defined["server"]["properties"]) == set(parse.SERVER_FIELDS)
    assert set(defined["tenant"]["properties"]) == set(parse.TENANT_FIELDS)
