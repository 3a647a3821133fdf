"""From raw results of the throughput cases to the table and the page that people read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from exam.cases import PLAIN
from perf.report import OURS, THEIRS
from perf.report import render_table as align

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"
RESULTS = FOLDER / "results" / "exam.json"
PAGE = FOLDER / "exam.md"
TEMPLATE = Path(__file__).with_name("speed.template")
LEAST_RATIO, LEAST_PART = 1.0, 1 / 3
HEAD = [
    "case",
    "kube-scheduler: pods/s in each round",
    "fairbind",
    "times kube-scheduler",
    "of our plain case",
    "bound",
]

Json = Mapping[str, Any]


def render_page(result: Json) -> str:
    """Return the whole page."""
    text = {
        "day": str(result["date"])[:10],
        "machine": "{cpu}, {cores} cores, {memory_gib} GiB, {system}".format(**result["machine"]),
        "versions": ", ".join(f"{name} {version}" for name, version in result["versions"].items()),
        "minutes": f"{result['seconds'] / 60:.0f}",
        "rounds": str(result["rounds"]),
        "table": render_table(result),
        "below": render_below(result),
    }
    return re.sub(r"\{(\w+)\}", lambda match: text[match[1]], TEMPLATE.read_text(encoding="utf-8"))


def render_table(result: Json) -> str:
    """Return a row for each case, as Markdown."""
    plain = compute_mean(result, PLAIN, OURS)
    rows = []
    for case in list_cases(result):
        ours, theirs = (compute_mean(result, case, who) for who in (OURS, THEIRS))
        rows.append(
            [
                case,
                describe_rates(result, case, THEIRS),
                describe_rates(result, case, OURS),
                f"{ours / theirs:.2f}" if theirs else "",
                f"{ours / plain:.0%}" if plain else "",
                describe_bound(result, case),
            ]
        )
    return align(HEAD, rows)


def list_cases(result: Json) -> list[str]:
    """Return the cases in the order in which they were played."""
    return list(dict.fromkeys(run["case"] for run in result["runs"]))


def compute_rate(run: Json) -> float:
    """Return pods a second of a run: all that its measured parts bound, over their time."""
    seconds = sum(part["seconds"] for part in run["parts"])
    return sum(part["bound"] for part in run["parts"]) / seconds if seconds else 0.0


def select(result: Json, case: str, who: str) -> list[Json]:
    """Return the runs of one contender in one case."""
    return [run for run in result["runs"] if (run["case"], run["contender"]) == (case, who)]


def compute_mean(result: Json, case: str, who: str) -> float:
    """Return the mean rate in pods a second, 0 where there is none."""
    rates = [compute_rate(run) for run in select(result, case, who)]
    return sum(rates) / len(rates) if rates else 0.0


def describe_rates(result: Json, case: str, who: str) -> str:
    """Return the rates of all rounds."""
    return ", ".join(f"{compute_rate(run):.0f}" for run in select(result, case, who))


def describe_bound(result: Json, case: str) -> str:
    """Return how many pods were bound at least, of how many, where a scheduler left some; else how many there were."""
    runs = [run for who in (OURS, THEIRS) for run in select(result, case, who)]
    pods = sum(part["pods"] for part in runs[0]["parts"])
    fewest = {who: min(map(count_bound, select(result, case, who)), default=0) for who in (THEIRS, OURS)}
    lacking = [f"{who}: {bound:,}" for who, bound in fewest.items() if bound < pods]
    return f"{pods:,}" if not lacking else f"{'; '.join(lacking)} of {pods:,}"


def count_bound(run: Json) -> int:
    """Return how many pods of a run were bound."""
    return sum(part["bound"] for part in run["parts"])


def find_below(result: Json) -> list[tuple[str, str]]:
    """Return the cases in which fairbind does not reach what is wanted, and what it lacks."""
    plain, their_plain = (compute_mean(result, PLAIN, who) for who in (OURS, THEIRS))
    found = []
    for case in list_cases(result):
        ours, theirs = (compute_mean(result, case, who) for who in (OURS, THEIRS))
        if theirs and ours < LEAST_RATIO * theirs:
            found.append((case, f"{ours / theirs:.2f} x kube-scheduler"))
        if plain and ours < LEAST_PART * plain:
            beside = f"; kube-scheduler: {theirs / their_plain:.0%} of its own" if theirs and their_plain else ""
            found.append((case, f"{ours / plain:.0%} of our plain case{beside}"))
    return found


def render_below(result: Json) -> str:
    """Return what does not reach what is wanted, as a list or as one sentence."""
    found: Sequence[tuple[str, str]] = find_below(result)
    if not found:
        return "All cases reach both."
    return "\n".join(_list("Below that:", (f"{case}: {what}" for case, what in found)))


def _list(title: str, items: Iterable[str]) -> list[str]:
    return [title, "", *(f"- {item}" for item in items)]
