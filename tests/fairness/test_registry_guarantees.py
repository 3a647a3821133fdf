"""Every guarantee is tried: what is proved on families that meet its assumptions, what fails by example.

The tests are made from `MECHANISMS`, `GUARANTEES`, `PROPERTIES` and `FAMILIES`: a new entry in any of them brings its
own.
A family counts for a guarantee if one of its first problems meets the assumptions and uses no option that the mechanism
does not take. For bottleneck fairness the problems get a bottleneck first.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairbind.fairness.mechanisms.guarantees import ASSUMPTIONS, GUARANTEES, is_guaranteed, split_assumptions
from fairbind.fairness.mechanisms.mechanism import Guarantee, Standing
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.parse import parse_problem
from fairbind.fairness.problems.problem import Problem
from fairbind.fairness.properties import PROPERTIES, properties_for
from fairbind.fairness.properties.strategy import compute_true_tasks, read_lie
from fairbind.fairness.solve import compute_allocation
from fairness.families import FAMILIES, families_for, mark_for_quick, with_bottleneck

GOLDEN = Path(__file__).parents[1] / "golden" / "counterexamples"
FILES = {path.stem: path for path in sorted(GOLDEN.glob("*.json"))}
SEEDS = range(2)  # a family's problems that are tried; of those that need many solves, the first
TRIES = 2  # random lies a tenant, and steps of the walk


@functools.cache
def draw(family: str, seed: int, *, has_bottleneck: bool) -> Problem:
    problem = FAMILIES[family].make(np.random.default_rng([seed, 7]))
    return with_bottleneck(problem) if has_bottleneck else problem


@functools.cache
def allocate(mechanism: str, family: str, seed: int, *, has_bottleneck: bool) -> Allocation:
    return compute_allocation(draw(family, seed, has_bottleneck=has_bottleneck), mechanism)


def list_problems(property_id: str, guarantee: Guarantee, family: str) -> Iterator[tuple[int, bool]]:
    """Yield what to draw: the seed, and whether with a bottleneck."""
    has_bottleneck = property_id == "bottleneck-fairness"
    for seed in SEEDS[:1] if PROPERTIES[property_id].is_searched else SEEDS:
        problem = draw(family, seed, has_bottleneck=has_bottleneck)
        if all(ASSUMPTIONS[sentence](problem, None) for sentence in split_assumptions(guarantee)):
            yield seed, has_bottleneck


def list_promises() -> Iterator[Any]:
    """Yield each mechanism, property and family where no witness may be found."""
    for mechanism in MECHANISMS.values():
        for property_id, guarantee in GUARANTEES[mechanism.id].items():
            if guarantee.standing is Standing.FAILS and not guarantee.assumptions:
                continue
            for index, family in enumerate(families_for(mechanism.options)):
                if any(list_problems(property_id, guarantee, family.name)):
                    name = f"{mechanism.id}-{property_id}-{family.name}"
                    marks = [pytest.mark.slow] if PROPERTIES[property_id].is_searched else mark_for_quick(index)
                    yield pytest.param(mechanism.id, property_id, family.name, id=name, marks=marks)


@pytest.mark.parametrize(("mechanism", "property_id", "family"), list(list_promises()))
def test_what_is_claimed_has_no_witness(mechanism: str, property_id: str, family: str) -> None:
    for seed, has_bottleneck in list_problems(property_id, GUARANTEES[mechanism][property_id], family):
        problem = draw(family, seed, has_bottleneck=has_bottleneck)
        allocation = allocate(mechanism, family, seed, has_bottleneck=has_bottleneck)
        generator = np.random.default_rng(seed)
        witness = PROPERTIES[property_id].find(problem, mechanism, allocation, generator=generator, tries=TRIES)
        assert witness is None, f"seed {seed}: {witness.text}"


def list_counterexamples() -> Iterator[Any]:
    for mechanism in MECHANISMS:
        for property_id, guarantee in GUARANTEES[mechanism].items():
            if guarantee.counterexample is not None:
                yield pytest.param(mechanism, property_id, id=f"{mechanism}--{property_id}")


def read(mechanism: str, property_id: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(FILES[f"{mechanism}--{property_id}"].read_text(encoding="utf-8"))
    return document


def is_close(found: object, stored: object) -> bool:
    if isinstance(stored, dict):
        return (
            isinstance(found, dict)
            and found.keys() == stored.keys()
            and all(is_close(found[key], stored[key]) for key in stored)
        )
    if isinstance(stored, float):
        return isinstance(found, float) and found == pytest.approx(stored, rel=1e-5)
    return found == stored


@pytest.mark.parametrize(("mechanism", "property_id"), list(list_counterexamples()))
def test_what_fails_has_the_stored_witness(mechanism: str, property_id: str) -> None:
    """The example is stored as the registry has it, and its witness is found again; lies are told again."""
    golden, guarantee = read(mechanism, property_id), GUARANTEES[mechanism][property_id]
    assert guarantee.counterexample == {key: golden[key] for key in ("problem", "options", "lies") if key in golden}
    problem = parse_problem(golden["problem"])
    allocation = compute_allocation(problem, mechanism, **golden["options"])
    if "lies" in golden:
        lies = [read_lie(problem, told) for told in golden["lies"]]
        gained = compute_true_tasks(problem, mechanism, lies, **golden["options"])
        for lie, got, stored in zip(lies, gained, golden["witness"]["evidence"]["liars"], strict=True):
            assert stored["tenant"] == problem.tenant_names[lie.tenant]
            assert allocation.totals_i[lie.tenant] == pytest.approx(stored["tasks"])
            assert got == pytest.approx(stored["tasksByLying"])
            assert got > 1.01 * allocation.totals_i[lie.tenant]
    generator = np.random.default_rng(0)
    witness = PROPERTIES[property_id].find(
        problem, mechanism, allocation, generator=generator, tries=TRIES, **golden["options"]
    )
    assert witness is not None
    assert witness.size > 0.01
    if "lies" not in golden:
        assert is_close(witness.to_document()["evidence"], golden["witness"]["evidence"])


@pytest.mark.parametrize(("mechanism", "property_id"), list(list_counterexamples()))
def test_an_example_breaks_what_is_assumed(mechanism: str, property_id: str) -> None:
    guarantee = GUARANTEES[mechanism][property_id]
    assert guarantee.counterexample is not None
    problem, options = parse_problem(guarantee.counterexample["problem"]), guarantee.counterexample["options"]
    assumed = split_assumptions(guarantee)
    met = [ASSUMPTIONS[sentence](problem, options.get("alpha")) for sentence in assumed]
    assert not all(met) if assumed else guarantee.standing is Standing.FAILS
    assert not is_guaranteed(mechanism, property_id, problem, **options)


def test_every_stored_example_belongs_to_a_guarantee() -> None:
    assert set(FILES) == {parameters.id for parameters in list_counterexamples()}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_there_is_a_guarantee_for_every_property(mechanism: str) -> None:
    assert list(GUARANTEES[mechanism]) == [one.id for one in properties_for(mechanism)]
    assert MECHANISMS[mechanism].properties is GUARANTEES[mechanism]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_guarantees_say_why(mechanism: str) -> None:
    for guarantee in GUARANTEES[mechanism].values():
        assert guarantee.source
        assert set(split_assumptions(guarantee)) <= set(ASSUMPTIONS)
        assert (guarantee.counterexample is not None) or guarantee.standing is not Standing.FAILS


def test_guarantees_are_about_mechanisms_that_exist() -> None:
    assert set(GUARANTEES) == set(MECHANISMS)


def test_every_family_tries_some_guarantee() -> None:
    tried = {parameters.values[2] for parameters in list_promises()}
    assert tried == set(FAMILIES)


def list_promised(mechanism: str) -> set[str]:
    """Return the properties that the docstring's guarantees name before any NOT, "only" or "can fail"."""
    told = " ".join((sys.modules[MECHANISMS[mechanism].solve.__module__].__doc__ or "").split())
    _, _, told = told.partition("Guarantees")
    told = re.split(r"\bNOT\b|\bonly\b|\bcan fail\b|>>>", told)[0].lower()
    words = {"envy-free": "envy-freeness", "strategy-proofness": "strategy-proofness"}
    words |= {"pareto optimal": "pareto-optimality"}
    return {property_id for word, property_id in words.items() if re.search(rf"(?<!group )(?<!dynamic ){word}", told)}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_docstring_promises_what_the_registry_proves(mechanism: str) -> None:
    """Neither less nor, but for what holds under assumptions that the docstring states, more."""
    promised = list_promised(mechanism)
    listed = {p: GUARANTEES[mechanism][p] for p in ("envy-freeness", "pareto-optimality", "strategy-proofness")}
    always = {p for p, guarantee in listed.items() if guarantee.standing is Standing.PROVED}
    sometimes = {p for p, guarantee in listed.items() if guarantee.assumptions}
    assert always <= promised <= always | sometimes


@pytest.mark.parametrize("mechanism", ["drfh", "tsf"])
def test_strategy_proofness_is_claimed_with_everything_that_a_problem_can_have(mechanism: str) -> None:
    assert is_guaranteed(mechanism, "strategy-proofness", FAMILIES["combined"].make(np.random.default_rng(0)))


def test_alpha_pf_vds_is_pareto_optimal_on_one_server_or_with_alpha_1() -> None:
    one, several = (FAMILIES[name].make(np.random.default_rng(0)) for name in ("plain-one-pool", "plain"))
    assert is_guaranteed("alpha-pf-vds", "pareto-optimality", one, alpha=5.0)
    assert is_guaranteed("alpha-pf-vds", "pareto-optimality", several, alpha=1.0)
    assert not is_guaranteed("alpha-pf-vds", "pareto-optimality", several, alpha=5.0)
