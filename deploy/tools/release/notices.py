"""The licences of what the image brings along: Python packages, the interpreter, and packages of Debian."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Mapping
from email.parser import BytesParser
from pathlib import Path

METADATA = re.compile(r"(?:^|/)(?P<package>[^/]+)\.dist-info/METADATA$")
LICENCE = re.compile(
    r"(?:^|/)(?P<package>[^/]+)\.dist-info/(?:licenses/.+|(?:LICEN[CS]E|COPYING|NOTICE|AUTHORS)[^/]*)$", re.IGNORECASE
)
INTERPRETER = re.compile(r"(?:^|/)lib/(?P<package>python3\.\d+)/LICENSE\.txt$")
DEBIAN = re.compile(r"^usr/share/doc/(?P<package>[^/]+)/copyright$")
RECORD = re.compile(r"^var/lib/dpkg/status\.d/(?P<package>[^/]+)$")
OWN = re.compile(r"^fairbind-")
TITLE = """Licences of what the image of fairbind brings along

fairbind itself is under the Apache License 2.0 (LICENSE). Its image also has the following, each under its own licence.
"""
RULE = "=" * 100


def read_texts(layer: Path) -> dict[str, bytes]:
    """Return the files of an image's layer that say what is in it and under which licence, by path."""
    patterns = (METADATA, LICENCE, INTERPRETER, DEBIAN, RECORD)
    texts: dict[str, bytes] = {}
    with tarfile.open(layer) as archive:
        for member in archive:
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is not None and any(pattern.search(member.name) for pattern in patterns):
                texts[member.name] = stream.read()
    return texts


def compute_notices(texts: Mapping[str, bytes]) -> str:
    """Return the notices as one text: for each package what it says of its licence, and its texts of licences."""
    parts = [TITLE]
    for package, said in sorted(_find_packages(texts).items(), key=lambda entry: entry[0].lower()):
        parts += [RULE, f"{package}{f': {said}' if said else ''}", RULE, ""]
        found = _find_licences(texts, package)
        parts += found or ["The package has no text of its licence.\n"]
    return "\n".join(parts)


def find_records(layers: Iterable[Mapping[str, bytes]]) -> list[str]:
    """Return the records of the Debian packages, by which scanners know them, sorted; each processor has its own.

    layers: the texts of each image's layer.
    """
    return sorted({text.decode() for texts in layers for path, text in texts.items() if RECORD.search(path)})


def _find_packages(texts: Mapping[str, bytes]) -> dict[str, str]:
    """Return every package with what its metadata says of its licence."""
    packages: dict[str, str] = {}
    for path, text in texts.items():
        if (match := METADATA.search(path)) and not OWN.match(match["package"]):
            metadata = BytesParser().parsebytes(text, headersonly=True)
            classifiers = [line for line in metadata.get_all("Classifier", []) if line.startswith("License ::")]
            names = [line.rpartition(" :: ")[2] for line in classifiers]
            free = (metadata.get("License") or "").strip().splitlines()
            said = metadata.get("License-Expression") or ", ".join(names) or (free[0] if free else "")
            packages[match["package"]] = said
        elif match := INTERPRETER.search(path) or DEBIAN.search(path) or RECORD.search(path):
            packages[match["package"]] = ""
    return packages


def _find_licences(texts: Mapping[str, bytes], package: str) -> list[str]:
    """Return a package's texts of licences, each once."""
    found: dict[str, None] = {}
    for path in sorted(texts):
        match = LICENCE.search(path) or INTERPRETER.search(path) or DEBIAN.search(path)
        if match and match["package"] == package:
            found[texts[path].decode(errors="replace").strip() + "\n"] = None
    return list(found)
