"""One file says what is published where, and the chart and the pages follow it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

import chart
import publishing
from fairbind import __version__
from house.tree import ROOT

REGISTRY = "registry.example:5000/team"
SET = f'registry = "{REGISTRY}"\nindex = "https://index.example/fairbind"\nfiles = ""\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Copy what follows from the file, and its sources."""
    for name in ("charts", "crds", "docs", "deploy"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("results", "tools", "reproduction"))
    (tmp_path / "operator" / "fairbind").mkdir(parents=True)
    for name in ("README.md", "operator/fairbind/__init__.py"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def read_all(tree: Path) -> dict[str, str]:
    """Return each page and the chart's values as the tools would write them."""
    outputs = {**publishing.compute_pages(tree, {}), **chart.compute_outputs(tree, None)}
    return {path.relative_to(tree).as_posix(): text for path, text in outputs.items()}


def test_what_is_not_published_is_said_on_every_page() -> None:
    written = read_all(ROOT)

    assert yaml.safe_load(written["charts/fairbind/values.yaml"])["image"]["registry"] == ""
    assert "Nothing is published yet" in written["README.md"]
    assert written["docs/release.md"].count("**not yet**") == 4
    assert "No registry has the image yet" in written["docs/install.md"]


def test_one_value_changes_the_chart_and_every_page(tree: Path) -> None:
    (tree / publishing.SOURCE).write_text(SET, encoding="utf-8")
    written = read_all(tree)

    assert yaml.safe_load(written["charts/fairbind/values.yaml"])["image"]["registry"] == REGISTRY
    assert f'| `image.registry` | `"{REGISTRY}"` |' in written["charts/fairbind/README.md"]
    assert f"helm install fairbind oci://{REGISTRY}/charts/fairbind --version {__version__} " in written["README.md"]
    assert "pip install fairbind\n" in written["README.md"]
    assert "docker build -f deploy/Dockerfile -t REGISTRY" not in written["README.md"]
    for page in ("docs/release.md", "docs/install.md"):
        assert f"`{REGISTRY}/fairbind:{__version__}`" in written[page], page
    assert written["docs/release.md"].count("**not yet**") == 1


def test_only_the_registry_of_the_image_is_written(tree: Path) -> None:
    (tree / publishing.SOURCE).write_text(SET, encoding="utf-8")
    before = (tree / "charts" / "fairbind" / "values.yaml").read_text(encoding="utf-8").splitlines()
    after = read_all(tree)["charts/fairbind/values.yaml"].splitlines()

    assert [line for line, old in zip(after, before, strict=True) if line != old] == [f'  registry: "{REGISTRY}"']


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SET.replace(REGISTRY, "https://ghcr.io/a"), "registry must be a registry without a scheme, such as .*'https:"),
        (SET.replace("https://index", "index"), r"index must be an https address, or empty, but is 'index\.example"),
        (SET + "image = 1\n", "must have files, index, registry and nothing else"),
    ],
)
def test_what_is_no_place_is_refused(tree: Path, text: str, message: str) -> None:
    (tree / publishing.SOURCE).write_text(text, encoding="utf-8")

    with pytest.raises(ValueError, match=message):
        publishing.compute_pages(tree, {})


def test_the_version_in_pages_by_hand_is_the_package_s() -> None:
    install = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")

    assert f"fairbind:{__version__}" in install
    assert f"-t fairbind:{__version__} ." in (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
