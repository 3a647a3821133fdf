"""The names of schedulers that pods ask for, by what is done with such pods."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedulers:
    """Names of schedulers. own: of the pods that are placed here.

    gated: the other scheduler whose pods are rationed; None: there is none. asking: schedulers that ask whose turn it
    is before they place a pod. narrows_to_nodes: see `narrowing`.
    """

    own: str
    gated: str | None = None
    asking: frozenset[str] = frozenset()
    narrows_to_nodes: bool = False
