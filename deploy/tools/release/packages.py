"""The Python packages and the chart's package of a release."""

from __future__ import annotations

import sys
from pathlib import Path

from release.archives import rewrite_tar
from release.failures import ReleaseError
from release.sources import run


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
