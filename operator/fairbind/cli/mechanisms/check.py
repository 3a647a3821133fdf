"""`fairbind check`: the properties of one allocation, a line each, with the witness where one does not hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairbind.cli.documents import format_document
from fairbind.cli.mechanisms.solving import read_problem
from fairbind.cli.mechanisms.tables import find_width, lay_out_explained
from fairbind.fairness.mechanisms.guarantees import GUARANTEES, is_guaranteed
from fairbind.fairness.mechanisms.mechanism import Guarantee, Standing
from fairbind.fairness.problems.fields import suggest_name
from fairbind.fairness.problems.problem import Problem
from fairbind.fairness.properties import PROPERTIES, Property, Witness, properties_for
from fairbind.fairness.solve import compute_allocation, get_mechanism
from fairbind.model.errors import InvalidProblemError, InvariantError

_STANDINGS = {Standing.FAILS: "fails in general", Standing.NOT_REFUTED: "not refuted so far"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found out about one property.

    guarantee: what is known of the mechanism in general. is_guaranteed: that it is proved for this very problem.
    """

    about: Property
    guarantee: Guarantee
    is_guaranteed: bool
    witness: Witness | None

    @property
    def result(self) -> str:
        """Return the finding in a word or two."""
        if self.witness is not None:
            return "violated"
        return "nothing found" if self.about.is_searched else "holds"

    @property
    def standing(self) -> str:
        """Return what was to be expected, in a few words."""
        if self.is_guaranteed:
            return "proved for such problems"
        return (
            "proved for other problems"
            if self.guarantee.standing is Standing.PROVED
            else _STANDINGS[self.guarantee.standing]
        )

    def to_document(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "property": self.about.id,
            "result": self.result,
            "guaranteed": self.is_guaranteed,
            "standing": self.guarantee.standing.value,
            "assumptions": self.guarantee.assumptions,
            "witness": None if self.witness is None else self.witness.to_document(),
        }


@dataclass(frozen=True, slots=True)
class Findings:
    """What was found out about one mechanism's answer to one problem."""

    mechanism: str
    found: tuple[Finding, ...]

    def to_lines(self) -> str:
        """Return a line for each property, and below it the witness, if there is one."""
        rows = [[finding.about.id, finding.result, finding.standing] for finding in self.found]
        texts = [finding.witness.text if finding.witness else "" for finding in self.found]
        return "\n".join(lay_out_explained(rows, texts, width=find_width(), numbers_from=3, headings=0))

    def to_text(self, output: str) -> str:
        """Return the same as JSON or YAML, with the numbers of the witnesses."""
        document = {"mechanism": self.mechanism, "properties": [finding.to_document() for finding in self.found]}
        return format_document(document, output)

    @property
    def is_any_violated(self) -> bool:
        """Return whether there is a witness against any of the properties."""
        return any(finding.witness is not None for finding in self.found)

    def check_proofs(self) -> None:
        """Raise InvariantError if something is violated that is proved for this problem."""
        for finding in self.found:
            if finding.witness is not None and finding.is_guaranteed:
                raise InvariantError(
                    f"{self.mechanism}: {finding.about.id} is proved, and yet violated here: please report the problem"
                )


def compute_findings(
    source: str, mechanism_id: str, property_ids: Sequence[str], *, alpha: float | None, pools: bool, seed: int
) -> Findings:
    """Solve the problem and look for witnesses. Raises InvalidProblemError, also for unknown properties."""
    mechanism = get_mechanism(mechanism_id)
    problem = read_problem(source, pools=pools)
    wanted = find_properties(mechanism_id, property_ids, problem)
    allocation = compute_allocation(problem, mechanism_id, alpha=alpha)
    found = []
    for one in wanted:
        # Each property gets a generator of its own, so that --property does not change what is found.
        generator = np.random.default_rng(seed)
        witness = one.find(problem, mechanism_id, allocation, alpha=alpha, generator=generator)
        guaranteed = is_guaranteed(mechanism_id, one.id, problem, alpha=alpha)
        found.append(Finding(one, GUARANTEES[mechanism_id][one.id], guaranteed, witness))
    return Findings(mechanism.id, tuple(found))


def find_properties(mechanism_id: str, property_ids: Sequence[str], problem: Problem) -> Iterable[Property]:
    """Return the named properties in the registry's order, or all that mean something for the mechanism here."""
    usual = properties_for(mechanism_id, problem)
    for property_id in property_ids:
        if property_id not in PROPERTIES:
            raise InvalidProblemError(f"property: {property_id!r} is unknown{suggest_name(property_id, PROPERTIES)}")
        if PROPERTIES[property_id] in properties_for(mechanism_id) and PROPERTIES[property_id] not in usual:
            raise InvalidProblemError(f"property: {property_id} is about tenants without a tree, and these have one")
        if PROPERTIES[property_id] not in usual:
            options = ", ".join(sorted(PROPERTIES[property_id].options))
            raise InvalidProblemError(
                f"property: {property_id} is about mechanisms that take {options}; {mechanism_id} does not"
            )
    return [one for one in usual if not property_ids or one.id in property_ids]
