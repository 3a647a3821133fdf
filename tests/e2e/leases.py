"""The operator's lease, held by a test."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from e2e.conftest import remove
from e2e.operators import LEASE, LEASES, format_now, make_lease_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.api import Api


@contextlib.contextmanager
def hold_lease(api: Api) -> Iterator[Callable[[], None]]:
    """Lead in an operator's place, for a minute after each renewal; the function lets go."""
    remove(api, LEASE)
    api.post(LEASES, {"metadata": {"name": "fairbind"}, "spec": make_lease_spec("a test")})
    try:
        yield lambda: api.patch(LEASE, {"spec": {"holderIdentity": ""}})
    finally:
        api.patch(LEASE, {"spec": {"holderIdentity": ""}})


def renew_lease(api: Api) -> None:
    """Lead for a minute more."""
    api.patch(LEASE, {"spec": {"renewTime": format_now()}})
