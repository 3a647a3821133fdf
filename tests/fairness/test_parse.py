"""Documents become problems, or one line that says which field is wrong, its value, and what would be right."""

from __future__ import annotations

import copy
import math
import re
from typing import Any

import numpy as np
import pytest

from fairbind.fairness.problems.parse import parse_problem
from fairbind.model.errors import InvalidProblemError

Document = dict[str, Any]


def make_document() -> Document:
    return {
        "resources": ["cpu", "memory"],
        "servers": [
            {"name": "a", "capacity": {"cpu": 9, "memory": 18}, "count": 3, "alpha": 2, "divisible": False},
            {"name": "big", "capacity": {"memory": 4.5}},
        ],
        "tenants": [
            {"name": "t", "demand": {"cpu": 1, "memory": 4}},
            {
                "name": "u",
                "weight": 2,
                "demand": {"cpu": 3},
                "tasks": 10,
                "eligible": ["big"],
                "resourceWeights": {"cpu": 0.5},
            },
        ],
        "expectedTenants": 4,
        "pool": False,
    }


def refusal_of(document: object) -> str:
    with pytest.raises(InvalidProblemError) as caught:
        parse_problem(document)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


def document_with(path: str, value: object) -> Document:
    """Return the document with one field set; a list's entry one beyond its end is appended."""
    document = make_document()
    *parents, last = (int(part) if part.isdigit() else part for part in re.findall(r"\w+", path))
    place: Any = document
    for part in parents:
        place = place[part]
    if last == len(place) and isinstance(place, list):
        place.append(value)
    else:
        place[last] = value
    return document


NAMES = {"servers[0]": "a", "servers[1]": "big", "tenants[0]": "t", "tenants[1]": "u"}


def show(path: str) -> str:
    """Return how a message shows the path: with the name of the entry that it leads into, unless it is the name."""
    entry = path[: path.find("]") + 1]
    is_named = entry in NAMES and path != entry and not path.endswith(".name")
    return f"{path} of {NAMES[entry]}" if is_named else path


def test_every_field_arrives() -> None:
    problem = parse_problem(make_document())

    assert problem.resources == ("cpu", "memory")
    assert problem.server_names == ("a", "big")
    assert problem.tenant_names == ("t", "u")
    np.testing.assert_array_equal(problem.capacity_kr, [[9, 18], [0, 4.5]])
    np.testing.assert_array_equal(problem.count_k, [3, 1])
    np.testing.assert_array_equal(problem.alpha_k, [2, math.nan])
    np.testing.assert_array_equal(problem.divisible_k, [False, True])
    np.testing.assert_array_equal(problem.demand_ir, [[1, 4], [3, 0]])
    np.testing.assert_array_equal(problem.weight_i, [1, 2])
    np.testing.assert_array_equal(problem.tasks_i, [math.inf, 10])
    np.testing.assert_array_equal(problem.eligible_ik, [[True, True], [False, True]])
    np.testing.assert_array_equal(problem.resource_weight_ir, [[1, 1], [0.5, 1]])
    assert problem.expected_tenants == 4
    assert problem.is_pooled is False


def test_what_may_be_left_out_may_be_left_out() -> None:
    document = {
        "resources": ["cpu"],
        "servers": [{"name": "a", "capacity": {}}],
        "tenants": [{"name": "t", "demand": {"cpu": 1}}],
    }
    problem = parse_problem(document)

    assert (problem.expected_tenants, problem.is_pooled) == (None, False)
    assert problem.capacity_kr.tolist() == [[0.0]]
    assert problem.eligible_ik.all()
    assert np.isnan(problem.alpha_k).all()


def test_nobody_eligible_no_tasks_and_a_pool_are_valid() -> None:
    document = make_document()
    document["tenants"][0].update(eligible=[], tasks=0)
    document["pool"] = True
    problem = parse_problem(document)

    assert problem.eligible_ik.tolist() == [[False, False], [False, True]]
    assert problem.tasks_i[0] == 0
    assert problem.is_pooled


def test_the_document_is_left_as_it_was() -> None:
    document = make_document()
    before = copy.deepcopy(document)
    parse_problem(document)

    assert document == before


