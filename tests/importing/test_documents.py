from __future__ import annotations

import pytest

from fairbind.model.errors import InvalidProblemError
from importing.queues import read

VOLCANO = "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: a}\n"


def test_lists_are_opened_however_deep() -> None:
    item = VOLCANO.replace("\n", ", ").replace("metadata: {name: a}, ", "metadata: {name: NAME}")
    text = (
        f"kind: List\napiVersion: v1\nitems: [{{{item.replace('NAME', 'a')}}}, "
        f"{{kind: QueueList, apiVersion: v1, items: [{{{item.replace('NAME', 'b')}}}]}}]\n"
    )

    assert list(read("volcano", text)[0]) == ["a", "b"]


def test_objects_of_other_kinds_are_named() -> None:
    others = "---\nkind: Job\napiVersion: batch/v1\nmetadata: {name: j}\n---\nmetadata: {}\n"
    tenants, notes = read("volcano", VOLCANO + others)

    assert list(tenants) == ["a"]
    assert notes == [
        "Job j: kind: holds no queues and is left out",
        "an object without kind or apiVersion in file-1, document 3: kind: holds no queues and is left out",
    ]


@pytest.mark.parametrize(
    ("system", "text", "found"),
    [
        ("kai", VOLCANO, "Queue of scheduling.run.ai, but holds Queue of scheduling.volcano.sh"),
        ("volcano", "kind: Job\napiVersion: batch/v1", "Queue of scheduling.volcano.sh, but holds Job of batch"),
        (
            "kueue",
            "kind: Pod\napiVersion: v1",
            "ClusterQueue, Cohort, LocalQueue, ResourceFlavor of .*, but holds Pod$",
        ),
        ("yunikorn", VOLCANO, "queues.yaml .*, but holds Queue$"),
        ("volcano", "", "Queue of .*, but holds nothing$"),
    ],
)
def test_files_without_a_known_kind_are_refused_with_the_kind_that_is_there(system: str, text: str, found: str) -> None:
    with pytest.raises(InvalidProblemError, match=f"FILE: must hold {found}"):
        read(system, text)


def test_an_object_that_is_there_twice_is_refused() -> None:
    with pytest.raises(
        InvalidProblemError,
        match="file-2, document 1: Queue a must stand in the files once, but is in file-1, document 1 already",
    ):
        read("volcano", VOLCANO, VOLCANO)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- 3", "file-1, document 1: must be an object with a kind, not a list"),
        (VOLCANO.replace("{name: a}", "{}"), "Queue: metadata.name must be the object's name, not null"),
        (VOLCANO.replace("{name: a}", "[]"), r"Queue: metadata must be an object, not \[\]"),
        (VOLCANO + "spec: high", 'Queue a: spec must be an object, not "high"'),
    ],
)
def test_what_is_no_object_of_the_api_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        read("volcano", text)
