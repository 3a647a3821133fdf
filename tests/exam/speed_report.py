"""From raw results of the throughput cases to the table and the page that people read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from math import hypot, sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from exam.cases import PLAIN
from exam.timeline import Spent
from perf.report import OURS, THEIRS
from perf.report import render_table as align

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"
RESULTS = FOLDER / "results" / "exam.json"
LARGE_RESULTS = FOLDER / "results" / "exam-5000-nodes.json"
PAGE = FOLDER / "exam.md"
TEMPLATE = Path(__file__).with_name("speed.template")
LEAST_RATIO, LEAST_PART = 1.0, 1 / 3
HEAD = [
    "case",
    "rounds",
    "kube-scheduler: pods/s, mean (least to most)",
    "fairbind",
    "times kube-scheduler",
    "of our plain case",
    "bound",
    "measured",
]
FEW_ROUNDS = 3
"""From so many rounds on, a ratio has a standard error."""
STEPS: Mapping[Spent, str] = {
    Spent.PODS: "the case creates pods",
    Spent.TRIED: "until all have been tried",
    Spent.NODES: "the case creates nodes, until they are ready",
    Spent.BOUND: "until all are bound",
}
MUCH = 0.1
"""Where more of the pods are bound in time that no step accounts for, that time has a row; nodes are changed in it."""
AFTER_NODES = (Spent.NODES, Spent.BOUND)
"""In these steps there is a place for pods that wait."""

Json = Mapping[str, Any]


def render_page(result: Json, large: Json | None = None) -> str:
    """Return the whole page. large: the result on 5,000 nodes."""
    text = {
        "day": str(result["date"])[:10],
        "machine": "{cpu}, {cores} cores, {memory_gib} GiB, {system}".format(**result["machine"]),
        "versions": ", ".join(f"{name} {version}" for name, version in result["versions"].items()),
        "minutes": f"{result['seconds'] / 60:.0f}",
        "renewed": " Rows with another day or commit have been measured again since." if result.get("renewed") else "",
        "table": render_table(result),
        "below": render_below(result),
        "spent": render_spent(result),
        "processors": render_processors(result),
        "large": render_large(large) if large else "",
    }
    return re.sub(r"\{(\w+)\}", lambda match: text[match[1]], TEMPLATE.read_text(encoding="utf-8"))


def render_large(result: Json) -> str:
    """Return the section about the cases on 5,000 nodes."""
    day, version, name = str(result["date"])[:10], result["versions"][OURS], LARGE_RESULTS.name
    text = (
        "`make exam-perf LARGE=1` plays the cases that have a workload of 5,000 nodes, in one round where nothing else "
        "is asked for, with fairbind first. Most begin with 1,000 pods instead of 5,000; at most 1,000 are measured. "
        f"Measured on {day} with fairbind {version} ([{name}](results/{name})). {render_below(result)}"
    )
    parts = ["## On 5,000 nodes", text, render_table(result)]
    return "\n\n".join(parts) + "\n\n"


def render_table(result: Json) -> str:
    """Return a row for each case, as Markdown."""
    rows = []
    for case in list_cases(result):
        ours, plain = compute_mean(result, case, OURS), compute_plain(result, case, OURS)
        rows.append(
            [
                case,
                str(len(select(result, case, OURS))),
                describe_rates(result, case, THEIRS),
                describe_rates(result, case, OURS),
                describe_ratio(result, case),
                f"{ours / plain:.0%}" if plain else "",
                describe_bound(result, case),
                describe_origin(result, case),
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


def compute_plain(result: Json, case: str, who: str) -> float:
    """Return the mean rate of the plain case that a case stands beside: of the same commit, where there is one."""
    earlier = result.get("plains", {}).get(find_version(result, case), [])
    return compute_mean({"runs": earlier} if earlier else result, PLAIN, who)


def find_version(result: Json, case: str) -> str:
    """Return the version of fairbind with which a case was measured last.

    A tree in which something was changed counts as its commit: the case before has changed the recorded result.
    """
    return str(result.get("renewed", {}).get(case, result["versions"])[OURS]).replace("-dirty", "")


def describe_rates(result: Json, case: str, who: str) -> str:
    """Return the mean rate of all rounds, and the least and the greatest."""
    rates = [compute_rate(run) for run in select(result, case, who)]
    if len(rates) < 2:
        return "".join(f"{rate:.0f}" for rate in rates)
    return f"{sum(rates) / len(rates):.0f} ({min(rates):.0f} to {max(rates):.0f})"


def describe_ratio(result: Json, case: str) -> str:
    """Return the ratio of both mean rates, with its standard error where there are enough rounds."""
    ours, theirs = (compute_mean(result, case, who) for who in (OURS, THEIRS))
    if not theirs:
        return ""
    error = compute_ratio_error(result, case)
    return f"{ours / theirs:.2f}" + ("" if error is None else f" ± {error:.2f}")


def compute_ratio_error(result: Json, case: str) -> float | None:
    """Return the standard error of the ratio of both mean rates; None where there are too few rounds."""
    samples = [[compute_rate(run) for run in select(result, case, who)] for who in (OURS, THEIRS)]
    if min(map(len, samples)) < FEW_ROUNDS or not all(map(fmean, samples)):
        return None
    ours, theirs = map(fmean, samples)
    return ours / theirs * hypot(*(stdev(rates) / sqrt(len(rates)) / fmean(rates) for rates in samples))


def describe_origin(result: Json, case: str) -> str:
    """Return on which day a case was measured, and at which commit."""
    day = str(result.get("renewed", {}).get(case, result)["date"])[:10]
    commit = re.search(r"\((.*)\)", find_version(result, case))
    return f"{day} {commit[1]}" if commit else day


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
    found = []
    for case in list_cases(result):
        ours, theirs = (compute_mean(result, case, who) for who in (OURS, THEIRS))
        plain, their_plain = (compute_plain(result, case, who) for who in (OURS, THEIRS))
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


def render_spent(result: Json) -> str:
    """Return what the time goes into, for each case that does more than create pods and wait until they are bound."""
    parts = []
    for case in list_cases(result):
        rows = list_steps(result, case)
        if any(row[0] in {STEPS[Spent.TRIED], STEPS[Spent.NODES]} for row in rows):
            head = [
                f"{case}: mean of a round",
                *(f"{who}: {what}" for who in (THEIRS, OURS) for what in ("s", "bound")),
            ]
            parts.append(align(head, rows))
    return "\n\n".join(parts)


def render_processors(result: Json) -> str:
    """Return what the programs took of the processors in the cases that are below the plain case."""
    parts = []
    for case in dict.fromkeys(case for case, _ in find_below(result)):
        uses = {who: [run["cpu"] for run in select(result, case, who) if "cpu" in run] for who in (THEIRS, OURS)}
        if all(uses.values()):
            head = [f"{case}: seconds of all processors together, mean of a round", *uses]
            parts_of_others = [compute_part_of_others(rounds, who) for who, rounds in uses.items()]
            rates = [compute_mean(result, case, who) for who in uses]
            reached = [rate / part for rate, part in zip(rates, parts_of_others, strict=True)]
            last = ["pods/s, if the scheduler took nothing", *(f"{rate:.0f}" for rate in reached)]
            parts.append(align(head, [*_list_uses(list(uses.values())), last]))
    return "\n\n".join(parts)


def compute_part_of_others(uses: Iterable[Json], who: str) -> float:
    """Return which part of what all programs took of the processors was not the scheduler's."""
    taken: list[Mapping[str, float]] = [use["by_process"] for use in uses]
    whole = sum(sum(seconds.values()) for seconds in taken)
    return 1.0 - sum(seconds.get(who, 0.0) for seconds in taken) / whole


