"""The references of scenarios and sweeps: every field, from the JSON Schemas that `fairbind schema` prints."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from fairbind.simulator.schema import SCENARIO_SCHEMA
from fairbind.simulator.sweep.schema import SWEEP_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterator


TEMPLATES = Path(__file__).parent
LARGEST_SHOWN = 1e15


def compute_page(made: str) -> str:
    """Return the page of scenarios. made: the line that says where it comes from."""
    return _fill("scenario.template", SCENARIO_SCHEMA, made)


def compute_sweep_page(made: str) -> str:
    """Return the page of sweeps. made: as above."""
    return _fill("sweep.template", SWEEP_SCHEMA, made)


def _fill(template: str, schema: dict[str, Any], made: str) -> str:
    fields = "\n".join(_list_fields(schema, ""))
    text = (TEMPLATES / template).read_text(encoding="utf-8")
    return Template(text).substitute(made=made, fields=fields)


def _list_fields(schema: dict[str, Any], prefix: str) -> Iterator[str]:
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        if not field:
            continue  # a pod's fields, which Kubernetes describes
        path = f"{prefix}{name}"
        yield f"| `{path}` | {_describe_type(field)} | {_describe(field, is_required=name in required)} |"
        inner = field.get("items", field)
        if "properties" in inner:
            yield from _list_fields(inner, f"{path}{'[]' if inner is not field else ''}.")


def _describe_type(field: dict[str, Any]) -> str:
    if "anyOf" in field:
        kinds = (f"`{each['const']}`" if "const" in each else _describe_type(each) for each in field["anyOf"])
        first, *others = dict.fromkeys(kinds)
        return f"{', '.join([first, *others[:-1]])} or {others[-1]}"
    kind = field.get("type", "string")
    if kind == "array":
        return f"list of {_describe_type(field['items'])}s"
    shown = {"string": "text", "integer": "whole number"}
    return " or ".join(shown.get(each, each) for each in ([kind] if isinstance(kind, str) else kind))


def _describe(field: dict[str, Any], *, is_required: bool) -> str:
    parts = [field.get("description", "")]
    choices = field.get("items", field).get("enum", ())
    if choices:
        parts.append("One of " + ", ".join(f"`{value}`" for value in choices) + ".")
    if "minimum" in field and field.get("maximum", LARGEST_SHOWN) < LARGEST_SHOWN:
        parts.append(f"From {field['minimum']:g} to {field['maximum']:g}.")
    if "default" in field:
        shown = field["default"]
        parts.append(
            f"Default: {shown if not isinstance(shown, dict) else ', '.join(f'{k}: {v}' for k, v in shown.items())}."
        )
    if is_required:
        parts.append("Must be there.")
    return " ".join(part for part in parts if part).replace("|", "\\|")
