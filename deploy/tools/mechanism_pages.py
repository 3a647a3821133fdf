"""The parts of docs/mechanisms that follow from the code: examples with their output, pictures and what is promised.

A page is written by hand around blocks of the form

    <!-- made: example -->
    ...
    <!-- end -->

which `compute_pages` writes. What differs only by what a solver may round otherwise on another day stays as it is.
A picture is drawn again only when the numbers in it have changed: they are kept beside it, in examples/numbers.json,
because solvers may round the last digit otherwise.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from fairbind.cli import commands
from fairbind.fairness.mechanisms.guarantees import GUARANTEES, split_assumptions
from fairbind.fairness.mechanisms.mechanism import Guarantee, Mechanism, Option, Standing
from fairbind.fairness.mechanisms.registry import MECHANISMS
from fairbind.fairness.problems.allocation import Allocation
from fairbind.fairness.problems.parse import parse_problem
from fairbind.fairness.problems.problem import Problem
from fairbind.fairness.properties import PROPERTIES
from fairbind.fairness.properties.strategy import compute_true_tasks, read_lie
from fairbind.fairness.solve import compute_allocation
from pictures.mechanisms import draw_mechanisms

FOLDER = Path("docs") / "mechanisms"
NUMBERS = "numbers.json"
CLOSE_ENOUGH = 1e-6  # of a tenant's tasks: solvers may differ by less from one version to the next
PRINTED = 2e-4  # a table has four decimals
MARKS = "(),;:%"
RULE = re.compile(r"(?<!\S)-+(?!\S)")

# Beside which mechanisms each page's picture shows its own.
BESIDE: Mapping[str, tuple[str, ...]] = {
    "drf": ("asset-fairness", "ceei"),
    "asset-fairness": ("drf",),
    "ceei": ("drf", "asset-fairness"),
    "drfh": ("ps-dsf",),
    "per-server-drf": ("drfh",),
    "tsf": ("drfh", "per-server-drf"),
    "ps-dsf": ("drfh", "tsf"),
    "alpha-pf-vds": ("ps-dsf", "drfh"),
    "drbf": ("drf",),
    "dynamic-drf": (),
}
OPTION_WORDS: Mapping[Option, str] = {
    Option.WEIGHT: "weights",
    Option.RESOURCE_WEIGHTS: "weights per resource",
    Option.TASKS: "finite tasks",
    Option.SERVERS: "several servers",
    Option.ELIGIBLE: "eligibility",
    Option.DIVISIBLE: "servers shared by time",
    Option.ALPHA: "alpha",
    Option.UTILITY: "a utility",
    Option.EXPECTED_TENANTS: "expected tenants",
    Option.TREE: "trees with guarantees and limits",
}
STANDING_WORDS: Mapping[Standing, str] = {
    Standing.PROVED: "yes",
    Standing.FAILS: "**no**",
    Standing.NOT_REFUTED: "never refuted",
}
BLOCK = re.compile(r"(?P<start><!-- made: (?P<name>[a-z-]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def compute_pages(root: Path) -> dict[Path, str]:
    """Return the text of every page about mechanisms, by path, with its blocks as they should be."""
    pages = {}
    for path in sorted((root / FOLDER).glob("*.md")):
        write = partial(_write_block, root=root, name=path.stem)
        pages[path] = BLOCK.sub(write, path.read_text(encoding="utf-8"))
    return pages


def _write_block(match: re.Match[str], *, root: Path, name: str) -> str:
    blocks = INDEX_BLOCKS if name == "README" else PAGE_BLOCKS
    made = f"{match['start']}{blocks[match['name']](root, name)}\n{match['end']}"
    return match[0] if has_same_numbers(made, match[0]) else made


def has_same_numbers(ours: str, kept: str) -> bool:
    r"""Whether two texts have the same words and nearly the same numbers; rules and gaps of tables may differ.

    >>> has_same_numbers("tasks  3.0000\n-----  ------", "tasks 3\n----- -"), has_same_numbers("3", "3.001")
    (True, False)
    """
    words, kept_words = (RULE.sub("", text).split() for text in (ours, kept))
    return len(words) == len(kept_words) and all(map(_is_same_word, words, kept_words))


def _is_same_word(ours: str, kept: str) -> bool:
    if ours == kept:
        return True
    try:
        ours_value, kept_value = float(ours.strip(MARKS)), float(kept.strip(MARKS))
    except ValueError:
        return False
    return math.isclose(ours_value, kept_value, rel_tol=PRINTED, abs_tol=CLOSE_ENOUGH)


def find_stale_pictures(root: Path) -> list[str]:
    """Return the ids of the mechanisms whose picture is missing or shows other numbers than come out now."""
    folder = root / FOLDER / "examples"
    if not folder.exists():
        return []
    kept = json.loads((folder / NUMBERS).read_text(encoding="utf-8")) if (folder / NUMBERS).exists() else {}
    return [
        name
        for name in BESIDE
        if not (folder / f"{name}.svg").exists() or not is_close(compute_numbers(root, name), kept.get(name))
    ]


def draw_pictures(root: Path, names: list[str]) -> None:
    """Draw the pictures of these mechanisms, and keep the numbers in them."""
    folder = root / FOLDER / "examples"
    for name in names:
        problem = parse_problem(json.loads((root / example_of(name)).read_text(encoding="utf-8")))
        allocations = [compute_allocation(problem, mechanism) for mechanism in (name, *BESIDE[name])]
        (folder / f"{name}.svg").write_text(draw_mechanisms(allocations), encoding="utf-8")
    numbers = {name: compute_numbers(root, name) for name in BESIDE}
    (folder / NUMBERS).write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def compute_numbers(root: Path, name: str) -> dict[str, Any]:
    """Return what the picture of a mechanism's page shows: tasks by mechanism, tenant and server."""
    problem = parse_problem(json.loads((root / example_of(name)).read_text(encoding="utf-8")))
    numbers = {}
    for mechanism in (name, *BESIDE[name]):
        allocation = compute_allocation(problem, mechanism)
        servers = allocation.problem.server_names
        numbers[mechanism] = {
            tenant: {server: float(f"{tasks:.9g}") for server, tasks in zip(servers, row, strict=True)}
            for tenant, row in zip(problem.tenant_names, allocation.tasks_ik.tolist(), strict=True)
        }
    return numbers


