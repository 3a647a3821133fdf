"""The project says things in plain English: private words stay out of what people read.

A word of this list was a word of this project only, or made a sentence begin with a clause. Beside each stands what
says the same in the field's words.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from fairbind.cli import commands
from house.tree import find_files, name_of

PLAIN_WORDS = {
    "whoever": "a user who, the client that",
    "whomever": "the tenant that",
    "somebody": "a tenant, a user, another replica",
    "nobody": "no tenant, no user",
    "everybody": "each tenant, all",
    "anybody": "any tenant, other tenants",
    "straw": "weak baseline",
    "anew": "again",
    "mend": "fix",
    "mends": "fixes",
    "mended": "fixed",
    "alike": "equal, similar, both",
    "heed": "use",
    "heeds": "uses",
    "heeded": "used",
    "cannot be meant": "is invalid",
    "can be meant": "is valid",
    "to be had": "available",
    "unlike machines": "heterogeneous nodes",
    "unlike nodes": "heterogeneous nodes",
    "unlike servers": "heterogeneous servers",
}
TOLD_WORDS = {
    "room": "capacity, free capacity",
    "whose turn": "which tenant is next",
    "as ever": "as before, still",
    "at a look": "at a time",
    "but for": "except",
    "computed again": "recomputed",
    "held to": "checked against",
    "in its mind": "without effect",
    "in its stead": "instead",
    "is not believed": "is not trusted",
    "are not believed": "are not trusted",
    "stands behind": "backs",
    "nothing of a": "only ... of a; has no effect",
    "unlike machine": "heterogeneous nodes",
}
"""Words that stay out of what users read: in code a turn is what a pod has, `fairbind.io/turn`."""
MOST_WORDS = 40
"""In a sentence that users read; most have fewer than 25."""

FORMER_WORDS = {
    "books": "state",
    "crowd": "windowed; overcommitted",
    "crowded": "windowed; overcommitted",
    "crowds": "windowed; overcommitted",
    "heirs": "successors",
    "homeless": "unplaced",
    "nominee": "nominated pod",
    "nominees": "nominated pods",
    "overtaken": "above_priority",
    "owed": "needs_relist",
    "room": "free capacity",
    "rooms": "free capacity",
    "roomy": "large enough",
    "ruling": "rules",
    "rulings": "rules",
    "turmoil": "named by what it bounds",
    "turnstile": "gate limiter",
    "wish": "pod term; preference",
    "wishes": "pod terms; preferences",
    "withheld": "stale; backed off",
    "withhold": "back off",
    "withholds": "backs off",
}
"""Words that this project had for things that the field names otherwise; also no part of a name in the code."""

FORMER_NAMES = {
    "FEW": "named by what it bounds",
    "LATE": "named by what it bounds",
    "Held": "Bound; DeferredClasses",
    "HeldKind": "BoundKind",
    "Look": "GroupKey",
    "Promised": "Reserved",
    "ExtenderTurns": "Permits",
    "TURN_GATE": "FAIRBIND_GATE",
    "TurnRule": "SortRule",
    "TurnRules": "GateRules",
    "WishTurns": "TermRotation",
    "answers_version": "revision",
    "awaits_turn": "is_behind_our_gate",
    "compute_turn": "compute_sort_key",
    "takes_turns": "is_rationed",
    "turn_scheduler": "gated_scheduler",
    "came": "added",
    "went": "removed",
}
NO_GUIDES = ("claims", "derived-values", "fairness-table")
"""Lists of what stands elsewhere, and results."""
WIRE_NAMES = {
    ("operator/fairbind/cluster/loop/journal.py", "withheld"),
    ("operator/fairbind/cluster/loop/pacing_events.py", "crowded"),
    ("operator/fairbind/kube/observer.py", "crowded"),
}
"""Fields and values of formats that stay as they are."""


def compile_words(*words: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, words))})(?:'s)?(?![\w-])", re.IGNORECASE)


PRIVATE = compile_words(*PLAIN_WORDS)
TOLD = compile_words(*PLAIN_WORDS, *TOLD_WORDS)
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
NO_PROSE = re.compile(r"`[^`\n]+`|\]\([^)\s]+\)|^>[^\n]*$|<!--.*?-->", re.MULTILINE | re.DOTALL)
FORMER = compile_words(*FORMER_WORDS)
NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
RECORDED = ("docs/reliability/faults.md", "docs/reliability/adversary.md")
"""Pages of results: rows of their tables hold names as the results have them."""

PAGES = (
    *("README.md", "SECURITY.md", "CONTRIBUTING.md", "charts/fairbind/README.md", "docs/benchmarks/README.md"),
    *(f":(glob)docs/{folder}*.md" for folder in ("", "reliability/", "reference/", "mechanisms/")),
)
"""The references hold the metrics' help, the options' help and the descriptions of the custom resources."""
CHARTS = (
    "charts/*.yaml",
    "charts/*.tpl",
    "charts/*.txt",
    "crds/*.yaml",
    "deploy/alerts/*.yaml",
    "deploy/examples/*.yaml",
)
CODE = "operator/fairbind/*.py", "deploy/tools/*.py"
KNOWN_COMMENTS = {
    ("operator/fairbind/kube/client/api.py", "nobody"),
    ("operator/fairbind/kube/client/errors.py", "anew"),
}
"""Words in comments of a file that may stay."""


def find_private_words(text: str, *, is_docstring: bool = False) -> set[str]:
    words = PRIVATE if is_docstring else TOLD
    return {match[0].lower() for match in words.finditer(" ".join(text.split()))}


def read_prose(page: Path) -> str:
    """Return a page without code, links' targets and quotations."""
    text = NO_PROSE.sub(" ", FENCE.sub("", page.read_text(encoding="utf-8")))
    return re.sub(r"^\|.*$", "", text, flags=re.MULTILINE) if name_of(page) in RECORDED else text


