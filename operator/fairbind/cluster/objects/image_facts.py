"""The images that a pod uses and that a node has, by the names that both write.

kube-scheduler compares these names as they are written, but for the tag: a name without one means the tag `latest`. So
`test:1` in a pod is not `docker.io/library/test:1` on a node, though a kubelet would find it there.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from fairbind.cluster.objects import wire
from fairbind.model import MAX_AMOUNT

MAX_IMAGES = 32
"""So many images of a pod count at most: a pod with more has the others nowhere."""

MAX_NODE_NAMES = 1_024
"""So many names of images on a node count at most. Kubelets list 50 images, the largest first."""

MAX_NAME = 512
"""An image whose name has more characters is nowhere."""

MAX_SHARED_IMAGES = 16_384
MAX_SHARED_NAMES = 4_096
MAX_SHARED_USES = 1_024
"""Images of nodes, names in pods, and lists of them: thousands of objects have the same few."""

NodeImages = tuple[tuple[tuple[str, ...], int], ...]
"""(names, bytes) of each image that a node has, as it lists them."""


@dataclass(frozen=True, slots=True)
class ImageUse:
    """The images of a pod, as far as they count.

    sources: how many containers and volumes have one, each of them counts. names: of their images, sorted; one that is
    used twice is there twice.
    """

    sources: int = 0
    names: tuple[str, ...] = ()

    def keep(self, known: Container[str]) -> ImageUse:
        """Return what is left when only some names count. Without any, nothing depends on how many images there are."""
        names = tuple(name for name in self.names if name in known)
        if len(names) == len(self.names):
            return self
        return ImageUse(self.sources, names) if names else NO_IMAGES


NO_IMAGES = ImageUse()


@lru_cache(maxsize=MAX_SHARED_NAMES)
def normalize_name(name: str) -> str:
    """Return the name of an image with its tag, as nodes list it.

    >>> normalize_name("registry.example:5000/web"), normalize_name("web:1")
    ('registry.example:5000/web:latest', 'web:1')
    """
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


@lru_cache(maxsize=MAX_SHARED_IMAGES)
def _share_image(names: tuple[str, ...], size: int) -> tuple[tuple[str, ...], int]:
    """Return one object for equal images of nodes."""
    return names, size


@lru_cache(maxsize=MAX_SHARED_USES)
def _share_use(sources: int, names: tuple[str, ...]) -> ImageUse:
    """Return one object for equal images of pods: the replicas of a workload have the same."""
    return ImageUse(sources, names)


def find_images(spec: wire.PodSpec) -> ImageUse:
    """Return the images of all containers and of volumes that are images."""
    written = list(_list_images(spec))
    names = sorted(normalize_name(name) for name in written[:MAX_IMAGES] if 0 < len(name) <= MAX_NAME)
    return _share_use(len(written), tuple(names)) if names else NO_IMAGES


def _list_images(spec: wire.PodSpec) -> Iterator[str]:
    """Return the images as they are written, or nothing where none is, in the order in which kube-scheduler counts."""
    for containers in (spec.init_containers, spec.containers):
        for container in containers or ():
            yield container.image or ""
    for volume in spec.volumes or ():
        if volume.image is not None:
            yield volume.image.reference or ""


def convert_images(images: Iterable[wire.NodeImage]) -> NodeImages:
    """Return the images of a node, the first if there are very many. A size that makes no sense counts as none."""
    kept, left = [], MAX_NODE_NAMES
    for image in images:
        names = tuple(name for name in image.names or () if len(name) <= MAX_NAME)[:left]
        left -= len(names)
        if names:
            kept.append(_share_image(names, min(max(image.size_bytes, 0), MAX_AMOUNT)))
        if not left:
            break
    return tuple(kept)
