"""Write what the operator's image consists of as CycloneDX.

``make sbom``, or ``python deploy/tools/sbom.py --image TAG``.

The Python packages are those of the release's lock that the image's interpreter takes, with the hashes of their files,
described by cyclonedx-py. With an image, the Debian packages are added that its records name: the C library, OpenSSL
and what else the interpreter is linked with. The same commit gives the same file.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from fairbind import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "deploy" / "requirements.txt"
OUTPUT = ROOT / "dist" / "fairbind.cdx.json"
RECORDS = "/var/lib/dpkg/status.d"
# The interpreter of deploy/Dockerfile; both processors that it is built for take the same packages.
INTERPRETER = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.13.0",
    "python_version": "3.13",
    "sys_platform": "linux",
}


def main() -> int:
    """Write the file; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", type=Path, default=OUTPUT, help="the file to write")
    parser.add_argument("--image", help="a built image, for the Debian packages in it")
    options = parser.parse_args()
    bom = describe_packages(LOCK.read_text(encoding="utf-8"))
    bom["metadata"]["component"]["version"] = __version__
    if options.image:
        bom["components"] += [describe_record(text) for text in read_records(options.image)]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(bom, indent=2) + "\n", encoding="utf-8")
    print(f"{options.output}: {len(bom['components'])} components")
    return 0


def describe_packages(lock: str) -> dict[str, Any]:
    """Return the CycloneDX document of what the image's interpreter takes of a lock, as cyclonedx-py makes it."""
    with tempfile.TemporaryDirectory(prefix="fairbind-sbom-") as folder:
        wanted, made = Path(folder) / "requirements.txt", Path(folder) / "bom.json"
        wanted.write_text("".join(find_entries(lock)), encoding="utf-8")
        program = Path(sys.executable).with_name("cyclonedx-py")
        words = [
            str(program),
            "requirements",
            str(wanted),
            f"--pyproject={ROOT / 'pyproject.toml'}",
            "--mc-type=application",
        ]
        subprocess.run([*words, "--output-reproducible", "--output-format=JSON", f"--output-file={made}"], check=True)
        bom: dict[str, Any] = json.loads(made.read_text(encoding="utf-8"))
    return bom


def find_entries(lock: str) -> Iterator[str]:
    """Yield the entries of a lock that the image's interpreter takes, each with its hashes and without its marker."""
    for entry in re.findall(r"^[A-Za-z].*(?:\n .*)*\n?", lock, re.MULTILINE):
        requirement = Requirement(entry.partition("\n")[0].rstrip("\\ "))
        if requirement.marker is None or requirement.marker.evaluate(dict(INTERPRETER)):
            rest = entry.partition("\n")[2].rstrip("\n")
            yield f"{requirement.name}{requirement.specifier} \\\n{rest}\n"


def read_records(image: str) -> Iterator[str]:
    """Yield the records of the Debian packages whose files are in an image."""
    container = subprocess.run(["docker", "create", image], check=True, capture_output=True, text=True).stdout.strip()
    try:
        copied = subprocess.run(["docker", "cp", f"{container}:{RECORDS}", "-"], check=True, capture_output=True).stdout
    finally:
        subprocess.run(["docker", "rm", container], check=True, capture_output=True)
    with tarfile.open(fileobj=io.BytesIO(copied)) as archive:
        for member in sorted(archive.getmembers(), key=lambda member: member.name):
            stream = archive.extractfile(member) if member.isreg() else None
            if stream is not None:
                yield stream.read().decode()


def describe_record(record: str) -> dict[str, Any]:
    """Return the component of a Debian package."""
    fields = dict(re.findall(r"^([A-Z][A-Za-z-]*): (.*)$", record, re.MULTILINE))
    name, version = fields["Package"], fields["Version"]
    url = f"pkg:deb/debian/{name}@{version.replace('+', '%2B').replace('~', '%7E')}"
    url += f"?arch={fields['Architecture']}"
    return {"type": "library", "bom-ref": url, "name": name, "version": version, "purl": url}


if __name__ == "__main__":
    sys.exit(main())
