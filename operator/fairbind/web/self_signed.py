"""A certificate that signs itself, for HTTPS where none is given.

It keeps tokens and numbers from eavesdroppers. No client can know that it is ours, so it does not help
against one who stands in between. It is made at each start and again long before its end, and its key is never written
down as it is.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import secrets
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fairbind.web.tls import LOOK_SECONDS, make_context

LIFETIME = dt.timedelta(days=90)
CLOCK_SKEW = dt.timedelta(hours=1)
RENEW_AFTER = dt.timedelta(days=60)


class SelfSignedCertificate:
    """A TLS context for a server with a certificate that is made here."""

    def __init__(self) -> None:
        self.context = make_context()
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

        Python's ssl reads files only. The key in the file is encrypted, by a password that never leaves the process.
        """
        self._made_at = _now()
        password = secrets.token_bytes(32).hex().encode("ascii")
        with tempfile.TemporaryDirectory(prefix="fairbind-") as folder:
            path = Path(folder) / "pair.pem"
            path.touch(mode=0o600)
            path.write_bytes(make_pair(self._made_at, password))
            self.context.load_cert_chain(path, password=password)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def make_pair(now: dt.datetime, password: bytes) -> bytes:
    """Return a certificate and its encrypted key as PEM text."""
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
