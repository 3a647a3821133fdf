"""The certificate with which pages are served by HTTPS: given as files, or made here.

Files come as a folder with `tls.crt` and `tls.key`, as a Secret of type kubernetes.io/tls is mounted. Whoever renews
the Secret changes the files under us; new connections then get the new certificate and old ones go on. A pair that
cannot be used is reported, and the one before stays.

Where none is given, a certificate that signs itself keeps tokens and numbers from everybody who can only listen. Nobody
can know that it is ours, so it does not help against one who stands in between. It is made anew at each start and long
before its end, and its key is never written down as it is.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import secrets
import ssl
import tempfile
from pathlib import Path
from typing import Protocol

from fairbind.model.errors import InvalidProblemError

CERTIFICATE = "tls.crt"
KEY = "tls.key"
LOOK_SECONDS = 10.0
LIFETIME = dt.timedelta(days=90)
CLOCK_SKEW = dt.timedelta(hours=1)
RENEW_AFTER = dt.timedelta(days=60)

_log = logging.getLogger(__name__)

_Stamp = tuple[tuple[int, int, int], ...]


class Certificate(Protocol):
    """What pages are served with."""

    @property
    def context(self) -> ssl.SSLContext:
        """The TLS context for a server; new connections get what it holds at the time."""

    async def keep_fresh(self) -> None:
        """Renew what the context holds, for ever."""


class SelfSignedCertificate:
    """A TLS context for a server with a certificate that is made here."""

    def __init__(self) -> None:
        self.context = _make_empty_context()
        self._made_at = _now()
        self._load()

    def renew_if_old(self) -> bool:
        """Make another certificate when the present one is old; True when it was."""
        if _now() - self._made_at < RENEW_AFTER:
            return False
        self._load()
        return True

    async def keep_fresh(self) -> None:
        """Look at the time for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.renew_if_old()

    def _load(self) -> None:
        """Let new connections get a new certificate.

        Python's ssl reads files only. The key in the file is encrypted, by a password that nobody else ever has.
        """
        self._made_at = _now()
        password = secrets.token_bytes(32).hex().encode("ascii")
        with tempfile.TemporaryDirectory(prefix="fairbind-") as folder:
            path = Path(folder) / "pair.pem"
            path.touch(mode=0o600)
            path.write_bytes(_make_pair(self._made_at, password))
            self.context.load_cert_chain(path, password=password)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _make_pair(now: dt.datetime, password: bytes) -> bytes:
    """Return a certificate and its encrypted key as PEM text."""
    # Imported here: whoever gives a certificate does without.
    from cryptography import x509  # noqa: PLC0415
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fairbind")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("fairbind")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encryption = serialization.BestAvailableEncryption(password)
    encoded = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    return certificate.public_bytes(serialization.Encoding.PEM) + encoded


def _make_empty_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


class ServingCertificate:
    """A TLS context for a server that follows its files. InvalidProblemError when they cannot be used at the start."""

    def __init__(self, folder: Path) -> None:
        self._certificate = folder / CERTIFICATE
        self._key = folder / KEY
        try:
            self._stamp = self._read_stamp()
            self.context = self._make_context()
        except (OSError, ssl.SSLError) as error:
            raise InvalidProblemError(f"{folder}: {CERTIFICATE} and {KEY} are no usable pair: {error}") from error

    def reload_if_changed(self) -> bool:
        """Take the files' new content; True when there was any and it could be used."""
        try:
            stamp = self._read_stamp()
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            self._make_context()  # first elsewhere: a pair that does not match would leave half of it behind
            self.context.load_cert_chain(self._certificate, self._key)
        except (OSError, ssl.SSLError) as error:
            _log.warning("%s cannot be used, the certificate before it stays: %s", self._certificate, error)
            return False
        _log.info("%s has changed and is used from now on", self._certificate)
        return True

    async def keep_fresh(self) -> None:
        """Look at the files for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.reload_if_changed()

    def _make_context(self) -> ssl.SSLContext:
        context = _make_empty_context()
        context.load_cert_chain(self._certificate, self._key)
        return context

    def _read_stamp(self) -> _Stamp:
        found = (path.stat() for path in (self._certificate, self._key))
        return tuple((status.st_mtime_ns, status.st_ino, status.st_size) for status in found)
