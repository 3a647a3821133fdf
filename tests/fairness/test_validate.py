"""Arrays that cannot be meant are refused by their field, value and name before a mechanism sees them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairbind.fairness.problems.problem import make_problem
from fairbind.fairness.solve import compute_allocation
from fairbind.model.errors import InvalidProblemError

NAN, INF = float("nan"), float("inf")
RIGHT: dict[str, Any] = {
    "capacity_kr": [[9, 18], [4, 4]],
    "demand_ir": [[1, 4], [3, 1]],
    "tenant_names": ["ada", "bob"],
}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            {"demand_ir": [[1, 4], [NAN, 1]]},
            r"^tenants\[1\]\.demand\.r0 of bob: must be a finite number from 0 on, not nan$",
        ),
        ({"demand_ir": [[1, -4], [3, 1]]}, r"^tenants\[0\]\.demand\.r1 of ada: .* not -4\.0$"),
        ({"demand_ir": [[1, INF], [3, 1]]}, r"^tenants\[0\]\.demand\.r1 of ada: .* not inf$"),
        ({"demand_ir": [[1, 4], [0, 0]]}, r"^tenants\[1\]\.demand of bob: must ask for something$"),
        ({"capacity_kr": [[9, 18], [NAN, 4]]}, r"^servers\[1\]\.capacity\.r0 of s1: .* not nan$"),
        ({"capacity_kr": [[9, 18], [4, -1]]}, r"^servers\[1\]\.capacity\.r1 of s1: .* not -1\.0$"),
        ({"count_k": [1, 0]}, r"^servers\[1\]\.count of s1: must be a finite number above 0, not 0\.0$"),
        ({"count_k": [INF, 1]}, r"^servers\[0\]\.count of s0: .* not inf$"),
        ({"weight_i": [0, 1]}, r"^tenants\[0\]\.weight of ada: must be a finite number above 0, not 0\.0$"),
        ({"weight_i": [1, INF]}, r"^tenants\[1\]\.weight of bob: .* not inf$"),
        ({"tasks_i": [1, -1]}, r"^tenants\[1\]\.tasks of bob: must be a number from 0 on, not -1\.0$"),
        ({"tasks_i": [NAN, 1]}, r"^tenants\[0\]\.tasks of ada: .* not nan$"),
        ({"resource_weight_ir": [[1, 0], [1, 1]]}, r"^tenants\[0\]\.resourceWeights\.r1 of ada: .* not 0\.0$"),
        ({"tenant_names": ["ada", "ada"]}, r"^tenants\[1\]\.name: 'ada' is the name of tenants\[0\]$"),
        ({"server_names": ["s", "s"]}, r"^servers\[1\]\.name: 's' is the name of servers\[0\]$"),
        ({"resources": ["cpu", "cpu"]}, r"^resources\[1\]\.name: 'cpu' is the name of resources\[0\]$"),
        ({"weight_i": [1, 1, 1]}, r"^weight_i has shape \(3,\), not \(2,\)$"),
    ],
)
def test_what_cannot_be_meant_is_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidProblemError, match=said):
        make_problem(**{**RIGHT, **wrong})


def test_what_is_odd_and_can_be_meant_is_taken() -> None:
    odd = {"capacity_kr": [[9, 0], [0, 0]], "tasks_i": [0, INF], "count_k": [0.5, 3], "weight_i": [1e-3, 1e3]}

    assert np.isfinite(compute_allocation(make_problem(**{**RIGHT, **odd}), "drfh").totals_i).all()
