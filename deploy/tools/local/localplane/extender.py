"""Extender mode on a local control plane: certificates of both sides, and kube-scheduler as the chart configures it."""

from __future__ import annotations

import base64
import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import yaml

from localplane.components import LOOPBACK

if TYPE_CHECKING:
    from pathlib import Path

    from localplane.plane import ControlPlane

CONFIG_MAP = "/api/v1/namespaces/{namespace}/configmaps/fairbind-extender"
CLIENT, OTHER = "client", "other"
"""Names of the client certificates: that of kube-scheduler, and one of a user that may not ask."""


@dataclass(frozen=True, slots=True)
class Extended:
    """What kube-scheduler and operators need to speak to each other. folder: with their certificates."""

    plane: ControlPlane
    folder: Path

    @classmethod
    def make(cls, plane: ControlPlane, folder: Path) -> Self:
        """Write the certificates: those of clients and of a server, all signed by the plane's authority."""
        pki = plane.layout.pki
        for source, target in (("server.crt", "tls.crt"), ("server.key", "tls.key"), ("ca.crt", "ca.crt")):
            shutil.copy(pki / source, folder / target)
        kubeconfigs = {CLIENT: plane.layout.kubeconfig("kube-scheduler"), OTHER: plane.certificate_kubeconfig(OTHER)}
        for name, kubeconfig in kubeconfigs.items():
            user = json.loads(kubeconfig.read_text(encoding="utf-8"))["users"][0]["user"]
            (folder / f"{name}.crt").write_bytes(base64.b64decode(user["client-certificate-data"]))
            (folder / f"{name}.key").write_bytes(base64.b64decode(user["client-key-data"]))
        return cls(plane, folder)

    def compute_arguments(self, port: int, *more: str) -> list[str]:
        """Return what an operator is started with that answers at a port."""
        return ["--mode=extender", f"--extender-address={LOOPBACK}:{port}", f"--extender-tls={self.folder}", *more]

    def start_scheduler(self, port: int, *, namespace: str = "fairbind-system") -> None:
        """Start kube-scheduler with the chart's configuration, changed only in where things are on this machine.

        port: where an operator answers. namespace: of the release.
        """
        found = self.plane.client.get(CONFIG_MAP.format(namespace=namespace))
        config = yaml.safe_load(found["data"]["config.yaml"])
        kubeconfig = str(self.plane.layout.kubeconfig("kube-scheduler"))
        config["clientConnection"] = {"kubeconfig": kubeconfig, "qps": 100_000, "burst": 100_000}
        config["leaderElection"] = {"leaderElect": False}
        (extender,) = config["extenders"]
        extender["urlPrefix"] = f"https://{LOOPBACK}:{port}"
        names = {"caFile": "ca.crt", "certFile": f"{CLIENT}.crt", "keyFile": f"{CLIENT}.key"}
        extender["tlsConfig"] = {key: str(self.folder / name) for key, name in names.items()}
        path = self.folder / f"kube-scheduler-{port}.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        self.plane.start_component("kube-scheduler", f"--config={path}")