def test_private_words_are_found_in_prose_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("house.tree.ROOT", tmp_path)
    page = tmp_path / "page.md"
    lines = [
        "Whoever asks `somebody` heeds",
        "[it](anew.md).",
        "```sh",
        "mend",
        "```",
        "> nobody",
        "",
        "It cannot",
        "be meant",
    ]
    page.write_text("\n".join(lines), encoding="utf-8")

    assert find_private_words(read_prose(page)) == {"whoever", "heeds", "cannot be meant"}
    assert find_private_words("Nobody's strawberry, re-mend") == {"nobody's"}
    assert find_private_words("Whose turn is it, in which roomy room?") == {"whose turn", "room"}
    assert find_private_words("Nobody has room.", is_docstring=True) == {"nobody"}


@pytest.mark.parametrize("page", find_files(*PAGES), ids=name_of)
def test_pages_are_in_plain_english(page: Path) -> None:
    found = find_private_words(read_prose(page))

    assert {word: (PLAIN_WORDS | TOLD_WORDS).get(word.removesuffix("'s")) for word in found} == {}


@pytest.mark.parametrize("file", find_files(*CHARTS), ids=name_of)
def test_charts_and_custom_resources_are_in_plain_english(file: Path) -> None:
    assert find_private_words(file.read_text(encoding="utf-8").replace("#", " ")) == set()


SENTENCE_END = re.compile(r"(?<=[.?!;:])\s+|(?<=[.?!]\*\*)\s+")
BLOCK = re.compile(r"\n\s*\n|\n(?=\s*(?:[-*|>#]|\d+\.) )")
GUIDES = (
    ":(glob)docs/*.md",
    ":(glob)docs/reference/*.md",
    "README.md",
    "charts/fairbind/README.md",
    "SECURITY.md",
    "CONTRIBUTING.md",
)
"""What users read from the first word to the last; a code span is one word."""


def find_long_sentences(text: str) -> list[str]:
    """Return the beginnings of the sentences that have too many words; a cell of a table has sentences of its own."""
    plain = re.sub(r"`[^`\n]*`", "x", FENCE.sub("\n\n", re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)))
    plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    cells = [cell for block in BLOCK.split(plain) for cell in (block.split("|") if block.startswith("|") else [block])]
    sentences = [
        sentence.split() for cell in cells for sentence in SENTENCE_END.split(" ".join(cell.lstrip("-*># ").split()))
    ]
    return [" ".join(sentence[:12]) for sentence in sentences if len(sentence) > MOST_WORDS]


def test_long_sentences_are_found() -> None:
    long = " ".join(["word"] * MOST_WORDS)
    text = f"Short. {long}\nends.\n\n| {long} | {long} b |\n- {long}\n- c `a b` [{long}](x y). {long}: {long}"

    assert [sentence.split()[-1] for sentence in find_long_sentences(text)] == ["word"] * 3


@pytest.mark.parametrize("page", [page for page in find_files(*GUIDES) if page.stem not in NO_GUIDES], ids=name_of)
def test_sentences_are_short(page: Path) -> None:
    assert find_long_sentences(page.read_text(encoding="utf-8")) == []


