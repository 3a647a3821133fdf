"""A release: the same each time, complete, and nothing in it that says more than is true."""

from __future__ import annotations

import base64
import io
import json
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fairbind import __version__
from house.tree import ROOT, find_files, name_of
from localplane.tools import ensure_tools
from release import (
    archives,
    bases,
    image_signatures,
    images,
    layouts,
    notices,
    packages,
    program,
    provenance,
    signatures,
    sources,
)
from release.failures import ReleaseError

EPOCH = 1_700_000_000
AMD64, ARM64 = 62, 183


def make_tar(target: Path, files: dict[str, bytes], *, time: int = 1, mode: str = "w") -> Path:
    """Write a tar archive whose members are in the given order, with an owner and a time of their own."""
    with tarfile.open(target, mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uid, member.uname = len(content), time, 1000, "somebody"
            archive.addfile(member, io.BytesIO(content))
    return target


def make_program(machine: int) -> bytes:
    """Return the beginning of a program for a processor."""
    return b"\x7fELF" + bytes(14) + machine.to_bytes(2, "little") + b"and so on"


def make_export(target: Path, machine: int = AMD64, *, time: int = 1) -> Path:
    """Write what an engine exports of an image: its files, and what the engine itself adds."""
    own = {".dockerenv": b"", "etc/hosts": str(time).encode(), "dev/console": b"", "etc/mtab": b""}
    files = {"opt/fairbind/bin/python3.13": make_program(machine), "etc/passwd": b"fairbind"}
    both = [*own.items(), *files.items()]
    return make_tar(target, dict(both if time == 1 else reversed(both)), time=time)


def make_layout(folder: Path, architecture: str = "amd64", machine: int = AMD64, *, time: int = 1) -> layouts.Layout:
    folder.mkdir(parents=True, exist_ok=True)
    inspected = {"Os": "linux", "Architecture": architecture, "Config": {"User": "65532:65532", "Volumes": None}}
    layout = layouts.Layout(folder / "layout")
    exported = make_export(folder / "exported.tar", machine, time=time)
    images.write_layout(layout, exported, images.describe(inspected), EPOCH, version="1.2.3")
    return layout


class TestArchives:
    @pytest.mark.parametrize("compressed", [True, False])
    def test_neither_order_nor_time_nor_owner_matter(self, tmp_path: Path, *, compressed: bool) -> None:
        first = make_tar(tmp_path / "a.tar", {"./b": b"2", "a": b"1"}, time=5)
        second = make_tar(tmp_path / "b.tar", {"a": b"1", "b": b"2"}, time=9)
        for source in (first, second):
            archives.rewrite_tar(source, source.with_suffix(".new"), EPOCH, compressed=compressed)

        assert (tmp_path / "a.new").read_bytes() == (tmp_path / "b.new").read_bytes()
        with tarfile.open(tmp_path / "a.new") as archive:
            found = [(member.name, member.mtime, member.uid, member.uname) for member in archive]
        assert found == [("a", EPOCH, 0, ""), ("b", EPOCH, 0, "")]

    def test_another_content_is_another_archive(self, tmp_path: Path) -> None:
        for number in (1, 2):
            source = make_tar(tmp_path / f"{number}.tar", {"a": str(number).encode()})
            archives.rewrite_tar(source, source.with_suffix(".new"), EPOCH, compressed=True)

        assert program.find_differences(tmp_path, tmp_path) == []
        assert (tmp_path / "1.new").read_bytes() != (tmp_path / "2.new").read_bytes()

    def test_what_has_no_fixed_form_is_refused(self, tmp_path: Path) -> None:
        with tarfile.open(tmp_path / "a.tar", "w") as archive:
            link = tarfile.TarInfo("link")
            link.type, link.linkname = tarfile.LNKTYPE, "a"
            archive.addfile(link)

        with pytest.raises(ReleaseError, match="link is no file"):
            archives.rewrite_tar(tmp_path / "a.tar", tmp_path / "b.tar", EPOCH, compressed=False)


class TestLayouts:
    def test_an_image_is_what_others_read(self, tmp_path: Path) -> None:
        layout = make_layout(tmp_path)
        (image,) = layout.list_images()
        manifest = layout.read(image)
        configuration = layout.read(manifest["config"])
        (layer,) = layout.list_layers()

        assert image["platform"] == {"os": "linux", "architecture": "amd64"}
        assert json.loads((layout.folder / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
        for descriptor in (image, manifest["config"], *manifest["layers"]):
            blob = layout.find_blob(descriptor["digest"])
            assert (f"sha256:{archives.compute_digest(blob)}", blob.stat().st_size) == (
                descriptor["digest"],
                descriptor["size"],
            )
        assert configuration["config"] == {"User": "65532:65532"}
        assert configuration["created"] == "2023-11-14T22:13:20Z"
        with tarfile.open(layer) as archive:
            assert archive.getnames() == ["etc/passwd", "opt/fairbind/bin/python3.13"]
        plain = tmp_path / "plain.tar"
        archives.rewrite_tar(layer, plain, EPOCH, compressed=False)
        assert configuration["rootfs"]["diff_ids"] == [f"sha256:{archives.compute_digest(plain)}"]

    def test_the_same_files_are_the_same_image(self, tmp_path: Path) -> None:
        packed = []
        for time in (1, 2):
            layout = make_layout(tmp_path / str(time), time=time)
            packed.append(tmp_path / f"{time}.oci.tar")
            layouts.pack(layout, packed[-1], EPOCH)

        assert packed[0].read_bytes() == packed[1].read_bytes()

    @pytest.mark.parametrize(("architecture", "machine"), [("arm64", AMD64), ("amd64", ARM64), ("amd64", 0)])
    def test_an_image_cannot_say_that_it_is_for_another_processor(
        self, tmp_path: Path, architecture: str, machine: int
    ) -> None:
        with pytest.raises(ReleaseError, match=rf"says {architecture}, and opt/fairbind/bin/python3\.13 in it is for"):
            make_layout(tmp_path, architecture, machine)

    def test_images_for_several_processors_become_one_layout(self, tmp_path: Path) -> None:
        parts = [make_layout(tmp_path / "a", "arm64", ARM64), make_layout(tmp_path / "b")]
        united = layouts.Layout(tmp_path / "united")
        layouts.unite(parts, united, "1.2.3")
        layouts.pack(united, tmp_path / "united.tar", EPOCH)

        read = layouts.unpack(tmp_path / "united.tar", tmp_path / "read")
        assert [layouts.name_platform(image["platform"]) for image in read.list_images()] == [
            "linux/amd64",
            "linux/arm64",
        ]
        named = {path.name for path in (read.folder / "blobs" / "sha256").iterdir()}
        assert len(named) == 1 + 2 * 3  # an index, and of each image manifest, configuration and layer
        with pytest.raises(ReleaseError, match="two images are for linux/amd64"):
            layouts.unite([parts[1], parts[1]], layouts.Layout(tmp_path / "twice"), "1.2.3")

    def test_a_damaged_layout_is_refused(self, tmp_path: Path) -> None:
        layout = make_layout(tmp_path / "a")
        (layer,) = layout.list_layers()
        layer.write_bytes(b"another")
        layouts.pack(layout, tmp_path / "a.tar", EPOCH)

        with pytest.raises(ReleaseError, match=f"the blob {layer.name} has another content"):
            layouts.unpack(tmp_path / "a.tar", tmp_path / "read")


TEXTS = {
    "opt/site-packages/yarl-1.2.dist-info/METADATA": b"Name: yarl\nLicense-Expression: Apache-2.0\n\nLicense: no",
    "opt/site-packages/yarl-1.2.dist-info/licenses/LICENSE": b"Text of yarl",
    "opt/site-packages/yarl-1.2.dist-info/licenses/more/NOTICE": b"Text of yarl",
    "opt/site-packages/old-1.0.dist-info/METADATA": b"Name: old\nClassifier: License :: Free :: MIT License\n\n",
    "opt/site-packages/old-1.0.dist-info/LICENCE.md": b"Text of old",
    "opt/site-packages/bare-1.0.dist-info/METADATA": b"Name: bare\nLicense: BSD\n  more of it\n\n",
    "opt/site-packages/fairbind-0.1.0.dist-info/METADATA": b"Name: fairbind\n\n",
    "usr/local/lib/python3.13/LICENSE.txt": b"Text of Python",
    "usr/share/doc/libc6/copyright": b"Text of the C library",
    "var/lib/dpkg/status.d/libbz2-1.0": b"Package: libbz2-1.0\n",
    "var/lib/dpkg/status.d/libc6": b"Package: libc6\nVersion: 2.41\nArchitecture: amd64\n",
    "opt/site-packages/yarl/code.py": b"import this",
}


class TestNotices:
    def test_every_package_is_named_with_its_licence(self, tmp_path: Path) -> None:
        text = notices.compute_notices(notices.read_texts(make_tar(tmp_path / "layer.tar.gz", TEXTS, mode="w:gz")))

        headings = [line for line in text.splitlines() if line.startswith(("bare", "lib", "old", "python", "yarl"))]
        assert headings == [
            "bare-1.0: BSD",
            "libbz2-1.0",
            "libc6",
            "old-1.0: MIT License",
            "python3.13",
            "yarl-1.2: Apache-2.0",
        ]
        for name in ("yarl", "old", "Python", "the C library"):
            assert text.count(f"Text of {name}") == 1
        assert "bare-1.0: BSD\n" + "=" * 100 + "\n\nThe package has no text of its licence." in text
        assert "import this" not in text

    def test_records_of_debian_packages_are_found_once_for_each_processor(self, tmp_path: Path) -> None:
        path = "var/lib/dpkg/status.d/libc6"
        other = TEXTS | {path: TEXTS[path].replace(b"amd64", b"arm64")}
        layers = [notices.read_texts(make_tar(tmp_path / "layer.tar", texts)) for texts in (TEXTS, other, TEXTS)]

        assert notices.find_records(layers) == [
            "Package: libbz2-1.0\n",
            TEXTS[path].decode(),
            other[path].decode(),
        ]


def write_key(path: Path, key: Any, password: bytes | None = None) -> Path:
    kind = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, kind))
    return path


class TestSignatures:
    def test_checksums_are_those_of_every_file(self, tmp_path: Path) -> None:
        for name in ("b", "a"):
            (tmp_path / name).write_text(name, encoding="utf-8")
        checksums = signatures.write_checksums(tmp_path)

        checked = subprocess.run(["sha256sum", "--check", "--strict", checksums.name], cwd=tmp_path, check=False)
        assert checked.returncode == 0
        assert [line.split()[1] for line in checksums.read_text(encoding="utf-8").splitlines()] == ["a", "b"]

    def test_only_what_was_signed_is_verified(self, tmp_path: Path) -> None:
        key = Ed25519PrivateKey.generate()
        file = tmp_path / "SHA256SUMS"
        file.write_text("digest  file\n", encoding="utf-8")
        signature = signatures.sign(file, signatures.load_key(write_key(tmp_path / "key.pem", key)))

        assert signatures.is_signed(file, signature, key.public_key())
        assert not signatures.is_signed(file, signature, Ed25519PrivateKey.generate().public_key())
        file.write_text("another  file\n", encoding="utf-8")
        assert not signatures.is_signed(file, signature, key.public_key())

    @pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl here")
    def test_openssl_verifies_it_as_the_documents_say(self, tmp_path: Path) -> None:
        key = Ed25519PrivateKey.generate()
        file = tmp_path / "SHA256SUMS"
        file.write_text("digest  file\n", encoding="utf-8")
        signature = signatures.sign(file, key)
        (tmp_path / "raw").write_bytes(base64.b64decode(signature.read_bytes()))
        (tmp_path / "key.pub").write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        words = ["openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "key.pub", "-rawin"]
        done = subprocess.run(
            [*words, "-in", file.name, "-sigfile", "raw"], cwd=tmp_path, check=False, capture_output=True
        )

        assert b"Verified Successfully" in done.stdout

    def test_a_key_may_have_a_password(self, tmp_path: Path) -> None:
        key = Ed25519PrivateKey.generate()
        path = write_key(tmp_path / "key.pem", key, b"secret")

        assert signatures.load_key(path, "secret").public_key() == key.public_key()
        for password in (None, "wrong"):
            with pytest.raises(ReleaseError, match="no private key that can be used"):
                signatures.load_key(path, password)

    def test_a_key_of_another_kind_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ReleaseError, match="must hold an Ed25519 key"):
            signatures.load_key(write_key(tmp_path / "key.pem", ec.generate_private_key(ec.SECP256R1())))


class TestProvenance:
    def finish(self, tmp_path: Path, key: Ed25519PrivateKey | None) -> Path:
        """Put together what was built: one file, and an image that names its base."""
        tree, made = tmp_path / "first-tree", tmp_path / "first"
        (tree / "deploy").mkdir(parents=True)
        (tree / "deploy" / "requirements.txt").write_text("yarl==1.2", encoding="utf-8")
        made.mkdir()
        (made / "fairbind.tgz").write_text("chart", encoding="utf-8")
        layout = layouts.Layout(tmp_path / "layout")
        labels = bases.parse_base(f"python:3.13@sha256:{'5' * 64}").labels
        config = {"os": "linux", "architecture": "amd64", "config": {"Labels": labels}}
        images.write_layout(layout, make_export(tmp_path / "exported.tar"), config, EPOCH, version="1.2.3")
        layouts.pack(layout, made / "fairbind-image.oci.tar", EPOCH)
        plan = program.Plan(
            root=tmp_path, commit=sources.Commit("c0ffee", EPOCH), base=None, builder="https://example.com/builder",
            with_packages=True, with_image=True, platforms=(), layouts=(),
        )  # fmt: skip
        program.finish(plan, made, tmp_path, key)
        return made

    def test_it_names_every_file_the_image_and_what_they_were_made_of(self, tmp_path: Path) -> None:
        key = Ed25519PrivateKey.generate()
        made = self.finish(tmp_path, key)

        file = made / f"fairbind-{__version__}.intoto.jsonl"
        statement = provenance.read(file, key.public_key())
        assert statement is not None
        assert (statement["_type"], statement["predicateType"]) == (provenance.STATEMENT, provenance.PREDICATE)
        index = layouts.unpack(made / "fairbind-image.oci.tar", tmp_path / "read").find_index()
        subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
        names = ("fairbind-image-signature.tar", "fairbind-image.oci.tar", "fairbind.tgz")
        digests = {name: archives.compute_digest(made / name) for name in names}
        assert subjects == digests | {"fairbind": index.removeprefix("sha256:")}
        definition = statement["predicate"]["buildDefinition"]
        assert definition["externalParameters"]["platforms"] == ["linux/amd64"]
        commit, base, lock = definition["resolvedDependencies"]
        assert commit["digest"] == {"gitCommit": "c0ffee"}
        assert base == {"uri": "pkg:docker/python@3.13", "digest": {"sha256": "5" * 64}}
        assert lock["name"] == "deploy/requirements.txt"
        assert statement["predicate"]["runDetails"] == {"builder": {"id": "https://example.com/builder"}}
        listed = {line.split()[1] for line in (made / "SHA256SUMS").read_text(encoding="utf-8").splitlines()}
        assert listed == {*names, file.name}

    def test_another_key_or_another_text_is_refused(self, tmp_path: Path) -> None:
        key = Ed25519PrivateKey.generate()
        file = self.finish(tmp_path, key) / f"fairbind-{__version__}.intoto.jsonl"

        assert provenance.read(file, Ed25519PrivateKey.generate().public_key()) is None
        envelope = json.loads(file.read_bytes())
        envelope["payload"] = base64.b64encode(b"{}").decode()
        file.write_text(json.dumps(envelope), encoding="utf-8")
        assert provenance.read(file, key.public_key()) is None

    def test_the_image_is_signed_beside_its_archive(self, tmp_path: Path) -> None:
        key = Ed25519PrivateKey.generate()
        made = self.finish(tmp_path / "signed", key)
        unsigned = self.finish(tmp_path / "unsigned", None)

        image = "fairbind-image.oci.tar"
        assert (made / image).read_bytes() == (unsigned / image).read_bytes()
        assert {path.name for path in unsigned.iterdir()} == {image, "fairbind.tgz", "SHA256SUMS"}
        digest = layouts.unpack(made / image, tmp_path / "image").find_index()
        layout = layouts.unpack(made / "fairbind-image-signature.tar", tmp_path / "signature")
        (entry,) = json.loads((layout.folder / "index.json").read_bytes())["manifests"]
        assert entry["annotations"] == {layouts.REFERENCE: f"sha256-{digest[7:]}.sig"}
        payload, signature = image_signatures.read_payload(layout)
        key.public_key().verify(signature, payload)
        assert json.loads(payload)["critical"]["image"] == {"docker-manifest-digest": digest}


class TestSources:
    def test_a_release_is_of_a_commit(self, tmp_path: Path) -> None:
        repository = tmp_path / "repository"
        git("init", "--quiet", str(repository))
        commit(repository, "a.txt", "first")
        found = sources.find_commit(repository)
        (repository / "a.txt").write_text("second", encoding="utf-8")
        (repository / "beside.txt").write_text("not committed", encoding="utf-8")

        with pytest.raises(ReleaseError, match=r"these files differ from it: a\.txt, beside\.txt"):
            sources.find_commit(repository)
        sources.export_tree(repository, tmp_path / "tree", found)
        assert {path.name: path.read_text(encoding="utf-8") for path in (tmp_path / "tree").iterdir()} == {
            "a.txt": "first"
        }


def git(*words: str, folder: Path | None = None) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def commit(repository: Path, name: str, text: str) -> None:
    (repository / name).write_text(text, encoding="utf-8")
    git("add", "--all", folder=repository)
    git("commit", "--quiet", "--allow-empty", "--message=more", folder=repository)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Return a repository of one commit with what is in the tree now."""
    target = tmp_path / "clone"
    parts = ["pyproject.toml", "README.md", "LICENSE", "operator", "charts", "deploy/requirements.txt"]
    for part in parts:
        source, copy = ROOT / part, target / part
        copy.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, copy)
    git("init", "--quiet", str(target))
    commit(target, ".gitignore", "*.egg-info\n")
    return target


ENGINE = """#!/bin/sh
echo "$*" >> "$STORE/calls"
case "$1 $2" in
"version --format"*) echo linux/amd64;;
"buildx version") test "$BUILDER" = buildx;;
"image inspect")
  case "$3" in --format*) exit 1;; esac
  echo '[{"Os": "linux", "Architecture": "'"$(cat "$STORE/built")"'", "Config": {"Labels": {"revision": "one"}}}]';;
