"""Whatever is wrong is told in one line that names the field, its value and what would be right; nothing else is."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli.mechanisms.typed import POOL, SERVERS, Outcome, Terminal, check_refused, document_with, document_without

AMOUNT = "must be 0 or a number from 1e-15 to 1e+21, not"
POSITIVE = "must be a number from 1e-15 to 1e+21, not"
ALPHA = "must be a number from 0.01 to 1e+21, not"
NAME = "must be a name of printable characters, not"

VALUES: list[tuple[str, object, str]] = [
    ("tenants[1].demand.cpu", "3 cores", f'{AMOUNT} "3 cores"'),
    ("tenants[1].demand.cpu", True, f"{AMOUNT} true"),
    ("tenants[1].demand.cpu", None, f"{AMOUNT} null"),
    ("tenants[1].demand.cpu", [3], f"{AMOUNT} a list"),
    ("tenants[1].demand.cpu", {"cpu": 3}, f"{AMOUNT} an object"),
    ("tenants[1].demand.cpu", -3, f"{AMOUNT} -3"),
    ("tenants[1].demand.cpu", 2e21, f"{AMOUNT} 2e+21"),
    ("tenants[1].demand.cpu", 1e-16, f"{AMOUNT} 1e-16"),
    ("tenants[1].demand.cpu", 10**400, f"{AMOUNT} {10**39}..."),
    ("tenants[1].demand", {}, "must ask for more than 0 of at least one resource, not {}"),
    ("tenants[1].demand", {"cpu": 0, "memory": 0.0}, "must ask for more than 0 of at least one resource, not an obj"),
    ("tenants[1].demand", [3, 1], "must be an object of amounts by resource, not a list"),
    ("tenants[1].demand", None, "must be an object of amounts by resource, not null"),
    ("tenants[1].demand.disk", 1, "is no resource of this problem; known are cpu, memory"),
    ("tenants[1].demand.memroy", 1, "is no resource of this problem; did you mean memory?"),
    ("tenants[0].weight", 0, f"{POSITIVE} 0"),
    ("tenants[0].weight", -1, f"{POSITIVE} -1"),
    ("tenants[0].weight", "heavy", f'{POSITIVE} "heavy"'),
    ("tenants[0].wieght", 2, "is no field here; did you mean weight?"),
    ("tenants[0].tasks", -1, f"{AMOUNT} -1"),
    ("tenants[0].tasks", None, f"{AMOUNT} null"),
    ("tenants[0].resourceWeights", 2, "must be an object of weights by resource, not 2"),
    ("tenants[0].resourceWeights", {"cpu": 0}, ".cpu of t: must be a number from 1e-15 to 1e+21, not 0"),
    ("tenants[0].resourceWeights", {"cpus": 1}, ".cpus of t: is no resource of this problem; did you mean cpu?"),
    ("tenants[0].eligible", "a", 'must be a list of servers\' names, not "a"'),
    ("tenants[0].eligible", ["b"], '[0] of t: "b" is no server of this problem; known are a'),
    (
        "tenants[0].eligible",
        ["a", "a"],
        '[1] of t: must differ from all others, but "a" is tenants[0].eligible[0] of t already',
    ),
    ("tenants[0].eligible", [0], "[0] of t: must be the name of a server, not 0"),
    ("tenants[1].name", "t", 'must differ from all others, but "t" is tenants[0].name already'),
    ("tenants[1].name", "", f'{NAME} ""'),
    ("tenants[1].name", "two\nlines", rf'{NAME} "two\nlines"'),
    ("tenants[1].name", 7, "must be a name (text), not 7"),
    ("tenants[1].name", None, "must be a name (text), not null"),
    ("tenants[1]", [], "must be an object with name and demand, not []"),
    ("tenants", {}, "must be a list of tenants, not {}"),
    ("tenants", [], "must have at least one entry, not []"),
    ("servers[0].name", " ", f'{NAME} " "'),
    ("servers[1]", {"name": "a", "capacity": {}}, '.name: must differ from all others, but "a" is servers[0].name alr'),
    ("servers[1]", 4, "must be an object with name and capacity, not 4"),
    ("servers[0].capacity", None, "must be an object of amounts by resource, not null"),
    ("servers[0].capacity.memory", "18Gib", f'{AMOUNT} "18Gib"'),
    ("servers[0].capacity.memory", -0.5, f"{AMOUNT} -0.5"),
    ("servers[0].capacity.disk", 1, "is no resource of this problem; known are cpu, memory"),
    ("servers[0].capacities", {}, "is no field here; did you mean capacity?"),
    ("servers[0].count", 0, "must be a whole number from 1 to 1e+21, not 0"),
    ("servers[0].count", 2.5, "must be a whole number from 1 to 1e+21, not 2.5"),
    ("servers[0].count", "2", 'must be a whole number from 1 to 1e+21, not "2"'),
    ("servers[0].alpha", 0, f"{ALPHA} 0"),
    ("servers[0].alpha", "2", f'{ALPHA} "2"'),
    ("servers[0].utilityA", -1, "must be 0 or a number from 1e-15 to 1e+21, not -1"),
    ("servers[0].utilityB", True, "must be 0 or a number from 1e-15 to 1e+21, not true"),
    ("servers[0].divisible", "no", 'must be true or false, not "no"'),
    ("servers[0].divisible", 0, "must be true or false, not 0"),
    ("servers", "a", 'must be a list of servers, not "a"'),
    ("servers", [], "must have at least one entry, not []"),
    ("resources", [], "must have at least one entry, not []"),
    ("resources", "cpu", 'must be a list of names, not "cpu"'),
    ("resources[2]", "cpu", 'must differ from all others, but "cpu" is resources[0] already'),
    ("resources[2]", "", f'{NAME} ""'),
    ("resources[2]", 3, "must be a name (text), not 3"),
    ("pool", 1, "must be true or false, not 1"),
    ("expectedTenants", 1, "must be a whole number from 2 to 1e+21, not 1"),
    ("expectedTenants", True, "must be a whole number from 2 to 1e+21, not true"),
    ("mechanism", "drf", "is no field here; known are resources, servers, tenants, expectedTenants, pool"),
    ("tenant", [], "is no field here; did you mean tenants?"),
]


@pytest.mark.parametrize(
    ("path", "value", "message"), VALUES, ids=[f"{path}={value!r:.20}" for path, value, _ in VALUES]
)
def test_values_that_cannot_be_meant(terminal: Terminal, path: str, value: object, message: str) -> None:
    file = terminal.write(document_with(path, value))
    told = terminal.be_refused("allocate", file, "--mechanism", "drf")

    assert told.startswith(path)
    assert message in told


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("resources", ""),
        ("servers", ""),
        ("tenants", ""),
        ("servers[0].name", ""),
        ("servers[0].capacity", " of a"),
        ("tenants[1].name", ""),
        ("tenants[1].demand", " of u"),
    ],
)
def test_what_is_missing(terminal: Terminal, path: str, owner: str) -> None:
    file = terminal.write(document_without(path))

    assert terminal.be_refused("allocate", file, "--mechanism", "drf").startswith(f"{path}{owner}: is missing; ")


TEXT = json.dumps(POOL)
CONTENTS: list[tuple[str, str | bytes, str]] = [
    ("empty", "", "must hold a problem, but is empty"),
    ("blank", " \n\t\n", "must hold a problem, but is empty"),
    ("cut off", TEXT[: len(TEXT) // 2], "problem.json: must be JSON, but line 1 column"),
    ("trailing", TEXT + "}", "problem.json: must be JSON, but line 1 column"),
    ("comma", TEXT.replace("}]}", "},]}"), "problem.json: must be JSON, but line 1 column"),
    ("words", "hello", "problem.json: must be JSON, but line 1 column 1"),
    ("null", "null", "problem: must be an object with resources, servers and tenants, not null"),
    ("list", "[]", "problem: must be an object with resources, servers and tenants, not []"),
    ("number", "3", "problem: must be an object with resources, servers and tenants, not 3"),
    ("not UTF-8", TEXT.encode().replace(b'"t"', b'"\xff"'), "problem.json: must be UTF-8 text, but byte 122 is 0xff"),
    ("UTF-16", TEXT.encode("utf-16"), "problem.json: must be UTF-8 text, but byte 1 is 0xff"),
    ("surrogate", TEXT.replace('"t"', r'"\ud800"'), rf'tenants[0].name: {NAME} "\ud800"'),
    ("NUL", TEXT.replace('"t"', r'"\u0000"'), rf'tenants[0].name: {NAME} "\u0000"'),
    ("NaN", TEXT.replace('"cpu": 3', '"cpu": NaN'), f"tenants[1].demand.cpu of u: {AMOUNT} NaN"),
    ("Infinity", TEXT.replace('"cpu": 3', '"cpu": Infinity'), f"tenants[1].demand.cpu of u: {AMOUNT} Infinity"),
    ("-Infinity", TEXT.replace('"cpu": 3', '"cpu": -Infinity'), f"tenants[1].demand.cpu of u: {AMOUNT} -Infinity"),
    ("1e400", TEXT.replace('"cpu": 3', '"cpu": 1e400'), f"tenants[1].demand.cpu of u: {AMOUNT} 1e400"),
    ("1e-400", TEXT.replace('"cpu": 3', '"cpu": 1e-400'), f"tenants[1].demand.cpu of u: {AMOUNT} 1e-400"),
    (
        "digits",
        TEXT.replace('"cpu": 3', f'"cpu": {"9" * 5000}'),
        "tenants[1].demand.cpu of u: " + AMOUNT + " 9999999999",
    ),
    ("twice", TEXT.replace('"cpu": 3', '"cpu": 3, "cpu": 4'), "tenants[1].demand.cpu: must stand here once"),
    ("twice above", TEXT.replace("{", '{"tenants": 1, ', 1), "tenants: must stand here once, but is there again"),
    ("deep", "[" * 100_000, "problem.json: must not be nested deeper than"),
    ("deep objects", '{"tenants":' * 100_000, "problem.json: must not be nested deeper than"),
    ("deep and whole", "[" * 100_000 + "]" * 100_000, "problem.json: must not be nested deeper than"),
    (
        "deep inside",
        TEXT.replace('"cpu": 3', f'"cpu": {"[" * 300}{"]" * 300}'),
        "problem.json: must not be nested deeper than 100 levels",
    ),
]


@pytest.mark.parametrize(("content", "message"), [case[1:] for case in CONTENTS], ids=[case[0] for case in CONTENTS])
def test_files_that_hold_no_problem(terminal: Terminal, content: str | bytes, message: str) -> None:
    file = terminal.write(content)

    assert message in terminal.be_refused("allocate", file, "--mechanism", "drf")
    assert message in terminal.be_refused("check", file, "--mechanism", "drf")
    assert message in terminal.be_refused("compare", file)


def test_the_empty_file_is_named(terminal: Terminal) -> None:
    file = terminal.write("")

    assert terminal.be_refused("compare", file) == f"{file}: must hold a problem, but is empty"


YAML: list[tuple[str, str, str]] = [
    ("bracket", "resources: [cpu", "problem.yaml: must be YAML, but line 2 column 1: did not find expected"),
    ("tab", "resources:\n\t- cpu", "problem.yaml: must be YAML, but line 2 column 1"),
    ("twice", "resources: [cpu]\nservers:\n- name: a\n  name: b\n", "servers[0].name: must stand here once"),
    (
        "tag",
        "resources: !!python/object:os.system [x]",
        "resources: must have no tag, but has tag:yaml.org,2002:python",
    ),
    ("two documents", "resources: [cpu]\n---\nresources: [cpu]", "problem.yaml: must be one YAML document"),
    ("deep", "- " * 100_000 + "x", "problem.yaml: must not be nested deeper than 100 levels"),
    ("deep brackets", "[" * 100_000, "problem.yaml: must not be nested deeper than 100 levels"),
    ("deep braces", "{a: " * 100_000, "problem.yaml: must not be nested deeper than 100 levels"),
    ("itself", "resources: &all [*all]", "resources[0]: there is no &all before the alias *all that is complete"),
    ("no anchor", "resources: *none", "resources: there is no &none before the alias *none that is complete"),
    ("a list as a name", "? [a, b]\n: c", "problem: names of members must be plain text"),
    ("not a number", "resources: [cpu]\nservers: .nan\ntenants: []", "servers: must be a list of servers, not NaN"),
    ("text", "hello", 'problem: must be an object with resources, servers and tenants, not "hello"'),
    ("a comment", "# nothing here", "problem: must be an object with resources, servers and tenants, not null"),
    ("control", "resources: [\x01]", "problem.yaml: must be YAML, but "),
]


@pytest.mark.parametrize(("content", "message"), [case[1:] for case in YAML], ids=[case[0] for case in YAML])
def test_yaml_that_holds_no_problem(terminal: Terminal, content: str, message: str) -> None:
    file = terminal.write(content, "problem.yaml")

    assert message in terminal.be_refused("allocate", file, "--mechanism", "drf")


OPTIONS: list[tuple[list[str], str]] = [
    (["allocate", "FILE"], "--mechanism"),
    (["allocate", "--mechanism", "drf"], "PROBLEM"),
    (["allocate", "FILE", "--mechanism", "dfr"], "mechanism: 'dfr' is unknown; did you mean drf?"),
    (["allocate", "FILE", "--mechanism", "DRF"], "mechanism: 'DRF' is unknown"),
    (["allocate", "FILE", "--mechanism", ""], "mechanism: '' is unknown; known are "),
    (["allocate", "FILE", "--mechanism", "drf", "--alpha", "2"], "alpha: 2.0: mechanism drf does not take alpha"),
    (["allocate", "FILE", "--mechanism", "drf", "--alpha", "nan"], f'--alpha\': {ALPHA} "nan"'),
    (["allocate", "FILE", "--mechanism", "drf", "--alpha", "1e400"], f'--alpha\': {ALPHA} "1e400"'),
    (["allocate", "FILE", "--mechanism", "drf", "--alpha", "0"], f'--alpha\': {ALPHA} "0"'),
    (["allocate", "FILE", "--mechanism", "drf", "--alpha", "-1"], f'--alpha\': {ALPHA} "-1"'),
    (["allocate", "FILE", "--mechanism", "drf", "--alpha", "1_0"], f'--alpha\': {ALPHA} "1_0"'),
    (["allocate", "FILE", "--mechanism", "drf", "--output", "xml"], "--output"),
    (["allocate", "FILE", "--mechanism", "drf", "--pools"], "--pool"),
    (["allocate", "FILE", "FILE", "--mechanism", "drf"], "unexpected extra argument"),
    (["allocate", "/nonexistent/p.json", "--mechanism", "drf"], "/nonexistent/p.json: no such file"),
    (["allocate", "", "--mechanism", "drf"], '"": '),
    (["allocate", "FOLDER", "--mechanism", "drf"], ": cannot be read: is a directory"),
    (["allocate", "FILE/x", "--mechanism", "drf"], ": cannot be read: not a directory"),
    (["allocate", "a\0b", "--mechanism", "drf"], r'"a\u0000b": must be the name of a file'),
    (["allocate", "a\nb", "--mechanism", "drf"], r'"a\nb": no such file'),
    (
        ["check", "FILE", "--mechanism", "drf", "--property", "envy"],
        "property: 'envy' is unknown; did you mean envy-freeness?",
    ),
    (
        ["check", "FILE", "--mechanism", "drf", "--property", "dynamic-envy-freeness"],
        "property: dynamic-envy-freeness is about",
    ),
    (["check", "FILE", "--mechanism", "drf", "--seed", "-1"], '--seed\': must be a whole number from 0, not "-1"'),
    (["check", "FILE", "--mechanism", "drf", "--seed", "1.5"], '--seed\': must be a whole number from 0, not "1.5"'),
    (["check", "FILE", "--mechanism", "drf", "--seed", "x"], '--seed\': must be a whole number from 0, not "x"'),
    (["check", "FILE", "--mechanism", "drf", "--seed", "9" * 5000], "--seed': must be a whole number from 0, not "),
    (["check", "FILE", "--mechanism", "drv"], "mechanism: 'drv' is unknown; did you mean drf?"),
    (
        ["compare", "FILE", "--mechanism", "drf", "--mechanism", "teleport"],
        "mechanism: 'teleport' is unknown; known are ",
    ),
    (["compare", "FILE", "--plot", "picture.gif"], "--plot': 'picture.gif' must end in .png or .svg"),
    (["compare", "FILE", "--plot", "/nonexistent/picture.png"], "--plot': '/nonexistent' must be a folder that exists"),
    (["compare", "/nonexistent.yaml"], "/nonexistent.yaml: no such file"),
    (["mechanisms", "dfrh"], "mechanism: 'dfrh' is unknown; did you mean drfh?"),
    (["schema"], "problem"),
    (["schema", "problems"], "problem"),
    (["alocate", "FILE"], "alocate"),
]


@pytest.mark.parametrize(("words", "message"), OPTIONS, ids=[" ".join(words)[:99] for words, _ in OPTIONS])
def test_options_that_cannot_be_meant(terminal: Terminal, words: list[str], message: str) -> None:
    file = terminal.write(POOL)
    words = [word.replace("FILE", file).replace("FOLDER", str(terminal.folder)) for word in words]

    assert message in terminal.be_refused(*words)


UNSUPPORTED: list[tuple[str, str, object, str]] = [
    ("drf", "servers[0].alpha", 2, "servers[0].alpha of a: mechanism drf does not take alpha"),
    ("drf", "servers[0].divisible", False, "servers[0].divisible of a: mechanism drf does not take"),
    ("drf", "expectedTenants", 5, "expectedTenants: mechanism drf does not take expectedTenants"),
    ("drf", "tenants[1].eligible", [], "tenants[1].eligible of u: mechanism drf does not take eligible"),
    (
        "asset-fairness",
        "tenants[0].resourceWeights",
        {"cpu": 2},
        "tenants[0].resourceWeights of t: mechanism asset-fairness",
    ),
    ("drf", "servers[1]", {"name": "b", "capacity": {"cpu": 1}}, "servers: mechanism drf does not take several server"),
]


@pytest.mark.parametrize(("mechanism", "path", "value", "message"), UNSUPPORTED, ids=[case[1] for case in UNSUPPORTED])
def test_what_a_mechanism_does_not_take_is_refused_by_name(
    terminal: Terminal, mechanism: str, path: str, value: object, message: str
) -> None:
    file = terminal.write(document_with(path, value))

    assert message in terminal.be_refused("allocate", file, "--mechanism", mechanism)
    assert message in terminal.be_refused("compare", file, "--mechanism", mechanism)


def test_a_problem_that_no_mechanism_takes(terminal: Terminal) -> None:
    document = document_with("servers[0].alpha", 2, document_with("expectedTenants", 5, SERVERS))
    told = terminal.be_refused("compare", terminal.write(document))

    assert told.startswith("no mechanism takes all that this problem asks for: ")
    assert "servers: not for drf, " in told


@pytest.mark.parametrize("words", [["compare"], ["allocate", "--mechanism", "drf"], ["allocate", "--mechanism", "tsf"]])
def test_what_no_pool_can_keep_is_said_whatever_the_mechanism(terminal: Terminal, words: list[str]) -> None:
    file = terminal.write(document_with("tenants[1].eligible", ["a"], SERVERS))
    told = terminal.be_refused(*words, file, "--pool")

    assert told.endswith("tenants[1].eligible of u: every tenant may use a pool")


def test_a_traceback_is_shown_only_with_debug(terminal: Terminal) -> None:
    file = terminal.write(document_with("pool", 1))
    outcome = terminal.run("allocate", file, "--mechanism", "drf", "--debug")

    assert (outcome.status, outcome.out) == (2, "")
    assert outcome.err.startswith("Traceback")
    assert outcome.err.splitlines()[-1] == "fairbind: pool: must be true or false, not 1"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (b"", "standard input: must hold a problem, but is empty"),
        (b"{", "standard input: must be JSON, but line 1 column 2"),
        (b"\xfe", "standard input: must be UTF-8 text, but byte 1 is 0xfe"),
        (b"- {a: b", "standard input: must be YAML, but line 2 column 1: did not find expected"),
        (json.dumps(document_with("tenants[1].demand.cpu", -1)).encode(), f"tenants[1].demand.cpu of u: {AMOUNT} -1"),
    ],
)
def test_standard_input_that_holds_no_problem(terminal: Terminal, typed: bytes, message: str) -> None:
    assert terminal.be_refused("allocate", "-", "--mechanism", "drf", typed=typed).startswith(message)


PROCESS = [sys.executable, "-m", "fairbind", "allocate", "--mechanism", "drf"]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (b"[" * 100_000, "standard input: must not be nested deeper than 100 levels"),
        (b"- " * 100_000, "standard input: must not be nested deeper than 100 levels"),
        (TEXT.encode().replace(b": 9,", b": 1e999,"), f"servers[0].capacity.cpu of a: {AMOUNT} 1e999"),
        (TEXT.encode()[:-1], "standard input: must be JSON, but line 1 column"),
        (b"\x80", "standard input: must be UTF-8 text, but byte 1 is 0x80"),
    ],
    ids=["brackets", "dashes", "1e999", "cut off", "not UTF-8"],
)
def test_a_real_process_with_bad_input(typed: bytes, message: str) -> None:
    done = subprocess.run([*PROCESS, "-"], input=typed, capture_output=True, timeout=300, check=False)
    told = check_refused(Outcome(done.returncode, done.stdout.decode(), done.stderr.decode()))

    assert told.startswith(message)


def test_a_real_process_without_standard_input(tmp_path: Path) -> None:
    script = f"exec {shlex.quote(sys.executable)} -m fairbind allocate - --mechanism drf <&-"
    done = subprocess.run(
        ["/bin/sh", "-c", script], capture_output=True, text=True, timeout=300, check=False, cwd=tmp_path
    )

    assert check_refused(Outcome(done.returncode, done.stdout, done.stderr)).startswith("standard input: ")


def test_a_file_whose_name_is_not_utf8(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROCESS, tmp_path / "\udcff.json"], capture_output=True, text=True, timeout=300, check=False
    )

    assert check_refused(Outcome(done.returncode, done.stdout, done.stderr)).endswith(": no such file")