def find_help(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    """Return the texts that --help shows of a command and of those below it, each with its place."""
    yield path, command.help or ""
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield f"{path} {parameter.opts[-1]}", parameter.help or ""
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from find_help(below, f"{path} {name}")


def test_help_is_in_short_sentences() -> None:
    texts = dict(find_help(commands, "fairbind"))

    assert len(texts) > 100
    assert {place: found for place, text in texts.items() if (found := find_long_sentences(text))} == {}


def find_texts(code: str) -> Iterator[tuple[int, bool, str]]:
    """Return the line of each text in code, whether it is a docstring, and the text."""
    tree = ast.parse(code)
    docstrings = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            match statement:
                case ast.Expr(value=ast.Constant(value=str()) as text):
                    docstrings.add(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node in docstrings, node.value


def test_texts_in_code_are_told_apart() -> None:
    code = '"""Whoever."""\nx = 1\n"""Of x."""\nlog.info("Nobody %s", f"mend {x}")\n'

    assert [(line, is_docstring) for line, is_docstring, _ in find_texts(code)] == [
        (1, True),
        (3, True),
        (4, False),
        (4, False),
    ]
    assert [find_private_words(text) for _, _, text in find_texts(code)] == [{"whoever"}, set(), {"nobody"}, {"mend"}]


def test_messages_help_and_docstrings_are_in_plain_english() -> None:
    found = {
        (name_of(path), line, word)
        for path in find_files(*CODE)
        for line, is_docstring, text in find_texts(path.read_text(encoding="utf-8"))
        for word in find_private_words(text, is_docstring=is_docstring)
    }

    assert found == set()


def find_comments(code: str) -> Iterator[tuple[int, str]]:
    """Return the first line of each comment in code, and the comment; lines that follow each other are one."""
    begin, last, words = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.type != tokenize.COMMENT:
            continue
        if words and token.start[0] != last + 1:
            yield begin, " ".join(words)
            words.clear()
        begin = begin if words else token.start[0]
        last = token.start[0]
        words.append(token.string.lstrip("#"))
    if words:
        yield begin, " ".join(words)


def test_a_comment_goes_on_in_the_next_line() -> None:
    code = 'x = "# nobody"  # It cannot\n# be meant\n\ny = 1  # Whoever\n'

    comments = list(find_comments(code))

    assert [line for line, _ in comments] == [1, 4]
    assert [find_private_words(text, is_docstring=True) for _, text in comments] == [{"cannot be meant"}, {"whoever"}]


def test_comments_are_in_plain_english() -> None:
    found = {
        (name_of(path), line, word)
        for path in find_files(*CODE)
        if find_private_words((code := path.read_text(encoding="utf-8")).replace("#", " "), is_docstring=True)
        for line, text in find_comments(code)
        for word in find_private_words(text, is_docstring=True)
        if (name_of(path), word) not in KNOWN_COMMENTS
    }

    assert found == set()


def find_former_names(code: str) -> set[str]:
    """Return the names in code that are former ones, and the former words that are a part of one."""
    tokens = tokenize.generate_tokens(io.StringIO(code).readline)
    names = {token.string for token in tokens if token.type == tokenize.NAME}
    return names & FORMER_NAMES.keys() | {
        part for name in names for part in map(str.lower, NAME_PARTS.findall(name)) if part in FORMER_WORDS
    }


def find_former_words(text: str) -> set[str]:
    return {match[0].lower() for match in FORMER.finditer(" ".join(text.split()))}


def test_former_words_are_found_in_names_and_prose() -> None:
    code = "_WISHES = list_crowds(is_owed, Look, LookAt)\nx = 'withheld'\nWithholdPod\n"

    assert find_former_names(code) == {"wishes", "crowds", "owed", "Look", "withhold"}
    assert find_former_words("The homeless pod's\nruling. Wishful crowding") == {"homeless", "ruling"}


def test_code_has_the_words_of_the_field() -> None:
    found = set()
    for path in find_files(*CODE):
        code = path.read_text(encoding="utf-8")
        told = [text for _, is_docstring, text in find_texts(code) if is_docstring]
        told += [text for _, text in find_comments(code)]
        former = find_former_names(code).union(*map(find_former_words, told))
        found |= {(name_of(path), word) for word in former} - WIRE_NAMES

    assert found == set()


@pytest.mark.parametrize("page", find_files(*PAGES), ids=name_of)
def test_pages_have_the_words_of_the_field(page: Path) -> None:
    assert find_former_words(read_prose(page)) == set()


QUESTION = re.compile(r"(Whether|How|Who|Whose|What|Where|When|Why|Of which|For how)\b")


def find_descriptions(schema: object, path: str = "") -> Iterator[tuple[str, str]]:
    """Return the descriptions in a schema, each with its path."""
    if isinstance(schema, dict):
        if isinstance(schema.get("description"), str):
            yield path, schema["description"]
        for name, below in schema.items():
            yield from find_descriptions(below, f"{path}.{name}")
    elif isinstance(schema, list):
        for number, below in enumerate(schema):
            yield from find_descriptions(below, f"{path}[{number}]")


def find_value_texts(text: str) -> Iterator[tuple[str, str]]:
    """Return the comments before the chart's values, each with its value's line."""
    for match in re.finditer(r"((?:^ *#.*\n)+) *([A-Za-z]+):", text, re.MULTILINE):
        yield match[2], " ".join(re.sub(r"^ *# ?", "", match[1], flags=re.MULTILINE).split())


def test_fields_values_and_options_say_what_they_do_and_ask_nothing() -> None:
    values = (find_files("charts/fairbind/values.yaml")[0]).read_text(encoding="utf-8")
    texts = [(f"values.yaml {name}", text) for name, text in find_value_texts(values)]
    for path in find_files(":(glob)crds/*.yaml"):
        texts += [(path.name + place, text) for place, text in find_descriptions(yaml.safe_load(path.read_text()))]
    texts += [(place, text) for place, text in find_help(commands, "fairbind") if " --" in place]

    assert len(texts) > 300
    assert {place: text for place, text in texts if QUESTION.match(text) or find_long_sentences(text)} == {}
