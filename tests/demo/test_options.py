from __future__ import annotations

from pathlib import Path

import pytest

from demo.program import Options, parse_options


def test_defaults() -> None:
    assert parse_options([], {}) == Options("local", 50, 60, "best-fit-drfh", keep=False, picture=None)


def test_environment_is_what_make_passes_and_arguments_win() -> None:
    environment = {"DURATION": "30", "NODES": "12", "POLICY": "fifo", "KEEP": "1"}
    assert parse_options([], environment) == Options("local", 30, 12, "fifo", keep=True, picture=None)
    given = parse_options(["--duration", "20", "--svg", "a.svg"], environment)
    assert (given.duration_seconds, given.picture) == (20, Path("a.svg"))


def test_kind_takes_a_minute_unless_told_otherwise() -> None:
    assert parse_options([], {"CLUSTER": "kind"}).duration_seconds == 60
    assert parse_options(["--cluster", "kind"], {"DURATION": "20"}).duration_seconds == 20
    assert parse_options(["--cluster", "local"], {"CLUSTER": "kind"}).cluster == "local"


def test_who_places_the_pods_can_be_said() -> None:
    assert [parse_options([], environment).mode for environment in ({}, {"MODE": "gate"})] == ["bind", "gate"]


@pytest.mark.parametrize("keep", ["", "0", "no", "False"])
def test_keep_can_be_said_not_to_be(keep: str) -> None:
    assert not parse_options([], {"KEEP": keep}).keep


@pytest.mark.parametrize(
    ("environment", "word"),
    [
        ({"DURATION": "soon"}, "soon"),
        ({"DURATION": "3"}, "DURATION"),
        ({"NODES": "5"}, "NODES"),
        ({"NODES": "1000000"}, "NODES"),
        ({"POLICY": "best"}, "POLICY"),
        ({"CLUSTER": "minikube"}, "CLUSTER"),
        ({"MODE": "extender"}, "MODE"),
        ({"MODE": "gate", "CLUSTER": "kind"}, "local cluster"),
    ],
)
def test_wrong_values_end_with_2_and_are_named(
    environment: dict[str, str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse_options([], environment)
    assert end.value.code == 2
    assert word in capsys.readouterr().err
