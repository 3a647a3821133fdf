"""Images in the OCI layout: blobs by digest, one index with an image for each platform.

Any tool that moves images reads it: ``skopeo copy --all oci-archive:FILE docker://REGISTRY/fairbind:VERSION``.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from release.archives import compress, compute_digest, write_tar
from release.failures import ReleaseError

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIGURATION = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
REFERENCE = "org.opencontainers.image.ref.name"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Layout:
    """A folder in the OCI layout, or one that becomes such."""

    folder: Path

    def find_blob(self, digest: str) -> Path:
        """Return where the blob with this digest (``sha256:...``) is."""
        algorithm, _, digits = digest.partition(":")
        return self.folder / "blobs" / algorithm / digits

    def read(self, descriptor: Mapping[str, Any]) -> Json:
        """Return the JSON that a descriptor points to."""
        found: Json = json.loads(self.find_blob(descriptor["digest"]).read_bytes())
        return found

    def add_file(self, path: Path, media_type: str) -> Json:
        """Take a file in as a blob, and return its descriptor; the file is moved."""
        descriptor = {"mediaType": media_type, "digest": f"sha256:{compute_digest(path)}", "size": path.stat().st_size}
        blob = self.find_blob(str(descriptor["digest"]))
        blob.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, blob)
        return descriptor

    def add_json(self, document: Mapping[str, Any], media_type: str) -> Json:
        """Take a document in as a blob, and return its descriptor."""
        content = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        blob = self.find_blob(digest)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    def list_images(self) -> list[Json]:
        """Return the descriptors of the images, each with its platform."""
        index = json.loads((self.folder / "index.json").read_bytes())
        return [image for entry in index["manifests"] for image in self.read(entry)["manifests"]]

    def find_index(self) -> str:
        """Return the digest of the index of all images, which is what a tag names."""
        (entry,) = json.loads((self.folder / "index.json").read_bytes())["manifests"]
        digest: str = entry["digest"]
        return digest

    def list_layers(self) -> Iterator[Path]:
        """Yield the layers of all images."""
        for image in self.list_images():
            yield from (self.find_blob(layer["digest"]) for layer in self.read(image)["layers"])

    def write_index(self, images: Sequence[Mapping[str, Any]], reference: str) -> None:
        """Write what makes the folder a layout. images: descriptors, each with its platform; reference: a version."""
        ordered = sorted(images, key=lambda image: name_platform(image["platform"]))
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": ordered}
        self.write_top(self.add_json(index, INDEX) | {"annotations": {REFERENCE: reference}})

    def write_top(self, entry: Mapping[str, Any]) -> None:
        """Write what makes the folder a layout, of one entry."""
        top = {"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}
        (self.folder / "index.json").write_text(json.dumps(top, sort_keys=True), encoding="utf-8")
        (self.folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}', encoding="utf-8")


def name_platform(platform: Mapping[str, str]) -> str:
    """Return a platform as it is written on command lines.

    >>> name_platform({"os": "linux", "architecture": "arm64"})
    'linux/arm64'
    """
    return f"{platform['os']}/{platform['architecture']}"


def add_image(layout: Layout, layer: Path, configuration: Mapping[str, Any], *, epoch: int) -> Json:
    """Take an image of one layer in, and return its descriptor.

    layer: a tar archive, which is moved. configuration: `os`, `architecture` and `config`, as the engine knows them.
    """
    difference = f"sha256:{compute_digest(layer)}"
    compressed = layer.with_suffix(".gz")
    compress(layer, compressed)
    layer.unlink()
    layers = [layout.add_file(compressed, LAYER)]
    created = _format_time(epoch)
    document = {
        **configuration,
        "created": created,
        "rootfs": {"type": "layers", "diff_ids": [difference]},
        "history": [{"created": created, "created_by": "deploy/Dockerfile"}],
    }
    config = layout.add_json(document, CONFIGURATION)
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
    platform = {"os": configuration["os"], "architecture": configuration["architecture"]}
    return layout.add_json(manifest, MANIFEST) | {"platform": platform}


def unpack(archive: Path, folder: Path) -> Layout:
    """Return the layout that a tar archive holds; ReleaseError where a blob is not what its name says."""
    try:
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
    except (OSError, tarfile.TarError) as error:
        raise ReleaseError(f"{archive} is no archive of an OCI layout: {error}") from error
    for blob in sorted(folder.glob("blobs/sha256/*")):
        if compute_digest(blob) != blob.name:
            raise ReleaseError(f"{archive}: the blob {blob.name} has another content than its name says")
    return Layout(folder)


def unite(layouts: Sequence[Layout], target: Layout, reference: str) -> None:
    """Make one layout of several, each with images for other platforms."""
    images: dict[str, Json] = {}
    for layout in layouts:
        for image in layout.list_images():
            platform = name_platform(image["platform"])
            if platform in images:
                raise ReleaseError(f"two images are for {platform}")
            images[platform] = image
            manifest = layout.read(image)
            for descriptor in (image, manifest["config"], *manifest["layers"]):
                blob = target.find_blob(descriptor["digest"])
                blob.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(layout.find_blob(descriptor["digest"]), blob)
    target.write_index(list(images.values()), reference)


def pack(layout: Layout, target: Path, epoch: int) -> None:
    """Write a layout as one file."""
    write_tar(layout.folder, target, epoch)


def _format_time(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
