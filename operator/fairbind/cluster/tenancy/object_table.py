"""The objects of one kind as the API has them, gathered from events and from lists that may overtake each other.

Two sources feed a table: a watch, and a list now and then that finds what the watch missed. Either can be late, so
every version is compared with the newest one seen: an old event changes nothing, and a list that is older than the
newest event is not compared at all (it could bring back an object whose deletion was seen). Resource versions are
numbers that grow over all objects of a kind, which Kubernetes promises since 1.35 and always kept.

Except when the cluster is restored from a backup: then they go back. A list is as new as the moment in which it was
asked for. So one that is older than what was known before it was asked for can only come from such a cluster, and
counts as it is; otherwise everything newer than the backup would be kept for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

KubeObject = Mapping[str, Any]


class ObjectTable:
    """Objects by name. on_change is called after each call that changed anything beyond their status."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._objects: dict[str, KubeObject] = {}
        self._list_version = 0
        self._event_version = 0
        self._on_change = on_change

    @property
    def objects(self) -> Mapping[str, KubeObject]:
        """The present objects by name; a view, not a copy."""
        return MappingProxyType(self._objects)

    @property
    def version(self) -> int:
        """The newest version that was seen."""
        return max(self._event_version, self._list_version)

    def replace(self, objects: Iterable[KubeObject], list_version: str, *, known_before: int = 0) -> bool:
        """Take a whole list, unless events have told of something newer; True when the cluster went back in time.

        known_before: what `version` was before the list was asked for.
        """
        version = _version_number(list_version)
        is_restored = 0 < version < known_before
        if is_restored:
            self._event_version = 0
        elif version < self.version:
            return False
        found = {item["metadata"]["name"]: item for item in objects}
        is_changed = found.keys() != self._objects.keys() or any(
            _says_something_new(self._objects[name], item) for name, item in found.items()
        )
        self._objects = found
        self._list_version = version
        if is_changed:
            self._on_change()
        return is_restored

    def apply(self, item: KubeObject) -> None:
        """Take one created or changed object, unless this version of it, or a newer one, is known."""
        name, version = item["metadata"]["name"], _object_version(item)
        known = self._objects.get(name)
        if known is not None and version <= _object_version(known):
            return
        if known is None and version <= self._list_version:
            return  # a list that is newer did not have it any more
        self._event_version = max(self._event_version, version)
        self._objects[name] = item
        if known is None or _says_something_new(known, item):
            self._on_change()

    def delete(self, item: KubeObject) -> None:
        """Take away one object, unless a newer one of its name is known. Its version is that of the deletion."""
        name, version = item["metadata"]["name"], _object_version(item)
        known = self._objects.get(name)
        self._event_version = max(self._event_version, version)
        if known is not None and version >= _object_version(known):
            del self._objects[name]
            self._on_change()


def _says_something_new(known: KubeObject, item: KubeObject) -> bool:
    """The API server raises the generation with each change of the spec, but not when the CRD's defaults change."""
    old, new = known["metadata"], item["metadata"]
    return bool(
        old.get("uid") != new.get("uid")
        or old.get("generation") != new.get("generation")
        or known.get("spec") != item.get("spec")
    )


def _object_version(item: KubeObject) -> int:
    return _version_number(item["metadata"].get("resourceVersion", ""))


def _version_number(version: str) -> int:
    return int(version) if version.isdecimal() else 0
