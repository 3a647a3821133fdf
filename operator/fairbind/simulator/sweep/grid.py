"""From the document that people write to a `Sweep`, or an error that says where the document is wrong.

A cell is one run: a scenario with one policy, one seed, the weights and the sizes of its place in the grid. Each
combination of weights and sizes is read as a scenario before anything is simulated, so that no cell is refused later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairbind import __version__
from fairbind.cluster.tenancy.spec_fields import read_quantity
from fairbind.cluster.tenancy.tenants import WEIGHTS
from fairbind.fairness.problems.fields import DocumentName, Path, show_path, show_value
from fairbind.model import InvalidProblemError
from fairbind.simulator.parse_events import MOST_NODES
from fairbind.simulator.parsing import MOST_SEED, parse_scenario, read_policies
from fairbind.simulator.scenario import Scenario
from fairbind.what_if.reading import (
    check_known,
    complain,
    read_list,
    read_mapping,
    read_number,
    read_object,
    read_text,
    read_whole,
)

SWEEP_FIELDS: Final = ("name", "scenario", "policies", "seeds", "weights", "sizes", "confidence")
SEED_FIELDS: Final = ("from", "count")
MOST_CELLS: Final = 1_000_000
DEFAULT_CONFIDENCE: Final = 0.95
LEAST_CONFIDENCE, MOST_CONFIDENCE = 0.5, 0.999
_OF_CELLS: Final = frozenset({"name", "policies", "seed", "composite", "notes"})
"""Fields of a scenario that say nothing about what happens in a cell, or that the cell says itself."""


@dataclass(frozen=True, slots=True)
class Variant:
    """A scenario with weights and sizes of the grid. weights, sizes: those that differ, as text. text: its JSON."""

    weights: str
    sizes: str
    text: str


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a sweep."""

    variant: Variant
    policy: str
    seed: int

    @property
    def key(self) -> str:
        """Names the cell by all that decides its result: scenario, policy, seed, and fairbind's version."""
        parts = json.dumps([__version__, self.policy, self.seed])
        return hashlib.sha256(f"{parts}\n{self.variant.text}".encode()).hexdigest()[:32]

    def describe(self) -> str:
        """Return how messages call the cell.

        >>> Cell(Variant("a=2", "", "{}"), "tsf", 3).describe()
        'tsf, seed 3, weights a=2'
        """
        parts = [("weights", self.variant.weights), ("sizes", self.variant.sizes)]
        return ", ".join([self.policy, f"seed {self.seed}", *(f"{name} {text}" for name, text in parts if text)])


@dataclass(frozen=True, slots=True)
class Sweep:
    """A grid. confidence: of the intervals over seeds, as a fraction. scenario: before weights and sizes are set."""

    name: str
    scenario: Scenario
    policies: tuple[str, ...]
    seeds: tuple[int, ...]
    variants: tuple[Variant, ...]
    confidence: float

    def list_cells(self) -> Iterator[Cell]:
        """Yield all cells: by policy, weights, sizes, and last by seed."""
        for policy in self.policies:
            for variant in self.variants:
                for seed in self.seeds:
                    yield Cell(variant, policy, seed)


def parse_sweep(document: object) -> Sweep:
    """Return the sweep that the document describes. Raises InvalidProblemError at the first field that is wrong.

    Its `scenario` must be the scenario itself; who reads files replaces a path first.
    """
    members = read_object(document, (DocumentName("sweep"),), SWEEP_FIELDS, required=("scenario",))
    base, scenario = _read_scenario(members["scenario"])
    tenants = dict.fromkeys(str(tenant["name"]) for tenant in base["tenants"])
    shapes = dict.fromkeys(str(shape["shape"]) for shape in base["cluster"])
    seeds = _read_seeds(members["seeds"]) if "seeds" in members else (scenario.seed,)
    policies = read_policies(members["policies"]) if "policies" in members else scenario.policies
    weights = [_read_weights(value, path, tenants) for path, value in _list_choices(members, "weights")]
    sizes = [_read_sizes(value, path, shapes) for path, value in _list_choices(members, "sizes")]
    cells = len(policies) * len(seeds) * len(weights) * len(sizes)
    if cells > MOST_CELLS:
        raise InvalidProblemError(f"sweep: must have at most {MOST_CELLS:,} cells, not {cells:,}")
    confidence = DEFAULT_CONFIDENCE
    if "confidence" in members:
        confidence = read_number(members["confidence"], ("confidence",), LEAST_CONFIDENCE, MOST_CONFIDENCE)
    return Sweep(
        name=read_text(members["name"], ("name",)) if "name" in members else scenario.name,
        scenario=scenario,
        policies=policies,
        seeds=seeds,
        variants=tuple(_make_variants(base, weights, sizes)),
        confidence=confidence,
    )


