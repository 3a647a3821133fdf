"""Checksums of a release's files, and the signature over them.

The signature is Ed25519 in base64, over the checksums' file as it is: ``cosign verify-blob`` and ``openssl pkeyutl``
verify it with nothing but the public key.
"""

from __future__ import annotations

import base64
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from release.archives import compute_digest
from release.failures import ReleaseError

CHECKSUMS = "SHA256SUMS"
SIGNATURE = "SHA256SUMS.sig"


def write_checksums(folder: Path) -> Path:
    """Write the digests of all files in a folder, as ``sha256sum --check`` reads them; return the file's path."""
    target = folder / CHECKSUMS
    lines = [f"{compute_digest(path)}  {path.name}\n" for path in sorted(folder.iterdir()) if path != target]
    target.write_text("".join(lines), encoding="utf-8")
    return target


def load_key(path: Path, password: str | None = None) -> Ed25519PrivateKey:
    """Return the private key of a PEM file; ReleaseError when it is none, or of another kind."""
    try:
        key = load_pem_private_key(path.read_bytes(), password.encode() if password else None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ReleaseError(f"{path} is no private key that can be used: {error}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ReleaseError(f"{path} must hold an Ed25519 key (openssl genpkey -algorithm ed25519)")
    return key


def sign(file: Path, key: Ed25519PrivateKey) -> Path:
    """Write the signature over a file beside it; return its path."""
    target = file.with_name(SIGNATURE)
    target.write_bytes(base64.b64encode(key.sign(file.read_bytes())) + b"\n")
    return target


def is_signed(file: Path, signature: Path, key: Ed25519PublicKey) -> bool:
    """Tell whether a signature was made over this file with the key that belongs to this one."""
    try:
        key.verify(base64.b64decode(signature.read_bytes()), file.read_bytes())
    except InvalidSignature:
        return False
    return True
