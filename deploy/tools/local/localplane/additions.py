"""Files of ours that are compiled into a module of others, of which the version that is pinned lacks a little.

They are below `added` in the folder of our module, each where it is to be in the other's. A build then takes a copy of
the other module, which go.sum has checked, with our files in it, through a go.mod beside that copy.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

ADDED = "added"


def add_files(module: Path, place: Path, find: Callable[[str], Path]) -> list[str]:
    """Copy the modules of others that get files of ours, and return the flags of a build with these copies.

    module: the folder of ours, whose go.mod replaces those modules by a version. place: for the copies. find: where a
    module of others is, by its path.
    """
    pins = (module / "go.mod").read_text(encoding="utf-8")
    replaced = re.findall(r"(?m)^\s*(\S+) => ", pins)
    changed = [path for path in replaced if (module / ADDED / path).is_dir()]
    if not changed:
        return []
    for path in changed:
        copy = place / "changed" / path
        _copy_files(find(path), copy)
        _copy_files(module / ADDED / path, copy)
        (line,) = re.findall(rf"(?m)^\s*{re.escape(path)} => .*$", pins)
        pins = pins.replace(line, f"\t{path} => {json.dumps(str(copy))}")
    pinned = place / "changed" / "go.mod"
    pinned.write_text(pins, encoding="utf-8")
    shutil.copyfile(module / "go.sum", pinned.with_suffix(".sum"))
    return [f"-modfile={pinned}"]


def _copy_files(source: Path, target: Path) -> None:
    """Copy files but not their permissions: no one may write to the sources that Go keeps."""
    for file in source.rglob("*"):
        if file.is_file():
            copy = target / file.relative_to(source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
