"""A cluster that stays when the terminal is closed: one for each folder, by default one for each clone.

Its name is a digest of the folder, so clones and folders do not meet. All that it keeps on this machine is in the
folder; the rest are containers, which the engine keeps.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from kindcluster import engine
from kindcluster.cluster import TOOLS, Cluster
from kindcluster.commands import ROOT, KindError
from kindcluster.images import Image, build_images, compute_clone
from localplane.tools import ensure_tools, print_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FOLDER = ROOT / ".local" / "kind"


def compute_name(folder: Path) -> str:
    """Return the name of the cluster that stays in a folder."""
    return f"fairbind-{compute_clone(folder.absolute())}"


def open_standing(folder: Path = FOLDER, *, report: Callable[[str], None] = print_line) -> Cluster:
    """Return the cluster of a folder, whether or not it runs; raise NoEngineError without an engine."""
    engine.check_engine()
    folder = folder.absolute()
    return Cluster(compute_name(folder), ensure_tools(TOOLS, report), folder=folder, report=report, stays=True)


def is_running(cluster: Cluster) -> bool:
    """Tell whether the cluster was made and its API server answers."""
    if not cluster.kubeconfig.exists() or cluster.name not in cluster.kind("get", "clusters").split():
        return False
    try:
        cluster.kubectl("get", "--raw=/readyz", "--request-timeout=10s")
    except KindError:
        return False
    return True


def bring_up(
    folder: Path = FOLDER, *, images: Sequence[Image] | None = None, report: Callable[[str], None] = print_line
) -> Cluster:
    """Make the cluster of a folder unless it runs, with images in its nodes, and return it.

    images: those to load, already built; both of this tree's, built now, when None.
    """
    cluster = open_standing(folder, report=report)
    if not is_running(cluster):
        cluster.delete()  # half of one may be left
        folder.mkdir(parents=True, exist_ok=True)
        cluster.start()
    cluster.load_images(images if images is not None else build_images(report))
    return cluster


def take_down(folder: Path = FOLDER, *, report: Callable[[str], None] = print_line) -> bool:
    """Remove the cluster of a folder and what it kept; tell whether there was one."""
    cluster = open_standing(folder, report=report)
    was_there = cluster.name in cluster.kind("get", "clusters").split()
    cluster.delete()
    shutil.rmtree(folder, ignore_errors=True)
    return was_there
