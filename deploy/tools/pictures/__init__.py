"""The pictures of the guides, made from the code: the same code gives the same bytes.

They are SVG written as text, so that a change of a decision shows as drift and no drawing library decides about bytes.
`deploy/tools/docs.py` writes and checks them.
"""

from __future__ import annotations

from pathlib import Path

from pictures.architecture import draw_architecture
from pictures.diagrams import draw_decision_tree, draw_way_of_a_pod
from pictures.nodes import draw_nodes
from pictures.shares import draw_shares


def compute_pictures(root: Path) -> dict[Path, str]:
    """Return the text of every picture, by path."""
    folder = root / "docs" / "images"
    return {
        folder / "architecture.svg": draw_architecture(),
        folder / "shares.svg": draw_shares(),
        folder / "totals.svg": draw_nodes(),
        folder / "pod.svg": draw_way_of_a_pod(),
        folder / "policies.svg": draw_decision_tree(),
    }
