"""From queues to Tenants: names that differ, a tree without a circle, guarantees that reach their children.

A child's guarantee counts only up to its parent's, where that has one. Where the parent's queue says nothing of a
resource, its Tenant gets the sum of its children's; where it says less, that stays, and a note says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from fairbind.cluster.objects.quantity import find_unit, format_quantity
from fairbind.cluster.tenancy.node_amounts import MAX_AMOUNTS, MAX_ENTRIES
from fairbind.cluster.tenancy.tenants import parse_tenant
from fairbind.cluster.tenancy.tree import build_tree
from fairbind.importing.fields import MOST_LETTERS, Place
from fairbind.importing.notes import Note
from fairbind.importing.queues import Amounts, Queue, Reading, add_up
from fairbind.model.errors import InvalidProblemError

MOST_NAMESPACES: Final = 1000
MOST_LABELS: Final = 8
WEIGHT_DECIMALS: Final = 6
API_VERSION: Final = "fairbind.io/v1alpha1"
_DECIMAL_SUFFIXES: Final = (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3))


def make_tenants(reading: Reading) -> list[dict[str, Any]]:
    """Return the Tenants, parents before their children; adds notes. Raises InvalidProblemError for a circle."""
    queues, notes = reading.queues, reading.notes
    _cut_missing_parents(queues, notes)
    order = _put_in_order(queues)
    names = _choose_names(queues, notes)
    _fill_guarantees(queues, order, notes)
    tenants = []
    for key in order:
        queue = queues[key]
        parent = None if queue.parent is None else names[queue.parent]
        spec = _make_spec(queue, parent, notes)
        tenants.append({"apiVersion": API_VERSION, "kind": "Tenant", "metadata": {"name": names[key]}, "spec": spec})
    places = {names[key]: _find_parent_place(queue) for key, queue in queues.items()}
    trouble = build_tree(map(parse_tenant, tenants)).trouble_of
    notes += [places[name].note(f"{reason}: {text}") for name, (reason, text) in sorted(trouble.items())]
    return tenants


def find_unclaiming(tenants: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the Tenants that have neither namespaces nor children."""
    parents = {tenant["spec"].get("parent") for tenant in tenants}
    names = [tenant["metadata"]["name"] for tenant in tenants if "namespaces" not in tenant["spec"]]
    return [name for name in names if name not in parents]


def _cut_missing_parents(queues: Mapping[str, Queue], notes: list[Note]) -> None:
    for queue in queues.values():
        if queue.parent is not None and queue.parent not in queues:
            notes.append(_find_parent_place(queue).note(f"{queue.parent} is in none of the files; none is written"))
            queue.parent = None


def _find_parent_place(queue: Queue) -> Place:
    return queue.parent_place or queue.place.to("parent")


def _put_in_order(queues: Mapping[str, Queue]) -> list[str]:
    """Return the keys, parents before their children, else in the order of the files."""
    children: dict[str | None, list[str]] = {}
    for key, queue in queues.items():
        children.setdefault(queue.parent, []).append(key)
    order: list[str] = []
    waiting = children.get(None, [])[::-1]
    while waiting:
        order.append(waiting.pop())
        waiting += reversed(children.get(order[-1], ()))
    if len(order) < len(queues):
        _refuse_circle(queues, next(key for key in queues if key not in set(order)))
    return order


def _refuse_circle(queues: Mapping[str, Queue], start: str) -> None:
    path: list[str] = []
    key = start
    while key not in path:
        path.append(key)
        parent = queues[key].parent
        assert parent is not None, "above a queue that has no root there is always another one"
        key = parent
    circle = [*path[path.index(key) :], key]
    place = queues[key].place
    raise InvalidProblemError(
        f"{place.source}: {place.owner}: its parents must not be a circle, but are {' -> '.join(circle)}"
    )


def _choose_names(queues: Mapping[str, Queue], notes: list[Note]) -> dict[str, str]:
    """Return the names of the Tenants by key; the second one of a name gets a number."""
    taken = {queue.name for queue in queues.values()}
    given: set[str] = set()
    names = {}
    for key, queue in queues.items():
        name, number = queue.name, 2
        while name in given or (name != queue.name and name in taken):
            name, number = f"{queue.name[: MOST_LETTERS - 6]}-{number}", number + 1
        if name != queue.name:
            notes.append(Note(queue.place.owner, "name", f"another Tenant is called {queue.name}; this one is {name}"))
        given.add(name)
        names[key] = name
    return names


