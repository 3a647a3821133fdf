"""The signature over the image, in the form in which cosign looks for it beside an image in a registry.

It is an image of its own: its only layer is the text that was signed (simple signing), whose annotation is the
signature, and its tag names the digest of what was signed. So it lies beside the image's archive, which is the same
byte for byte with or without a key.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from release import layouts
from release.layouts import CONFIGURATION, MANIFEST, Layout

SIGNED = "application/vnd.dev.cosign.simplesigning.v1+json"
ANNOTATION = "dev.cosignproject.cosign/signature"
IDENTITY = "fairbind"
"""What stands for the image's name, which depends on the registry; the digest is what counts."""
BEGINNING = "0001-01-01T00:00:00Z"


def write_signature(digest: str, key: Ed25519PrivateKey, target: Path, scratch: Path, epoch: int) -> None:
    """Write the signature over an image as an archive of an OCI layout.

    digest: of the image's index, `sha256:...`. scratch: a folder that does not exist yet.
    """
    layout = Layout(scratch)
    payload = {
        "critical": {
            "identity": {"docker-reference": IDENTITY},
            "image": {"docker-manifest-digest": digest},
            "type": "cosign container image signature",
        },
        "optional": None,
    }
    layer = layout.add_json(payload, SIGNED)
    signature = key.sign(layout.find_blob(layer["digest"]).read_bytes())
    layer["annotations"] = {ANNOTATION: base64.b64encode(signature).decode()}
    configuration = {
        "architecture": "",
        "config": {},
        "created": BEGINNING,
        "history": [{"created": BEGINNING}],
        "os": "",
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    config = layout.add_json(configuration, CONFIGURATION)
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]}
    entry = layout.add_json(manifest, MANIFEST) | {"annotations": {layouts.REFERENCE: compute_tag(digest)}}
    layout.write_top(entry)
    layouts.pack(layout, target, epoch)


def compute_tag(digest: str) -> str:
    """Return the tag under which the signature of an image is looked for.

    >>> compute_tag("sha256:0123")
    'sha256-0123.sig'
    """
    return f"{digest.replace(':', '-')}.sig"


def read_payload(layout: Layout) -> tuple[bytes, bytes]:
    """Return what a layout of a signature says was signed, and the signature over it."""
    (entry,) = json.loads((layout.folder / "index.json").read_bytes())["manifests"]
    (layer,) = layout.read(entry)["layers"]
    return layout.find_blob(layer["digest"]).read_bytes(), base64.b64decode(layer["annotations"][ANNOTATION])