def is_close(ours: Any, kept: Any) -> bool:
    """Whether two trees have the same names and nearly the same numbers."""
    if isinstance(ours, Mapping):
        return (
            isinstance(kept, Mapping)
            and ours.keys() == kept.keys()
            and all(is_close(value, kept[name]) for name, value in ours.items())
        )
    return isinstance(kept, int | float) and math.isclose(ours, kept, rel_tol=CLOSE_ENOUGH, abs_tol=CLOSE_ENOUGH)


def example_of(name: str) -> str:
    """Return the path of a mechanism's example below the root, as a reader would type it."""
    return (FOLDER / "examples" / f"{name}.json").as_posix()


def make_example(root: Path, name: str) -> str:
    """Return the problem, the command and what it prints, and the picture."""
    problem = (root / example_of(name)).read_text(encoding="utf-8").rstrip()
    allocate = ["allocate", example_of(name), "--mechanism", name, "--output", "table"]
    beside = _join([f"`{other}`" for other in BESIDE[name]])
    compare = " ".join(["fairbind", "compare", example_of(name), *_mechanism_options(name)])
    return "\n".join(
        [
            f"[`examples/{name}.json`](examples/{name}.json):",
            "",
            *("```json", problem, "```", ""),
            *("```console", f"$ fairbind {' '.join(allocate)}", _run(root, allocate), "```", ""),
            f"![Tasks under {name}{f' beside {beside}' if beside else ''}](examples/{name}.svg)".replace("`", ""),
            "",
            "1.0 is what the tenant would run on its weight's part of every server that it may use. The numbers:",
            f"`{compare}`.",
        ]
    )


def make_properties(_root: Path, name: str) -> str:
    """Return the table of what is known about a mechanism's promises, and the counterexamples."""
    guarantees = GUARANTEES[name]
    rows = [
        f"| {PROPERTIES[one].name} | {show_standing(guarantee)} | {guarantee.source} |"
        for one, guarantee in guarantees.items()
    ]
    lines = ["| property | holds | source |", "|---|---|---|", *rows]
    shown = [
        f"- {PROPERTIES[one].name}: {show_counterexample(name, one, guarantee.counterexample)}"
        for one, guarantee in guarantees.items()
        if guarantee.counterexample
    ]
    if shown:
        lines += ["", "Where it does not hold (capacities and demands are `<cpu, memory>`):", "", *shown]
    return "\n".join(lines)


def show_standing(guarantee: Guarantee) -> str:
    """Return what is known, with the assumptions."""
    word = STANDING_WORDS[guarantee.standing]
    assumed = _join(list(split_assumptions(guarantee)))
    if not assumed:
        return word
    return f"when {assumed}" if guarantee.standing is Standing.PROVED else f"{word}, but when {assumed}"


def show_counterexample(mechanism: str, name: str, example: Mapping[str, Any]) -> str:
    """Return a stored counterexample in a line: the problem and who gets hurt."""
    problem = parse_problem(example["problem"])
    options = example.get("options", {})
    allocation = compute_allocation(problem, mechanism, **options)
    if "lies" in example:
        text = show_lies(example["lies"], allocation, **options)
    else:
        witness = PROPERTIES[name].find(problem, mechanism, allocation, **options)
        if witness is None:
            raise RuntimeError(f"{mechanism}: the counterexample to {name} shows nothing")
        text = witness.text
    return f"`{show_problem(example['problem'])}{_show_options(options)}`: {text}."


