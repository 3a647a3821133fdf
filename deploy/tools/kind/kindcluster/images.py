"""The images that a cluster needs, built by the engine at hand: the operator's, and a tiny one for workloads.

Inside the nodes they have the names that users see: ``fairbind:VERSION`` is what the chart asks for by default, and
``fairbind-workload:1`` is what the demo's and the tests' pods run. In the engine's store their names carry the clone,
so that two clones that share an engine never load each other's.

A build leaves one image under its tag, and one without a name: the stage that a classic builder keeps to build the next
time in seconds. What earlier builds under the same tag left is removed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fairbind import __version__
from kindcluster import engine
from kindcluster.commands import ROOT, KindError, run_command
from localplane.toolchain import ensure_go
from localplane.tools import find_cache, one_build_at_a_time, print_line

if TYPE_CHECKING:
    from collections.abc import Callable

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
WORKLOAD_SOURCE = ROOT / "deploy" / "tools" / "kind" / "workload"
WORKLOAD_IMAGE = "fairbind-workload:1"
GO_MINIMUM = (1, 22)
STAGE_LABEL = "io.fairbind.stage-of"
"""What the Dockerfile labels its stage with, whose value is given by the build argument STAGE_OF."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image. tag: its name in the engine's store. name: its name inside the nodes, which pods and charts use."""

    tag: str
    name: str


def compute_clone(folder: Path = ROOT) -> str:
    """Return eight characters that are this clone's, or another folder's own: a digest of where it is."""
    return hashlib.sha256(os.fsencode(folder)).hexdigest()[:8]


def build_images(report: Callable[[str], None] = print_line) -> list[Image]:
    """Build the operator's image and the workload's; return both."""
    return [build_operator_image(report=report), build_workload_image(report=report)]


def build_operator_image(
    tag: str | None = None, *, report: Callable[[str], None] = print_line, fresh: bool = False
) -> Image:
    """Build the operator's image from this tree by deploy/Dockerfile; raise KindError with the build's last words.

    tag: its name in the engine's store, one of this clone's when None. fresh: reuse no layer of earlier builds, and
    leave none for later ones.
    """
    image = Image(tag or f"fairbind-{compute_clone()}:{__version__}", f"fairbind:{__version__}")
    report(f"building {image.tag}, a minute or two the first time")
    revision = find_revision()
    labels = [f"--label=org.opencontainers.image.version={__version__}"]
    if revision:
        labels += [f"--label=org.opencontainers.image.revision={revision}", f"--build-arg=REVISION={revision}"]
    stage = f"{compute_clone()}/{image.tag}"
    arguments = [f"--file={DOCKERFILE}", f"--build-arg=STAGE_OF={stage}", *labels]
    with one_build_at_a_time(find_cache() / "images" / f"{image.tag}.lock", report):  # each removes others' stages
        engine.build(image.tag, [*arguments, *(["--no-cache"] if fresh else []), str(ROOT)])
        remove_stages(stage, kept=0 if fresh else 1)
    return image


def remove_stages(stage: str, *, kept: int) -> None:
    """Remove the stages of earlier builds of an image but the newest. kept: how many of these."""
    for image in engine.find_nameless(f"{STAGE_LABEL}={stage}")[kept:]:
        engine.remove_nameless(image)


def find_revision() -> str | None:
    """Return the commit that is checked out, None where git does not know one."""
    try:
        return run_command(["git", "rev-parse", "HEAD"]).strip()
    except KindError:
        return None


def build_workload_image(*, report: Callable[[str], None] = print_line) -> Image:
    """Build the workload's image: one static program for this machine's processor and nothing else."""
    image = Image(f"fairbind-workload-{compute_clone()}:1", WORKLOAD_IMAGE)
    report(f"building {image.tag}, a few seconds")
    go = ensure_go(GO_MINIMUM, find_cache(), report)
    with tempfile.TemporaryDirectory(prefix="fairbind-workload-") as name:
        context = Path(name)
        shutil.copy(WORKLOAD_SOURCE / "Dockerfile", context)
        shutil.copy(WORKLOAD_SOURCE / "main.go", context)
        settings = {"CGO_ENABLED": "0", "GOOS": "linux", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
        build: list[str | Path] = [
            go,
            "build",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags=-s -w",
            "-o",
            "workload",
            "main.go",
        ]
        run_command(build, settings=settings, folder=context)
        engine.build(image.tag, [str(context)])
    return image
