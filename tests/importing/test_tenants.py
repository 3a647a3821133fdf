"""What holds for queues of each system: the tree, and the bounds of a Tenant."""

from __future__ import annotations

from typing import Any

import pytest

from fairbind.importing.fields import Place
from fairbind.importing.queues import Queue, Reading
from fairbind.importing.tenants import find_unclaiming, make_tenants
from fairbind.model.errors import InvalidProblemError


def make(*queues: Queue) -> tuple[dict[str, Any], list[str]]:
    reading = Reading({queue.name: queue for queue in queues})
    tenants = make_tenants(reading)
    return {tenant["metadata"]["name"]: tenant["spec"] for tenant in tenants}, [str(note) for note in reading.notes]


def queue(name: str, parent: str | None = None, **fields: Any) -> Queue:
    return Queue(name, Place("file", f"Queue {name}"), parent, **fields)


def test_parents_come_before_their_children_else_as_in_the_files() -> None:
    tenants, _ = make(queue("z", "m"), queue("a"), queue("y", "m"), queue("m", "top"), queue("top"))

    assert list(tenants) == ["a", "top", "m", "z", "y"]


def test_a_circle_is_refused_with_its_path() -> None:
    with pytest.raises(
        InvalidProblemError, match=r"^file: Queue b: its parents must not be a circle, but are b -> a -> b$"
    ):
        make(queue("below", "b"), queue("a", "b"), queue("b", "a"), queue("c"))


def test_a_parent_that_is_in_no_file_is_left_out_and_named() -> None:
    assert make(queue("a", "gone")) == ({"a": {}}, ["Queue a: parent: gone is in none of the files; none is written"])


def test_a_parent_that_will_not_count_is_named_as_its_tenant_will_say_it() -> None:
    chain = [queue("1"), *(queue(str(level), str(level - 1)) for level in range(2, 7))]
    wide = [queue("top"), *(queue(f"q-{n:04}", "top") for n in range(5000))]

    assert make(*chain[:-1])[1] == make(*wide[:-1])[1] == []
    assert [note.split(": ")[:3] for note in make(*chain)[1]] == [["Queue 6", "parent", "TooDeep"]]
    assert [note.split(": ")[:3] for note in make(*wide)[1]] == [["Queue q-4999", "parent", "TooMany"]]


def test_more_than_a_tenant_may_have_is_left_out_and_named() -> None:
    entries = {((("kind", f"{n:02}"),), "cpu"): 1000 for n in range(18)}
    selector = tuple((f"label-{n}", "x") for n in range(9))
    tenants, notes = make(
        queue("a", limit={**entries, (selector, "cpu"): 1000}, namespaces=[f"n-{n:04}" for n in range(1001)]),
    )

    assert [entry["nodes"]["matchLabels"]["kind"] for entry in tenants["a"]["limit"]] == [f"{n:02}" for n in range(16)]
    assert tenants["a"]["namespaces"] == [f"n-{n:04}" for n in range(1000)]
    assert [note.split(": ", 1)[1] for note in notes] == [
        "namespaces: a Tenant has at most 1000; 1 are left out",
        f"limit: cpu on nodes with {','.join(f'{name}=x' for name, _ in selector)}: a selector has at most 8 labels",
        "limit: a Tenant has at most 16; 2 are left out",
    ]


def test_many_resources_take_several_entries() -> None:
    tenants, notes = make(queue("a", guarantee={((), f"r{n:02}"): 1 for n in range(20)}))

    assert [len(entry["resources"]) for entry in tenants["a"]["guarantee"]] == [16, 4]
    assert notes == []


def test_tenants_without_namespaces_and_children_are_found() -> None:
    reading = Reading({each.name: each for each in (queue("a", namespaces=["n"]), queue("b"), queue("c", "b"))})

    assert find_unclaiming(make_tenants(reading)) == ["c"]
