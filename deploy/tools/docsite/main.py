"""Build the site of the documents into build/site: ``make site``, or ``make site SITE=0.2.0`` for a release.

    build/site/index.html       leads to the newest version, and lists all
    build/site/versions.json    what the selector in each page reads
    build/site/main/            one version: pages, search, llms.txt

Versions that lie in build/site already stay, so a site of several is made by building one after the other, or by
copying folders of earlier ones there. The builder has an environment of its own in the cache, from
docs/requirements.txt. Links and anchors that lead nowhere, and pages outside the navigation, end the build.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "deploy" / "tools" / "local"))

from localplane.tools import find_cache  # noqa: E402  found by the line above

LOCK = ROOT / "docs" / "requirements.txt"
CONFIGURATION = ROOT / "mkdocs.yml"
UV = Path(sys.executable).parent / "uv"
DEFAULT = "main"


class SiteError(RuntimeError):
    """The site cannot be built; the message says why."""


def main(arguments: list[str] | None = None) -> int:
    """Build one version, and write what leads to all; return the exit status."""
    parser = argparse.ArgumentParser(prog="make site", description=__doc__)
    parser.add_argument("--version", default=DEFAULT, help="the folder's name: main, or a release such as 0.2.0")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site", metavar="FOLDER")
    options = parser.parse_args(arguments)
    if not is_version(options.version):
        parser.error(f"--version {options.version}: a version is main, or three numbers such as 0.2.0")
    try:
        build(ensure_environment(), options.version, options.output.absolute())
    except SiteError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"open {options.output / 'index.html'}")
    return 0


def is_version(name: str) -> bool:
    """Whether a folder of this name is one of the site's versions."""
    return name == DEFAULT or re.fullmatch(r"\d+\.\d+\.\d+", name) is not None


def ensure_environment() -> Path:
    """Return the Python that has what the lock says; make it where there is none."""
    key = hashlib.sha256(LOCK.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = find_cache() / "site" / key
    python, stamp = folder / "bin" / "python", folder / "complete"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two builds at once: the second finds it done
        if not stamp.exists():
            _run([str(UV), "venv", "--quiet", "--clear", f"--python={sys.executable}", str(folder)])
            install = ["pip", "install", "--quiet", "--require-hashes", f"--python={python}", f"--requirement={LOCK}"]
            _run([str(UV), *install])
            stamp.touch()
    return python


def build(python: Path, version: str, output: Path, configuration: Path = CONFIGURATION) -> None:
    """Build a version into its folder, then the index of all. python: the one that has mkdocs."""
    words = ["build", "--strict", f"--config-file={configuration}", f"--site-dir={output / version}"]
    _run([str(python), "-m", "mkdocs", *words], FAIRBIND_SITE_VERSION=version)
    versions = sort_versions([path.name for path in output.iterdir() if path.is_dir() and is_version(path.name)])
    listed = [{"version": each, "title": each, "aliases": []} for each in versions]
    (output / "versions.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    (output / "index.html").write_text(compute_index(versions), encoding="utf-8")


def sort_versions(names: list[str]) -> list[str]:
    """Return versions with the newest release first, main last.

    >>> sort_versions(["0.9.0", "main", "0.10.0"])
    ['0.10.0', '0.9.0', 'main']
    """
    releases = [name for name in names if name != DEFAULT]
    releases.sort(key=lambda name: [int(part) for part in name.split(".")], reverse=True)
    return [*releases, *(name for name in names if name == DEFAULT)]


def compute_index(versions: list[str]) -> str:
    """Return the page that leads to the first of the versions."""
    links = "".join(f'<li><a href="{html.escape(each)}/index.html">{html.escape(each)}</a></li>' for each in versions)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>fairbind</title>'
        f'<meta http-equiv="refresh" content="0; url={html.escape(versions[0])}/index.html">'
        f"<h1>fairbind</h1><ul>{links}</ul></html>\n"
    )


def _run(words: list[str], **settings: str) -> None:
    environment = os.environ | {"UV_PYTHON_DOWNLOADS": "never", "NO_MKDOCS_2_WARNING": "1"} | settings
    try:
        done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise SiteError(f"{words[0]}: {error}") from error
    if done.returncode != 0:
        raise SiteError(f"{' '.join(words[:4])} ...\n{(done.stdout + done.stderr).strip()}")


if __name__ == "__main__":
    sys.exit(main())
