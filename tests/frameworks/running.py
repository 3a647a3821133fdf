"""Operators of others outside of a cluster: their CRDs, their webhooks at an address of loopback, their processes."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import functools
import ipaddress
import itertools
import json
import os
import socket
import ssl
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from e2e.api import ApiError
from e2e.waiting import wait_for
from frameworks.emitters import POD_GROUPS, Place, Program
from localplane import processes
from localplane.components import LOOPBACK
from localplane.plane import are_crds_served
from localplane.tools import find_module_folder

if TYPE_CHECKING:
    import subprocess

    from e2e.clusters import Cluster

Json = dict[str, Any]
FIRST_PORT = 20_000
"""The network is ours alone, so ports are ours to choose."""
HOOKS = "/apis/admissionregistration.k8s.io/v1"
WEBHOOK_SECRET = "spark-operator-webhook-certs"
SUBMIT = Path(__file__).with_name("spark_submit.py")

_ports = itertools.count(FIRST_PORT, 2)


@dataclass(frozen=True, slots=True)
class Certificate:
    """One certificate for all webhooks of loopback, which vouches for itself; RSA, as one operator reads no other."""

    certificate: bytes
    key: bytes

    @classmethod
    def make(cls) -> Certificate:
        """Make one for 127.0.0.1, valid for a day."""
        key = rsa.generate_private_key(65537, 2048)
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "webhooks")])
        now = dt.datetime.now(dt.UTC)
        address = x509.IPAddress(ipaddress.ip_address(LOOPBACK))
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName([address]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
        return cls(certificate.public_bytes(serialization.Encoding.PEM), private)

    def write(self, folder: Path) -> None:
        """Write it where a webhook server of controller-runtime looks for it."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tls.crt").write_bytes(self.certificate)
        (folder / "tls.key").write_bytes(self.key)

    def make_secret(self) -> Json:
        """Return it as the secret that cert-manager would write."""
        contents = {"ca.crt": self.certificate, "tls.crt": self.certificate, "tls.key": self.key}
        encoded = {name: base64.b64encode(content).decode() for name, content in contents.items()}
        return {"metadata": {"name": WEBHOOK_SECRET}, "data": encoded, "type": "kubernetes.io/tls"}


def find_pod_groups() -> list[Path]:
    """Return the files of the CRDs that several operators write to."""
    return [find_module_folder(module, path) / file for module, path, file in POD_GROUPS]


def install_crds(cluster: Cluster, *programs: Program, further: Sequence[Path] = ()) -> None:
    """Apply the CRDs of these operators and of further files, and wait until they are served."""
    files = [*further]
    for program in programs:
        sources = find_module_folder(program.name, program.module)
        files += [path for crds in program.crds for path in sorted((sources / crds).glob("*.yaml")) if is_crd(path)]
    for file in files:
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(file))
    wait_for(lambda: are_crds_served(cluster.api), describe="the operators' CRDs to be served")


def is_crd(path: Path) -> bool:
    """Tell whether a file has a CRD and nothing else."""
    documents = [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]
    return all(document.get("kind") == "CustomResourceDefinition" for document in documents)


@contextlib.contextmanager
def running(cluster: Cluster, folder: Path, *programs: Program) -> Iterator[dict[str, Path]]:
    """Run operators of others with an administrator's rights; give their logs by name. All goes away at the end."""
    certificate = Certificate.make()
    logs: dict[str, Path] = {}
    with contextlib.ExitStack() as stack:
        for number, program in enumerate(programs):
            own = folder / f"{number}-{program.name}"
            own.mkdir()
            certificate.write(Place(own, own, "", 0, 0).certificates)
            place = Place(own, cluster.kubeconfig, cluster.api.server, next(_ports), next(_ports))
            logs[own.name] = folder / f"{own.name}.log"
            stack.enter_context(run_one(cluster, program, place, certificate, logs[own.name]))
        yield logs


