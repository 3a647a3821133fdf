"""The operator's image, built by the engine at hand and written down in a form that depends on its content alone."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from fairbind import __version__
from kindcluster import engine
from kindcluster.commands import KindError
from kindcluster.images import compute_clone, remove_stages
from release.archives import rewrite_tar
from release.bases import Base
from release.failures import ReleaseError
from release.layouts import Layout, add_image
from release.sources import Commit

# What an engine puts into each container that it makes.
ENGINES_OWN = re.compile(r"^(\.dockerenv|(dev|proc|sys)(/.*)?|etc/(hosts|hostname|resolv\.conf|mtab))$")
INTERPRETER = re.compile(r"(^|/)bin/python3\.\d+$")
# The processor in the header of a program (ELF), and how platforms name it.
MACHINES = {62: "amd64", 183: "arm64"}
# What the kernel says of a program for another processor when no emulator is registered.
NOT_RUN = "exec format error"
TAKEN = ("Cmd", "Entrypoint", "Env", "ExposedPorts", "Labels", "User", "WorkingDir")


def build_layout(tree: Path, layout: Layout, commit: Commit, *, base: Base, platform: str | None) -> None:
    """Build the image of a tree by its deploy/Dockerfile, reusing nothing, and write it as a layout.

    base: what it stands on, which its labels name. platform: such as linux/arm64; None: the engine's own. Raises
    ReleaseError when the engine cannot run programs for this platform, or when the programs in the image are for
    another processor than the image says.
    """
    engine.check_engine()
    tag = f"fairbind-release-{compute_clone(tree)}:{__version__}"
    labels = {"version": __version__, "revision": commit.revision}
    words = [f"--label=org.opencontainers.image.{name}={value}" for name, value in labels.items()]
    words += [f"--label={name}={value}" for name, value in base.labels.items()]
    words += [f"--build-arg=BASE={base.reference}", f"--build-arg=REVISION={commit.revision}"]
    words += [f"--build-arg=STAGE_OF={tag}", "--no-cache"]
    words += [f"--file={tree / 'deploy' / 'Dockerfile'}", *([f"--platform={platform}"] if platform else [])]
    try:
        engine.build(tag, [*words, str(tree)])
    except KindError as error:
        if platform is None or NOT_RUN not in str(error).lower():
            raise
        raise ReleaseError(
            f"the engine runs no programs for {platform}: docs/release.md says how to let an emulator run them, and"
            " how to build each image on a machine of its own"
        ) from error
    try:
        (described,) = json.loads(engine.docker("image", "inspect", tag))
        exported = tree.parent / f"{tree.name}-exported.tar"
        export(tag, exported)
    finally:
        engine.docker("image", "rm", tag)
        remove_stages(tag, kept=0)
    write_layout(layout, exported, describe(described), commit.epoch, version=__version__)


def order_platforms(platforms: Collection[str]) -> list[str]:
    """Return the platforms in the order in which images are built: the engine's own last, so that a failure comes soon.

    Raises ReleaseError where another platform is wanted and there is only the classic builder: it takes an image that
    starts from nothing for one of the engine's own platform, and puts no files of another one into it.
    """
    engine.check_engine()
    own = engine.docker("version", "--format={{.Server.Os}}/{{.Server.Arch}}").strip()
    others = sorted(set(platforms) - {own})
    if others and not engine.has_buildx():
        raise ReleaseError(
            f"Docker's classic builder makes no image for {' and '.join(others)} here: install its plugin buildx,"
            f" or build each image on a machine of its own, as docs/release.md says"
        )
    return [*others, *(platform for platform in platforms if platform == own)]


def export(tag: str, target: Path) -> None:
    """Write the files of an image to a tar archive."""
    container = engine.docker("create", tag).strip()
    try:
        with target.open("wb") as file:
            subprocess.run(["docker", "export", container], stdout=file, check=True)
    finally:
        engine.docker("rm", container)


def describe(inspected: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration of an image as OCI has it, from what the engine says of it."""
    config = {name: inspected["Config"][name] for name in TAKEN if inspected["Config"].get(name)}
    return {"os": inspected["Os"], "architecture": inspected["Architecture"], "config": config}


def write_layout(layout: Layout, exported: Path, configuration: dict[str, Any], epoch: int, *, version: str) -> None:
    """Write an image's files and configuration as a layout of one image; the archive of the files goes away."""
    check_processor(exported, configuration["architecture"])
    layer = exported.with_name(f"{exported.stem}-layer.tar")
    rewrite_tar(exported, layer, epoch, compressed=False, keep=lambda name: not ENGINES_OWN.match(name))
    exported.unlink()
    layout.folder.mkdir(parents=True)
    layout.write_index([add_image(layout, layer, configuration, epoch=epoch)], version)


def check_processor(exported: Path, architecture: str) -> None:
    """Raise ReleaseError unless the interpreter among an image's files is for this processor."""
    with tarfile.open(exported) as archive:
        for member in archive:
            if member.isreg() and INTERPRETER.search(member.name):
                stream = archive.extractfile(member)
                header = stream.read(20) if stream is not None else b""
                found = MACHINES.get(int.from_bytes(header[18:20], "little"), "another processor")
                if header[:4] == b"\x7fELF" and found == architecture:
                    return
                raise ReleaseError(f"the image says {architecture}, and {member.name} in it is for {found}")
    raise ReleaseError("the image has no interpreter")
