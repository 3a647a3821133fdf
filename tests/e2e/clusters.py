"""The cluster under test: the local control plane or any other, behind one face."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import yaml

from e2e.api import Api
from e2e.operators import NAMESPACE, SERVICE_ACCOUNT
from e2e.waiting import wait_for
from localplane.plane import CHART, are_crds_served, run_tool

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from localplane.plane import ControlPlane
    from localplane.tools import Tools

TOKEN_SECONDS = 86400


@dataclass(frozen=True, slots=True)
class Cluster:
    """An administrator's kubeconfig and what can be done with it. plane: the local control plane if it is one."""

    kubeconfig: Path
    api: Api
    tools: Tools
    plane: ControlPlane | None
    folder: tempfile.TemporaryDirectory[str]

    @classmethod
    def connect(cls, kubeconfig: Path, tools: Tools, plane: ControlPlane | None) -> Self:
        """Return the cluster of a kubeconfig."""
        folder = tempfile.TemporaryDirectory(prefix="fairbind-e2e-", dir=plane.directory if plane else None)
        return cls(kubeconfig, Api.connect(kubeconfig), tools, plane, folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.api.close()
        self.folder.cleanup()

    def helm(self, *arguments: str) -> str:
        """Run helm as the administrator and return what it prints; raise PlaneError when it fails."""
        return self._run("helm", arguments)

    def kubectl(self, *arguments: str) -> str:
        """Run kubectl as the administrator and return what it prints; raise PlaneError when it fails."""
        return self._run("kubectl", arguments)

    def install_chart(self, values: Mapping[str, Any]) -> None:
        """Install the chart, or upgrade it to these values, and wait until its CRDs are served."""
        file = Path(self.folder.name) / "values.yaml"
        file.write_text(yaml.safe_dump(dict(values)), encoding="utf-8")
        place = [f"--namespace={NAMESPACE}", "--create-namespace"]
        self.helm("upgrade", "--install", "fairbind", str(CHART), *place, f"--values={file}")
        wait_for(lambda: are_crds_served(self.api), describe="the chart's CRDs to be served")

    def operator_kubeconfig(self) -> Path:
        """Return a kubeconfig with a fresh token of the chart's ServiceAccount."""
        return self.service_account_kubeconfig(NAMESPACE, SERVICE_ACCOUNT)

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Return a kubeconfig with a fresh token of a ServiceAccount."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}"
        wait_for(lambda: self.api.exists(path), describe=f"the service account {namespace}/{name}")
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        answer = self.api.post(f"{path}/token", {**request, "spec": {"expirationSeconds": TOKEN_SECONDS}})
        target = Path(self.folder.name) / f"{namespace}-{name}.kubeconfig"
        write_token_kubeconfig(self.kubeconfig, target, answer["status"]["token"])
        return target

    def connect_as(self, kubeconfig: Path) -> Api:
        """Return a client with another identity; close it."""
        return Api.connect(kubeconfig)

    def _run(self, tool: str, arguments: Sequence[str]) -> str:
        return run_tool(self.tools, tool, [*arguments, f"--kubeconfig={self.kubeconfig}"], Path(self.folder.name))


def write_token_kubeconfig(source: Path, target: Path, token: str) -> None:
    """Write a kubeconfig for the same server with a token for an identity."""
    config = yaml.safe_load(source.read_text(encoding="utf-8"))
    current = next(entry for entry in config["contexts"] if entry["name"] == config["current-context"])
    config["users"] = [{"name": "token", "user": {"token": token}}]
    config["contexts"] = [{"name": "token", "context": {"cluster": current["context"]["cluster"], "user": "token"}}]
    config["current-context"] = "token"
    beside = target.with_name(f"{target.name}.new")
    beside.touch(mode=0o600)
    beside.write_text(yaml.safe_dump(config), encoding="utf-8")
    beside.replace(target)  # a running operator may read the file at this very moment
