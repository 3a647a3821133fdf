"""How the exam of the frameworks judges, and that its pages name what is pinned: CI runs these, not the exam itself."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from frameworks.cases import CASES, PAGES, SPARK_CASE, end_at_once, find_differences, read_blocks, rename
from frameworks.history import History, Seen, is_torn, select_whole
from frameworks.spark_submit import compute_requests, make_driver, read_configuration
from localplane.tools import FRAMEWORKS, MODULES, TOOLS

Json = dict[str, Any]
EVERY = (*CASES, SPARK_CASE)


def make_pod(uid: str, *, group: str = "g", node: str = "", phase: str = "Pending") -> Json:
    metadata = {"namespace": "a", "name": uid, "uid": uid, "labels": {"group": group}}
    return {"metadata": metadata, "spec": {"nodeName": node}, "status": {"phase": phase}}


def make_history() -> History:
    return History(None, frozenset({"a"}), lambda pod: pod["metadata"]["labels"]["group"])  # type: ignore[arg-type]  # it asks no server


@pytest.mark.parametrize(
    ("seen", "torn"),
    [
        ([], False),
        ([Seen(0.0, 1), Seen(1.0, 2)], False),
        ([Seen(0.0, 1), Seen(30.0, 2)], True),
        ([Seen(0.0, 1)], True),
        ([Seen(90.0, 1)], False),
        ([Seen(0.0, 1), Seen(1.0, 0)], False),
        ([Seen(0.0, 2), Seen(50.0, 1), Seen(60.0, 2)], False),
        ([Seen(0.0, 2), Seen(50.0, 1), Seen(51.0, 1)], True),
    ],
)
def test_a_group_is_torn_that_is_below_its_minimum_for_long(seen: list[Seen], *, torn: bool) -> None:
    assert is_torn(seen, 2, 100.0) == torn


def test_a_history_counts_members_that_are_bound_and_there() -> None:
    history = make_history()
    for uid in ("1", "2", "3"):
        history.note("ADDED", make_pod(uid), 0.0)
    assert history.count_bound() == {"a/g": 0}
    for uid in ("1", "2", "3"):
        history.note("MODIFIED", make_pod(uid, node="n"), 1.0)
    history.note("MODIFIED", make_pod("2", node="n", phase="Failed"), 2.0)
    history.note("DELETED", make_pod("3", node="n"), 3.0)

    assert history.count_bound() == {"a/g": 1}
    assert history.find_torn(1, 100.0) == {}
    assert set(history.find_torn(2, 100.0)) == {"a/g"}
    assert select_whole({"a/g": 1, "a/h": 2}, 2) == {"a/h"}


def test_manifests_are_renamed_and_compared() -> None:
    assert rename("name: pi\nimage: mpi-pi\npath: /x/pi\n", "pi", "pi-2") == "name: pi-2\nimage: mpi-pi\npath: /x/pi\n"
    assert find_differences({"a": 1, "b": [{"c": 2}]}, {"b": [{"c": 3}], "d": 4}) == {".a", ".b.0.c", ".d"}
    assert find_differences([1], [1, 2], ".x") == {".x"}
    assert end_at_once([{"a": {"containers": [1]}}]) == [{"a": {"containers": [1], "terminationGracePeriodSeconds": 0}}]


@pytest.mark.parametrize("case", EVERY, ids=lambda case: case.name)
def test_a_page_has_the_manifest_of_its_case_first(case: Any) -> None:
    documents = [document for document in yaml.safe_load_all(case.read_manifest()) if document]
    name = case.find_name()

    assert documents[-1]["kind"] == case.kind
    assert rename(case.read_manifest(), name, "other").count("other") >= 1


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_page_names_the_version_that_is_pinned(name: str) -> None:
    module = next(program.module for case in EVERY for program in case.programs if program.name == name)
    pins = (MODULES / TOOLS[name].module / "go.mod").read_text(encoding="utf-8")
    pinned = re.search(rf"^\s+{re.escape(module)} (v\S+)", pins, re.MULTILINE)
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")

    assert pinned is not None
    assert pinned[1] in page
    assert {path.stem for path in PAGES.glob("*.md")} == {*FRAMEWORKS, "README"}
    assert read_blocks(PAGES / f"{name}.md")


def test_the_stand_in_for_spark_makes_the_pod_that_is_asked_for() -> None:
    asked = [
        "--name", "pi",
        "--conf", "spark.kubernetes.driver.pod.name=pi-driver",
        "--conf", "spark.kubernetes.driver.label.x/y=a=b",
        "--conf", "spark.driver.cores=2",
        "--conf", "spark.driver.memory=512m",
        "--conf", "spark.executor.memory=8g",
    ]  # fmt: skip
    properties = read_configuration(asked)
    pod = make_driver(properties)

    assert pod["metadata"]["name"] == "pi-driver"
    assert pod["metadata"]["labels"] | {"spark-app-selector": ""} == {
        "x/y": "a=b", "spark-role": "driver", "spark-app-selector": "",
    }  # fmt: skip
    assert pod["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "2", "memory": "896Mi"}
    assert compute_requests(properties, "executor") == {"cpu": "1", "memory": "9011Mi"}
