"""Make the archive that krew installs, and keep its digest in the manifest.

    python deploy/tools/krew.py FOLDER    write FOLDER/kubectl-fairbind.zip, and its digest into the manifest

Equal files give an equal archive, byte for byte: nothing in it is compressed, and all times are the first that ZIP has.
"""

from __future__ import annotations

import hashlib
import io
import re
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "deploy" / "krew" / "fairbind.yaml"
FILES = {
    "kubectl-fairbind": (ROOT / "deploy" / "krew" / "kubectl-fairbind", 0o755),
    "LICENSE": (ROOT / "LICENSE", 0o644),
}
FIRST_TIME = (1980, 1, 1, 0, 0, 0)
ARCHIVE = "kubectl-fairbind.zip"


def make_archive() -> bytes:
    """Return the archive."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, (path, mode) in FILES.items():
            entry = zipfile.ZipInfo(name, FIRST_TIME)
            entry.create_system = 3  # Unix, whose modes follow
            entry.external_attr = (0o100000 | mode) << 16
            archive.writestr(entry, path.read_bytes())
    return target.getvalue()


def write_digest(manifest: str, archive: bytes) -> str:
    """Return the manifest with the digest of the archive."""
    return re.sub(r"(?m)^(\s*sha256:).*$", rf"\1 {hashlib.sha256(archive).hexdigest()}", manifest)


def main() -> int:
    """Write both; return the exit status."""
    folder = Path(sys.argv[1])
    archive = make_archive()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ARCHIVE).write_bytes(archive)
    MANIFEST.write_text(write_digest(MANIFEST.read_text(encoding="utf-8"), archive), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
