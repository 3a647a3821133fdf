"""`fairbind check`: a line for each property, with the witness."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cli.mechanisms.typed import POOL, Document, Terminal, document_with
from fairbind.cli.mechanisms.check import Finding, Findings, compute_findings
from fairbind.fairness.mechanisms.guarantees import GUARANTEES
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.properties import Witness, properties_for
from fairbind.model.errors import InvariantError
from nights import leave_to_nights

# Asset fairness gives t1 less than half of the servers would (section 6.1.1 of the DRF paper).
UNFAIR: Document = {
    "resources": ["cpu", "memory"],
    "servers": [{"name": "a", "capacity": {"cpu": 30, "memory": 30}}],
    "tenants": [{"name": "t0", "demand": {"cpu": 1, "memory": 3}}, {"name": "t1", "demand": {"cpu": 1, "memory": 1}}],
}


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", leave_to_nights(MECHANISMS, but={"drf", "ps-dsf"}))
def test_a_line_for_each_property(terminal: Terminal, mechanism: str) -> None:
    outcome = terminal.succeed("check", terminal.write(POOL), "--mechanism", mechanism)

    found = [line.split()[0] for line in outcome.out.splitlines() if not line.startswith(" ")]
    assert found == [one.id for one in properties_for(mechanism)]


def test_what_holds_and_what_does_not(terminal: Terminal) -> None:
    words = ["--property", "sharing-incentive", "--property", "envy-freeness"]
    outcome = terminal.succeed("check", terminal.write(UNFAIR), "--mechanism", "asset-fairness", *words)
    sharing, witness, envy = outcome.out.splitlines()

    assert sharing.split()[:2] == ["sharing-incentive", "violated"]
    assert "t1 runs 12 tasks; its slice of every server would run 15 (20 % less)" in witness
    assert "fails in general" in sharing
    assert envy.split()[:2] == ["envy-freeness", "holds"]


@pytest.mark.parametrize(("name", "status"), [("sharing-incentive", 1), ("envy-freeness", 0)])
@pytest.mark.parametrize("form", ["table", "json"])
def test_the_exit_status_says_whether_it_holds_when_asked_to(
    terminal: Terminal, name: str, status: int, form: str
) -> None:
    words = ["check", terminal.write(UNFAIR), "--mechanism", "asset-fairness", "--property", name, "-o", form]
    plain, asked = terminal.run(*words), terminal.run(*words, "--exit-code")

    assert (plain.status, asked.status) == (0, status)
    assert (asked.out, asked.err) == (plain.out, "")


def test_the_same_for_programs(terminal: Terminal) -> None:
    words = ["--property", "sharing-incentive", "--output", "json"]
    outcome = terminal.succeed("check", terminal.write(UNFAIR), "--mechanism", "asset-fairness", *words)
    (found,) = outcome.document["properties"]

    assert outcome.document["mechanism"] == "asset-fairness"
    assert (found["property"], found["result"], found["standing"]) == ("sharing-incentive", "violated", "fails")
    assert found["witness"]["size"] == pytest.approx(0.2)
    assert found["witness"]["evidence"]["tenant"] == "t1"


def test_nothing_violated_is_no_witness(terminal: Terminal) -> None:
    words = ["--property", "envy-freeness", "--output", "json"]
    (found,) = terminal.succeed("check", terminal.write(POOL), "--mechanism", "drf", *words).document["properties"]

    assert (found["result"], found["witness"]) == ("holds", None)


def test_a_search_that_finds_nothing_does_not_say_that_it_holds(terminal: Terminal) -> None:
    outcome = terminal.succeed("check", terminal.write(POOL), "--mechanism", "drf", "--property", "strategy-proofness")

    assert outcome.out.startswith("strategy-proofness  nothing found")


@pytest.mark.slow
def test_the_same_seed_finds_the_same(terminal: Terminal) -> None:
    file = terminal.write(UNFAIR)
    words = ["check", file, "--mechanism", "asset-fairness", "--output", "json"]

    assert terminal.succeed(*words).out == terminal.succeed(*words, "--seed", "0").out
    alone = terminal.succeed(*words, "--property", "strategy-proofness").document["properties"]
    assert alone[0] in terminal.succeed(*words).document["properties"]


def test_the_order_of_properties_is_that_of_the_registry(terminal: Terminal) -> None:
    names = ["pareto-optimality", "sharing-incentive", "pareto-optimality"]
    words = [word for name in names for word in ("--property", name)]
    outcome = terminal.succeed("check", terminal.write(POOL), "--mechanism", "drf", *words)

    assert [line.split()[0] for line in outcome.out.splitlines()] == ["sharing-incentive", "pareto-optimality"]


def test_pooling_comes_before_the_check(terminal: Terminal) -> None:
    document = document_with("servers[1]", {"name": "b", "capacity": {"cpu": 1, "memory": 9}})
    file = terminal.write(document)

    assert terminal.be_refused("check", file, "--mechanism", "drf").startswith("servers: ")
    terminal.succeed("check", file, "--mechanism", "drf", "--pool")


def violate(finding: Finding, *, is_guaranteed: bool) -> Findings:
    witness = Witness("envy-freeness", "t envies u", 0.5)
    return Findings("drf", (replace(finding, is_guaranteed=is_guaranteed, witness=witness),))


def test_a_violated_proof_is_an_error_of_ours(terminal: Terminal) -> None:
    findings = compute_findings(terminal.write(POOL), "drf", ["envy-freeness"], alpha=None, pools=False, seed=0)
    findings.check_proofs()
    (finding,) = findings.found
    assert finding.is_guaranteed
    assert finding.standing == "proved for such problems"

    with pytest.raises(InvariantError, match=r"^drf: envy-freeness is proved"):
        violate(finding, is_guaranteed=True).check_proofs()
    violate(finding, is_guaranteed=False).check_proofs()


def test_a_violated_proof_is_status_1_with_the_finding_printed(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairbind.cli.mechanisms.check.is_guaranteed", lambda *_, **__: True)
    words = ["--mechanism", "asset-fairness", "--property", "sharing-incentive"]
    outcome = terminal.run("check", terminal.write(UNFAIR), *words)

    assert outcome.status == 1
    assert "t1 runs 12 tasks" in outcome.out
    assert outcome.err.startswith("fairbind: asset-fairness: sharing-incentive is proved, and yet violated here")


def test_programs_are_told_everything(terminal: Terminal) -> None:
    words = ["--property", "envy-freeness", "--output", "json"]
    found = terminal.succeed("check", terminal.write(POOL), "--mechanism", "drf", *words).document

    assert list(found) == ["mechanism", "properties"]
    assert found["properties"] == [
        {
            "property": "envy-freeness",
            "result": "holds",
            "guaranteed": True,
            "standing": "proved",
            "assumptions": GUARANTEES["drf"]["envy-freeness"].assumptions,
            "witness": None,
        }
    ]
    population = terminal.succeed(
        "check", terminal.write(POOL), "--mechanism", "drf", "--property", "population-monotonicity", *words[2:]
    ).document["properties"]
    assert population[0]["assumptions"] == GUARANTEES["drf"]["population-monotonicity"].assumptions != ""


@pytest.mark.nightly
def test_alpha_is_an_option_or_a_field_of_each_server(terminal: Terminal) -> None:
    """The answer, the searches, and what is proved depend on it."""
    words = ["--mechanism", "alpha-pf-vds", "--output", "json"]
    plain = terminal.write(POOL, "plain.json")
    document = document_with("servers[0].alpha", 0.5)
    named = terminal.succeed("check", terminal.write(document, "named.json"), *words).document["properties"]
    asked = terminal.succeed("check", plain, *words, "--alpha", "0.5").document["properties"]
    by_default = terminal.succeed("check", plain, *words).document["properties"]

    assert [compute_gist(found) for found in asked] == [compute_gist(found) for found in named]
    proved = [sum(found["guaranteed"] for found in some) for some in (asked, by_default)]
    assert proved[0] < proved[1]
    assert find_sizes(asked).keys() == find_sizes(by_default).keys()
    assert all(size != find_sizes(by_default)[name] for name, size in find_sizes(asked).items())


def compute_gist(found: Document) -> tuple[str, str, bool, object]:
    witness = found["witness"] or {}
    return found["property"], found["result"], found["guaranteed"], witness.get("size")


def find_sizes(some: list[Document]) -> dict[str, float]:
    return {found["property"]: found["witness"]["size"] for found in some if found["witness"]}


def test_alpha_is_refused_where_it_means_nothing(terminal: Terminal) -> None:
    told = terminal.be_refused("check", terminal.write(POOL), "--mechanism", "drf", "--alpha", "2")

    assert told.startswith("alpha: 2.0: mechanism drf does not take alpha")


@pytest.mark.slow
def test_another_seed_tries_other_lies(terminal: Terminal) -> None:
    words = ["check", terminal.write(POOL), "--mechanism", "ceei", "--property", "strategy-proofness"]
    found = {terminal.succeed(*words, "--output", "json", "--seed", str(seed)).out for seed in range(3)}

    assert len(found) > 1
