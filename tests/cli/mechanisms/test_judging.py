"""`fairbind allocate --certificate` and `fairbind check --allocation`: answers that others can check, and theirs."""

from __future__ import annotations

import json

import pytest
import yaml

from cli.mechanisms.test_check import UNFAIR
from cli.mechanisms.typed import POOL, SERVERS, Document, Terminal
from fairbind.fairness.mechanisms.registry import MECHANISMS


@pytest.mark.parametrize("form", ["json", "yaml", "csv"])
def test_an_answer_can_be_given_back(terminal: Terminal, form: str) -> None:
    file = terminal.write(SERVERS)
    answer = terminal.succeed("allocate", file, "--mechanism", "ps-dsf", "-o", form).out
    given = terminal.write(answer, f"answer.{form}")
    words = ["check", file, "--mechanism", "ps-dsf", "--allocation", given]

    assert terminal.succeed(*words, "-o", "json").document["fair"] is True
    assert terminal.succeed(*words).out.startswith("fairness           holds")


def test_the_formats_say_the_same(terminal: Terminal) -> None:
    words = ["allocate", terminal.write(SERVERS), "--mechanism", "drfh", "-o"]

    document = terminal.succeed(*words, "json").document
    assert yaml.safe_load(terminal.succeed(*words, "yaml").out) == document
    lines = terminal.succeed(*words, "csv").out.splitlines()
    assert lines[0] == "tenant,server,tasks"
    written = {(tenant, server): float(tasks) for tenant, server, tasks in (line.split(",") for line in lines[1:])}
    assert written == {(t, s): n for t, row in document["tasks"].items() for s, n in row.items() if n > 0}


def test_prices_come_with_the_certificate(terminal: Terminal) -> None:
    """At these prices everybody spends its weight: that is what others can check."""
    words = ["allocate", terminal.write(POOL), "--mechanism", "ceei"]
    plain = terminal.succeed(*words).document["certificate"]
    document = terminal.succeed(*words, "--certificate").document
    price = document["certificate"]["values"]["price_r"]
    (all_servers,) = document["certificate"]["classes"]

    assert "values" not in plain
    assert all_servers == {"servers": ["a"], "capacity": {"cpu": 1.0, "memory": 1.0}, "divisible": True}
    demands = {tenant["name"]: tenant["demand"] for tenant in POOL["tenants"]}
    capacity = POOL["servers"][0]["capacity"]
    for name, tasks in document["totals"].items():
        spent = tasks * sum(demands[name][resource] / capacity[resource] * price[resource] for resource in capacity)
        assert spent == pytest.approx(0.5)


@pytest.mark.parametrize(("tasks", "status"), [((3.0, 2.0), 0), ((3.0, 1.0), 1), ((9.0, 2.0), 1)])
@pytest.mark.parametrize("form", ["table", "json"])
def test_the_exit_status_says_whether_an_allocation_holds_when_asked_to(
    terminal: Terminal, tasks: tuple[float, float], status: int, form: str
) -> None:
    """Fair, unfair, above what the server has."""
    given = terminal.write({"tasks": {"t": {"a": tasks[0]}, "u": {"a": tasks[1]}}}, "given.json")
    words = ["check", terminal.write(POOL), "--mechanism", "drf", "--allocation", given, "-o", form]
    plain, asked = terminal.run(*words), terminal.run(*words, "--exit-code")

    assert (plain.status, asked.status) == (0, status)
    assert (asked.out, asked.err) == (plain.out, "")


def test_properties_that_the_mechanism_lacks_do_not_make_its_own_answer_fail(terminal: Terminal) -> None:
    file = terminal.write(UNFAIR)
    given = terminal.write(terminal.succeed("allocate", file, "--mechanism", "asset-fairness").out, "given.json")
    outcome = terminal.succeed("check", file, "--mechanism", "asset-fairness", "--allocation", given, "--exit-code")

    assert "sharing-incentive  violated" in outcome.out