"build --tag")
  case "$*" in *--platform="$NOT_RUN"*) echo "exec /bin/sh: exec format error" >&2; exit 1;; esac
  for word; do case "$word" in --platform=*) echo "${word#--platform=linux/}" > "$STORE/built";; esac; done;;
"export"*) cat "$STORE/$(cat "$STORE/built").tar";;
esac
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program in docker's place, of an engine on amd64; return the folder with its notes.

    An image that it builds has one program, for the processor that was asked for. Its last build is a note, too.
    """
    store = tmp_path / "engine"
    store.mkdir()
    (store / "docker").write_text(ENGINE, encoding="utf-8")
    (store / "docker").chmod(0o755)
    make_export(store / "amd64.tar", AMD64)
    make_export(store / "arm64.tar", ARM64)
    monkeypatch.setenv("PATH", f"{store}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STORE", str(store))
    monkeypatch.setenv("NOT_RUN", "none")
    monkeypatch.setenv("BUILDER", "buildx")
    return store


@pytest.mark.usefixtures("engine")
class TestPlatforms:
    base = f"python:3.13@sha256:{'5' * 64}"

    def build(self, tmp_path: Path, *options: str) -> int:
        """Build the image of a repository of one file."""
        repository = tmp_path / "repository"
        git("init", "--quiet", str(repository))
        (repository / "deploy" / "base").mkdir(parents=True, exist_ok=True)
        commit(repository, "deploy/base/Dockerfile", f"FROM {self.base}\n")
        return program.main([f"--root={repository}", f"--output={tmp_path / 'release'}", "--image-only", *options])

    def test_one_layout_has_the_images_of_all_platforms(self, tmp_path: Path) -> None:
        assert self.build(tmp_path, "--platform=linux/amd64", "--platform=linux/arm64") == 0

        (archive,) = (tmp_path / "release").iterdir()
        layout = layouts.unpack(archive, tmp_path / "read")
        platforms = [image["platform"]["architecture"] for image in layout.list_images()]
        assert platforms == ["amd64", "arm64"]
        configurations = [layout.read(layout.read(image)["config"]) for image in layout.list_images()]
        assert [configuration["architecture"] for configuration in configurations] == platforms
        for layer, machine in zip(layout.list_layers(), (AMD64, ARM64), strict=True):
            with tarfile.open(layer) as opened:
                interpreter = opened.extractfile("opt/fairbind/bin/python3.13")
                assert interpreter is not None
                assert interpreter.read() == make_program(machine)

    def test_the_engines_own_platform_is_built_last_and_each_build_knows_its_commit(
        self, tmp_path: Path, engine: Path
    ) -> None:
        assert self.build(tmp_path, "--platform=linux/amd64", "--platform=linux/arm64") == 0

        calls = (engine / "calls").read_text(encoding="utf-8").splitlines()
        builds = [call.split() for call in calls if call.startswith("build --tag")]
        found = [word for words in builds for word in words if word.startswith("--platform")]
        assert found == ["--platform=linux/arm64", "--platform=linux/amd64"] * 2
        revision = sources.find_commit(tmp_path / "repository").revision
        assert all(f"--build-arg=REVISION={revision}" in words and "--no-cache" in words for words in builds)

    def test_the_base_is_named_by_its_digest(
        self, tmp_path: Path, engine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert self.build(tmp_path, "--platform=linux/amd64") == 0
        assert self.build(tmp_path, "--platform=linux/amd64", "--base=mine:1") == 0
        calls = (engine / "calls").read_text(encoding="utf-8").splitlines()
        builds = [call.split() for call in calls if call.startswith("build --tag")]
        assert [f"--build-arg=BASE={self.base}" in words for words in builds] == [True, True, False, False]
        labels = {
            f"--label=org.opencontainers.image.base.name={self.base.partition('@')[0]}",
            f"--label=org.opencontainers.image.base.digest={self.base.partition('@')[2]}",
        }
        assert labels <= set(builds[0])
        assert "--build-arg=BASE=mine:1" in builds[2]

        monkeypatch.setattr(TestPlatforms, "base", "python:3.13")
        assert self.build(tmp_path, "--platform=linux/amd64") == 1
        assert "must name the image's base by its digest" in capsys.readouterr().err

    def test_without_a_platform_the_image_is_for_the_engines_own(self, tmp_path: Path, engine: Path) -> None:
        (engine / "built").write_text("amd64", encoding="utf-8")

        assert self.build(tmp_path) == 0
        assert "--platform" not in (engine / "calls").read_text(encoding="utf-8")
        names = [path.name for path in (tmp_path / "release").iterdir()]
        assert names == [f"fairbind-{__version__}-image-linux-amd64.oci.tar"]

    def test_an_engine_that_cannot_run_a_platforms_programs_is_told_apart(
        self, tmp_path: Path, engine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("NOT_RUN", "linux/arm64")

        assert self.build(tmp_path, "--platform=linux/amd64", "--platform=linux/arm64") == 1
        assert "no release: the engine runs no programs for linux/arm64" in capsys.readouterr().err
        assert not (engine / "built").exists()  # the other build, of minutes, was not tried before

    def test_a_classic_builder_is_asked_for_its_own_platform_only(
        self, tmp_path: Path, engine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("BUILDER", "classic")

        assert self.build(tmp_path, "--platform=linux/amd64", "--platform=linux/arm64") == 1
        assert "classic builder makes no image for linux/arm64 here: install its plugin" in capsys.readouterr().err
        assert not (engine / "built").exists()
        assert self.build(tmp_path / "other", "--platform=linux/amd64") == 0


STAMPING = """
import pathlib, setuptools, time
pathlib.Path("operator/fairbind/stamp.py").write_text(f"AT = {time.time_ns()}\\n")
setuptools.setup()
"""


class TestResults:
    def test_raw_results_are_packed_the_same_twice(self, tmp_path: Path) -> None:
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            shutil.copytree(ROOT / "docs", tmp_path / f"{name}-tree" / "docs")
            packages.build_results(tmp_path / f"{name}-tree", tmp_path / name, EPOCH)
        made = [tmp_path / name / f"fairbind-{__version__}-results.tar.gz" for name in ("first", "second")]

        assert archives.compute_digest(made[0]) == archives.compute_digest(made[1])
        with tarfile.open(made[0]) as archive:
            names = set(archive.getnames())
        raw = find_files("docs/*/results/*", "docs/reproduction/*.csv")
        assert raw
        assert {name_of(path) for path in raw} <= names

    def test_a_tree_without_results_is_no_release(self, tmp_path: Path) -> None:
        with pytest.raises(ReleaseError, match="docs/benchmarks/results"):
            packages.build_results(tmp_path / "tree", tmp_path, 0)


@pytest.mark.slow
@pytest.mark.needs_tools
class TestBuilding:
    @pytest.mark.nightly
    def test_packages_are_the_same_twice_complete_and_signed(self, clone: Path, tmp_path: Path) -> None:
        key = Ed25519PrivateKey.generate()
        output = tmp_path / "release"
        given = [f"--root={clone}", f"--output={output}", f"--key={write_key(tmp_path / 'key.pem', key)}"]

        assert program.main([*given, "--without-image"]) == 0

        version = __version__
        wheel_name, rest = f"fairbind-{version}-py3-none-any.whl", (".tar.gz", ".tgz", "-results.tar.gz")
        parts = {wheel_name, *(f"fairbind-{version}{ending}" for ending in rest)}
        described = {f"fairbind-{version}.cdx.json", f"fairbind-{version}.intoto.jsonl", "LICENSE"}
        assert {path.name for path in output.iterdir()} == parts | described | {"SHA256SUMS", "SHA256SUMS.sig"}
        assert signatures.is_signed(output / "SHA256SUMS", output / "SHA256SUMS.sig", key.public_key())
        statement = provenance.read(output / f"fairbind-{version}.intoto.jsonl", key.public_key())
        assert statement is not None
        named = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
        assert named == {name: archives.compute_digest(output / name) for name in parts | described if name in named}
        assert parts <= set(named)
        with zipfile.ZipFile(output / f"fairbind-{version}-py3-none-any.whl") as wheel:
            assert "fairbind/cli/operator.py" in wheel.namelist()
        with tarfile.open(output / f"fairbind-{version}.tar.gz") as archive:
            assert f"fairbind-{version}/operator/fairbind/cli/operator.py" in archive.getnames()
        helm = ensure_tools(["helm"]).path("helm")
        home = {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
        words = [str(helm), "template", "fairbind", str(output / f"fairbind-{version}.tgz")]
        rendered = subprocess.run(words, env=home, capture_output=True, text=True, check=True).stdout
        assert "kind: Deployment" in rendered

    @pytest.mark.nightly
    def test_what_depends_on_when_it_is_built_is_no_release(
        self, clone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        commit(clone, "setup.py", STAMPING)

        assert program.main([f"--root={clone}", f"--output={tmp_path / 'release'}", "--without-image"]) == 1
        assert f"differs in fairbind-{__version__}-py3-none-any.whl" in capsys.readouterr().err
        assert not (tmp_path / "release").exists()
