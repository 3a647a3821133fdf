"""The page of a run of faults, made from its lines."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e2e.modes import BIND
from recorded import count_commits_since

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability" / "faults.md"
TEMPLATE = Path(__file__).with_name("page.template")
Line = dict[str, Any]


def read_lines(results: Path) -> tuple[list[Line], list[Line]]:
    """Return what is said of the runs of a file, and their faults, each with its run's seed and mode."""
    heads: list[Line] = []
    faults: list[Line] = []
    for text in results.read_text(encoding="utf-8").splitlines():
        line = json.loads(text)
        if "seed" in line:
            heads.append({"mode": BIND, **line, "faults": []})
        else:
            fault = {**line, "seed": heads[-1]["seed"], "mode": heads[-1]["mode"]}
            heads[-1]["faults"].append(fault)
            faults.append(fault)
    return [head for head in heads if head["faults"]], faults


def write_page(results: Path, page: Path = PAGE) -> None:
    """Write the page."""
    page.write_text(make_page(*read_lines(results), f"results/{results.name}"), encoding="utf-8")


def make_page(heads: list[Line], faults: list[Line], link: str) -> str:
    """Return the page."""
    text = TEMPLATE.read_text(encoding="utf-8")
    filled = {
        "results": link,
        "runs": make_runs(heads),
        "tried": describe_tried(faults),
        "count": f"{len(faults):,}",
        "minutes": f"{sum(map(compute_seconds, heads)) / 60:.0f}",
        "binds": f"{sum(line['binds'] for line in faults):,}",
        "changes": f"{sum(line['changes'] for line in faults):,}",
        "twice": f"{sum('bound twice' in what for line in faults for what in line['found']):,}",
        "torn": f"{sum(line.get('torn', 0) for line in faults):,}",
        "grouped": f"{sum('torn' in line for line in faults if line['mode'] == BIND):,}",
        "verdicts": describe_verdicts(faults),
        "table": make_table(faults),
        "broken": make_list(faults),
    }
    for name, value in filled.items():
        text = text.replace("{" + name + "}", value)
    return text


def compute_seconds(head: Line) -> float:
    """Return how long a run took, its start included."""
    seconds: float = max(line["at"] + line["seconds"] + (line["steady"] or 0.0) for line in head["faults"])
    return seconds


def make_runs(heads: Iterable[Line]) -> str:
    """Return a row for each run: what was drawn, of which code, how fast, and what is noted of it."""
    rows = [
        "| mode | seed | numbers | day | commit | commits since | faults | held | at once | seconds each | note |",
        "| --- | ---: | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for head in heads:
        lines = head["faults"]
        numbers = [line["number"] for line in lines]
        held = sum(line["verdict"] == "held" for line in lines)
        rate = compute_seconds(head) / len(lines)
        commit = head.get("commit", "") + (f" beside {head['other']}" if head.get("other") else "")
        since = count_commits_since(head.get("commit", ""))
        cells = [head["mode"], head["seed"], f"{min(numbers)} to {max(numbers)}", head["day"], commit]
        cells += [
            "" if since is None else since,
            len(lines),
            held,
            head.get("worlds", 1),
            f"{rate:.1f}",
            head.get("note", ""),
        ]
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(rows)


def describe_tried(faults: list[Line]) -> str:
    """Return for each seed how many of its numbers were tried, up to the largest: a run that ends early leaves gaps."""
    numbers: dict[tuple[str, int], set[int]] = defaultdict(set)
    for line in faults:
        numbers[line["mode"], line["seed"]].add(line["number"])
    parts = [
        f"{len(tried):,} of the first {max(tried) + 1:,} of seed {seed} in {mode} mode"
        for (mode, seed), tried in sorted(numbers.items())
    ]
    return "; ".join(parts)


def describe_verdicts(faults: list[Line]) -> str:
    """Return how many came to which verdict."""
    counts: dict[str, int] = defaultdict(int)
    for line in faults:
        counts[line["verdict"]] += 1
    return ", ".join(f"{count:,} {verdict}" for verdict, count in sorted(counts.items(), key=lambda pair: -pair[1]))


def make_table(faults: Iterable[Line]) -> str:
    """Return a row for each kind; two that overlapped count for both."""
    by_kind: dict[str, list[Line]] = defaultdict(list)
    for line in faults:
        for name in line["kind"].split(" + "):
            by_kind[name].append(line)
    head = "| fault | times | held | late | never steady | broken | median (s) | longest (s) |"
    rows = [head, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"]
    for name, lines in sorted(by_kind.items()):
        verdicts = [line["verdict"] for line in lines]
        steady = [line["steady"] for line in lines if line["steady"] is not None]
        counts = [verdicts.count(verdict) for verdict in ("held", "late", "never steady", "broken")]
        median = f"{statistics.median(steady):.1f}" if steady else ""
        longest = f"{max(steady):.1f}" if steady else ""
        rows.append(f"| {name} | {len(lines)} | {' | '.join(map(str, counts))} | {median} | {longest} |")
    return "\n".join(rows)


def make_list(faults: Iterable[Line]) -> str:
    """Return what did not hold, one by one."""
    items = [
        f"- {line['number']} of seed {line['seed']} in {line['mode']} mode, {line['kind']}: "
        + ("; ".join(line["found"][:2]) or describe_wait(line))
        + (f". {line['note']}" if line.get("note") else "")
        for line in sorted(faults, key=lambda line: (line["mode"], line["seed"], line["number"]))
        if line["verdict"] != "held"
    ]
    return "\n".join(items) if items else "Nothing."


def describe_waiting(line: Line) -> str:
    """Return for how long an operator waited for a processor, where that was measured."""
    return f", {line['waited']:.1f} s without a processor" if line.get("waited") else ""


def describe_wait(line: Line) -> str:
    """Return how long one took that held otherwise."""
    missing = "".join(f"; to the last, {what}" for what in line.get("missing", ())[:1])
    if line["steady"] is None:
        return f"not steady after three minutes{missing}"
    return (
        f"steady after {line['steady']:.1f} s, {line['stalls']:.1f} s of them stalls{describe_waiting(line)}{missing}"
    )
