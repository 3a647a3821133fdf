"""Rules from outside, brought by packages with real metadata on the path."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import click
import numpy as np
import pytest

from fairbind.cli.completion import complete_simulated
from fairbind.cluster.tenancy.policies import parse_policy
from fairbind.model import InvalidProblemError
from fairbind.simulator.baselines.outside import GROUP, find_rules
from fairbind.simulator.baselines.registry import KNOWN_POLICIES, list_policies
from fairbind.simulator.parsing import check_policies
from simulator.scenarios import Json, make_entry, make_scenario, run

Install = Callable[..., None]
DOCUMENT: Json = {
    **make_scenario(cpu=6, horizon=5),
    "tenants": [{"name": "a"}, {"name": "b", "weight": 2}],
    "workload": [make_entry(name, tenant=name, tasks=9, duration="forever") for name in "ab"],
}
BY_CPU = "def level(tenant):\n    return tenant.held['cpu'] / tenant.total['cpu'] / tenant.weight\n"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package: its module, and what it declares. Afterwards it is as if it had never been there."""
    modules = set(sys.modules)
    monkeypatch.syspath_prepend(tmp_path)
    find_rules.cache_clear()

    def write(code: str, policy: str = "mine", *, package: str = "own-rules", target: str = "level") -> None:
        module = package.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(code, encoding="utf-8")
        folder = tmp_path / f"{module}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
        (folder / "entry_points.txt").write_text(f"[{GROUP}]\n{policy} = {module}:{target}\n", encoding="utf-8")

    yield write
    find_rules.cache_clear()
    for name in set(sys.modules) - modules:
        if name.startswith(("own_", "other_")):
            del sys.modules[name]


def count_running(policy: str, document: Json = DOCUMENT) -> dict[str, int]:
    return {row.tenant: row.running for row in run(document, policy).shares if row.time == 0}


def test_a_rule_decides_who_is_next_and_is_listed(install: Install) -> None:
    assert list_policies() == list(KNOWN_POLICIES)
    find_rules.cache_clear()
    install(BY_CPU)

    check_policies(["mine", "fifo"])
    assert list_policies() == [*KNOWN_POLICIES, "mine"]
    assert complete_simulated(click.Context(click.Command("c")), click.Option(["--policy"]), "mi") == ["mine"]
    assert count_running("mine") == {"a": 2, "b": 4}
    with pytest.raises(InvalidProblemError, match='"mnie" is no policy; did you mean mine'):
        check_policies(["mnie"])


def test_a_rule_that_is_not_asked_for_is_not_imported(install: Install) -> None:
    install("raise SystemExit('imported')")

    check_policies(KNOWN_POLICIES)
    assert "mine" in list_policies()


def test_a_rule_is_told_what_a_tenant_holds_of_what_counts(install: Install) -> None:
    install("seen = []\ndef level(tenant):\n    seen.append(tenant)\n    return tenant.held['cpu']\n")
    run(DOCUMENT, "mine")
    seen = sys.modules["own_rules"].seen

    assert {tenant.name: tenant.weight for tenant in seen} == {"a": 1, "b": 2}
    assert all(tenant.total == {"cpu": 6000, "memory": 16 * 2**30} for tenant in seen)
    assert sorted({tenant.held["cpu"] for tenant in seen if tenant.name == "a"}) == [0, 1000, 2000, 3000]


def test_the_operator_knows_no_rule_from_outside(install: Install) -> None:
    install(BY_CPU)

    with pytest.raises(InvalidProblemError, match=r"spec\.policy must be one of .*, not 'mine'"):
        parse_policy({"spec": {"policy": "mine"}})


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("import no_such_module", "own_rules:level cannot be imported: ModuleNotFoundError: No module named"),
        ("raise SystemExit(3)", "own_rules:level cannot be imported: SystemExit: 3"),
        ("other = 1", "own_rules:level cannot be imported: AttributeError: module 'own_rules' has no attribute"),
        ("level = 5", "own_rules:level must be a function of one tenant, not 5"),
        ("class level: pass", "own_rules:level must be a function of one tenant"),
        ("def level(tenant, cluster): return 0", "own_rules:level must be a function of one tenant"),
    ],
)
def test_a_package_that_brings_no_rule_is_named(install: Install, code: str, complaint: str) -> None:
    install(code)

    with pytest.raises(InvalidProblemError) as error:
        check_policies(["fifo", "mine"])
    assert str(error.value).startswith(f"policy mine (of own-rules 1.0): {complaint}")


def test_an_id_of_fairbinds_own_is_taken(install: Install) -> None:
    install(BY_CPU, "drf")

    with pytest.raises(InvalidProblemError, match=r"policy drf \(of own-rules 1.0\): the id is one of fairbind's own"):
        check_policies(["drf"])
    check_policies(["fifo"])


def test_two_packages_may_not_have_one_id(install: Install) -> None:
    install(BY_CPU)
    install(BY_CPU, package="other-rules")

    expected = r"\(of other-rules 1.0 and own-rules 1.0\): the id is declared more than once"
    with pytest.raises(InvalidProblemError, match=expected):
        check_policies(["mine"])


def test_an_id_may_stand_in_names_of_files(install: Install) -> None:
    install(BY_CPU, "Mine/or yours")

    with pytest.raises(InvalidProblemError, match="an id has small letters, digits and hyphens"):
        check_policies(["Mine/or yours"])


@pytest.mark.parametrize(
    ("returned", "complaint"),
    [
        ("None", "the level of tenant a must be a number from 0 to 1e+300, not null"),
        ("True", "the level of tenant a must be a number from 0 to 1e+300, not true"),
        ("'1'", 'the level of tenant a must be a number from 0 to 1e+300, not "1"'),
        ("-1", "the level of tenant a must be a number from 0 to 1e+300, not -1"),
        ("float('nan')", "the level of tenant a must be a number from 0 to 1e+300, not NaN"),
        ("10**400", "the level of tenant a must be a number from 0 to 1e+300, not a whole number of 401 digits"),
        ("1 / 0", "the rule fails for tenant a: ZeroDivisionError: division by zero"),
        ("9000 - tenant.held['cpu']", "the level of tenant a falls from 9000 to 8000 when a task comes"),
    ],
)
def test_what_a_rule_returns_is_checked(install: Install, returned: str, complaint: str) -> None:
    install(f"def level(tenant):\n    return {returned}\n")

    with pytest.raises(InvalidProblemError) as error:
        run(DOCUMENT, "mine")
    assert str(error.value).startswith(f"policy mine (of own-rules 1.0): {complaint}")


@pytest.mark.parametrize("kind", [int, float, Fraction, np.float64, np.float32, np.int64])
def test_a_level_may_be_any_kind_of_number(install: Install, kind: type[object]) -> None:
    lines = ["import fractions, numpy", "from builtins import *", "def level(tenant):"]
    name = {Fraction: "fractions.Fraction", int: "int", float: "float"}.get(kind, f"numpy.{kind.__name__}")
    install("\n".join([*lines, f"    return {name}(tenant.held['cpu'] // tenant.weight)"]))

    assert count_running("mine") == {"a": 2, "b": 4}
