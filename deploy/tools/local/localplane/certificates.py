"""The keys and certificates of one control plane: an authority of its own, valid for a year, on elliptic curves.

Each plane has its own authority, so no client can mistake one plane's server for another's: a client that reaches the
wrong port fails the TLS handshake instead of talking to a stranger.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LIFETIME = dt.timedelta(days=365)
CLOCK_SKEW = dt.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key as PEM text."""

    certificate: bytes
    key: bytes

    def write(self, certificate_path: Path, key_path: Path) -> None:
        """Write both; the key is readable by its owner only."""
        certificate_path.write_bytes(self.certificate)
        write_secret(key_path, self.key)


class Authority:
    """A certificate authority that lives in memory and in the plane's own folder."""

    def __init__(self, common_name: str = "fairbind-local") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _compute_name(common_name, ())
        builder = (
            _compute_builder(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_compute_key_usage(is_authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
        )
        self._certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def certificate(self) -> bytes:
        """The authority's own certificate as PEM text."""
        return self._certificate.public_bytes(serialization.Encoding.PEM)

    def issue_server(self, common_name: str, hosts: Sequence[str]) -> KeyPair:
        """Issue a certificate for servers (and clients: etcd's own gateway is both) under these names and addresses."""
        names = [_compute_general_name(host) for host in hosts]
        return self._issue(common_name, (), names, (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH))

    def issue_client(self, user: str, groups: Sequence[str] = ()) -> KeyPair:
        """Issue a client certificate; Kubernetes reads the user from CN and the groups from O."""
        return self._issue(user, groups, [], (ExtendedKeyUsageOID.CLIENT_AUTH,))

    def _issue(
        self,
        common_name: str,
        groups: Sequence[str],
        names: Sequence[x509.GeneralName],
        usages: Sequence[x509.ObjectIdentifier],
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _compute_builder(_compute_name(common_name, groups), self._name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_compute_key_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _compute_key_pem(key))


def issue_signing_key() -> tuple[bytes, bytes]:
    """Return a private and a public key as PEM text: what service account tokens are signed and checked with."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _compute_key_pem(key), public


def write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read."""
    path.touch(mode=0o600)
    path.write_bytes(content)


def _compute_key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    # kube-controller-manager reads EC keys in the traditional form only
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _compute_builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _compute_name(common_name: str, groups: Sequence[str]) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _compute_key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _compute_general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
