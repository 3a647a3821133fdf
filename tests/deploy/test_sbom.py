"""The list of what the image consists of: complete by the lock, in a form that others read, the same each time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import sbom
from fairbind import __version__
from house.test_locks import RUNTIME, read_lock

RECORD = """Package: libssl3t64
Status: install ok installed
Architecture: amd64
Source: openssl
Version: 3.5.1-1+deb13u1
Description: Secure Sockets Layer toolkit
 Version: of something else
"""


def write(folder: Path) -> dict[str, Any]:
    file = folder / "new" / "fairbind.cdx.json"
    program = [sys.executable, str(Path(sbom.__file__)), f"--output={file}"]
    subprocess.run(program, check=True, capture_output=True)
    written: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return written


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return write(tmp_path_factory.mktemp("sbom"))


def test_every_package_of_the_image_is_in_it(written: dict[str, Any]) -> None:
    listed = {(part["name"], part["version"]) for part in written["components"]}
    pins = [pin.requirement for pin in read_lock(RUNTIME)]
    taken = [pin for pin in pins if pin.marker is None or pin.marker.evaluate(dict(sbom.INTERPRETER))]

    assert len(listed) > 30
    assert listed == {(pin.name, str(pin.specifier).removeprefix("==")) for pin in taken}
    assert len([name for name, _ in listed if name == "numpy"]) == 1  # the lock has one for each Python


def test_it_names_itself_and_where_the_packages_come_from(written: dict[str, Any]) -> None:
    itself = written["metadata"]["component"]

    assert (itself["name"], itself["version"], itself["type"]) == ("fairbind", __version__, "application")
    assert all(part["purl"].startswith("pkg:pypi/") for part in written["components"])


@pytest.mark.nightly
def test_others_can_read_it(written: dict[str, Any]) -> None:
    from cyclonedx.schema import SchemaVersion  # noqa: PLC0415 - seconds, in every worker that collects tests
    from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415 - the same

    version = SchemaVersion[f"V{written['specVersion'].replace('.', '_')}"]
    with_debian = {**written, "components": [*written["components"], sbom.describe_record(RECORD)]}

    assert JsonStrictValidator(version).validate_str(json.dumps(with_debian)) is None
    assert JsonStrictValidator(version).validate_str('{"bomFormat": "CycloneDX"}') is not None


@pytest.mark.slow
def test_the_same_lock_gives_the_same_list(written: dict[str, Any], tmp_path: Path) -> None:
    assert write(tmp_path) == written


def test_debian_packages_are_described_from_their_records() -> None:
    described = sbom.describe_record(RECORD)

    assert (described["name"], described["version"]) == ("libssl3t64", "3.5.1-1+deb13u1")
    assert described["purl"] == "pkg:deb/debian/libssl3t64@3.5.1-1%2Bdeb13u1?arch=amd64"
