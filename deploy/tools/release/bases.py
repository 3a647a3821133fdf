"""The image that released images stand on, named by its digest: a tag names another image each week."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from release.failures import ReleaseError

FILE = Path("deploy") / "base" / "Dockerfile"
NAME_LABEL, DIGEST_LABEL = "org.opencontainers.image.base.name", "org.opencontainers.image.base.digest"
REFERENCE = re.compile(r"(?P<name>\S+?)(@(?P<digest>sha256:[0-9a-f]{64}))?")


@dataclass(frozen=True, slots=True)
class Base:
    """An image. name: with its tag, such as python:3.13. digest: `sha256:...`, empty where it is unknown."""

    name: str
    digest: str

    @property
    def reference(self) -> str:
        """How a Dockerfile names it."""
        return f"{self.name}@{self.digest}" if self.digest else self.name

    @property
    def labels(self) -> dict[str, str]:
        """What an image says of its base."""
        return {NAME_LABEL: self.name} | ({DIGEST_LABEL: self.digest} if self.digest else {})


def read_base(tree: Path) -> Base:
    """Return the base that a tree names; ReleaseError where it names none by its digest."""
    try:
        text = (tree / FILE).read_text(encoding="utf-8")
    except OSError as error:
        raise ReleaseError(f"{FILE} names the image's base, and cannot be read: {error}") from error
    match = re.search(r"^FROM (\S+)$", text, re.MULTILINE)
    base = parse_base(match[1]) if match is not None else None
    if base is None or not base.digest:
        raise ReleaseError(f"{FILE} must name the image's base by its digest: FROM NAME:TAG@sha256:...")
    return base


def parse_base(reference: str) -> Base:
    """Return the base that a reference names.

    >>> parse_base("python:3.13").reference
    'python:3.13'
    """
    match = REFERENCE.fullmatch(reference)
    if match is None:
        raise ReleaseError(f"{reference} is no image")
    return Base(match["name"], match["digest"] or "")


def find_base(configuration: dict[str, Any]) -> Base | None:
    """Return the base that an image's configuration names in its labels."""
    labels = configuration.get("config", {}).get("Labels") or {}
    return Base(labels[NAME_LABEL], labels.get(DIGEST_LABEL, "")) if NAME_LABEL in labels else None
