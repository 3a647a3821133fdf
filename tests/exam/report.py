"""The page of an exam, made from its result."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from exam.specs import PASSED, Verdict

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability" / "exam.md"
TEMPLATE = Path(__file__).with_name("page.template")
Json = dict[str, Any]

WORDS = {
    Verdict.PASSED: "passes as with kube-scheduler",
    Verdict.EXCEPTED: "does not pass",
    Verdict.LEFT_OUT: "not run",
    Verdict.FAILED: "**fails**",
    Verdict.STALE: "**does not belong on the list**",
}
NOT_RUN = "it skips itself on such a cluster"


def render_page(result: Json) -> str:
    """Return the whole page."""
    counts = Counter(spec["verdict"] for spec in result["specs"])
    ran = [spec for spec in result["specs"] if spec["verdict"] != Verdict.LEFT_OUT]
    by_control = [spec for spec in ran if spec["control"]["state"] == PASSED]
    text = {
        "day": result["day"],
        "kubernetes": result["kubernetes"],
        "nodes": str(result["nodes"]),
        "seed": str(result["seed"]),
        "all": str(len(result["specs"])),
        "ran": str(len(ran)),
        "control": str(len(by_control)),
        "passed": str(counts[Verdict.PASSED]),
        "excepted": str(counts[Verdict.EXCEPTED]),
        "faults": str(counts[Verdict.FAILED] + counts[Verdict.STALE]),
        "renewed": render_renewed(result["specs"]),
        "table": "\n".join(render_row(spec) for spec in result["specs"]),
    }
    return re.sub(r"\{(\w+)\}", lambda match: text[match[1]], TEMPLATE.read_text(encoding="utf-8"))


def render_renewed(specs: list[Json]) -> str:
    """Return which specs ran again by themselves later, and with whom, as a sentence; nothing where none did."""
    renewed = [f"{spec['name']} ({spec['again']}, {spec['day']})" for spec in specs if "day" in spec]
    return f" Run again by themselves since: {', '.join(renewed)}." if renewed else ""


def render_row(spec: Json) -> str:
    """Return the row of a spec: its name, how long both took, what it says, and why."""
    times = [f"{spec[who]['seconds']:.0f}" if spec[who]["state"] == PASSED else "" for who in ("control", "fairbind")]
    why = spec["why"] or (NOT_RUN if spec["verdict"] == Verdict.LEFT_OUT else "")
    verdict = WORDS[Verdict(spec["verdict"])]
    return f"| {spec['name']} | {' | '.join(times)} | {verdict + (f': {why}' if why else '')} |"