@contextlib.contextmanager
def run_one(
    cluster: Cluster, program: Program, place: Place, certificate: Certificate, log: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run one of them until the end of the context; its webhooks are asked as soon as it answers."""
    write_submit(place.folder)
    arguments, configuration = program.start(place)
    if configuration is not None:
        file = place.folder / "configuration.json"
        file.write_text(json.dumps(configuration), encoding="utf-8")
        arguments = [*arguments, f"--config={file}"]
    make_secret(cluster, certificate)
    environment = {**os.environ, "KUBECONFIG": str(place.kubeconfig), "TMPDIR": str(place.folder)}
    environment |= program.settings(place)
    argv: list[str | Path] = [cluster.tools.path(program.name), *arguments]
    process = processes.spawn(argv, log, environment=environment, directory=place.folder)
    hooks = find_hooks(program, place, certificate)
    try:
        if hooks:
            answers = functools.partial(is_serving, process, place.webhooks, certificate)
            wait_for(answers, describe=lambda: describe(program, log))
        for hook in hooks:
            cluster.api.post(f"{HOOKS}/{hook['kind'].lower()}s", hook)
        yield process
        assert process.poll() is None, f"{program.name} ended: {processes.read_tail(log)}"
    finally:
        for hook in hooks:
            with contextlib.suppress(ApiError):
                cluster.api.delete(f"{HOOKS}/{hook['kind'].lower()}s/{hook['metadata']['name']}")
        processes.kill(process)


def describe(program: Program, log: Path) -> str:
    """Return what is waited for, with the end of the operator's log."""
    return f"the webhooks of {program.name} to answer; its log ends:\n{processes.read_tail(log)}"


def find_hooks(program: Program, place: Place, certificate: Certificate) -> list[Json]:
    """Return an operator's webhook configurations, which name its address on loopback instead of a service."""
    if not program.hooks:
        return []
    file = find_module_folder(program.name, program.module) / program.hooks
    found = [document for document in yaml.safe_load_all(file.read_text(encoding="utf-8")) if document]
    for configuration in found:
        configuration["metadata"]["name"] = f"{program.name}-{configuration['kind'].lower()}"
        for hook in configuration["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            authority = base64.b64encode(certificate.certificate).decode()
            hook["clientConfig"] = {"url": f"https://{LOOPBACK}:{place.webhooks}{path}", "caBundle": authority}
            if hook["name"] in program.selectors:
                label = program.selectors[hook["name"]]
                hook["objectSelector"] = {"matchExpressions": [{"key": label, "operator": "Exists"}]}
    return found


def is_serving(process: subprocess.Popen[bytes], port: int, certificate: Certificate) -> bool:
    """Tell whether a webhook server shows its certificate; fail when its process has ended."""
    if process.poll() is not None:
        raise RuntimeError(f"it ended with {process.returncode}")
    tls = ssl.create_default_context(cadata=certificate.certificate.decode())
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 2.0) as plain,
            tls.wrap_socket(plain, server_hostname="127.0.0.1"),
        ):
            return True
    except OSError:
        return False


def make_secret(cluster: Cluster, certificate: Certificate) -> None:
    """Write the secret that one operator takes its certificate from."""
    path = "/api/v1/namespaces/kube-system/secrets"
    with contextlib.suppress(ApiError):
        cluster.api.delete(f"{path}/{WEBHOOK_SECRET}")
    cluster.api.post(path, certificate.make_secret())


def write_submit(folder: Path) -> None:
    """Put a stand-in for Spark's own program where the operator looks for it."""
    program = folder / "bin" / "spark-submit"
    program.parent.mkdir(exist_ok=True)
    paths = os.pathsep.join(str(Path(path).absolute()) for path in sys.path if path)
    program.write_text(f'#!/bin/sh\nPYTHONPATH="{paths}" exec "{sys.executable}" "{SUBMIT}" "$@"\n', encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def with_start(program: Program, start: Any) -> Program:
    """Return an operator that is started otherwise."""
    return replace(program, start=start)