@pytest.mark.parametrize("number", [0, -0.0, 1e-15, 1e21, 10**21, 0.1, 7])
def test_magnitudes_that_can_be_meant(number: float) -> None:
    problem = parse_problem(document_with("tenants[0].demand.cpu", number))

    assert problem.demand_ir[0, 0] == number
    assert math.copysign(1, problem.demand_ir[0, 0]) == 1


NOT_AMOUNTS: list[tuple[object, str]] = [
    ("4", '"4"'),
    (True, "true"),
    (False, "false"),
    (None, "null"),
    ([1], "a list"),
    ([], "[]"),
    ({"cpu": 1}, "an object"),
    (math.nan, "NaN"),
    (math.inf, "Infinity"),
    (-math.inf, "-Infinity"),
    (-1, "-1"),
    (-1e-300, "-1e-300"),
    (1.0000001e21, "1.0000001e+21"),
    (9e-16, "9e-16"),
    (5e-324, "5e-324"),
    (10**400, "a whole number of 401 digits"),
    (-(10**30), "a whole number of 31 digits"),
    (1j, "a complex"),
]
AMOUNTS = {
    "servers[0].capacity.cpu": "0 or a number from",
    "servers[1].alpha": "a number from",
    "servers[0].count": "a whole number from 1 to",
    "tenants[1].demand.memory": "0 or a number from",
    "tenants[0].weight": "a number from",
    "tenants[0].tasks": "0 or a number from",
    "tenants[1].resourceWeights.cpu": "a number from",
    "expectedTenants": "a whole number from 2 to",
}


@pytest.mark.parametrize("path", AMOUNTS)
@pytest.mark.parametrize(("value", "shown"), NOT_AMOUNTS, ids=[shown for _, shown in NOT_AMOUNTS])
def test_what_is_no_amount_is_refused_everywhere(path: str, value: object, shown: str) -> None:
    message = refusal_of(document_with(path, value))

    assert message.startswith(f"{show(path)}: must be {AMOUNTS[path]}")
    assert message.endswith(f", not {shown}")


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("servers[0].count", 0, "must be a whole number from 1 to 1e+21, not 0"),
        ("servers[0].count", 1.5, "must be a whole number from 1 to 1e+21, not 1.5"),
        ("servers[0].alpha", 0.009, "must be a number from 0.01 to 1e+21, not 0.009"),
        ("servers[0].divisible", None, "must be true or false, not null"),
        ("servers[0].capacity", 9, "must be an object of amounts by resource, not 9"),
        ("servers[1].name", "", 'must be a name of printable characters, not ""'),
        ("servers[1].name", "  ", 'must be a name of printable characters, not "  "'),
        ("servers[1].name", "a", 'must differ from all others, but "a" is servers[0].name already'),
        ("servers[2]", [], "must be an object with name and capacity, not []"),
        ("servers", [], "must have at least one entry, not []"),
        ("tenants[0].weight", 0, "must be a number from 1e-15 to 1e+21, not 0"),
        ("tenants[1].resourceWeights.cpu", 0, "must be a number from 1e-15 to 1e+21, not 0"),
        ("tenants[1].resourceWeights", 2, "must be an object of weights by resource, not 2"),
        ("tenants[0].demand", {}, "must ask for more than 0 of at least one resource, not {}"),
        ("tenants[0].demand", {"cpu": 0}, "must ask for more than 0 of at least one resource, not an object"),
        ("tenants[0].demand", [1, 2], "must be an object of amounts by resource, not a list"),
        ("tenants[0].name", "a\nb", r'must be a name of printable characters, not "a\nb"'),
        ("tenants[0].name", "\x7f", r'must be a name of printable characters, not "\u007f"'),
        ("tenants[0].name", "\ud800", r'must be a name of printable characters, not "\ud800"'),
        ("tenants[0].name", 3, "must be a name (text), not 3"),
        ("tenants[0].name", ["t"], "must be a name (text), not a list"),
        ("tenants[1].name", "t", 'must differ from all others, but "t" is tenants[0].name already'),
        (
            "tenants[1].eligible[1]",
            "big",
            'must differ from all others, but "big" is tenants[1].eligible[0] of u already',
        ),
        ("tenants[1].eligible[0]", "large", '"large" is no server of this problem; known are a, big'),
        ("tenants[1].eligible[0]", 0, "must be the name of a server, not 0"),
        ("tenants[1].eligible[0]", ["a"], "must be the name of a server, not a list"),
        ("tenants[1].eligible", "big", 'must be a list of servers\' names, not "big"'),
        ("tenants[2]", 7, "must be an object with name and demand, not 7"),
        ("tenants", [], "must have at least one entry, not []"),
        ("tenants", None, "must be a list of tenants, not null"),
        ("resources", [], "must have at least one entry, not []"),
        ("resources", {"cpu": 1}, "must be a list of names, not an object"),
        ("resources", "cpu", 'must be a list of names, not "cpu"'),
        ("resources[2]", "cpu", 'must differ from all others, but "cpu" is resources[0] already'),
        ("resources[2]", None, "must be a name (text), not null"),
        ("expectedTenants", 1, "must be a whole number from 2 to 1e+21, not 1"),
        ("pool", "yes", 'must be true or false, not "yes"'),
        ("pool", 1, "must be true or false, not 1"),
    ],
)
def test_other_values_that_cannot_be_meant(path: str, value: object, message: str) -> None:
    assert refusal_of(document_with(path, value)) == f"{show(path)}: {message}"


