"""Make the root of the operator's image: ``/opt/fairbind/bin/python image_tree.py TARGET``, run by deploy/Dockerfile.

What the operator needs and nothing else: its environment, the interpreter with the standard library, the shared
libraries that these are linked with, certificates. No shell, no package manager, no pip. Works on any base whose C
library is glibc, wherever its Python is. The records of the Debian packages that files come from are kept, so that
scanners know what is inside.

The same commit and base give the same tree, byte for byte: one time for all files, and byte code that depends on the
source alone. Byte code is made for the modules that the operator imports: where it runs nothing can be written, and
without it every start would compile some 1,500 modules.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import pkgutil
import py_compile
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ENVIRONMENT = Path(sys.prefix)
USER = 65532
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))  # 1980: the first year that archives know
# Parts of the standard library that a server without a terminal, a compiler and a display cannot use.
UNUSED_STANDARD = {"ensurepip", "idlelib", "lib2to3", "pydoc_data", "test", "tkinter", "turtledemo", "venv"}
UNUSED_STANDARD |= {"site-packages", "dist-packages"}
# Tests of the dependencies, and a second client for Kubernetes, larger than all else, that no module imports.
UNUSED_PACKAGES = {"tests", "kubernetes/aio"}
# Research: it stays in the wheel, and `fairbind` says what is missing where a user runs it in the image.
RESEARCH = {f"fairbind/simulator/{name}" for name in ("baselines", "reproduction", "sweep", "traces")}
# What is imported while the operator runs, not only when it starts.
IMPORTED_LATE = ("kubernetes.client", "kubernetes.config.incluster_config", "kubernetes.config.kube_config", "uvloop")
SETTINGS = {
    "etc/passwd": f"fairbind:x:{USER}:{USER}::/tmp:/nonexistent\n",
    "etc/group": f"fairbind:x:{USER}:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
}
AS_THEY_ARE = ("/etc/ssl/certs/ca-certificates.crt", "/etc/ld.so.cache", "/etc/os-release")


def main() -> None:
    """Make the tree and say how large it is."""
    target = Path(sys.argv[1])
    files = [
        *find_files(Path(os.__file__).parent, UNUSED_STANDARD),
        *find_files(ENVIRONMENT, {*UNUSED_PACKAGES, *RESEARCH}),
    ]
    libraries = sorted(find_libraries([Path(sys.executable), *files]))
    for path in [*files, Path(sys.executable), *libraries, *map(Path, AS_THEY_ARE)]:
        if path.exists():
            copy_with_links(path, target)
    for name, text in SETTINGS.items():
        (target / name).write_text(text, encoding="ascii")
    keep_records(libraries, target)
    compile_imported(target)
    (target / "tmp").mkdir(mode=0o1777)
    (target / "tmp").chmod(0o1777)  # whatever the umask is
    set_times(target)
    size_bytes = sum(path.lstat().st_size for path in target.rglob("*") if not path.is_dir())
    print(f"{target}: {size_bytes / 1e6:.0f} MB", flush=True)


def find_files(folder: Path, unused: Iterable[str]) -> Iterator[Path]:
    """Yield the files and links under a folder in order, without byte code and what is not used.

    unused: names of folders, or ends of their paths.
    """
    ends = tuple(f"/{name}" for name in unused)
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(
            name
            for name in folders
            if not f"{place}/{name}".endswith(ends) and name != "__pycache__" and not name.startswith("config-")
        )
        links = [name for name in folders if (Path(place) / name).is_symlink()]
        for name in sorted([*names, *links]):
            yield Path(place) / name


def find_libraries(files: Iterable[Path]) -> set[Path]:
    """Return the shared libraries outside the environment that programs and extension modules are linked with."""
    linked = [str(path) for path in files if ".so" in path.name or path == Path(sys.executable)]
    outcome = subprocess.run(["ldd", *linked], capture_output=True, text=True, check=False)
    missing = re.findall(r"^\s*(\S+) => not found", outcome.stdout, re.MULTILINE)
    if missing:
        raise SystemExit(f"libraries that are not in the base image: {sorted(set(missing))}")
    found = re.findall(r"(?:=> |^\s+)(/\S+) \(0x", outcome.stdout, re.MULTILINE)
    return {Path(name) for name in found if not Path(name).is_relative_to(ENVIRONMENT)}


def copy_with_links(path: Path, target: Path) -> None:
    """Copy a file to the same place under the target, with every link on the way to it."""
    place = Path("/")
    parts = list(path.parts[1:])
    while parts:
        place /= parts.pop(0)
        copy = target / place.relative_to("/")
        if place.is_symlink():
            if not copy.is_symlink():
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.symlink_to(place.readlink())
            aim = Path(os.path.normpath(place.parent / place.readlink()))
            place, parts = Path("/"), [*aim.parts[1:], *parts]
        elif not parts and place.is_file() and not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(place, copy)


def keep_records(libraries: Iterable[Path], target: Path) -> None:
    """Write what dpkg knows of the packages that libraries come from to where scanners look for it, and their licences.

    A base that was not made by dpkg has no records; a Python that was built into one belongs to no package.
    """
    if shutil.which("dpkg-query") is None:
        return
    names: set[str] = set()
    for path in [*libraries, Path(os.path.realpath(sys.executable)), Path(os.__file__)]:
        for spelling in (str(path), str(path.resolve())):
            query = ["dpkg-query", "--search", spelling]
            owners = subprocess.run(query, capture_output=True, text=True, check=False).stdout
            names |= {line.partition(": ")[0] for line in owners.splitlines() if not line.startswith("diversion")}
    folder = target / "var" / "lib" / "dpkg" / "status.d"
    folder.mkdir(parents=True)
    for name in sorted(names):
        words = ["dpkg-query", "--status", name]
        record = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        (folder / name.partition(":")[0]).write_text(record, encoding="utf-8")
        licence = Path("/usr/share/doc") / name.partition(":")[0] / "copyright"
        if licence.exists():
            copy_with_links(licence, target)


def compile_imported(target: Path) -> None:
    """Make byte code, in the target, of all modules that the operator imports; it is valid whatever the file's time."""
    package = importlib.import_module("fairbind")
    names = [module.name for module in pkgutil.walk_packages(package.__path__, "fairbind.")]
    for name in [*(name for name in names if not name.endswith("__main__")), *IMPORTED_LATE]:
        importlib.import_module(name)
    sources = {getattr(module, "__file__", None) or "" for module in list(sys.modules.values())}
    for source in sorted(path for path in sources if path.endswith(".py") and path != __file__):
        copy = target / Path(source).relative_to("/")
        if copy.is_file():
            py_compile.compile(
                str(copy),
                cfile=importlib.util.cache_from_source(str(copy)),
                dfile=source,
                doraise=True,
                invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
            )


def set_times(target: Path) -> None:
    """Give everything one time, and permissions that depend on no umask."""
    for path in sorted(target.rglob("*"), reverse=True):  # what is in a folder before the folder
        if not path.is_symlink():
            is_executable = path.is_dir() or bool(path.stat().st_mode & 0o100)
            if path != target / "tmp":
                path.chmod(0o755 if is_executable else 0o644)
        os.utime(path, (EPOCH, EPOCH), follow_symlinks=False)
    os.utime(target, (EPOCH, EPOCH))


if __name__ == "__main__":
    main()
