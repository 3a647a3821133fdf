"""What krew reads and installs: the manifest, the archive behind its digest, and the launcher in the archive."""

from __future__ import annotations

import hashlib
import io
import subprocess
import zipfile
from pathlib import Path

import yaml

import fairbind
import krew

MANIFEST = yaml.safe_load(krew.MANIFEST.read_text(encoding="utf-8"))
(PLATFORM,) = MANIFEST["spec"]["platforms"]


def test_the_digest_is_that_of_the_archive() -> None:
    archive = krew.make_archive()

    assert krew.make_archive() == archive
    assert PLATFORM["sha256"] == hashlib.sha256(archive).hexdigest()
    assert krew.write_digest(krew.MANIFEST.read_text(encoding="utf-8"), b"").count(hashlib.sha256(b"").hexdigest()) == 1


def test_the_manifest_names_what_the_archive_has() -> None:
    with zipfile.ZipFile(io.BytesIO(krew.make_archive())) as archive:
        modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in archive.infolist()}

    assert [file["from"] for file in PLATFORM["files"]] == list(modes)
    assert modes[PLATFORM["bin"]] == 0o755
    assert PLATFORM["uri"].endswith(f"/v{fairbind.__version__}/{krew.ARCHIVE}")
    assert MANIFEST["spec"]["version"] == f"v{fairbind.__version__}"
    assert len(MANIFEST["spec"]["shortDescription"]) <= 50


def test_the_launcher_runs_this_version_by_uv(tmp_path: Path) -> None:
    launcher, environment = krew.FILES["kubectl-fairbind"][0], {"PATH": "/usr/bin:/bin"}
    missing = subprocess.run(
        [launcher, "top"], env={"PATH": "/nonexistent"}, capture_output=True, text=True, check=False
    )
    assert missing.returncode != 0
    uv = tmp_path / "uv"
    uv.write_text('#!/bin/sh\necho "$@"\nexit 3\n', encoding="utf-8")
    uv.chmod(0o755)
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    done = subprocess.run([launcher, "why", "a b"], env=environment, capture_output=True, text=True, check=False)

    words = f"tool run --quiet --from fairbind=={fairbind.__version__} kubectl-fairbind why a b\n"
    assert (done.returncode, done.stdout) == (3, words)
