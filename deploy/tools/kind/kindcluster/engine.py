"""The Docker engine: whether one answers, and the command line that speaks to it."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from kindcluster.commands import COMMAND_SECONDS, KindError, run_command

if TYPE_CHECKING:
    from collections.abc import Sequence

ANSWER_SECONDS = 120.0
"""How long a program may take that is only asked a question: it answers at once, but not on a very busy machine."""
INOTIFY_INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
ENOUGH_INSTANCES = 256
"""Two clusters of four nodes take about 140; many machines allow 128."""


class NoEngineError(KindError):
    """There is no Docker engine; the message is one line that says so and what to do."""


def find_engine_fault() -> str | None:
    """Return one line that says why no Docker engine can be used, None when one answers."""
    if shutil.which("docker") is None:
        return "no Docker engine: there is no `docker` in PATH; install Docker, or run what needs no containers"
    try:
        run_command(["docker", "version", "--format", "{{.Server.Version}}"], timeout_seconds=ANSWER_SECONDS)
    except KindError as error:
        words = str(error).splitlines()[-1].strip()
        return f"no Docker engine answers: start Docker, or run what needs no containers ({words})"
    return None


def check_engine() -> None:
    """Raise NoEngineError unless an engine answers."""
    fault = find_engine_fault()
    if fault is not None:
        raise NoEngineError(fault)


def find_inotify_shortage(limit: Path = INOTIFY_INSTANCES) -> str | None:
    """Return one line when a second cluster might not start for want of inotify instances, None otherwise."""
    try:
        instances = int(limit.read_text(encoding="utf-8"))
    except (OSError, ValueError):  # the engine's nodes run elsewhere
        return None
    if instances >= ENOUGH_INSTANCES:
        return None
    name = "fs.inotify.max_user_instances"
    return f"{name} is {instances}: a second kind cluster may not start; raise it with sysctl -w {name}=1024"


def docker(*arguments: str, stdin: str = "", timeout_seconds: float = COMMAND_SECONDS) -> str:
    """Run the docker command line and return what it prints; raise KindError with its words when it fails."""
    return run_command(["docker", *arguments], stdin=stdin, timeout_seconds=timeout_seconds)


def build(tag: str, arguments: Sequence[str], *, timeout_seconds: float = 3000.0) -> None:
    """Build an image from the top level of the repository; the arguments are those of ``docker build``.

    An engine without its newer builder would refuse to build unless it is told to take the classic one. The image that
    had the tag before is removed, unless it has another name or is used.
    """
    settings = {} if has_buildx() else {"DOCKER_BUILDKIT": "0"}
    before = find_image(tag)
    run_command(["docker", "build", "--tag", tag, *arguments], settings=settings, timeout_seconds=timeout_seconds)
    if before is not None and before in find_nameless():
        remove_nameless(before)


def find_image(tag: str) -> str | None:
    """Return the id of the image with this tag, None when there is none."""
    try:
        return docker("image", "inspect", "--format={{.Id}}", tag).strip()
    except KindError:
        return None


def find_nameless(label: str | None = None) -> list[str]:
    """Return the ids of the images that no tag names and no image is built on, the newest first.

    label: of those with this label (``key=value``) only.
    """
    filters = ["--filter=dangling=true", *([f"--filter=label={label}"] if label is not None else [])]
    return docker("image", "ls", "--quiet", "--no-trunc", *filters).split()


def remove_nameless(image: str) -> None:
    """Remove an image that has no name any more, with what it alone was built on; one that is in use stays."""
    with contextlib.suppress(KindError):
        docker("image", "rm", image)


def has_buildx() -> bool:
    """Tell whether the command line has the newer builder, which is a plugin of its own."""
    try:
        docker("buildx", "version", timeout_seconds=ANSWER_SECONDS)
    except KindError:
        return False
    return True