def _list_uses(uses: Sequence[Sequence[Json]]) -> list[list[str]]:
    """Return a row for each program, those that took most first, and how long and how busy the machine was."""

    def average(key: str) -> list[float]:
        return [fmean(use["by_process"].get(key, 0.0) for use in rounds) for rounds in uses]

    programs = {name: average(name) for rounds in uses for use in rounds for name in use["by_process"]}
    rows = [
        [name, *(f"{seconds:.0f}" if seconds else "" for seconds in row)]
        for name, row in sorted(programs.items(), key=lambda pair: -sum(pair[1]))
    ]
    lengths = [f"{fmean(use['seconds'] for use in rounds):.0f}" for rounds in uses]
    busy = [f"{fmean(use['busy'] for use in rounds):.0%}" for rounds in uses]
    return [*rows, ["the round lasted, s", *lengths], ["of all processors, busy", *busy]]


def list_steps(result: Json, case: str) -> list[list[str]]:
    """Return a row for each kind of step in the measured time: seconds and pods bound meanwhile, and the rates."""
    spent = {who: compute_spent(result, case, who) for who in (THEIRS, OURS)}
    rows = [
        [text, *(cell for who in spent for cell in _describe_spent(spent[who].get(step, (0.0, 0.0))))]
        for step, text in STEPS.items()
        if any(step in steps for steps in spent.values())
    ]
    rest = [compute_rest(result, case, who) for who in spent]
    if max(bound for _, bound in rest) > MUCH * count_bound(select(result, case, OURS)[0]):
        rows.append(["the case changes nodes", *(cell for each in rest for cell in _describe_spent(each))])
        return rows
    rates = [_compute_rate_after_nodes(steps) for steps in spent.values()]
    if all(rates):
        rows.append(["pods/s of the last two", *(cell for rate in rates for cell in (f"{rate:.0f}", ""))])
    return rows


def compute_spent(result: Json, case: str, who: str) -> dict[str, tuple[float, float]]:
    """Return how many seconds each kind of step took and how many pods were bound meanwhile, in the mean of rounds."""
    runs = select(result, case, who)
    sums: dict[str, tuple[float, float]] = {}
    for run in runs:
        for part in run["parts"]:
            for step, spent in part.get("spent", {}).items():
                seconds, bound = sums.get(step, (0.0, 0.0))
                sums[step] = seconds + spent["seconds"] / len(runs), bound + spent["bound"] / len(runs)
    return sums


def compute_rest(result: Json, case: str, who: str) -> tuple[float, float]:
    """Return how many seconds no step accounts for and how many pods were bound then, in the mean of rounds."""
    runs, steps = select(result, case, who), compute_spent(result, case, who).values()
    parts = [part for run in runs for part in run["parts"] if "spent" in part]
    whole = [sum(part[what] for part in parts) / max(len(runs), 1) for what in ("seconds", "bound")]
    return whole[0] - sum(seconds for seconds, _ in steps), whole[1] - sum(bound for _, bound in steps)


def _compute_rate_after_nodes(spent: Mapping[str, tuple[float, float]]) -> float:
    if Spent.NODES not in spent:
        return 0.0
    found = [spent[step] for step in AFTER_NODES if step in spent]
    seconds = sum(seconds for seconds, _ in found)
    return sum(bound for _, bound in found) / seconds if seconds else 0.0


def _describe_spent(spent: tuple[float, float]) -> tuple[str, str]:
    seconds, bound = spent
    return f"{seconds:.1f}", f"{bound:,.0f}"


def _list(title: str, items: Iterable[str]) -> list[str]:
    return [title, "", *(f"- {item}" for item in items)]
