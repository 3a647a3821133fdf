"""Pins: required node affinity that names one node, as the DaemonSet controller writes it into each pod that it makes.

A DaemonSet's pods are equal but for that name. With it, each of them would have constraints that no other pod has, and
all that is computed once for equal constraints would be computed once for each node. So the name is split off: what is
left is what the template says, one for all pods of the DaemonSet.
"""

from __future__ import annotations

from fairbind.cluster.objects.selectors import NAME_FIELD, NodeTerm

Terms = tuple[NodeTerm, ...] | None
"""Terms of which one must hold; None: there is no such term."""


def split_pin(required: Terms) -> tuple[Terms, str | None]:
    """Return what required affinity says besides the name of one node, and that name; None: it names no node.

    It does when each term asks for that very name and for no other field. Both parts together say what the whole says.
    """
    names = {_find_name(term) for term in required or ()}
    if required is None or len(names) != 1:
        return required, None
    (name,) = names
    if name is None:
        return required, None
    if any(not term.labels for term in required):
        return None, name  # that term asks for nothing but the name
    return tuple(sorted({NodeTerm(term.labels) for term in required})), name


def _find_name(term: NodeTerm) -> str | None:
    """Return the one name that a term asks for, if that is the only field that it looks at."""
    if len(term.fields) != 1:
        return None
    (field,) = term.fields
    is_name = field.key == NAME_FIELD and field.operator == "In" and len(field.values) == 1
    return field.values[0] if is_name else None
