"""Archives that depend on nothing but what is in them: sorted, one time, no owner, no name of a machine."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from release.failures import ReleaseError

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK_BYTES = 1 << 20


def rewrite_tar(
    source: Path, target: Path, epoch: int, *, compressed: bool, keep: Callable[[str], bool] = lambda _: True
) -> None:
    """Write the members of a tar archive (compressed or not) that are to be kept to another one, in a fixed form.

    epoch: the time that every member gets. Raises ReleaseError for hard links and devices, which have no fixed order.
    """
    with tarfile.open(source) as archive, target.open("wb") as file:
        members = {_clean(member.name): member for member in archive.getmembers()}
        with _open_stream(file, compressed=compressed) as stream, tarfile.open(fileobj=stream, mode="w|") as made:
            for name, member in sorted(members.items()):
                if not name or not keep(name):
                    continue
                if not (member.isreg() or member.isdir() or member.issym()):
                    raise ReleaseError(f"{source.name}: {name} is no file, folder or symbolic link")
                member.name, member.mtime, member.pax_headers = name, epoch, {}
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                made.addfile(member, archive.extractfile(member) if member.isreg() else None)


def write_tar(folder: Path, target: Path, epoch: int) -> None:
    """Write the files under a folder to a tar archive, in a fixed form."""
    with tarfile.open(target, "w") as made:
        for path in sorted(folder.rglob("*")):
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            member.mtime = epoch
            if path.is_dir():
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                made.addfile(member)
            else:
                member.size = path.stat().st_size
                with path.open("rb") as content:
                    made.addfile(member, content)


def compress(source: Path, target: Path) -> None:
    """Write a file compressed by gzip, without its name and time."""
    with source.open("rb") as plain, target.open("wb") as file, _open_stream(file, compressed=True) as stream:
        while chunk := plain.read(CHUNK_BYTES):
            stream.write(chunk)


def compute_digest(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _open_stream(file: IO[bytes], *, compressed: bool) -> IO[bytes]:
    if not compressed:
        return file
    return cast("IO[bytes]", gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0))


def _clean(name: str) -> str:
    return "" if name in {".", "./"} else name.removeprefix("./").strip("/")
