"""`fairbind allocate`: JSON for programs, tables for people."""

from __future__ import annotations

import json
import math
import re

import pytest

from cli.mechanisms.typed import POOL, SERVERS, Document, Terminal, document_with
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.instance import DEFAULT_ALPHA


def allocate(terminal: Terminal, document: Document, mechanism: str, *options: str) -> Document:
    return terminal.succeed("allocate", terminal.write(document), "--mechanism", mechanism, *options).document


def test_the_example_of_the_paper(terminal: Terminal) -> None:
    answer = allocate(terminal, POOL, "drf")

    assert list(answer) == ["mechanism", "status", "tasks", "totals", "dominantShares", "certificate"]
    assert (answer["mechanism"], answer["status"]) == ("drf", "optimal")
    assert answer["tasks"] == {"t": {"a": pytest.approx(3)}, "u": {"a": pytest.approx(2)}}
    assert answer["dominantShares"] == {"t": pytest.approx(2 / 3), "u": pytest.approx(2 / 3)}
    assert answer["certificate"]["method"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_mechanism_answers_in_the_same_form(terminal: Terminal, mechanism: str) -> None:
    answer = allocate(terminal, SERVERS, mechanism, "--pool")

    assert answer["mechanism"] == mechanism
    assert answer["tasks"].keys() == answer["totals"].keys() == answer["dominantShares"].keys() == {"t", "u"}
    assert all(row.keys() == {"pool"} for row in answer["tasks"].values())
    for name, total in answer["totals"].items():
        assert total == pytest.approx(sum(answer["tasks"][name].values()), rel=1e-12)
    demand = {tenant["name"]: tenant["demand"] for tenant in SERVERS["tenants"]}
    for name, share in answer["dominantShares"].items():
        per_task = max(demand[name]["cpu"] / 38, demand[name]["memory"] / 18)
        assert share == pytest.approx(answer["totals"][name] * per_task, rel=1e-12)


@pytest.mark.parametrize("mechanism", [name for name, one in MECHANISMS.items() if "servers" in one.options])
def test_tasks_stand_below_every_server(terminal: Terminal, mechanism: str) -> None:
    answer = allocate(terminal, SERVERS, mechanism)

    for server in SERVERS["servers"]:
        for resource in SERVERS["resources"]:
            used = sum(
                answer["tasks"][tenant["name"]][server["name"]] * tenant["demand"][resource]
                for tenant in SERVERS["tenants"]
            )
            assert used <= server["capacity"][resource] * server.get("count", 1) * (1 + 1e-9)
    assert all(total > 0 for total in answer["totals"].values())


def test_a_pool_is_asked_for_by_the_option_or_by_the_problem(terminal: Terminal) -> None:
    asked = allocate(terminal, SERVERS, "drf", "--pool")

    assert allocate(terminal, {**SERVERS, "pool": True}, "drf") == asked
    assert allocate(terminal, {**SERVERS, "pool": True}, "drf", "--pool") == asked
    refused = terminal.be_refused("allocate", terminal.write(SERVERS), "--mechanism", "drf")
    assert refused.startswith("servers: mechanism drf does not take several server entries")
    assert "--pool" in refused


def test_resources_that_nobody_has_are_left_out_of_shares(terminal: Terminal) -> None:
    document = document_with("resources[2]", "gpu")
    document["tenants"].append({"name": "g", "demand": {"cpu": 1, "gpu": 1}})
    answer = allocate(terminal, document, "drf")

    assert answer["totals"]["g"] == answer["dominantShares"]["g"] == 0
    assert answer["totals"]["t"] == pytest.approx(3)


def test_nobody_can_run_anything(terminal: Terminal) -> None:
    answer = allocate(terminal, document_with("servers[0].capacity", {}), "drf")

    assert answer["totals"] == answer["dominantShares"] == {"t": 0, "u": 0}
    table = terminal.succeed(
        "allocate", terminal.write(document_with("servers[0].capacity", {})), "--mechanism", "drf", "--output", "table"
    )
    assert table.out.splitlines()[-1].split() == ["a", "1", "-", "-"]


def test_numbers_have_full_precision(terminal: Terminal) -> None:
    answer = allocate(terminal, document_with("tenants[0].demand.cpu", 0.7), "drf")

    assert len(repr(answer["totals"]["t"])) >= 16
    assert 3 * answer["totals"]["u"] + 0.7 * answer["totals"]["t"] == pytest.approx(9, rel=1e-15)


def test_extreme_magnitudes(terminal: Terminal) -> None:
    document = document_with("servers[0].capacity", {"cpu": 1e21, "memory": 1e-15})
    document["tenants"] = [{"name": "t", "demand": {"cpu": 1e-15}}, {"name": "u", "demand": {"memory": 1e21}}]
    answer = allocate(terminal, document, "drf")

    assert answer["totals"] == {"t": pytest.approx(1e36), "u": pytest.approx(1e-36)}
    assert all(math.isfinite(share) for share in answer["dominantShares"].values())


def test_alpha_is_an_option_a_field_or_the_default(terminal: Terminal) -> None:
    document = json.loads(json.dumps(SERVERS))
    document["servers"][0]["capacity"], document["tenants"][0]["weight"] = {"cpu": 4, "memory": 5}, 3
    plain = allocate(terminal, document, "alpha-pf-vds")

    assert allocate(terminal, document, "alpha-pf-vds", "--alpha", str(DEFAULT_ALPHA)) == plain
    assert allocate(terminal, document, "alpha-pf-vds", "--alpha", "5")["totals"] != plain["totals"]
    for server in document["servers"]:
        server["alpha"] = 5
    named = allocate(terminal, document, "alpha-pf-vds")["totals"]
    assert allocate(terminal, document, "alpha-pf-vds", "--alpha", "1")["totals"] == named != plain["totals"]


def test_the_help_tells_the_default_of_alpha(terminal: Terminal) -> None:
    shown = " ".join(terminal.succeed("allocate", "--help").out.split())

    assert f"[default: {DEFAULT_ALPHA:g}]" in shown


def test_a_table_reads_well(terminal: Terminal) -> None:
    document = document_with("tenants[0].weight", 2, SERVERS)
    outcome = terminal.succeed("allocate", terminal.write(document), "--mechanism", "drfh", "--output", "table")
    lines = outcome.out.splitlines()

    assert lines[0].startswith("drfh: ")
    assert lines[0].endswith("; optimal")
    assert lines[1].startswith("certificate: ")
    assert lines[3].split() == ["tenant", "weight", "tasks", "dominant", "share", "on", "a", "on", "b"]
    assert [line.split()[0] for line in lines[5:7]] == ["t", "u"]
    assert lines[8].split() == ["used", "count", "cpu", "memory"]
    assert [line.split()[:2] for line in lines[10:12]] == [["a", "1"], ["b", "3"]]
    assert lines[12].split()[:3] == ["all", "servers", "4"]
    parts = [float(part) for line in lines[10:13] for part in re.findall(r"([\d.]+) %", line)]
    assert len(parts) == 6
    assert max(parts) == 100.0  # also of an entry that stands for three servers
    assert all(len(line) <= 100 for line in lines)


@pytest.mark.parametrize(("count", "tables"), [(2, 2), (7, 3), (40, 9), (41, 2)])
def test_a_table_of_many_servers_fits_the_terminal(terminal: Terminal, count: int, tables: int) -> None:
    document = json.loads(json.dumps(SERVERS))
    document["servers"] = [{"name": f"server-{k}", "capacity": {"cpu": 1 + k, "memory": 60 - k}} for k in range(count)]
    outcome = terminal.succeed("allocate", terminal.write(document), "--mechanism", "drfh", "--output", "table")
    lines = outcome.out.splitlines()

    assert "weight" not in lines[3].split()  # all are equal
    assert len([line for line in lines if line.startswith("---")]) == tables
    assert all(len(line) <= 100 for line in lines)
    shown = [f"on server-{k}" in outcome.out for k in range(count)]
    assert shown == [count <= 40] * count
    assert (f"(tasks on each of {count} servers: --output json)" in lines) == (count > 40)


def test_weights_of_problems_are_numbers_and_quantities_alike(terminal: Terminal) -> None:
    answers = []
    for weight in (0.5, "0.5", "500m", 1):
        tenant = {**SERVERS["tenants"][0], "weight": weight, "resourceWeights": {"cpu": weight}}
        file = terminal.write({**SERVERS, "tenants": [tenant, SERVERS["tenants"][1]]})
        answers.append(terminal.succeed("allocate", file, "--mechanism", "drfh").out)

    assert answers[0] == answers[1] == answers[2] != answers[3]
