"""The certificate with which pages are served by HTTPS, read again when it changes.

It comes as a folder with `tls.crt` and `tls.key`, as a Secret of type kubernetes.io/tls is mounted; where clients must
show certificates too, `ca.crt` says who has signed them. A renewed Secret changes the files under us. New connections
then get the new certificate, and old ones go on. A pair that cannot be used is reported, and the one before stays.
A context cannot lose an authority, so where clients show certificates each change makes another one.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from fairbind.model.errors import InvalidProblemError

CERTIFICATE = "tls.crt"
KEY = "tls.key"
CLIENT_CA = "ca.crt"
LOOK_SECONDS = 10.0

_log = logging.getLogger(__name__)

_Stamp = tuple[tuple[int, int, int], ...]


class Certificate(Protocol):
    """What pages are served with."""

    @property
    def context(self) -> ssl.SSLContext:
        """The TLS context for a server; new connections get what it holds at the time."""

    async def keep_fresh(self) -> None:
        """Renew what the context holds, for ever."""


def make_context() -> ssl.SSLContext:
    """Return a TLS context for a server, without a certificate yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class ServingCertificate:
    """A TLS context for a server that follows its files. InvalidProblemError when they cannot be used at the start.

    asks_clients: whether clients must show certificates. Then `context` is another one after each change.
    """

    def __init__(self, folder: Path, *, asks_clients: bool = False) -> None:
        self._certificate = folder / CERTIFICATE
        self._key = folder / KEY
        self._authorities = folder / CLIENT_CA if asks_clients else None
        try:
            self._stamp = self._read_stamp()
            self.context = self._make_context()
        except (OSError, ssl.SSLError) as error:
            with_authorities = f", or {CLIENT_CA} has no certificates" if asks_clients else ""
            raise InvalidProblemError(
                f"{folder}: {CERTIFICATE} and {KEY} are no usable pair{with_authorities}: {error}"
            ) from error

    def reload_if_changed(self) -> bool:
        """Take the files' new content; True when there was any and it could be used."""
        try:
            stamp = self._read_stamp()
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            made = self._make_context()  # first elsewhere: a pair that does not match would leave half of it behind
            if self._authorities is None:
                self._load(self.context)
            else:
                self.context = made
        except (OSError, ssl.SSLError) as error:
            _log.warning("%s cannot be used, the certificate before it stays: %s", self._certificate, error)
            return False
        _log.info("%s has changed and is used from now on", self._certificate)
        return True

    async def keep_fresh(self, on_change: Callable[[ssl.SSLContext], None] = lambda _context: None) -> None:
        """Look at the files for ever. on_change: called with the context after each change."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self.reload_if_changed():
                on_change(self.context)

    def _make_context(self) -> ssl.SSLContext:
        context = make_context()
        self._load(context)
        return context

    def _load(self, context: ssl.SSLContext) -> None:
        context.load_cert_chain(self._certificate, self._key)
        if self._authorities is not None:
            context.load_verify_locations(self._authorities)
            context.verify_mode = ssl.CERT_REQUIRED

    def _read_stamp(self) -> _Stamp:
        paths = [path for path in (self._certificate, self._key, self._authorities) if path is not None]
        found = (path.stat() for path in paths)
        return tuple((status.st_mtime_ns, status.st_ino, status.st_size) for status in found)