def _fill_guarantees(queues: Mapping[str, Queue], order: Sequence[str], notes: list[Note]) -> None:
    children: dict[str, list[Amounts]] = {}
    for key in reversed(order):
        queue = queues[key]
        for (nodes, resource), amount in add_up(children.get(key, ())).items():
            own = queue.guarantee.setdefault((nodes, resource), amount)
            if 0 < own < amount:
                where = f" on nodes with {_show_labels(nodes)}" if nodes else ""
                least, most = (_format_amount(resource, each) for each in (own, amount))
                reason = f"{least} of {resource}{where} is less than the {most} of its children: theirs counts up to it"
                notes.append((queue.guarantee_place or queue.place).note(reason))
        if queue.parent is not None:
            children.setdefault(queue.parent, []).append(queue.guarantee)


def _show_labels(nodes: Sequence[tuple[str, str]]) -> str:
    return ",".join(f"{name}={value}" for name, value in nodes)


def _make_spec(queue: Queue, parent: str | None, notes: list[Note]) -> dict[str, Any]:
    guarantee = {key: amount for key, amount in queue.guarantee.items() if amount}
    spec: dict[str, Any] = {}
    if parent is not None:
        spec["parent"] = parent
    if queue.weight != 1:
        spec["weight"] = _format_weight(queue.weight)
    if queue.priority:
        spec["priority"] = queue.priority
    if queue.namespaces:
        spec["namespaces"] = _cut(queue, "namespaces", sorted(queue.namespaces), MOST_NAMESPACES, notes)
    if guarantee:
        spec["guarantee"] = _make_entries(queue, "guarantee", guarantee, notes)
        if queue.keeps:
            spec["lending"] = "Never"
    if queue.limit:
        spec["limit"] = _make_entries(queue, "limit", queue.limit, notes)
    if queue.min_runtime_seconds is not None:
        spec["minRuntimeSeconds"] = queue.min_runtime_seconds
    if queue.user_label is not None:
        spec["users"] = {"label": queue.user_label}
    return spec


def _cut(queue: Queue, field: str, entries: list[Any], most: int, notes: list[Note]) -> list[Any]:
    if len(entries) > most:
        reason = f"a Tenant has at most {most}; {len(entries) - most} are left out"
        notes.append(Note(queue.place.owner, field, reason))
    return entries[:most]


def _make_entries(queue: Queue, field: str, amounts: Amounts, notes: list[Note]) -> list[Any]:
    by_nodes: dict[tuple[tuple[str, str], ...], list[tuple[str, int]]] = {}
    for (nodes, resource), amount in sorted(amounts.items()):
        if len(nodes) > MOST_LABELS:
            reason = f"{resource} on nodes with {_show_labels(nodes)}: a selector has at most {MOST_LABELS} labels"
            notes.append(Note(queue.place.owner, field, reason))
        else:
            by_nodes.setdefault(nodes, []).append((resource, amount))
    entries = [
        _make_entry(nodes, pairs[first : first + MAX_AMOUNTS])
        for nodes, pairs in by_nodes.items()
        for first in range(0, len(pairs), MAX_AMOUNTS)
    ]
    return _cut(queue, field, entries, MAX_ENTRIES, notes)


def _make_entry(nodes: tuple[tuple[str, str], ...], pairs: Sequence[tuple[str, int]]) -> dict[str, Any]:
    selector = {"nodes": {"matchLabels": dict(nodes)}} if nodes else {}
    return {**selector, "resources": {resource: _format_amount(resource, amount) for resource, amount in pairs}}


def _format_amount(resource: str, amount: int) -> str:
    """Return base units as the shortest quantity: bytes are often written in powers of 1000 elsewhere.

    >>> _format_amount("memory", 5 * 10**11), _format_amount("memory", 2**34), _format_amount("cpu", 1500)
    ('500G', '16Gi', '1500m')
    """
    return min(_list_forms(resource, amount), key=len)


def _list_forms(resource: str, amount: int) -> Iterator[str]:
    yield format_quantity(resource, amount)
    if amount and find_unit(resource) == "byte":
        yield from (f"{amount // factor}{suffix}" for suffix, factor in _DECIMAL_SUFFIXES if amount % factor == 0)


def _format_weight(weight: Fraction) -> int | str:
    """Return a weight as a Tenant has it.

    >>> _format_weight(Fraction(3)), _format_weight(Fraction(1, 2)), _format_weight(Fraction(1, 3))
    (3, '0.5', '0.333333')
    """
    if weight.denominator == 1:
        return int(weight)
    return f"{float(weight):.{WEIGHT_DECIMALS}f}".rstrip("0").rstrip(".")
