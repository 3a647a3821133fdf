"""Users inside a tenant: each value of a label of its pods is a leaf below it, and pods without the label are one more.

The leaf of user `va` of tenant `research` is called `va@research`, the one of pods without the label `@research`. No
Tenant and no namespace can have such a name. What is no valid value of a label, which only objects have that no API
server has seen, counts as no label.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_SIGN = "@"
_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
"""A value of a label that says something."""
_MANY_USERS = 16_384


def name_user(tenant: str, label: str, labels: Iterable[tuple[str, str]]) -> str:
    """Return the leaf of a tenant that holds a pod. label: which says the user. labels: of the pod.

    >>> name_user("research", "user", (("user", "va"),)), name_user("research", "user", (("user", "v@a"),))
    ('va@research', '@research')
    """
    return _name_leaf(tenant, next((value for key, value in labels if key == label), ""))


def find_tenant_of_leaf(leaf: str) -> str:
    """Return the name of the Tenant whose leaf it would be, if there is one.

    >>> find_tenant_of_leaf("va@research"), find_tenant_of_leaf("research"), find_tenant_of_leaf("ns/team")
    ('research', 'research', 'ns/team')
    """
    return leaf.rpartition(_SIGN)[2]


def is_user(leaf: str) -> bool:
    """Whether a leaf is a user of a tenant, or the one of its pods without a user."""
    return _SIGN in leaf


def name_rest(tenant: str) -> str:
    """Return as what several users of a tenant are shown together; no user has such a name."""
    return f"*{_SIGN}{tenant}"


@lru_cache(_MANY_USERS)
def _name_leaf(tenant: str, value: str) -> str:
    """Return the name; the same object each time, as thousands of pods share it."""
    return f"{value if _VALUE.fullmatch(value) else ''}{_SIGN}{tenant}"
