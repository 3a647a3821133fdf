"""The operator's image as an engine builds and runs it: small, confined, complete, and the same each time."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from fairbind import __version__
from kindcluster.commands import ROOT, KindError
from kindcluster.engine import docker
from kindcluster.images import Image, build_operator_image, find_revision
from release import notices
from release.images import describe, export, write_layout
from release.layouts import Layout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LIMIT_MB = 250
PERMISSIONS = 0o7777
# What the engine itself puts into every container.
ENGINES_OWN = re.compile(r"^(\.dockerenv|dev/.*|proc/.*|sys/.*|etc/(hosts|hostname|resolv\.conf|mtab))$")
CONFINED = ("--rm", "--read-only", "--network=none", "--cap-drop=ALL", "--security-opt=no-new-privileges")
NOT_COMPILED = """
import importlib, os, pkgutil, sys, fairbind
for module in pkgutil.walk_packages(fairbind.__path__, "fairbind."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:  # research stays in the wheel
            if not (error.name or "").startswith("fairbind.simulator."):
                raise
import kubernetes.client, kubernetes.config.incluster_config, uvloop
specs = [module.__spec__ for module in sys.modules.values() if getattr(module, "__spec__", None)]
cached = [spec.cached for spec in specs if spec.cached]
print(len(cached), [path for path in cached if not os.path.exists(path)])
"""


@pytest.fixture(scope="session")
def image(images: list[Image]) -> str:
    """The tag of the operator's image in the engine's store."""
    return images[0].tag


@pytest.fixture(scope="session")
def configuration(image: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(docker("image", "inspect", image))[0]
    return found


@pytest.fixture(scope="session")
def contents(image: str) -> dict[str, str]:
    """What is in the image, by path: all that can be said of a file."""
    return read_contents(image)


def read_contents(tag: str) -> dict[str, str]:
    """Return every file, link and folder of an image: permissions, owner, time, and content by its digest."""
    container = docker("create", tag).strip()
    try:
        return dict(read_members(container))
    finally:
        docker("rm", container)


def read_members(container: str) -> Iterator[tuple[str, str]]:
    with subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                name = member.name.removeprefix("./").rstrip("/")
                stream = archive.extractfile(member) if member.isreg() else None
                digest = hashlib.sha256(stream.read()).hexdigest() if stream is not None else member.linkname
                # the engine changes the time of folders in which it puts something of its own
                time = 0 if member.isdir() else member.mtime
                if not ENGINES_OWN.match(name):
                    described = (member.type, oct(member.mode), member.uid, member.gid, time, member.size, digest)
                    yield name, repr(described)
    assert process.returncode == 0


def run(image: str, *arguments: str, options: tuple[str, ...] = ()) -> str:
    return docker("run", *CONFINED, *options, image, *arguments)


def test_it_runs_where_nothing_can_be_written_and_nobody_reached(image: str) -> None:
    assert run(image, "--version") == f"fairbind {__version__}\n"
    assert "--metrics-address" in run(image, "operator", "--help")
    assert run(image) == run(image, "operator", "--help")


def test_a_wrong_option_is_refused_in_the_container_too(image: str) -> None:
    with pytest.raises(KindError, match="No such option"):
        run(image, "operator", "--no-such-option")


def test_all_that_the_operator_imports_is_there_and_compiled(image: str) -> None:
    """Where it runs byte code cannot be written: what is not compiled would be compiled at every start."""
    count, _, missing = run(image, "-c", NOT_COMPILED, options=("--entrypoint=python",)).partition(" ")

    assert int(count) > 500
    assert json.loads(missing.replace("'", '"')) == []


def test_it_reaches_servers_by_name_and_certificate(image: str) -> None:
    program = (
        "import socket, ssl; print(socket.gethostbyname('localhost'), len(ssl.create_default_context().get_ca_certs()))"
    )
    address, authorities = run(image, "-c", program, options=("--entrypoint=python",)).split()

    assert address == "127.0.0.1"
    assert int(authorities) > 10


def test_it_runs_as_nobody_in_particular(image: str, configuration: dict[str, Any]) -> None:
    program = "import os, getpass; print(os.getuid(), os.getgid(), getpass.getuser())"

    assert configuration["Config"]["User"] == "65532:65532"
    assert run(image, "-c", program, options=("--entrypoint=python",)) == "65532 65532 fairbind\n"


def test_there_is_nothing_to_build_or_install_with(contents: dict[str, str]) -> None:
    tools = r"(pip\d?(\.\d+)?|gcc|g\+\+|cc|clang|ld|make|go|apt|apt-get|dpkg|sh|bash|dash|perl|curl|wget)"
    unwanted = re.compile(rf"(^|/)(bin|sbin)/{tools}$|(^|/)(pip|setuptools|ensurepip)(/|$)")

    assert [name for name in contents if unwanted.search(name)] == []
    assert "opt/fairbind/bin/fairbind" in contents


def test_nothing_in_it_belongs_to_the_user_that_it_runs_as(contents: dict[str, str]) -> None:
    assert [name for name, described in contents.items() if ", 65532, " in described] == []
    assert re.match(r"\(b'5', '0o\d*1777', 0, 0,", contents["tmp"])


def test_it_is_small_and_the_documents_say_how_small(configuration: dict[str, Any]) -> None:
    size_mb = configuration["Size"] / 1e6
    stated = re.findall(r"(\d+) MB", (ROOT / "docs" / "install.md").read_text(encoding="utf-8"))

    assert size_mb < LIMIT_MB
    assert len(stated) == 1
    assert abs(size_mb - int(stated[0])) < 0.1 * size_mb


def test_labels_say_what_it_is(configuration: dict[str, Any]) -> None:
    labels = {
        name.removeprefix("org.opencontainers.image."): text for name, text in configuration["Config"]["Labels"].items()
    }

    assert labels["title"] == "fairbind"
    assert labels["version"] == __version__
    assert labels["licenses"] == "Apache-2.0"
    assert labels["source"].startswith("https://")
    assert labels["revision"] == find_revision()


def test_packages_are_known_to_scanners(contents: dict[str, str]) -> None:
    installed = {name.split("/")[-2] for name in contents if name.endswith(".dist-info/METADATA")}
    debian = {name.rpartition("/")[2] for name in contents if name.startswith("var/lib/dpkg/status.d/")}

    assert any(name.startswith("kopf-") for name in installed)
    assert {"libc6"} <= debian
    assert "etc/os-release" in contents or "usr/lib/os-release" in contents


def test_a_release_carries_the_image_as_it_is(
    image: str, configuration: dict[str, Any], contents: dict[str, str], tmp_path: Path
) -> None:
    layout = Layout(tmp_path / "layout")
    export(image, tmp_path / "exported.tar")
    write_layout(layout, tmp_path / "exported.tar", describe(configuration), 0, version=__version__)
    (described,) = layout.list_images()
    (layer,) = layout.list_layers()
    config = layout.read(layout.read(described)["config"])["config"]
    text = notices.compute_notices(notices.read_texts(layer))

    with tarfile.open(layer) as archive:
        members = {member.name: (member.type, member.mode & PERMISSIONS) for member in archive}
    found = {name: ast.literal_eval(described)[:2] for name, described in contents.items()}
    said = {name: (kind, int(mode, 8) & PERMISSIONS) for name, (kind, mode) in found.items()}
    assert members == {name: what for name, what in said.items() if name not in {"", "dev", "proc", "sys"}}
    assert described["platform"]["architecture"] == configuration["Architecture"]
    assert (config["User"], config["Entrypoint"]) == ("65532:65532", ["fairbind"])
    packages = {
        name.split("/")[-2].removesuffix(".dist-info") for name in contents if name.endswith("dist-info/METADATA")
    }
    assert len(packages) > 30
    assert [name for name in packages if f"\n{name}: " not in text and not name.startswith("fairbind-")] == []


@pytest.mark.nightly
def test_the_same_commit_gives_the_same_content(
    contents: dict[str, str], image: str, say: Callable[[str], None]
) -> None:
    again = build_operator_image(f"{image}-again", report=say, fresh=True)
    try:
        other = read_contents(again.tag)
    finally:
        docker("image", "rm", again.tag)
    differing = {name for name in contents.keys() | other.keys() if contents.get(name) != other.get(name)}

    assert len(contents) > 1000
    assert sorted(differing) == []


def test_the_recipe_names_no_builder_and_no_processor() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8") + Path(
        ROOT / "deploy" / "tools" / "image_tree.py"
    ).read_text(encoding="utf-8")

    assert not re.search(r"amd64|x86_64|arm64|aarch64|--mount|--platform", text)
