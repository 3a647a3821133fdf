"""Frozen values, read-only arrays, and errors that can be told apart."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from fairbind.model import FairbindError, InvalidProblemError, InvariantError, ServerTable, Tenant
from fairbind.model.overview import compute_jain_index


def test_the_arrays_of_a_server_table_are_read_only() -> None:
    amounts = np.ones((1, 2), dtype=np.int64)
    table = ServerTable(
        ("a",), amounts, amounts.copy(), np.ones(1, dtype=np.bool_), np.zeros(1, dtype=np.int32), ("a",)
    )

    for array in (table.capacity_kr, table.free_kr, table.usable_k, table.class_k):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_a_tenant_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Tenant("a").name = "b"  # type: ignore[misc]  # that is what must fail


def test_errors_can_be_told_apart() -> None:
    assert issubclass(InvalidProblemError, ValueError)
    assert issubclass(InvalidProblemError, FairbindError)
    assert issubclass(InvariantError, FairbindError)
    assert not issubclass(InvariantError, InvalidProblemError)


@pytest.mark.parametrize(
    ("values", "index"), [((), 1.0), ((0.0, 0.0), 1.0), ((2.0, 2.0, 2.0), 1.0), ((1.0, 0.0, 0.0, 0.0), 0.25)]
)
def test_the_jain_index_goes_from_one_part_to_one(values: tuple[float, ...], index: float) -> None:
    assert compute_jain_index(values) == pytest.approx(index)
