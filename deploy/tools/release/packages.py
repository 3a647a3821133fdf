"""The Python packages, the chart's package and the raw results of a release."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from fairbind import __version__
from release.archives import compress, rewrite_tar, write_tar
from release.failures import ReleaseError
from release.sources import run

RESULTS = ("docs/benchmarks/results/**/*", "docs/reliability/results/**/*", "docs/reproduction/*.csv")
"""Raw results: pages show what follows from them, and the site leaves them out."""


def build_distributions(tree: Path, folder: Path, epoch: int, **settings: str) -> None:
    """Build the source distribution, and the wheel from it, into a folder.

    Wheels follow SOURCE_DATE_EPOCH; source distributions have the times of their files, so they are written again.
    """
    made = tree.parent / f"{tree.name}-distributions"
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(made), str(tree)]
    run(words, tree, SOURCE_DATE_EPOCH=str(epoch), **settings)
    wheels, archives = sorted(made.glob("*.whl")), sorted(made.glob("*.tar.gz"))
    if len(wheels) != 1 or len(archives) != 1:
        raise ReleaseError(f"one wheel and one source distribution are expected, not {[*wheels, *archives]}")
    (folder / wheels[0].name).write_bytes(wheels[0].read_bytes())
    rewrite_tar(archives[0], folder / archives[0].name, epoch, compressed=True)


def build_chart(tree: Path, folder: Path, epoch: int, helm: str, **settings: str) -> None:
    """Package the chart by helm, into a folder; the archive is written again, since helm notes when it was made."""
    made = tree.parent / f"{tree.name}-chart"
    made.mkdir()
    run([helm, "package", "charts/fairbind", "--destination", str(made)], tree, **settings)
    (package,) = made.iterdir()
    rewrite_tar(package, folder / package.name, epoch, compressed=True)


def build_results(tree: Path, folder: Path, epoch: int) -> None:
    """Pack the raw results of all measurements, under their paths in the repository."""
    made = tree.parent / f"{tree.name}-results"
    for pattern in RESULTS:
        found = [path for path in tree.glob(pattern) if path.is_file()]
        if not found:
            raise ReleaseError(f"there are no results in {pattern}")
        for path in found:
            target = made / path.relative_to(tree)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    archive = made.with_suffix(".tar")
    write_tar(made, archive, epoch)
    compress(archive, folder / f"fairbind-{__version__}-results.tar.gz")