def show_problem(document: Mapping[str, Any]) -> str:
    """Return a small problem in a line."""

    def show(amounts: Mapping[str, float]) -> str:
        return f"<{', '.join(f'{amounts.get(name, 0):g}' for name in document['resources'])}>"

    servers = [f"{server['name']} {show(server['capacity'])}" for server in document["servers"]]
    tenants = []
    for tenant in document["tenants"]:
        words = [f"{tenant['name']} {show(tenant['demand'])}"]
        words += [f"weight {tenant['weight']:g}"] if "weight" in tenant else []
        words += [f"{tenant['tasks']:g} tasks"] if "tasks" in tenant else []
        words += [f"only on {_join(tenant['eligible'])}"] if "eligible" in tenant else []
        tenants.append(" ".join(words))
    expected = f"; {document['expectedTenants']} tenants expected" if "expectedTenants" in document else ""
    return f"{', '.join(servers)}; {', '.join(tenants)}{expected}"


def show_lies(told: Sequence[Mapping[str, Any]], truth: Allocation, **options: float) -> str:
    """Return who says what and gains how much."""
    problem = truth.problem
    lies = [read_lie(problem, one) for one in told]
    gained = compute_true_tasks(problem, truth.mechanism, lies, **options)
    return ", and ".join(
        show_lie(one, problem, float(truth.totals_i[lie.tenant]), tasks)
        for one, lie, tasks in zip(told, lies, gained, strict=True)
    )


def show_lie(told: Mapping[str, Any], problem: Problem, honest: float, gained: float) -> str:
    """Return what one tenant says and gains."""
    said = []
    if "demand" in told:
        amounts = ", ".join(f"{told['demand'].get(name, 0):g}" for name in problem.resources)
        said.append(f"needs `<{amounts}>`")
    if "eligible" in told:
        said.append(f"may only use {_join(told['eligible'])}")
    more = f"{100 * (gained / honest - 1):.0f} %"
    return (
        f"{told['tenant']} runs {honest:.4g} tasks, and {gained:.4g} when it says that it {_join(said)} ({more} more)"
    )


def make_facts(_root: Path, name: str) -> str:
    """Return where a mechanism comes from and which options it takes."""
    mechanism = MECHANISMS[name]
    taken = _join(_list_options(mechanism))
    section = f"section {mechanism.section}" if mechanism.section[:1].isdigit() else mechanism.section
    return f"- Paper: {mechanism.paper}, {section}.\n- Takes: {taken or 'no options'}."


def make_list(_root: Path, _name: str) -> str:
    """Return the table of all mechanisms."""
    rows = [
        f"| [`{mechanism.id}`]({mechanism.id}.md) | {mechanism.name} | {_join(_list_options(mechanism))} |"
        for mechanism in MECHANISMS.values()
    ]
    return "\n".join(["| id | mechanism | takes |", "|---|---|---|", *rows])


def make_matrix(_root: Path, _name: str) -> str:
    """Return what is known of every property of every mechanism."""
    names = list(MECHANISMS)
    known = [one for one in PROPERTIES if any(one in GUARANTEES[name] for name in names)]
    rows = []
    for one in known:
        cells = [show_cell(GUARANTEES[name].get(one)) for name in names]
        rows.append(f"| {PROPERTIES[one].name} | {' | '.join(cells)} |")
    heads = " | ".join(f"[`{name}`]({name}.md)" for name in names)
    return "\n".join([f"| property | {heads} |", f"|---|{'---|' * len(names)}", *rows])


def show_cell(guarantee: Guarantee | None) -> str:
    """Return a word for a cell of the table of all."""
    if guarantee is None:
        return ""
    return (
        "partly"
        if guarantee.standing is not Standing.NOT_REFUTED and guarantee.assumptions
        else STANDING_WORDS[guarantee.standing]
    )


PAGE_BLOCKS: Mapping[str, Callable[[Path, str], str]] = {
    "facts": make_facts,
    "example": make_example,
    "properties": make_properties,
}
INDEX_BLOCKS: Mapping[str, Callable[[Path, str], str]] = {"list": make_list, "matrix": make_matrix}


def _show_options(options: Mapping[str, float]) -> str:
    return "".join(f"; {name} {value:g}" for name, value in options.items())


def _list_options(mechanism: Mechanism) -> list[str]:
    return [word for option, word in OPTION_WORDS.items() if option in mechanism.options]


def _mechanism_options(name: str) -> Iterator[str]:
    for mechanism in (name, *BESIDE[name]):
        yield from ("--mechanism", mechanism)


def _run(root: Path, arguments: list[str], *further: str) -> str:
    """Return what a command prints; its file is named as seen from the root."""
    command, file, *options = arguments
    outcome = CliRunner().invoke(commands, [command, str(root / file), *options, *further], catch_exceptions=False)
    if outcome.exit_code != 0:
        raise RuntimeError(f"fairbind {' '.join(arguments)}: {outcome.output}")
    return "\n".join(line.rstrip() for line in outcome.stdout.rstrip().splitlines())


def _join(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