@pytest.mark.parametrize(
    ("path", "name", "message"),
    [
        ("", "tenant", "is no field here; did you mean tenants?"),
        ("servers[0]", "capcity", "is no field here; did you mean capacity?"),
        ("tenants[1]", "wieght", "is no field here; did you mean weight?"),
        ("tenants[0].demand", "memroy", "is no resource of this problem; did you mean memory?"),
        ("servers[0].capacity", "xyz", "is no resource of this problem; known are cpu, memory"),
        ("tenants[1].resourceWeights", "Cpu", "is no resource of this problem; did you mean cpu?"),
    ],
)
def test_unknown_names_come_with_the_nearest_known(path: str, name: str, message: str) -> None:
    where = f"{path}.{name}" if path else name
    assert refusal_of(document_with(where, 1)) == f"{show(where)}: {message}"


def test_unknown_servers_come_with_the_nearest_known() -> None:
    message = 'tenants[1].eligible[0] of u: "bigg" is no server of this problem; did you mean big?'
    assert refusal_of(document_with("tenants[1].eligible[0]", "bigg")) == message


def test_names_that_would_blur_a_path_are_quoted() -> None:
    document = make_document()
    document["tenants"][0]["demand"]["nvidia.com/gpu"] = 1

    assert refusal_of(document).startswith('tenants[0].demand["nvidia.com/gpu"] of t: is no resource')


def test_names_that_are_no_text() -> None:
    document: dict[Any, Any] = make_document()
    document[7] = 1

    assert refusal_of(document) == "problem: names must be text, not 7"


@pytest.mark.parametrize("field", ["resources", "servers", "tenants"])
def test_what_is_missing_is_named(field: str) -> None:
    document = make_document()
    del document[field]

    assert refusal_of(document) == f"{field}: is missing; resources, servers and tenants must be there"


@pytest.mark.parametrize(
    ("part", "field"), [("servers", "name"), ("servers", "capacity"), ("tenants", "name"), ("tenants", "demand")]
)
def test_what_is_missing_in_an_entry_is_named(part: str, field: str) -> None:
    document = make_document()
    del document[part][1][field]

    assert refusal_of(document).startswith(f"{show(f'{part}[1].{field}')}: is missing; name and ")


@pytest.mark.parametrize(("document", "shown"), [([], "[]"), (None, "null"), ("{}", '"{}"'), (3, "3"), (True, "true")])
def test_what_is_no_object_at_all(document: object, shown: str) -> None:
    message = f"problem: must be an object with resources, servers and tenants, not {shown}"
    assert refusal_of(document) == message


def test_long_names_and_values_are_cut() -> None:
    assert "..." in refusal_of({**make_document(), "x" * 10_000: 1})
    assert "..." in refusal_of(document_with("pool", "x" * 10_000))


def test_many_known_names_are_not_listed() -> None:
    document = document_with("servers[0].capacity.unknown", 1)
    document["resources"] += [f"resource{number}" for number in range(100)]

    assert refusal_of(document).endswith("unknown of a: is no resource of this problem")
