"""The reference of the CRDs as a page of Markdown: every field with its type, default, limits and description."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

Schema = dict[str, Any]

INTRODUCTION = """\
# Custom resources

<!-- Made from crds/ by deploy/tools/chart.py; change the CRDs and run it again. -->

What the API server knows of fairbind, field by field; `kubectl explain tenant.spec --api-version=fairbind.io/v1alpha1`
shows the same. A field that is not listed here is refused or dropped, never kept. Tenants and SchedulingPolicies belong
to the cluster, ShareReports to namespaces. Other projects have a Tenant too, so commands name the group:
`tenants.fairbind.io`.

A quantity is a whole number, or a decimal number in quotes with or without a suffix: 2, "0.5" and 500m. A number with a
point and without quotes is refused: Kubernetes' API has no floating-point numbers in a spec.
"""
VERSIONS = """\
## Versions

`v1alpha1` is the only version. Until the first release its fields may change without notice; from then on they change
only with a new version. `v1beta1` comes when the fields have stayed as they are for two minor releases:

1. Both versions are served, with the same schema apart from what was renamed. `v1alpha1` stays the stored version, so
   that a rollback to the release before works. A conversion webhook is not planned: a field that cannot be read from
   its old form without one is added beside it, and the old one is named deprecated in its description.
2. One minor release later `v1beta1` is stored, and the release notes say how to rewrite the stored objects.
3. `v1alpha1` is no longer served two minor releases after that. From step 1 on the API server warns
   each client that uses it.
"""
LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} characters",
    "minItems": "at least {} of them",
    "maxItems": "at most {} entries",
    "maxProperties": "at most {} entries",
}


def compute_reference(crds: Iterable[Mapping[str, Any]]) -> str:
    """Return the page for these CustomResourceDefinitions, in the order of their kinds."""
    ordered = sorted(crds, key=lambda crd: str(crd["spec"]["names"]["kind"]), reverse=True)
    sections = [line for crd in ordered for line in _compute_section(crd["spec"])]
    return "\n".join([INTRODUCTION, *sections, VERSIONS])


def _compute_section(spec: Mapping[str, Any]) -> Iterator[str]:
    names = spec["names"]
    short = ", ".join(f"`{name}`" for name in names["shortNames"])
    for version in spec["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        yield f"## {names['kind']}"
        yield ""
        yield schema["description"]
        yield ""
        command = f"kubectl get {names['plural']}.{spec['group']}"
        yield f"`apiVersion: {spec['group']}/{version['name']}`, `{command}` or {short}."
        for part in ("spec", "status"):
            if part in schema["properties"]:
                yield from _compute_table(names["kind"], part, schema["properties"][part])
        yield from _compute_columns(version["additionalPrinterColumns"])


def _compute_table(kind: str, part: str, schema: Schema) -> Iterator[str]:
    yield ""
    yield f"### {part.capitalize()} of {kind}"
    yield ""
    yield schema["description"]
    yield ""
    yield "| field | type | default | description |"
    yield "| --- | --- | --- | --- |"
    for path, field, is_required in _find_fields(schema, part):
        default = f"`{json.dumps(field['default'])}`" if "default" in field else ("required" if is_required else "")
        yield f"| `{path}` | {_describe_type(field)} | {default} | {_describe(field)} |"


def _find_fields(schema: Schema, path: str) -> Iterator[tuple[str, Schema, bool]]:
    """Yield the fields below a schema, depth first: path, schema, whether it must be given."""
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}"
        yield here, field, name in schema.get("required", [])
        yield from _find_fields(field.get("items", {}), f"{here}[]")
        yield from _find_fields(field, here)


def _describe_type(field: Schema) -> str:
    match field.get("type"):
        case "array":
            return f"list of {_describe_type(field['items'])}"
        case "object" if "additionalProperties" in field:
            return f"map to {_describe_type(field['additionalProperties'])}"
        case None:
            return "integer or quantity"
        case kind:
            return str(kind)


def _describe(field: Schema) -> str:
    """Return description, allowed values, limits and what the rules demand, as one cell."""
    inner = field.get("items", {}) or field.get("additionalProperties", {})
    sentences = [field.get("description", "")]
    if "enum" in field:
        sentences.append("One of " + ", ".join(f"`{value}`" for value in field["enum"]) + ".")
    limits = [text.format(field[name]) for name, text in LIMITS.items() if name in field] if "type" in field else []
    if limits:
        sentences.append(", ".join(limits).capitalize() + ".")
    sentences += [f"Rule: {rule}." for rule in _find_rules([field, inner])]
    return " ".join(sentence for sentence in sentences if sentence).replace("|", "\\|")


def _find_rules(schemas: Sequence[Schema]) -> Iterator[str]:
    for schema in schemas:
        for rule in schema.get("x-kubernetes-validations", []):
            yield rule["message"]


def _compute_columns(columns: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    yield ""
    yield "`kubectl get` shows:"
    yield ""
    for column in columns:
        wide = " (with `-o wide`)" if column.get("priority") else ""
        yield f"- {column['name']}{wide}: `{column['jsonPath']}`"
    yield ""
