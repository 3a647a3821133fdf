"""The page of a run of attacks, made from its lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from e2e.modes import BIND
from recorded import describe_age

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reliability" / "adversary.md"
TEMPLATE = Path(__file__).with_name("page.template")
Line = dict[str, Any]


def write_page(folder: Path, page: Path = PAGE) -> None:
    """Write the page of all runs whose lines are in a folder, one for each size."""
    runs = {path.name: read_lines(path) for path in folder.glob("adversary*.jsonl")}
    by_size = sorted(runs.items(), key=lambda item: (item[1][0]["nodes"], item[0]))
    parts = [make_part(lines[0], lines[1:], f"results/{name}") for name, lines in by_size]
    page.write_text(TEMPLATE.read_text(encoding="utf-8").replace("{runs}", "\n\n".join(parts)), encoding="utf-8")


def renew(recorded: Path, tried: Path) -> None:
    """Put what was tried again into what is recorded; its lines say of which day and commit, and what was found before.

    Raises ValueError when it was tried at another size or in another way.
    """
    (head, *lines), (new_head, *new_lines) = read_lines(recorded), read_lines(tried)
    about = {"day": new_head.pop("day"), "commit": new_head.pop("commit")}
    differing = [
        f"{name} {new_head[name]} instead of {head.get(name)}"
        for name in new_head
        if new_head[name] != head.get(name, BIND if name == "mode" else None)
    ]
    if differing:
        raise ValueError(f"what is recorded in {recorded.name} cannot be renewed: {', '.join(differing)}")
    renewed = {(line["row"], line["name"]): line for line in new_lines}
    for place, line in enumerate(lines):
        again = renewed.pop((line["row"], line["name"]), None)
        if again is not None:
            before = line.get("again", {}).get("before", line["found"])
            lines[place] = again | {"again": about | {"before": before}}
    text = "\n".join(map(json.dumps, (head, *lines, *renewed.values())))
    recorded.write_text(text + "\n", encoding="utf-8")


def read_lines(path: Path) -> list[Line]:
    """Return what is said of a run, and of what was tried in it."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def make_part(head: Line, lines: list[Line], link: str) -> str:
    """Return what the page says of one run. A note in its first line says how it came about."""
    scale = "" if head["scale"] == 1 else f", each attack at {head['scale']:.0%} of its whole size"
    mode = head.get("mode", BIND)
    title = f"## {head['nodes']:,} nodes, {head['tenants']:,} tenants{scale}" + (
        f", {mode} mode" if mode != BIND else ""
    )
    failed = sum(bool(line.get("again", {}).get("before", line["found"])) for line in lines)
    when = f"On {head['day']}, of commit {describe_age(head['commit'])}" if head.get("commit") else f"On {head['day']}"
    text = f"{when}: {len(lines)} tried, {len(lines) - failed} held, {failed} did not ([lines]({link}))."
    if head.get("probes"):
        rounds = f"{head['rounds']} round{'s' * (head['rounds'] > 1)}"
        text += f" Each p99 is of {head['probes']} pods, the least of {rounds}."
    notes = [head["note"]] if "note" in head else []
    return "\n\n".join([title, text, *notes, make_table(lines)])


def make_table(lines: list[Line]) -> str:
    """Return a row for each."""
    rows = [
        "| row | what | p99 without (ms) | with (ms) | longest pause of the lease (s) | memory (MiB) | verdict |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for line in lines:
        times = [f"{line[name] * 1000:.0f}" if line[name] is not None else "" for name in ("without", "during")]
        ordinary = line.get("ordinary")
        times[0] += f"; {ordinary * 1000:.0f} beside ordinary pods" if ordinary else ""
        if line.get("alone") and line.get("alone_during"):
            for place, name in enumerate(("alone", "alone_during")):
                times[place] += f"; {line[name] * 1000:.0f} of kube-scheduler alone"
        rest = [f"{line[name]:.1f}" if line[name] is not None else "" for name in ("pause", "memory")]
        figures = (
            ", ".join(f"{name} {value}" for name, value in line["figures"].items()) if line["row"] == "theft" else ""
        )
        verdict = "; ".join(line["found"]) or "held"
        verdict += f" ({figures})" if figures else ""
        if again := line.get("again"):
            verdict += f" when tried again on {again['day']}, of commit {again['commit']}"
            verdict += f"; before: {'; '.join(again['before'])}" if again["before"] else ""
        rows.append(f"| {' | '.join([line['row'], line['name'], *times, *rest, verdict])} |")
    return "\n".join(rows)
