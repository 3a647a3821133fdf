"""What is published where: the parts of pages, and the chart's registry, that follow from deploy/publishing.toml.

A page is written by hand around blocks of the form

    <!-- published: status -->
    ...
    <!-- end -->

which `write_blocks` fills. As long as nothing is published they say so, and how to build it.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent / "local"))
from localplane.tools import KUBERNETES_VERSION, OLDER_KUBERNETES

SOURCE = Path("deploy") / "publishing.toml"
PAGES = ("README.md", "docs/install.md", "docs/release.md")
BLOCK = re.compile(r"(?P<start><!-- published: (?P<name>[a-z-]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)
REGISTRY = re.compile(r"^(image:\n(?:  #[^\n]*\n)*  registry: )[^\n]*$", re.MULTILINE)
KUBERNETES = (*OLDER_KUBERNETES, ".".join(map(str, KUBERNETES_VERSION[:2])))
"""The versions that tests run on."""
VERSION = re.compile(r'^__version__ = "([^"]+)"', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Published:
    """Where releases are; empty: nowhere. version: the package's."""

    version: str
    registry: str
    index: str
    files: str

    @property
    def image(self) -> str:
        """The image without its tag."""
        return f"{self.registry}/fairbind" if self.registry else "fairbind"

    @property
    def chart(self) -> str:
        """What helm installs: the chart in the registry with its version, or the one of a clone."""
        return f"oci://{self.registry}/charts/fairbind --version {self.version}" if self.registry else "charts/fairbind"


def read_published(root: Path) -> Published:
    """Read the file and the version. Raises ValueError that names a key that is unknown, missing or no address."""
    settings = tomllib.loads((root / SOURCE).read_text(encoding="utf-8"))
    keys = {"registry", "index", "files"}
    if settings.keys() != keys:
        raise ValueError(f"{SOURCE}: must have {', '.join(sorted(keys))} and nothing else, but has {sorted(settings)}")
    for key, value in settings.items():
        pattern = r"([a-z0-9.-]+(:\d+)?(/[a-z0-9._-]+)*)?" if key == "registry" else r"(https://\S+)?"
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            wanted = (
                "a registry without a scheme, such as ghcr.io/fairbind" if key == "registry" else "an https address"
            )
            raise ValueError(f"{SOURCE}: {key} must be {wanted}, or empty, but is {value!r}")
    match = VERSION.search((root / "operator" / "fairbind" / "__init__.py").read_text(encoding="utf-8"))
    if match is None:
        raise ValueError("operator/fairbind/__init__.py has no __version__")
    return Published(match[1], **settings)


def write_registry(values: str, published: Published) -> str:
    """Return the chart's values.yaml with the registry as the default of `image.registry`."""
    return REGISTRY.sub(rf'\g<1>"{published.registry}"', values, count=1)


def compute_pages(root: Path, given: Mapping[Path, str]) -> dict[Path, str]:
    """Return the text of every page with such blocks, by path. given: of pages that have other changes already."""
    paths = [path for name in PAGES if (path := root / name).exists()]
    if not paths:
        return {}
    published = read_published(root)
    return {path: write_blocks(given.get(path) or path.read_text(encoding="utf-8"), published) for path in paths}


def write_blocks(text: str, published: Published) -> str:
    """Return a page with its blocks as they should be."""
    return BLOCK.sub(lambda match: f"{match['start']}{BLOCKS[match['name']](published)}\n{match['end']}", text)


def say_status(published: Published) -> str:
    """Return what is published in a sentence, and which versions go together, for README."""
    matrix = [
        "| fairbind | Kubernetes | Helm | Python |",
        "| --- | --- | --- | --- |",
        f"| {published.version} | {', '.join(KUBERNETES)} | 4, 3 | 3.11 to 3.13 |",
    ]
    return "\n".join([say_published(published), "", *matrix])


def say_published(published: Published) -> str:
    """Return what is published in a sentence."""
    parts = {"image and chart": published.registry, "Python package": published.index, "files": published.files}
    there = [f"{name} ({place})" for name, place in parts.items() if place]
    missing = [name for name, place in parts.items() if not place]
    if not there:
        return (
            "Nothing is published yet, neither image nor chart nor package: [build them](docs/release.md) from a clone."
        )
    said = f"Published: {', '.join(there)}."
    return f"{said} [Not yet](docs/release.md): {', '.join(missing)}." if missing else said


def say_package(published: Published) -> str:
    """Return how to get the command."""
    source = "fairbind" if published.index else ".    # in a clone"
    return f"```sh\npython3 -m venv ~/fairbind && ~/fairbind/bin/pip install {source}\n```"


def say_install(published: Published) -> str:
    """Return the commands that install the chart on a cluster."""
    lines = ["```sh"]
    image = ""
    if not published.registry:
        lines += [
            f"docker build -f deploy/Dockerfile -t REGISTRY/fairbind:{published.version} .",
            f"docker push REGISTRY/fairbind:{published.version}",
        ]
        image = " --set image.registry=REGISTRY"
    lines += [
        f"helm install fairbind {published.chart} --namespace fairbind-system --create-namespace --wait{image}",
        "```",
    ]
    return "\n".join(lines)


def say_image(published: Published) -> str:
    """Return where the image comes from, for the page about installing."""
    if published.registry:
        image = f"{published.image}:{published.version}"
        return f"The image is `{image}`, for amd64 and arm64, and the chart names it. To build your own:"
    return "No registry has the image yet. Build it from the root of the repository, and push it to one of yours:"


def say_places(published: Published) -> str:
    """Return the table of parts and places."""
    image = f"`{published.image}:{published.version}`" if published.registry else ""
    chart = f"`oci://{published.registry}/charts/fairbind`" if published.registry else ""
    rows = {
        "image, for amd64 and arm64": image,
        "Helm chart": chart,
        "Python package `fairbind`": published.index,
        "files, checksums, signatures, provenance": published.files,
        "documents": "in the repository",
    }
    lines = ["| part | published |", "| --- | --- |"]
    return "\n".join(lines + [f"| {part} | {place or '**not yet**'} |" for part, place in rows.items()])


BLOCKS: Mapping[str, Callable[[Published], str]] = {
    "status": say_status,
    "package": say_package,
    "install": say_install,
    "image": say_image,
    "places": say_places,
}
