from __future__ import annotations

from typing import Any

import pytest

from fairbind.cluster.tenancy.object_table import ObjectTable


class Watcher:
    def __init__(self) -> None:
        self.table = ObjectTable(self._note)
        self.changes = 0

    def _note(self) -> None:
        self.changes += 1

    def names(self) -> dict[str, int]:
        return {name: item["metadata"]["generation"] for name, item in self.table.objects.items()}


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


def make(name: str, version: int, *, generation: int = 1, uid: str | None = None) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "uid": uid or f"uid-of-{name}",
            "resourceVersion": str(version),
            "generation": generation,
        }
    }


def test_a_list_is_taken_whole(watcher: Watcher) -> None:
    watcher.table.replace([make("a", 1), make("b", 2)], "5")
    watcher.table.replace([make("b", 2), make("c", 7)], "8")
    assert watcher.names() == {"b": 1, "c": 1}
    assert watcher.changes == 2


def test_a_default_that_changes_at_the_same_generation_is_a_change(watcher: Watcher) -> None:
    """The API server fills in the CRD's defaults when it answers, and counts no generation for it."""
    watcher.table.replace([{**make("a", 1), "spec": {"weight": 1}}], "5")
    watcher.table.replace([{**make("a", 1), "spec": {"weight": 2}}], "7")
    assert watcher.changes == 2
    watcher.table.apply({**make("a", 8), "spec": {"weight": 3}})
    assert watcher.changes == 3
    watcher.table.apply({**make("a", 9), "spec": {"weight": 3}, "status": {"allocated": {}}})
    assert watcher.changes == 3


def test_a_list_that_changes_nothing_is_no_change(watcher: Watcher) -> None:
    watcher.table.replace([make("a", 1)], "5")
    watcher.table.replace([make("a", 6)], "7")  # its status was written
    assert watcher.changes == 1
    assert watcher.table.objects["a"]["metadata"]["resourceVersion"] == "6"


def test_an_empty_first_list_is_no_change(watcher: Watcher) -> None:
    watcher.table.replace([], "5")
    assert watcher.changes == 0


def test_events_change_add_and_take_away(watcher: Watcher) -> None:
    watcher.table.apply(make("a", 1))
    watcher.table.apply(make("a", 2, generation=2))
    watcher.table.apply(make("b", 3))
    watcher.table.delete(make("a", 4, generation=2))
    assert watcher.names() == {"b": 1}
    assert watcher.changes == 4


def test_repeated_and_old_events_change_nothing(watcher: Watcher) -> None:
    watcher.table.apply(make("a", 5, generation=3))
    watcher.table.apply(make("a", 5, generation=3))
    watcher.table.apply(make("a", 4, generation=2))
    assert watcher.names() == {"a": 3}
    assert watcher.changes == 1


def test_a_list_older_than_an_event_does_not_bring_back_the_dead(watcher: Watcher) -> None:
    watcher.table.replace([make("a", 1)], "5")
    watcher.table.delete(make("a", 9))
    watcher.table.replace([make("a", 1)], "8")
    assert watcher.names() == {}


def test_a_list_finds_what_the_watch_missed(watcher: Watcher) -> None:
    watcher.table.replace([make("a", 1)], "5")
    watcher.table.replace([], "9")
    assert watcher.names() == {}
    assert watcher.changes == 2


def test_an_event_older_than_the_list_does_not_bring_back_the_dead(watcher: Watcher) -> None:
    watcher.table.replace([make("b", 3)], "9")
    watcher.table.apply(make("a", 4))
    assert watcher.names() == {"b": 1}


def test_events_of_different_objects_may_come_in_any_order(watcher: Watcher) -> None:
    watcher.table.replace([], "5")
    watcher.table.apply(make("late", 9))
    watcher.table.apply(make("early", 8))
    assert watcher.names() == {"late": 1, "early": 1}


def test_the_deletion_of_an_older_namesake_leaves_the_new_one(watcher: Watcher) -> None:
    watcher.table.apply(make("a", 8, uid="new"))
    watcher.table.delete(make("a", 7, uid="old"))
    assert watcher.names() == {"a": 1}


def test_an_object_made_anew_under_its_name_is_a_change(watcher: Watcher) -> None:
    watcher.table.apply(make("a", 1, uid="old"))
    watcher.table.apply(make("a", 2, uid="new"))
    assert watcher.changes == 2


def test_a_cluster_that_was_restored_from_a_backup_is_taken_as_it_is(watcher: Watcher) -> None:
    """What was newer than the backup would be kept for ever."""
    watcher.table.replace([make("a", 1)], "5")
    watcher.table.apply(make("b", 90))
    known = watcher.table.version
    assert known == 90
    assert watcher.table.replace([make("a", 1)], "50", known_before=known)
    assert watcher.names() == {"a": 1}
    watcher.table.apply(make("c", 51))
    assert watcher.names() == {"a": 1, "c": 1}
    assert not watcher.table.replace([make("a", 1)], "60", known_before=watcher.table.version)
    assert watcher.names() == {"a": 1}


def test_a_list_that_was_asked_for_before_an_event_is_only_late(watcher: Watcher) -> None:
    known = watcher.table.version
    watcher.table.apply(make("a", 9))
    assert not watcher.table.replace([], "8", known_before=known)
    assert watcher.names() == {"a": 1}
