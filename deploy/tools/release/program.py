"""Build a release twice, compare, and write it down with checksums and a signature."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import sbom
from fairbind import __version__
from kindcluster.commands import KindError
from localplane.failures import ToolError
from localplane.tools import ensure_tools
from release import bases, image_signatures, images, layouts, notices, packages, provenance, signatures, sources
from release.archives import compute_digest
from release.bases import Base
from release.failures import ReleaseError
from release.layouts import Json, Layout

ROOT = Path(__file__).resolve().parents[3]
OUTPUT = ROOT / "dist" / "release"
PLATFORMS = ("linux/amd64", "linux/arm64")
IMAGE_SIGNATURE = "-signature.tar"
PASSWORD = "FAIRBIND_RELEASE_KEY_PASSWORD"  # noqa: S105  the name of a variable
# The second build differs in what must not matter: the folder's name, the time zone, the order of sets.
SURROUNDINGS = ({"TZ": "UTC", "PYTHONHASHSEED": "1"}, {"TZ": "Asia/Tokyo", "PYTHONHASHSEED": "2"})


@dataclass(frozen=True, slots=True)
class Plan:
    """What is built. base: of the image, None for the one that the commit names. builder: who builds, as a URI.

    platforms: of the image, none for the engine's own. layouts: images that were built elsewhere.
    """

    root: Path
    commit: sources.Commit
    base: Base | None
    builder: str
    with_packages: bool
    with_image: bool
    platforms: tuple[str, ...]
    layouts: tuple[Path, ...]


def main(arguments: Sequence[str] | None = None) -> int:
    """Build the release; return the exit status: 1 when it cannot be built or is not the same twice."""
    options = parse(arguments)
    try:
        key = None
        if options.key is not None:
            key = signatures.load_key(options.key, os.environ.get(PASSWORD))
        plan = make_plan(options)
        with tempfile.TemporaryDirectory(prefix="fairbind-release-") as name:
            made = build_twice(plan, Path(name))
            if plan.with_packages:
                finish(plan, made, Path(name), key)
            shutil.rmtree(options.output, ignore_errors=True)
            shutil.copytree(made, options.output)
    except (ReleaseError, KindError, ToolError) as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    report(options.output, is_signed=key is not None, with_packages=not options.image_only)
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="make release", description=__doc__)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the folder to write; what was in it goes away")
    parser.add_argument("--key", type=Path, help=f"sign with this Ed25519 key in PEM ({PASSWORD}: its password)")
    parser.add_argument(
        "--platform",
        choices=PLATFORMS,
        action="append",
        default=[],
        help="build the image for this one (may be repeated); the engine must run its programs. Default: its own",
    )
    parser.add_argument("--layouts", type=Path, nargs="*", default=[], help="take these images instead of building one")
    parser.add_argument("--base", help="another base of the image than the commit names in deploy/base/Dockerfile")
    parser.add_argument("--builder", default=provenance.BY_HAND, help="who builds, as the provenance names it: a URI")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--image-only", action="store_true", help="build the image alone, for a release put together elsewhere"
    )
    which.add_argument("--without-image", action="store_true", help="leave out the image, and what describes it")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument("--allow-changes", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def make_plan(options: argparse.Namespace) -> Plan:
    """Return what is to be built, of which commit."""
    return Plan(
        root=options.root,
        commit=sources.find_commit(options.root, allow_changes=options.allow_changes),
        base=bases.parse_base(options.base) if options.base else None,
        builder=options.builder,
        with_packages=not options.image_only,
        with_image=not options.without_image,
        platforms=tuple(options.platform),
        layouts=tuple(options.layouts),
    )


def build_twice(plan: Plan, folder: Path) -> Path:
    """Build everything twice; return the folder with the first, or raise ReleaseError that names what differs.

    Helm is built for this release alone: what lies in the cache, or in PATH, others may have put there.
    """
    made = [folder / "first", folder / "other" / "second"]
    helm = ensure_tools(["helm"], cache=folder / "tools").path("helm") if plan.with_packages else None
    for number, (target, settings) in enumerate(zip(made, SURROUNDINGS, strict=True), start=1):
        print(f"building the release of {plan.commit.revision[:12]}, time {number} of 2", flush=True)
        build(plan, target, helm, **settings)
    differing = find_differences(*made)
    if differing:
        raise ReleaseError(f"a second build of the same commit differs in {', '.join(differing)}")
    return made[0]


def build(plan: Plan, target: Path, helm: Path | None, **settings: str) -> None:
    """Build everything once, into a folder that does not exist yet. helm: what packages the chart, if it is wanted."""
    tree = target.parent / f"{target.name}-tree"
    sources.export_tree(plan.root, tree, plan.commit)
    target.mkdir()
    if helm is not None:
        packages.build_distributions(tree, target, plan.commit.epoch, **settings)
        packages.build_chart(tree, target, plan.commit.epoch, str(helm), **settings)
        packages.build_results(tree, target, plan.commit.epoch)
        shutil.copy(tree / "LICENSE", target)
    layout = build_image(plan, tree) if plan.with_image else None
    if layout is not None:
        platforms = [layouts.name_platform(image["platform"]) for image in layout.list_images()]
        suffix = "" if plan.with_packages else "".join(f"-{platform.replace('/', '-')}" for platform in platforms)
        layouts.pack(layout, target / f"fairbind-{__version__}-image{suffix}.oci.tar", plan.commit.epoch)
    if plan.with_packages:
        describe(tree, layout, target)


def build_image(plan: Plan, tree: Path) -> Layout:
    """Build the image for each platform, or take those that were built elsewhere; put them together."""
    layout = Layout(tree.parent / f"{tree.name}-image")
    if not plan.layouts:
        base = plan.base or bases.read_base(tree)
        platforms: list[str | None] = [*images.order_platforms(plan.platforms)] or [None]
        built = [Layout(tree.parent / f"{tree.name}-image-{number}") for number in range(len(platforms))]
        for platform, part in zip(platforms, built, strict=True):
            images.build_layout(tree, part, plan.commit, base=base, platform=platform)
        layouts.unite(built, layout, __version__)
        return layout
    given = [
        layouts.unpack(archive, tree.parent / f"{tree.name}-layout-{number}")
        for number, archive in enumerate(plan.layouts)
    ]
    for part in given:
        for image in part.list_images():
            labels = part.read(part.read(image)["config"])["config"].get("Labels", {})
            if labels.get("org.opencontainers.image.revision") != plan.commit.revision:
                raise ReleaseError(
                    f"an image among {[str(path) for path in plan.layouts]} is not of {plan.commit.revision}"
                )
    layouts.unite(given, layout, __version__)
    return layout


def finish(plan: Plan, folder: Path, scratch: Path, key: Ed25519PrivateKey | None) -> None:
    """Add what is there once: with a key the image's signature and the provenance; the checksums, and their signature.

    folder: with all that was built. scratch: a folder for what does not stay.
    """
    if key is not None:
        index, made = None, list[Json]()
        for archive in folder.glob("*.oci.tar"):
            layout = layouts.unpack(archive, scratch / "signed")
            index, made = (
                layout.find_index(),
                [layout.read(layout.read(image)["config"]) for image in layout.list_images()],
            )
            target = folder / archive.name.replace(".oci.tar", IMAGE_SIGNATURE)
            image_signatures.write_signature(index, key, target, scratch / "signature", plan.commit.epoch)
        build = provenance.Build(
            commit=plan.commit,
            builder=plan.builder,
            platforms=[layouts.name_platform(configuration) for configuration in made],
            bases=[base for base in map(bases.find_base, made) if base is not None],
            index=index,
        )
        statement = provenance.describe(folder, scratch / "first-tree", build)
        provenance.write(folder / f"fairbind-{__version__}.intoto.jsonl", statement, key)
    checksums = signatures.write_checksums(folder)
    if key is not None:
        signatures.sign(checksums, key)


def describe(tree: Path, layout: Layout | None, target: Path) -> None:
    """Write what the image consists of, and under which licences; without an image, what its lock names."""
    layers = [notices.read_texts(layer) for layer in layout.list_layers()] if layout is not None else []
    bom = sbom.describe_packages((tree / "deploy" / "requirements.txt").read_text(encoding="utf-8"))
    bom["metadata"]["component"]["version"] = __version__
    bom["components"] += [sbom.describe_record(record) for record in notices.find_records(layers)]
    (target / f"fairbind-{__version__}.cdx.json").write_text(json.dumps(bom, indent=2) + "\n", encoding="utf-8")
    if layers:
        texts = {path: text for layer in layers for path, text in layer.items()}
        (target / "THIRD-PARTY-NOTICES.txt").write_text(notices.compute_notices(texts), encoding="utf-8")


def find_differences(first: Path, second: Path) -> list[str]:
    """Return the names of the files that two folders do not have in common, byte for byte."""
    digests = [{path.name: compute_digest(path) for path in folder.iterdir()} for folder in (first, second)]
    return sorted({name for name, _ in digests[0].items() ^ digests[1].items()})


def report(folder: Path, *, is_signed: bool, with_packages: bool) -> None:
    """Say what there is, and what there is not."""
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size / 1e6:8.1f} MB  {path}")
    archives = list(folder.glob("*.oci.tar"))
    built: list[str] = []
    for archive in archives:
        with tempfile.TemporaryDirectory(prefix="fairbind-layout-") as name:
            layout = layouts.unpack(archive, Path(name))
            built += [layouts.name_platform(image["platform"]) for image in layout.list_images()]
    missing = [platform for platform in PLATFORMS if platform not in built]
    print("built twice, and the same both times")
    if archives:
        print(f"the image is for {' and '.join(built)}")
    if missing and with_packages:
        print(f"no image for {' and '.join(missing)}: docs/release.md says how to add one", file=sys.stderr)
    if with_packages and not is_signed:
        print("not signed, and without provenance: no key was given", file=sys.stderr)
