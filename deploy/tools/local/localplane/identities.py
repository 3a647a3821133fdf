"""Who speaks to the API server: certificates, tokens and the kubeconfigs that carry them."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from localplane.certificates import Authority, issue_signing_key, write_secret

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from localplane.client import Json

SERVER_HOSTS = (
    "127.0.0.1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "10.96.0.1",  # the first service address: what pods would call
)

# Ordinary identities with the roles that Kubernetes itself gives them; only the administrator and kwok, which stands
# for all kubelets at once, are beyond RBAC and beyond priority and fairness.
COMPONENT_GROUPS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "admin": ("local-admin", ("system:masters",)),
    "kwok": ("local-kwok", ("system:masters",)),
    "kube-controller-manager": ("system:kube-controller-manager", ()),
    "kube-scheduler": ("system:kube-scheduler", ()),
}


@dataclass(frozen=True, slots=True)
class Identities:
    """Issues what a plane's clients and servers prove themselves with."""

    authority: Authority

    def write_keys(self, folder: Path) -> None:
        """Write the authority's certificate and the servers' and signers' keys into a folder."""
        (folder / "ca.crt").write_bytes(self.authority.certificate)
        server = self.authority.issue_server("local", SERVER_HOSTS)
        server.write(folder / "server.crt", folder / "server.key")
        etcd_client = self.authority.issue_client("kube-apiserver")
        etcd_client.write(folder / "etcd-client.crt", folder / "etcd-client.key")
        private, public = issue_signing_key()
        write_secret(folder / "service-account.key", private)
        (folder / "service-account.pub").write_bytes(public)

    def write_certificate_kubeconfig(self, path: Path, server: str, user: str, groups: Sequence[str]) -> Path:
        """Write a kubeconfig whose user proves itself with a client certificate."""
        pair = self.authority.issue_client(user, groups)
        credentials = {
            "client-certificate-data": base64.b64encode(pair.certificate).decode(),
            "client-key-data": base64.b64encode(pair.key).decode(),
        }
        return self._write_kubeconfig(path, server, user, credentials)

    def write_token_kubeconfig(self, path: Path, server: str, user: str, token: str) -> Path:
        """Write a kubeconfig whose user proves itself with a bearer token."""
        return self._write_kubeconfig(path, server, user, {"token": token})

    def _write_kubeconfig(self, path: Path, server: str, user: str, credentials: Mapping[str, str]) -> Path:
        authority = base64.b64encode(self.authority.certificate).decode()
        config: Json = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "local", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "users": [{"name": user, "user": dict(credentials)}],
            "contexts": [{"name": "local", "context": {"cluster": "local", "user": user}}],
            "current-context": "local",
        }
        write_secret(path, (json.dumps(config, indent=2) + "\n").encode())  # JSON is YAML
        return path