@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 3.0])
def test_alphas_multipliers_are_powers_of_its_prices(terminal: Terminal, alpha: float) -> None:
    """Inequality (16) on one server: for each tenant, the slope is what its load costs, at the multipliers."""
    pool = {**POOL, "tenants": [{**POOL["tenants"][0], "weight": 3}, POOL["tenants"][1]]}
    words = ["allocate", terminal.write(pool), "--mechanism", "alpha-pf-vds", "--alpha", str(alpha), "--certificate"]
    document = terminal.succeed(*words).document
    certificate = document["certificate"]
    (price,) = certificate["values"]["price_kr"]
    (all_servers,) = certificate["classes"]

    assert certificate["notes"]["price_kr"].startswith("price_kr ** max(alpha, 1), ")
    assert all_servers["alpha"] == alpha
    capacity = pool["servers"][0]["capacity"]
    for tenant, weight in zip(pool["tenants"], (0.75, 0.25), strict=True):
        most = min(capacity[name] / tenant["demand"][name] for name in capacity)
        share = document["totals"][tenant["name"]] / most
        cost = sum(price[name] ** max(alpha, 1) * most * tenant["demand"][name] / capacity[name] for name in capacity)
        assert (share / weight) ** -alpha == pytest.approx(cost)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_has_a_certificate_to_show(terminal: Terminal, mechanism: str) -> None:
    words = ["allocate", terminal.write(POOL), "--mechanism", mechanism, "--certificate"]

    assert {"method", "classes", "values"} <= set(terminal.succeed(*words).document["certificate"])


def test_what_is_wrong_is_told_by_name_and_amount(terminal: Terminal) -> None:
    given = terminal.write("tenant,server,tasks\nt,a,3\nu,a,1\n", "given.csv")
    words = ["check", terminal.write(POOL), "--mechanism", "drf", "--allocation", given]
    document = terminal.succeed(*words, "-o", "json").document

    assert (document["feasible"], document["fair"]) == (True, False)
    (violation,) = document["violations"]
    assert (violation["condition"], violation["tenant"]) == ("fairness", "u")
    assert violation["by"] == pytest.approx(1)
    assert document["properties"]["pareto-optimality"]["holds"] is False
    assert "tenant u could get 1 more of its own" in terminal.succeed(*words).out


def test_what_does_not_fit_is_told_by_server_and_resource(terminal: Terminal) -> None:
    given = terminal.write({"tasks": {"t": {"a": 3}, "u": {"a": 4}}}, "given.json")
    words = ["check", terminal.write(POOL), "--mechanism", "drf", "--allocation", given, "-o", "json"]
    document = terminal.succeed(*words).document

    assert (document["feasible"], document["properties"]) == (False, {})
    (violation,) = document["violations"]
    assert (violation["server"], violation["resource"]) == ("a", "cpu")
    assert violation["by"] == pytest.approx(15 / 9 - 1)


WRONG: list[tuple[str, Document | str, str]] = [
    ("given.json", {"tasks": {"x": {"a": 1}}}, 'tasks.x.a: "x" is no tenant of the problem; known are t, u'),
    ("given.json", {"tasks": {"t": {"b": 1}}}, 'tasks.t.b: "b" is no server of the problem; known are a'),
    ("given.json", {"tasks": {"t": {"a": -1}}}, "tasks.t.a: must be a number of tasks from 0 on, not -1"),
    ("given.json", {"tasks": {"t": 3}}, "tasks.t: must be an object of tasks by server"),
    ("given.json", {"totals": {}}, "must have tasks: an object of tenants"),
    ("given.csv", "tenant,tasks\nt,1\n", "the first line must be tenant,server,tasks"),
    ("given.csv", "tenant,server,tasks\nt,a,many\n", 'line 2: must be a number of tasks from 0 on, not "many"'),
    ("given.csv", "tenant,server,tasks\nt,a\n", "line 2: must be a number of tasks from 0 on, not null"),
]


@pytest.mark.parametrize(("name", "content", "message"), WRONG, ids=[json.dumps(case[1])[:40] for case in WRONG])
def test_files_that_hold_no_allocation(terminal: Terminal, name: str, content: Document | str, message: str) -> None:
    given = terminal.write(content, name)

    assert message in terminal.be_refused("check", terminal.write(POOL), "--mechanism", "drf", "--allocation", given)


def test_a_csv_of_one_endless_field_is_refused_in_a_line(terminal: Terminal) -> None:
    given = terminal.write(f'tenant,server,tasks\n"{"a" * 200_000}",a,1\n', "given.csv")
    told = terminal.be_refused("check", terminal.write(POOL), "--mechanism", "drf", "--allocation", given)

    assert told == f"{given}: line 2: field larger than field limit (131072)"
