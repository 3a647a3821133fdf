"""The dashboard is what Grafana's own schema says: read by its SDK and written again, nothing is lost or other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog import plugins
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

FILE = Path(__file__).resolve().parents[2] / "deploy" / "dashboard" / "fairbind.json"
EDITORS_OWN = "definition"
"""Of a variable: Grafana's editor keeps what it shows there, and the schema does not know it."""


def read() -> Any:
    return json.loads(FILE.read_text(encoding="utf-8"))


def write_again(dashboard: Any) -> Any:
    plugins.register_default_plugins()
    known = Dashboard.from_json(json.loads(json.dumps(dashboard)))
    return json.loads(JSONEncoder(sort_keys=True).encode(known))


def find_lost(before: Any, after: Any, where: str = "dashboard") -> Iterator[str]:
    """Yield what is not there any more, or is other."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, part in before.items():
            if name not in after:
                yield f"{where}.{name}"
            else:
                yield from find_lost(part, after[name], f"{where}.{name}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for place, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from find_lost(one, other, f"{where}[{place}]")
    elif before != after:
        yield where


def test_nothing_is_lost() -> None:
    lost = [where for where in find_lost(read(), write_again(read())) if not where.endswith(f".{EDITORS_OWN}")]
    assert lost == []


@pytest.mark.parametrize(("part", "name"), [("options", "legendd"), ("fieldConfig", "overides")])
def test_a_field_that_the_schema_does_not_know_is_found(part: str, name: str) -> None:
    dashboard = read()
    panel = next(n for n, each in enumerate(dashboard["panels"]) if each["type"] == "timeseries")
    dashboard["panels"][panel][part][name] = []
    assert f"dashboard.panels[{panel}].{part}.{name}" in find_lost(dashboard, write_again(dashboard))
