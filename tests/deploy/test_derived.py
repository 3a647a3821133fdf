"""What is made from other files is what it should be, and a file that lags behind is noticed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

import chart
from crd_reference import compute_reference

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "fairbind"
PARTS = (
    "charts",
    "crds",
    "deploy/alerts",
    "deploy/dashboard",
    "deploy/examples",
    "deploy/publishing.toml",
    "docs/reference",
    "operator/fairbind/__init__.py",
)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Return a copy of everything that the tool reads and writes."""
    for part in PARTS:
        target = tmp_path / part
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, target)
        else:
            shutil.copy(ROOT / part, target)
    return tmp_path


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_everything_is_up_to_date() -> None:
    assert chart.find_differences(chart.compute_outputs(ROOT, None)) == []


@pytest.mark.parametrize(
    ("source", "old", "new", "lagging"),
    [
        (
            "deploy/publishing.toml",
            'registry = ""',
            'registry = "registry.example/team"',
            ["charts/fairbind/values.yaml", "charts/fairbind/README.md"],
        ),
        (
            "crds/tenants.yaml",
            "Weight among siblings",
            "How heavy it is",
            ["charts/fairbind/crds/tenants.yaml", "docs/reference/crds.md"],
        ),
        ("deploy/examples/tenants.yaml", "name: analytics", "name: figures", ["charts/fairbind/Chart.yaml"]),
        ("deploy/alerts/fairbind.rules.yaml", "for: 5m", "for: 6m", ["charts/fairbind/files/fairbind.rules.yaml"]),
        (
            "deploy/dashboard/fairbind.json",
            '"title": "Leaders"',
            '"title": "Who leads"',
            ["charts/fairbind/files/fairbind.json"],
        ),
        ("charts/fairbind/values.yaml", "replicaCount: 2", "replicaCount: 3", ["charts/fairbind/README.md"]),
        ("charts/fairbind/crds/tenants.yaml", "fbtenant", "tenantz", ["charts/fairbind/crds/tenants.yaml"]),
        ("operator/fairbind/__init__.py", "__version__ = ", '__version__ = "9.9.9" #', ["charts/fairbind/Chart.yaml"]),
    ],
)
def test_what_lags_behind_is_named_and_made_again(
    copy: Path, capsys: pytest.CaptureFixture[str], source: str, old: str, new: str, lagging: list[str]
) -> None:
    replace(copy / source, old, new)

    assert chart.main(["--check", "--helm=", f"--root={copy}"]) == 1
    named = capsys.readouterr().err
    assert [name for name in lagging if f"{name} is out of date" not in named] == []
    assert named.count("out of date") == len(lagging)

    assert chart.main(["--helm=", f"--root={copy}"]) == 0
    assert chart.main(["--check", "--helm=", f"--root={copy}"]) == 0


def test_a_value_without_a_description_is_refused() -> None:
    with pytest.raises(ValueError, match=r"image\.tag"):
        list(chart.find_values("# What is run.\nname: a\nimage:\n  tag: b\n"))


def test_values_are_found_with_their_comments() -> None:
    text = (
        "# Header.\n\n# What is run,\n# and how.\nname: a\nimage:\n  # Its tag.\n  tag: ''\n# Whole.\nlabels: {a: b}\n"
    )

    assert list(chart.find_values(text)) == [
        ("name", "a", "What is run, and how."),
        ("image.tag", "", "Its tag."),
        ("labels", {"a": "b"}, "Whole."),
    ]


OF_KUBERNETES = {"resources", "podSecurityContext", "containerSecurityContext"}


def find_leaves(values: dict[str, Any], schema: dict[str, Any], path: str = "") -> list[str]:
    """Return the values that a schema does not know, and the fields of the schema that have no value.

    An object that is empty by default need not name its fields, as none has a default; nor need Kubernetes' own.
    """
    assert schema.get("additionalProperties") is False, path
    of_parents = (
        {"global", "enabled"} if not path else set()
    )  # set or read by Helm for a chart that this one is part of
    known, given = set(schema["properties"]) - of_parents, set(values)
    wrong = [f"{path}{name}" for name in known ^ given]
    for name in known & given:
        field = schema["properties"][name]
        if (
            field.get("type") == "object"
            and field.get("properties")
            and values[name] != {}
            and name not in OF_KUBERNETES
        ):
            wrong += find_leaves(values[name], field, f"{path}{name}.")
    return wrong


def test_values_and_their_schema_agree() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

    assert find_leaves(values, schema) == []


def test_value_names_that_others_rely_on_are_there() -> None:
    values = {path for path, _, _ in chart.find_values((CHART / "values.yaml").read_text(encoding="utf-8"))}

    assert values >= {
        "operator.enabled",
        "image.repository",
        "image.tag",
        "image.pullPolicy",
        "replicaCount",
        "schedulerName",
        "policy.name",
        "resources",
        "log.level",
        "log.format",
        "serviceMonitor.enabled",
        "prometheusRule.enabled",
        "flowSchema.enabled",
    }


def test_the_reference_names_every_field() -> None:
    crd = yaml.safe_load((ROOT / "crds" / "tenants.yaml").read_text(encoding="utf-8"))
    page = compute_reference([crd])

    assert "| `spec.weight` | integer or quantity | `1` |" in page
    assert "| `spec.namespaceSelector.matchExpressions[].operator` | string | required |" in page
    assert "One of `In`, `NotIn`, `Exists`, `DoesNotExist`." in page
    assert "`status.conditions[].lastTransitionTime`" in page


@pytest.mark.parametrize("name", chart.CRDS)
def test_schemas_are_closed(name: str) -> None:
    """Nothing may hold what the schema does not name."""
    crd = yaml.safe_load((ROOT / "crds" / name).read_text(encoding="utf-8"))
    (version,) = crd["spec"]["versions"]

    assert find_open_fields(version["schema"]["openAPIV3Schema"], "") == []


def find_open_fields(schema: dict[str, Any], path: str) -> list[str]:
    """Return the paths where anything is kept."""
    found = [path] if schema.get("x-kubernetes-preserve-unknown-fields") else []
    for name, field in schema.get("properties", {}).items():
        found += find_open_fields(field, f"{path}.{name}")
    for name, suffix in (("items", "[]"), ("additionalProperties", "{}")):
        if name in schema:
            assert isinstance(schema[name], dict), path
            found += find_open_fields(schema[name], path + suffix)
    return found


@pytest.mark.parametrize("name", chart.CRDS)
def test_every_field_is_described(name: str) -> None:
    crd = yaml.safe_load((ROOT / "crds" / name).read_text(encoding="utf-8"))
    (version,) = crd["spec"]["versions"]
    silent: list[str] = []

    def look(schema: dict[str, Any], path: str) -> None:
        for field, child in schema.get("properties", {}).items():
            if not child.get("description") and (path, field) != ("", "metadata"):
                silent.append(f"{path}.{field}")
            look(child, f"{path}.{field}")
            look(child.get("items", {}), f"{path}.{field}[]")

    look(version["schema"]["openAPIV3Schema"], "")
    assert silent == []
