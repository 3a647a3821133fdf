from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
import logging
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from fairbind.kube.client import credentials as credentials_module
from fairbind.kube.client.credentials import (
    ClusterAccess,
    Credentials,
    KubeconfigSource,
    ServiceAccountSource,
    load_credentials,
    read_context_namespace,
)
from fairbind.kube.client.errors import PermanentClusterError
from kube.fakes import FixedSource


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def authority() -> tuple[str, str]:
    """A certificate and its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(pem).decode(), private.decode()


def make_kubeconfig(user: dict[str, Any] | None = None, /, **cluster: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://192.0.2.1:6443/", **cluster}}],
        "users": [{"name": "u", "user": user or {"token": "secret"}}],
    }


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(content: Any, name: str = "config") -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return path

    return write


def make_plugin(folder: Path, status: dict[str, Any] | None) -> dict[str, Any]:
    """Return the user of an exec plugin that counts its runs, and fails without a status."""
    script = folder / "plugin"
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    lines = ["#!/bin/sh", f"echo >> '{folder}/runs'"]
    lines += ["echo no luck today >&2", "exit 3"] if status is None else [f"echo '{json.dumps(answer)}'"]
    script.write_text("\n".join(lines))
    script.chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(script)}}


def count_runs(folder: Path) -> int:
    return len((folder / "runs").read_text())


async def settle(credentials: Credentials) -> None:
    """Let a reload in the background come to its end."""
    assert credentials._reloading is not None
    await credentials._reloading


async def test_a_token_and_a_certificate_authority(write: Callable[..., Path], authority: tuple[str, str]) -> None:
    ca = base64.b64encode(authority[0].encode()).decode()
    credentials = load_credentials(write(make_kubeconfig(None, **{"certificate-authority-data": ca})))
    assert credentials.server == "https://192.0.2.1:6443"
    assert await credentials.authorization() == "Bearer secret"
    assert credentials.ssl_context is not None
    assert credentials.ssl_context.verify_mode == ssl.CERT_REQUIRED
    assert [entry["subject"] for entry in credentials.ssl_context.get_ca_certs()] == [((("commonName", "test"),),)]
    assert credentials.access.ca_path is not None
    assert credentials.access.ca_path.read_text() == authority[0]


async def test_a_client_certificate_from_files_beside_the_kubeconfig(
    write: Callable[..., Path], authority: tuple[str, str]
) -> None:
    write(authority[0], "client.crt")
    write(authority[1], "client.key")
    user = {"client-certificate": "client.crt", "client-key": "client.key"}
    credentials = load_credentials(write(make_kubeconfig(user, **{"insecure-skip-tls-verify": True})))
    assert await credentials.authorization() is None
    assert credentials.ssl_context is not None
    assert credentials.ssl_context.verify_mode == ssl.CERT_NONE
    assert credentials.access.private_key_path is not None


def test_a_server_without_tls(write: Callable[..., Path]) -> None:
    credentials = load_credentials(write(make_kubeconfig(server="http://127.0.0.1:8001")))
    assert credentials.ssl_context is None


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "not a kubeconfig"),
        ("- 1\n- 2\n", "not a kubeconfig"),
        ("a: b: c", "not YAML"),
        ("\x00", "not YAML"),
        ("{}", "current-context"),
        ({**make_kubeconfig(), "current-context": "elsewhere"}, "elsewhere"),
        ({**make_kubeconfig(), "clusters": []}, "clusters"),
        ({**make_kubeconfig(), "contexts": "none"}, "Invalid kube-config"),
        ({**make_kubeconfig(), "users": [5]}, "malformed"),
        (make_kubeconfig(server="192.0.2.1:6443"), "192.0.2.1:6443"),
        (make_kubeconfig(None, **{"certificate-authority": "/does/not/exist"}), "/does/not/exist"),
        (make_kubeconfig(None, **{"certificate-authority-data": "AAAA"}), "certificate authority"),
        (make_kubeconfig(None, **{"certificate-authority-data": "%%%%"}), "certificate authority"),
        (make_kubeconfig({"client-certificate-data": "AAAA", "client-key-data": "AAAA"}), "client certificate"),
        (make_kubeconfig({"tokenFile": "/does/not/exist"}), "/does/not/exist"),
        (make_kubeconfig({"exec": {"command": "x"}}), "apiVersion"),
        (make_kubeconfig({"exec": {"apiVersion": "v1", "command": "/does/not/exist"}}), "/does/not/exist"),
    ],
)
def test_what_cannot_work_is_said_in_one_line_with_the_file(
    write: Callable[..., Path], content: object, complaint: str
) -> None:
    path = write(content)
    with pytest.raises(PermanentClusterError) as caught:
        load_credentials(path)
    message = str(caught.value)
    assert message.startswith(f"kubeconfig {path}: ")
    assert complaint in message
    assert "\n" not in message


def test_a_missing_file_and_a_directory(tmp_path: Path) -> None:
    with pytest.raises(PermanentClusterError, match="no such file"):
        load_credentials(tmp_path / "nothing")
    with pytest.raises(PermanentClusterError, match="is a directory"):
        load_credentials(tmp_path)


def test_the_namespace_is_that_of_the_context(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = make_kubeconfig()
    config["contexts"].append({"name": "there", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}})
    path = write(config)

    assert read_context_namespace(path) == "default"
    assert read_context_namespace(path, context="there") == "team-a"
    assert read_context_namespace(path, context="gone") == "default"  # as for kubectl, what follows says what is wrong
    (tmp_path / "namespace").write_text("team-b\n", encoding="ascii")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    monkeypatch.setattr(credentials_module, "SERVICE_ACCOUNT_FOLDER", tmp_path)
    assert read_context_namespace() == "team-b"


def test_without_an_argument_the_environment_decides(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(PermanentClusterError, match="no cluster"):
        load_credentials()
    users = write({**make_kubeconfig(), "clusters": [], "contexts": []}, "users")
    rest = write({**make_kubeconfig(), "users": []}, "rest")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{users}:{rest}")
    assert load_credentials().access.authorization == "Bearer secret"
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing")
    with pytest.raises(PermanentClusterError, match="KUBECONFIG"):
        load_credentials()
    monkeypatch.delenv("KUBECONFIG")
    (tmp_path / ".kube").mkdir()
    write(make_kubeconfig(), ".kube/config")
    assert load_credentials().server == "https://192.0.2.1:6443"


async def test_a_plugin_gives_a_token_that_is_kept_until_it_is_about_to_end(
    write: Callable[..., Path], tmp_path: Path
) -> None:
    soon = (dt.datetime.now(dt.UTC) + dt.timedelta(minutes=30)).isoformat()
    user = make_plugin(tmp_path, {"token": "given", "expirationTimestamp": soon})
    clock = Clock()
    credentials = Credentials(KubeconfigSource((write(make_kubeconfig(user)),)), clock=clock)
    assert await credentials.authorization() == "Bearer given"
    clock.now += 100.0
    await credentials.authorization()
    await settle(credentials)
    assert count_runs(tmp_path) == 1

    past = (dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)).isoformat()
    make_plugin(tmp_path, {"token": "renewed", "expirationTimestamp": past})
    clock.now += 10.0
    await credentials.renew()  # as after a 401
    assert await credentials.authorization() == "Bearer renewed"
    assert count_runs(tmp_path) == 2

    clock.now += 100.0
    make_plugin(tmp_path, {"token": "again", "expirationTimestamp": soon})
    await credentials.authorization()
    await settle(credentials)
    assert await credentials.authorization() == "Bearer again"
    assert count_runs(tmp_path) == 3


def test_a_plugin_that_fails_is_said_with_its_own_words(
    write: Callable[..., Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = list(logging.getLogger().handlers)
    with pytest.raises(PermanentClusterError, match="no luck today"):
        load_credentials(write(make_kubeconfig(make_plugin(tmp_path, None))))
    assert not caplog.records
    assert logging.getLogger().handlers == handlers


async def test_a_token_file_that_is_exchanged_is_read_anew(write: Callable[..., Path]) -> None:
    token = write("one\n", "token")
    clock = Clock()
    source = KubeconfigSource((write(make_kubeconfig({"tokenFile": str(token)})),))
    credentials = Credentials(source, clock=clock)
    assert await credentials.authorization() == "Bearer one"
    token.write_text("two\n")
    clock.now += 30.0
    assert await credentials.authorization() == "Bearer one"
    clock.now += 31.0
    await credentials.authorization()
    await settle(credentials)
    assert await credentials.authorization() == "Bearer two"


async def test_credentials_that_cannot_be_read_anew_stay_as_they_were(
    write: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    path = write(make_kubeconfig())
    clock = Clock()
    credentials = Credentials(KubeconfigSource((path,)), clock=clock)
    path.unlink()
    clock.now += 100.0
    await credentials.renew()
    assert await credentials.authorization() == "Bearer secret"
    assert "no such file" in caplog.text


async def test_renewals_are_not_more_frequent_than_sensible() -> None:
    clock = Clock()
    source = FixedSource("http://192.0.2.1")
    credentials = Credentials(source, clock=clock)
    clock.now += 10.0
    await asyncio.gather(*(credentials.renew() for _ in range(20)))
    await credentials.renew()
    assert source.loads == [True, True]


async def test_the_pods_own_service_account_is_read_anew_when_it_is_exchanged(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, authority: tuple[str, str]
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "2001:db8::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    write(authority[0], "ca.crt")
    token = write("one\n", "token")
    clock = Clock()
    credentials = Credentials(ServiceAccountSource(tmp_path), clock=clock)
    first_context = credentials.ssl_context
    assert credentials.server == "https://[2001:db8::1]:443"
    assert await credentials.authorization() == "Bearer one"
    token.write_text("two\n")
    write(authority[0] * 2, "ca.crt")
    clock.now += 61.0
    await credentials.authorization()
    await settle(credentials)
    assert await credentials.authorization() == "Bearer two"
    assert credentials.ssl_context is not first_context


def test_a_pod_without_a_token_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "192.0.2.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(PermanentClusterError, match=r"service account: .* token file"):
        Credentials(ServiceAccountSource(tmp_path))


def test_a_proxy_is_used_but_for_servers_that_are_exempt(
    write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    path = write(make_kubeconfig())
    assert load_credentials(path).access.proxy is None
    monkeypatch.setenv("https_proxy", "http://192.0.2.9:3128")
    assert load_credentials(path).access.proxy == "http://192.0.2.9:3128"
    monkeypatch.setenv("no_proxy", "192.0.2.1")
    assert load_credentials(path).access.proxy is None


async def test_a_plugin_that_hangs_does_not_keep_a_refused_request_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials_module, "RENEW_PATIENCE_SECONDS", 0.05)
    over = threading.Event()

    class Hanging(FixedSource):
        def load(self, *, again: bool) -> ClusterAccess:
            if self.loads:
                over.wait(30.0)
            return super().load(again=again)

    clock, source = Clock(), Hanging("http://192.0.2.1")
    credentials = Credentials(source, clock=clock)
    clock.now += 10.0
    source.token = "second"
    try:
        async with asyncio.timeout(10.0):
            await credentials.renew()
        assert await credentials.authorization() == "Bearer first"
    finally:
        over.set()
    await settle(credentials)  # it went on meanwhile
    assert await credentials.authorization() == "Bearer second"
