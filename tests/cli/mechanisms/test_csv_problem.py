"""Problems as CSV tables, and the examples of docs/researchers.md."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli.test_problem import ARRAYS, make_full_problem
from fairbind.cli import main
from fairbind.cli.mechanisms.csv_problem import format_csv, read_csv
from fairbind.cli.mechanisms.quantities import read_quantities
from fairbind.cli.mechanisms.writing import describe_problem
from fairbind.fairness import Allocation, make_problem, parse_problem
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.model.errors import InvalidProblemError

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "researchers.md").read_text(encoding="utf-8")


def find_block(language: str, word: str) -> str:
    """Return the example of the page that has this word."""
    (block,) = (found for found in re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL) if word in found)
    return str(block)


def test_the_example_of_the_page_is_the_problem_that_it_shows() -> None:
    problem = parse_problem(read_quantities(read_csv(find_block("csv", "kind,name"), "problem.csv").document))

    assert (problem.resources, problem.server_names, problem.tenant_names) == (
        ("cpu", "memory"),
        ("big", "small"),
        ("ada", "ben"),
    )
    assert problem.count_k.tolist() == [2, 1]
    assert problem.capacity_kr.tolist() == [[32, 128 * 2**30], [8, 32 * 2**30]]
    assert problem.weight_i.tolist() == [2, 1]
    assert problem.tasks_i.tolist() == [np.inf, 40]
    assert problem.eligible_ik.tolist() == [[True, True], [True, False]]


def test_the_python_of_the_page_runs_and_gives_what_it_says() -> None:
    names: dict[str, Any] = {}
    exec(compile(find_block("python", "compute_allocation"), "researchers.md", "exec"), names)

    allocation = names["allocation"]
    assert isinstance(allocation, Allocation)
    np.testing.assert_allclose(allocation.tasks_ik, [[3], [2]])
    np.testing.assert_allclose(allocation.dominant_shares_i, [2 / 3, 2 / 3])
    assert allocation.certificate
    assert allocation.proof is not None
    assert allocation.proof.values is not None


def test_every_field_is_written_and_read_back() -> None:
    third = np.array([[1.0, 4.0], [1 / 3, 0.0]])
    problem = replace(make_full_problem(), demand_ir=third, expected_tenants=None, is_pooled=False)
    again = parse_problem(read_csv(format_csv(describe_problem(problem)), "problem.csv").document)

    for name in (*ARRAYS, "resource_weight_ir"):
        np.testing.assert_array_equal(getattr(again, name), getattr(problem, name))
    assert (again.resources, again.server_names, again.tenant_names) == (("r0", "r1"), ("s0", "s1"), ("t0", "t1"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"is_pooled": True}, "pool: cannot be said in CSV"),
        ({"expected_tenants": 3}, "expectedTenants: cannot be said in CSV"),
        ({"resources": ["tasks"]}, "resources: 'tasks' is a column of its own in CSV|resources: \"tasks\" is a column"),
        ({"server_names": ["a;b", "c"], "eligible_ik": [[True, False]]}, "cannot stand in a list in CSV"),
    ],
)
def test_what_a_table_cannot_say_is_refused(change: dict[str, Any], said: str) -> None:
    servers = [[9.0]] * len(change.get("server_names", ["a"]))
    problem = make_problem(servers, [[1.0]], **change)
    with pytest.raises(InvalidProblemError, match=said):
        format_csv(describe_problem(problem))


HEAD = "kind,name,count,tasks,eligible,cpu\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,cpu\na,1\n", "problem.csv line 1: must name the columns kind, name and the resources"),
        ("kind,name,cpu,cpu\nserver,a,1,1\n", 'line 1, column "cpu": stands there twice'),
        (HEAD + "sever,a,,,,9\n", 'line 2, column "kind": must be server or tenant, not "sever"; did you mean server?'),
        (HEAD + "server,a,,,,9\ntenant,ada,,,\n", "line 3: has 5 cells, but there are 6 columns"),
        (HEAD + "server,a,,4,,9\n", 'line 2, column "tasks": must be empty for a server, not "4"'),
        (HEAD + "server,a,,,,9\ntenant,ada,3,,,1\n", 'line 3, column "count": must be empty for a tenant, not "3"'),
        (
            HEAD + "server,a,,,,nine\ntenant,ada,,,,1\n",
            'problem.csv line 2, column "cpu": must be 0 or a number from 1e-15 to 1e+21, not "nine"',
        ),
        (HEAD + "server,a,,,,9\n\ntenant,ada,,,b,1\n", 'line 4, column "eligible": "b" is no server of this problem'),
        (HEAD + "server,a,,,,9\ntenant,ada,,-1,,1\n", 'line 3, column "tasks": must be'),
        (HEAD + "server,a,,,,nan\ntenant,ada,,,,1\n", 'line 2, column "cpu": must be'),
        (HEAD + "server,a,,,,9\ntenant,ada,,,,\n", "line 3: must ask for more than 0 of at least one resource"),
        (HEAD + "server,a,,,,9\nserver,,,,,9\ntenant,ada,,,,1\n", 'line 3, column "name": must be a name'),
        (HEAD + "server,a,,,,9\nserver,a,,,,9\n", 'line 3, column "name": "a" is the name of the server of line 2'),
        (HEAD + "server,a,0.5,,,9\ntenant,ada,,,,1\n", 'line 2, column "count": must be a whole number from 1'),
        (HEAD + "server,a,,,,9\n", "problem.csv: tenants: must have at least one entry"),
        ("kind,name,cpu,weight:cpu\nserver,a,9,\ntenant,ada,1,0\n", 'line 3, column "weight:cpu": must be a number'),
        ("kind,name,cpu,weight:gpu\nserver,a,9,\ntenant,ada,1,1\n", 'line 3, column "weight:gpu": is no resource'),
    ],
)
def test_a_wrong_table_is_refused_with_the_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    path = tmp_path / "problem.csv"
    path.write_text(text, encoding="utf-8")

    assert main(["allocate", str(path), "--mechanism", "drfh"]) == 2
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert said in captured.err


def test_the_commands_take_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "problem.csv"
    path.write_text(find_block("csv", "kind,name"), encoding="utf-8")

    assert main(["allocate", str(path), "--mechanism", "drfh"]) == 0
    assert json.loads(capsys.readouterr().out)["mechanism"] == "drfh"
    assert main(["check", str(path), "--mechanism", "drfh", "-o", "yaml"]) == 0
    assert capsys.readouterr().out.startswith("mechanism: drfh\nproperties:\n- property: ")
    assert main(["compare", str(path), "--mechanism", "drfh", "--mechanism", "tsf"]) == 0


def test_the_page_names_the_paper_of_every_mechanism() -> None:
    page = (DOCS / "mechanisms" / "README.md").read_text(encoding="utf-8")
    section = page.partition("## The papers")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]*) \| ([^|]+) \|$", section, re.MULTILINE)
    papers = {mechanism: paper for cell, paper in rows for mechanism in re.findall("`([^`]+)`", cell)}

    assert papers.keys() == MECHANISMS.keys()
    for mechanism, paper in papers.items():
        authors, *_ = MECHANISMS[mechanism].paper.split(",")
        (title,) = re.findall(r'"([^"]+)"', MECHANISMS[mechanism].paper)
        assert paper.startswith(authors.removesuffix(" et al.")), mechanism
        assert title in paper, mechanism
