"""Where the files of a release come from, as SLSA provenance that is signed.

An in-toto statement names each file by its digest, the image by that of its index, and what they were made of: the
commit, the locks, and the base of the image. It is signed as a DSSE envelope with the key of the release, and written
as one line of JSON. It holds no time and no name of a machine, so the same build has the same provenance.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from release.archives import compute_digest
from release.bases import Base
from release.sources import Commit

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://slsa.dev/provenance/v1"
PAYLOAD = "application/vnd.in-toto+json"
REPOSITORY = "https://github.com/fairbind/fairbind"
BUILD_TYPE = f"{REPOSITORY}/blob/main/docs/release.md#provenance"
BY_HAND = f"{REPOSITORY}/blob/main/docs/release.md#build-one"
"""The builder where none is named: a developer's machine."""
LOCKS = ("deploy/requirements.txt", "tests/requirements.txt", "deploy/tools/local/go/cluster/go.sum")
"""What pins the image's packages, the programs that build packages, and helm."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Build:
    """What a release was made of and by whom. builder: a URI. index: digest of the image's index, None without one."""

    commit: Commit
    builder: str
    platforms: Sequence[str]
    bases: Sequence[Base]
    index: str | None


def describe(folder: Path, tree: Path, build: Build) -> Json:
    """Return the statement about all files of a folder. tree: the sources."""
    subjects = [_describe_digest(path.name, compute_digest(path)) for path in sorted(folder.iterdir())]
    if build.index is not None:
        subjects.append(_describe_digest("fairbind", build.index.removeprefix("sha256:")))
    materials: list[Json] = [{"uri": f"git+{REPOSITORY}", "digest": {"gitCommit": build.commit.revision}}]
    for base in sorted(set(build.bases), key=lambda base: base.reference):
        digest = {"digest": {"sha256": base.digest.removeprefix("sha256:")}} if base.digest else {}
        materials.append({"uri": f"pkg:docker/{base.name.replace(':', '@', 1)}", **digest})
    present = [path for path in LOCKS if (tree / path).exists()]
    materials += [_describe_digest(path, compute_digest(tree / path)) for path in present]
    definition = {
        "buildType": BUILD_TYPE,
        "externalParameters": {"command": "make release", "platforms": list(build.platforms)},
        "resolvedDependencies": materials,
    }
    predicate = {"buildDefinition": definition, "runDetails": {"builder": {"id": build.builder}}}
    return {"_type": STATEMENT, "subject": subjects, "predicateType": PREDICATE, "predicate": predicate}


def write(target: Path, statement: Mapping[str, Any], key: Ed25519PrivateKey) -> None:
    """Write a statement, signed, as one line."""
    payload = json.dumps(statement, sort_keys=True, separators=(",", ":")).encode()
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    signature = {"keyid": hashlib.sha256(public).hexdigest(), "sig": _encode(key.sign(_compute_signed(payload)))}
    envelope = {"payload": _encode(payload), "payloadType": PAYLOAD, "signatures": [signature]}
    target.write_text(json.dumps(envelope, sort_keys=True, separators=(",", ":")) + "\n", encoding="utf-8")


def read(file: Path, key: Ed25519PublicKey) -> Json | None:
    """Return the statement that a file holds, None unless it was signed with the key that belongs to this one."""
    envelope = json.loads(file.read_bytes())
    payload = base64.b64decode(envelope["payload"])
    try:
        key.verify(base64.b64decode(envelope["signatures"][0]["sig"]), _compute_signed(payload))
    except InvalidSignature:
        return None
    statement: Json = json.loads(payload)
    return statement


def _describe_digest(name: str, digest: str) -> Json:
    return {"name": name, "digest": {"sha256": digest}}


def _compute_signed(payload: bytes) -> bytes:
    """Return what DSSE signs: type and payload, each with its length."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD), PAYLOAD.encode(), len(payload), payload)


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()
