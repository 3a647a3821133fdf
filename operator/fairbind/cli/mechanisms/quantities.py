"""Kubernetes quantities in a problem: `500m` and `8Gi` are numbers wherever an amount or a weight stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairbind.cluster.objects.quantity import QuantityError, parse_quantity

# Where amounts stand: the list, and the fields of its entries.
_AMOUNTS = {"servers": ("capacity",), "tenants": ("demand", "weight", "resourceWeights", "guarantee", "limit")}


def read_quantities(document: object) -> object:
    """Return the document with numbers in place of quantities; what is no quantity stays for the parser to refuse.

    >>> read_quantities({"servers": [{"name": "a", "capacity": {"cpu": "500m", "memory": "8Gi", "gpu": "two"}}]})
    {'servers': [{'name': 'a', 'capacity': {'cpu': 0.5, 'memory': 8589934592.0, 'gpu': 'two'}}]}
    """
    if not isinstance(document, Mapping):
        return document
    return {name: _read_entries(value, _AMOUNTS.get(name, ())) for name, value in document.items()}


def _read_entries(entries: Any, fields: tuple[str, ...]) -> object:
    if not fields or not isinstance(entries, list):
        return entries
    return [
        {name: _read_amounts(value) if name in fields else value for name, value in entry.items()}
        if isinstance(entry, Mapping)
        else entry
        for entry in entries
    ]


def _read_amounts(amounts: object) -> object:
    if isinstance(amounts, list):  # of guarantees or limits
        return _read_entries(amounts, ("resources",))
    if not isinstance(amounts, Mapping):
        return _read_amount(amounts)
    return {resource: _read_amount(amount) for resource, amount in amounts.items()}


def _read_amount(amount: object) -> object:
    if not isinstance(amount, str):
        return amount
    try:
        return float(parse_quantity(amount))
    except (QuantityError, OverflowError):
        return amount