def _read_scenario(value: object) -> tuple[dict[str, Any], Scenario]:
    document = read_mapping(value, ("scenario",), "a scenario, or the path of its file")
    try:
        scenario = parse_scenario(document)
    except InvalidProblemError as error:
        text = str(error)
        raise InvalidProblemError(text if text.startswith("scenario:") else f"scenario.{text}") from error
    return dict(document), scenario


def _read_seeds(value: object) -> tuple[int, ...]:
    if isinstance(value, Mapping):
        members = read_object(value, ("seeds",), SEED_FIELDS, required=("count",))
        first = read_whole(members["from"], ("seeds", "from"), 0, MOST_SEED - MOST_CELLS) if "from" in members else 0
        return tuple(range(first, first + read_whole(members["count"], ("seeds", "count"), 1, MOST_CELLS)))
    listed = read_list(value, ("seeds",), "whole numbers, or an object with from and count")
    seeds = tuple(read_whole(seed, ("seeds", place), 0, MOST_SEED) for place, seed in enumerate(listed))
    _check_differing(seeds, "seeds")
    return seeds


def _list_choices(members: Mapping[str, object], field: str) -> Iterator[tuple[Path, object]]:
    """Yield what the field lists, with its path; where it is left out, the scenario as it is."""
    if field not in members:
        yield (field, 0), {}
        return
    what = "objects with a weight by tenant" if field == "weights" else "objects with a count by shape"
    for place, value in enumerate(read_list(members[field], (field,), what)):
        yield (field, place), value


def _read_weights(value: object, path: Path, tenants: Mapping[str, object]) -> dict[str, object]:
    members = read_mapping(value, path, "an object with a weight by tenant")
    for name, weight in members.items():
        check_known(name, (*path, name), tenants, f"{show_value(name)} is no tenant of the scenario")
        try:
            read_quantity(weight, "weight", WEIGHTS)
        except InvalidProblemError as error:
            raise InvalidProblemError(f"{show_path((*path, name))}: {str(error).removeprefix('weight ')}") from error
    return {name: members[name] for name in sorted(members)}


def _read_sizes(value: object, path: Path, shapes: Mapping[str, object]) -> dict[str, object]:
    members = read_mapping(value, path, "an object with a count by shape")
    for name in members:
        check_known(name, (*path, name), shapes, f"{show_value(name)} is no shape of the scenario")
    return {name: read_whole(members[name], (*path, name), 0, MOST_NODES) for name in sorted(members)}


def _check_differing(values: Sequence[object], field: str) -> None:
    seen = dict[object, int]()
    for place, value in enumerate(values):
        if value in seen:
            complain((field, place), f"must differ from all others, but is {field}[{seen[value]}] already")
        seen[value] = place


def _make_variants(
    base: Mapping[str, Any], weights: Sequence[Mapping[str, object]], sizes: Sequence[Mapping[str, object]]
) -> Iterator[Variant]:
    _check_differing([_show(choice) for choice in weights], "weights")
    _check_differing([_show(choice) for choice in sizes], "sizes")
    kept = {field: value for field, value in base.items() if field not in _OF_CELLS}
    for weight in weights:
        for place, size in enumerate(sizes):
            document = {
                **kept,
                "tenants": [_set(tenant, "name", "weight", weight) for tenant in base["tenants"]],
                "cluster": [_set(shape, "shape", "count", size) for shape in base["cluster"]],
            }
            if size:
                _check_size(document, place)
            yield Variant(_show(weight), _show(size), json.dumps(document, allow_nan=False))


def _set(entry: Mapping[str, Any], by: str, field: str, values: Mapping[str, object]) -> dict[str, Any]:
    name = entry[by]
    return {**entry, field: values[name]} if name in values else dict(entry)


def _check_size(document: object, place: int) -> None:
    """Refuse a size with which the scenario makes no sense: an event about a node that is not there, say."""
    try:
        parse_scenario(document)
    except InvalidProblemError as error:
        raise InvalidProblemError(f"sizes[{place}]: with it the scenario is refused: {error}") from error


def _show(choice: Mapping[str, object]) -> str:
    """Return weights or sizes as tables name them.

    >>> _show({"a": 2, "b": "500m"})
    'a=2 b=500m'
    """
    return " ".join(f"{name}={value}" for name, value in choice.items())
