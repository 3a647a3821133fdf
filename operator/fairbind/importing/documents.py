"""From documents to the objects in them: lists are opened, and each object is known by its API, kind and name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fairbind.fairness.problems.fields import show_value
from fairbind.importing.fields import Place, Section
from fairbind.importing.notes import Note
from fairbind.model.errors import InvalidProblemError

OTHER_KIND = "holds no queues and is left out"


class Document(NamedTuple):
    """A document of a file. source: the file's name and which document it is."""

    source: str
    value: object


@dataclass(frozen=True, slots=True)
class ApiObject:
    """An object of the API. owner: its kind and name. version: of its API, without the group."""

    kind: str
    name: str
    namespace: str
    version: str
    place: Place
    body: Section

    @property
    def spec(self) -> Section:
        """Its spec, of which no field is read yet."""
        return self.body.take_section("spec")


class Kinds(NamedTuple):
    """What a system has. group: of its API. versions: those that are read, by kind."""

    group: str
    versions: Mapping[str, Sequence[str]]


def open_lists(documents: Iterable[Document]) -> Iterator[Document]:
    """Yield the documents, and for a list of the API each of its items."""
    for source, value in documents:
        items = value.get("items") if isinstance(value, Mapping) else None
        if isinstance(value, Mapping) and str(value.get("kind", "")).endswith("List") and isinstance(items, list):
            yield from open_lists(Document(f"{source}, item {n}", item) for n, item in enumerate(items, 1))
        else:
            yield Document(source, value)


def find_objects(documents: Sequence[Document], kinds: Kinds, notes: list[Note]) -> list[ApiObject]:
    """Return the objects of a system's kinds; others are noted. None of these kinds: InvalidProblemError names them."""
    found: dict[tuple[str, str, str], ApiObject] = {}
    others: list[str] = []
    for document in open_lists(documents):
        group, version, kind = _read_kind(document)
        if kind in kinds.versions and group == kinds.group:
            read = _read_object(document, kind, version, kinds.versions[kind])
            key = read.kind, read.namespace, read.name
            if key in found:
                raise InvalidProblemError(
                    f"{document.source}: {read.place.owner} must stand in the files once, but is in "
                    f"{found[key].place.source} already"
                )
            found[key] = read
        else:
            others.append(f"{kind} of {group}" if group else kind)
            notes.append(Note(_name(document, kind), "kind", OTHER_KIND))
    if not found:
        refuse_kinds(", ".join(kinds.versions) + f" of {kinds.group}", others)
    return list(found.values())


def refuse_kinds(wanted: str, found: Iterable[str]) -> None:
    """Raise InvalidProblemError: the files hold other kinds than the system has."""
    shown = ", ".join(sorted(set(found))) or "nothing"
    raise InvalidProblemError(f"FILE: must hold {wanted}, but holds {shown}")


def _read_kind(document: Document) -> tuple[str, str, str]:
    """Return the API's group, its version, and the kind."""
    if not isinstance(document.value, Mapping):
        raise InvalidProblemError(f"{document.source}: must be an object with a kind, not {show_value(document.value)}")
    kind, api = (document.value.get(name) for name in ("kind", "apiVersion"))
    if not isinstance(kind, str) or not isinstance(api, str):
        return "", "", "an object without kind or apiVersion"
    group, _, version = api.rpartition("/")
    return group, version, kind if kind.isprintable() else show_value(kind)


def _name(document: Document, kind: str) -> str:
    meta = document.value.get("metadata") if isinstance(document.value, Mapping) else None
    name = meta.get("name") if isinstance(meta, Mapping) else None
    return f"{kind} {name}" if isinstance(name, str) and name.isprintable() else f"{kind} in {document.source}"


def _read_object(document: Document, kind: str, version: str, versions: Sequence[str]) -> ApiObject:
    unnamed = Place(document.source, kind)
    if version not in versions:
        unnamed.to("apiVersion").refuse(version, f"of version {' or '.join(versions)}")
    body = Section(document.value, unnamed)
    meta = body.take_section("metadata")
    name = meta.take_name("name")
    if not name:
        meta.place.to("name").refuse(meta.take("name"), "the object's name")
    namespace = meta.take_namespace("namespace")
    owner = f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}"
    place = Place(document.source, owner)
    return ApiObject(kind, name, namespace, version, place, Section(document.value, place))
