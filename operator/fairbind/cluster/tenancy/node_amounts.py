"""Amounts of resources by kind of node, as the limits of Tenants are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from fairbind.cluster.objects import wire
from fairbind.cluster.objects.quantity import QuantityError, to_base_units
from fairbind.cluster.objects.selectors import LabelSelector, make_label_selector
from fairbind.model.errors import InvalidProblemError

MAX_ENTRIES: Final = 16
"""Each costs something for each pod of the tenant that comes or goes, and for each node that does."""
MAX_AMOUNTS: Final = 16


@dataclass(frozen=True, slots=True)
class NodeAmounts:
    """An amount of each of some resources, in sum over some nodes.

    selector: of the nodes' labels; None: all nodes. amounts: by resource, base units, sorted.
    """

    selector: LabelSelector | None
    amounts: tuple[tuple[str, int], ...]


def sum_up(entries: Iterable[NodeAmounts]) -> dict[str, int]:
    """Return the most of each resource: by the entries for all nodes, or in sum over the others where none names it.

    >>> nodes = LabelSelector()
    >>> sum_up([NodeAmounts(None, (("cpu", 9),)), NodeAmounts(nodes, (("cpu", 2), ("gpu", 3))),
    ...         NodeAmounts(nodes, (("gpu", 4),))])
    {'cpu': 9, 'gpu': 7}
    """
    everywhere: dict[str, int] = {}
    somewhere: dict[str, int] = {}
    for entry in entries:
        for resource, amount in entry.amounts:
            if entry.selector is None:
                everywhere[resource] = min(amount, everywhere.get(resource, amount))
            else:
                somewhere[resource] = somewhere.get(resource, 0) + amount
    return {**everywhere, **{resource: most for resource, most in somewhere.items() if resource not in everywhere}}


def parse_node_amounts(value: object, where: str) -> tuple[NodeAmounts, ...]:
    """Return what a list of entries says. where: the field, for errors.

    Raises InvalidProblemError, which names the field and the value and what would be right.

    >>> parse_node_amounts([{"resources": {"cpu": "1500m"}}], "spec.limit")
    (NodeAmounts(selector=None, amounts=(('cpu', 1500),)),)
    >>> parse_node_amounts([{"nodes": {}}], "spec.limit")
    Traceback (most recent call last):
    fairbind.model.errors.InvalidProblemError: spec.limit[0].resources must map resources to quantities, not None
    """
    if value is None:
        return ()
    if not isinstance(value, list) or len(value) > MAX_ENTRIES:
        raise InvalidProblemError(f"{where} must be a list of at most {MAX_ENTRIES} entries, not {value!r}")
    return tuple(_parse_entry(entry, f"{where}[{n}]") for n, entry in enumerate(value))


def _parse_entry(entry: object, where: str) -> NodeAmounts:
    if not isinstance(entry, Mapping) or not entry.keys() <= {"nodes", "resources"}:
        raise InvalidProblemError(f"{where} must have the fields nodes and resources, not {entry!r}")
    resources = entry.get("resources")
    if not isinstance(resources, Mapping) or not 0 < len(resources) <= MAX_AMOUNTS:
        raise InvalidProblemError(f"{where}.resources must map resources to quantities, not {resources!r}")
    amounts = {str(name): _read_amount(name, amount, where) for name, amount in resources.items()}
    return NodeAmounts(_parse_nodes(entry.get("nodes"), f"{where}.nodes"), tuple(sorted(amounts.items())))


def _read_amount(resource: object, value: object, where: str) -> int:
    amount = -1
    if isinstance(value, int | str) and not isinstance(value, bool):
        try:
            amount = to_base_units(str(resource), str(value))
        except QuantityError:
            amount = -1
    if amount < 0:
        raise InvalidProblemError(
            f"{where}.resources[{resource}] must be a quantity of 0 or more, such as 16 or 500m, not {value!r}"
        )
    return amount


def _parse_nodes(value: object, where: str) -> LabelSelector | None:
    if value is None:
        return None
    if not isinstance(value, Mapping) or not value.keys() <= {"matchLabels", "matchExpressions"}:
        raise InvalidProblemError(f"{where} must have the fields matchLabels and matchExpressions, not {value!r}")
    try:
        selector = make_label_selector(msgspec.convert(value, wire.LabelSelector))
    except msgspec.ValidationError as error:
        raise InvalidProblemError(f"{where} must be a label selector: {error}") from error
    return selector if selector is not None and selector.requirements else None
