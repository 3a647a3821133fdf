"""`fairbind compare`: all mechanisms side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest
import yaml

from cli.mechanisms.typed import POOL, SERVERS, Document, Terminal, document_with
from fairbind.cli.mechanisms.compare import MOST_TENANTS_SHOWN
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.problem import Problem
from fairbind.fairness.solve import compute_allocation
from fairbind.model.errors import SolverError

ONE_POOL = [name for name, mechanism in MECHANISMS.items() if "servers" not in mechanism.options]
MANY_SERVERS = [name for name in MECHANISMS if name not in ONE_POOL]


def rows_of(text: str) -> dict[str, list[str]]:
    """Return the cells beside each label; those of blocks below each other are joined."""
    rows: dict[str, list[str]] = {}
    section = ""
    for line in text.splitlines():
        if line and not line.startswith((" ", "-")) and len(line.split("  ")) == 1:
            section = line
        elif line.startswith("  ") and not line.startswith("   "):
            label, *cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
            rows.setdefault(f"{section}/{label}", []).extend(cells)
    return rows


def test_all_that_can_solve_a_pool(terminal: Terminal) -> None:
    document = terminal.succeed("compare", terminal.write(POOL), "--output", "json").document

    assert [entry["mechanism"] for entry in document["mechanisms"]] == list(MECHANISMS)
    assert document["refused"] == document["failed"] == {}
    drf = document["mechanisms"][0]
    assert drf["totals"] == {"t": pytest.approx(3), "u": pytest.approx(2)}
    assert drf["utilisation"] == {"cpu": pytest.approx(1), "memory": pytest.approx(14 / 18)}
    assert drf["sum"] == pytest.approx(4 / 3)
    assert drf["minimum"] == pytest.approx(2 / 3)
    assert drf["jain"] == pytest.approx(1)
    assert all(entry["properties"]["envy-freeness"]["holds"] in {True, False} for entry in document["mechanisms"])


def test_each_answer_is_that_of_allocate(terminal: Terminal) -> None:
    file = terminal.write(SERVERS)
    for entry in terminal.succeed("compare", file, "--output", "json").document["mechanisms"]:
        alone = terminal.succeed("allocate", file, "--mechanism", entry["mechanism"]).document
        assert (entry["totals"], entry["dominantShares"]) == (alone["totals"], alone["dominantShares"])


def test_those_that_cannot_are_named_with_the_reason(terminal: Terminal) -> None:
    file = terminal.write(SERVERS)
    document = terminal.succeed("compare", file, "--output", "json").document
    table = terminal.succeed("compare", file).out

    assert [entry["mechanism"] for entry in document["mechanisms"]] == MANY_SERVERS
    assert list(document["refused"]) == ONE_POOL
    for name in ONE_POOL:
        assert document["refused"][name].startswith(f"servers: mechanism {name} does not take several server entries")
    assert "cannot take this problem:" in table
    assert table.count("does not take several server entries") == 1
    told = " ".join(table[table.index("cannot take") :].split())
    assert f"{', '.join(ONE_POOL)}: servers: does not take several server entries" in told


def test_yaml_says_what_json_says(terminal: Terminal) -> None:
    words = ["compare", terminal.write(SERVERS), "-o"]

    assert yaml.safe_load(terminal.succeed(*words, "yaml").out) == terminal.succeed(*words, "json").document


def test_a_mechanism_asked_for_by_name_must_be_able_to(terminal: Terminal) -> None:
    file = terminal.write(SERVERS)

    told = terminal.be_refused("compare", file, "--mechanism", "drfh", "--mechanism", "drf")
    assert told.startswith("servers: mechanism drf does not take")
    terminal.succeed("compare", file, "--mechanism", "drfh", "--mechanism", "drf", "--pool")


def test_mechanisms_come_in_the_order_asked_for(terminal: Terminal) -> None:
    words = ["--mechanism", "asset-fairness", "--mechanism", "drf", "--mechanism", "asset-fairness"]
    document = terminal.succeed("compare", terminal.write(POOL), *words, "--output", "json").document

    assert [entry["mechanism"] for entry in document["mechanisms"]] == ["asset-fairness", "drf"]


def test_alpha_is_for_those_that_take_it(terminal: Terminal) -> None:
    file = terminal.write(document_with("tenants[0].weight", 3, SERVERS))
    plain = terminal.succeed("compare", file, "--output", "json").document
    other = terminal.succeed("compare", file, "--alpha", "7", "--output", "json").document

    for before, after in zip(plain["mechanisms"], other["mechanisms"], strict=True):
        takes_it = "alpha" in MECHANISMS[before["mechanism"]].options
        assert (before["totals"] != after["totals"]) == takes_it
    told = terminal.be_refused("compare", file, "--alpha", "7", "--mechanism", "drfh")
    assert told.startswith("alpha: 7.0: mechanism drfh does not take alpha")


def test_the_table_says_what_json_says(terminal: Terminal) -> None:
    file = terminal.write(POOL)
    words = ["compare", file, "--mechanism", "drf", "--mechanism", "asset-fairness"]
    rows = rows_of(terminal.succeed(*words).out)

    assert rows["dominant share/t"] == ["0.6667", "0.5600"]
    assert rows["dominant share/u"] == ["0.6667", "0.7200"]
    assert rows["tasks/t"] == ["3.0000", "2.5200"]
    assert rows["used/memory"] == ["77.8 %", "68.0 %"]
    assert rows["shares/sum"] == ["1.3333", "1.2800"]
    assert rows["shares/least"] == ["0.6667", "0.5600"]
    assert rows["shares/Jain's index"] == ["1.0000", "0.9846"]
    assert rows["property/single-server-reduction"] == ["yes", "no"]


def test_shares_are_compared_by_weight(terminal: Terminal) -> None:
    document = document_with("tenants[0].weight", 2)
    words = ["compare", terminal.write(document), "--mechanism", "drf", "--mechanism", "drfh"]
    rows = rows_of(terminal.succeed(*words).out)

    assert rows["shares / weight/Jain's index"] == ["1.0000", "1.0000"]
    assert rows["shares / weight/least"] < rows["shares/sum"]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize("document", [POOL, SERVERS], ids=["pool", "servers"])
def test_tables_fit_the_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, width: int, document: Document
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = terminal.succeed("compare", terminal.write(document)).out.splitlines()

    assert max(len(line) for line in lines) <= width


def test_many_tenants_are_cut_in_the_table_only(terminal: Terminal) -> None:
    document = json.loads(json.dumps(POOL))
    count = MOST_TENANTS_SHOWN + 5
    document["tenants"] = [{"name": f"n{i}", "demand": {"cpu": 1 + i, "memory": 2}} for i in range(count)]
    file = terminal.write(document)
    table = terminal.succeed("compare", file, "--mechanism", "drf").out

    assert "... and 5 more (--output json)" in table
    assert f"n{MOST_TENANTS_SHOWN - 1} " in table
    assert f"n{MOST_TENANTS_SHOWN} " not in table
    document = terminal.succeed("compare", file, "--mechanism", "drf", "--output", "json").document
    assert len(document["mechanisms"][0]["totals"]) == count


def test_programs_are_told_everything(terminal: Terminal) -> None:
    file = terminal.write(POOL)
    words = ["--mechanism", "asset-fairness", "--output", "json"]
    document = terminal.succeed("compare", file, *words).document
    checked = terminal.succeed("check", file, *words).document["properties"]
    (entry,) = document["mechanisms"]

    assert list(document) == ["mechanisms", "refused", "failed"]
    assert list(entry) == [
        "mechanism",
        "status",
        "totals",
        "dominantShares",
        "utilisation",
        "sum",
        "minimum",
        "jain",
        "properties",
    ]
    assert entry["status"] == "optimal"
    assert entry["minimum"] == min(entry["dominantShares"].values())
    found = {one["property"]: one["witness"] for one in checked}
    assert any(found[name] for name in entry["properties"])
    for name, told in entry["properties"].items():
        assert told == {"holds": found[name] is None, "witness": found[name]}


def test_alpha_is_an_option_or_a_field_of_each_server(terminal: Terminal) -> None:
    words = ["--mechanism", "alpha-pf-vds", "--output", "json"]
    plain = terminal.write(POOL, "plain.json")
    document = document_with("servers[0].alpha", 0.5)
    named = terminal.succeed("compare", terminal.write(document, "named.json"), *words).document
    asked = terminal.succeed("compare", plain, *words, "--alpha", "0.5").document

    assert asked == named
    assert any(not told["holds"] for told in asked["mechanisms"][0]["properties"].values())


def fail_for(mechanisms: Sequence[str]) -> Callable[..., Allocation]:
    """What solves, but for these mechanisms."""

    def solve(problem: Problem, mechanism_id: str, *, alpha: float | None = None) -> Allocation:
        if mechanism_id in mechanisms:
            raise SolverError(f"{mechanism_id}: the certificate refuses it")
        return compute_allocation(problem, mechanism_id, alpha=alpha)

    return solve


def test_what_fails_is_named_beside_the_others_and_the_status_is_1(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairbind.cli.mechanisms.compare.compute_allocation", fail_for(["ceei"]))
    file = terminal.write(POOL)
    words = ["compare", file, "--mechanism", "drf", "--mechanism", "ceei"]
    table, document = terminal.run(*words), terminal.run(*words, "--output", "json")

    assert (table.status, document.status) == (1, 1)
    assert table.err == document.err == "fairbind: no certified answer from ceei\n"
    assert "failed:\n  ceei: ceei: the certificate refuses it" in table.out
    assert "cannot take this problem" not in table.out
    assert document.document["failed"] == {"ceei": "ceei: the certificate refuses it"}
    assert [entry["mechanism"] for entry in document.document["mechanisms"]] == ["drf"]


def test_when_all_fail_there_is_nothing_to_show(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairbind.cli.mechanisms.compare.compute_allocation", fail_for(list(MECHANISMS)))
    outcome = terminal.run("compare", terminal.write(POOL), "--mechanism", "drf", "--mechanism", "ceei")

    assert (outcome.status, outcome.out) == (1, "")
    assert outcome.err.startswith("fairbind: no mechanism found a certified answer: drf: the certificate")
    assert "ceei: the certificate" in outcome.err
