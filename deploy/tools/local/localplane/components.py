"""The parts of a control plane: their files, their command lines.

The flags are those that a production cluster has, but for what one machine and many fake nodes need; each of those
says why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

KWOK_STAGES = Path(__file__).parent.parent / "kwok" / "stages.yaml"
LOOPBACK = "127.0.0.1"
FAILURE_GRACE_SECONDS = 50  # a node whose lease is not renewed for so long is NotReady (Kubernetes' own default)
PATIENT_GRACE_SECONDS = 1200  # without leases a node is Ready until kwok's next heartbeat, every ten minutes


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the servers listen on loopback."""

    etcd: int
    apiserver: int
    scheduler: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a plane keeps its files."""

    directory: Path

    @property
    def pki(self) -> Path:
        """Keys and certificates."""
        return self.directory / "pki"

    @property
    def logs(self) -> Path:
        """One log a component, and the API server's audit log."""
        return self.directory / "logs"

    @property
    def etcd(self) -> Path:
        """The data of etcd."""
        return self.directory / "etcd"

    @property
    def kubeconfigs(self) -> Path:
        """One kubeconfig an identity."""
        return self.directory / "kubeconfigs"

    @property
    def audit_policy(self) -> Path:
        """What the API server writes down."""
        return self.directory / "audit-policy.yaml"

    @property
    def kwok_config(self) -> Path:
        """The options and stages of kwok."""
        return self.directory / "kwok.yaml"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log, one JSON object a line."""
        return self.logs / "audit.log"

    def kubeconfig(self, name: str) -> Path:
        """The kubeconfig of one identity."""
        return self.kubeconfigs / f"{name}.kubeconfig"


# Who binds what is written down with the request's body; other writes without; reads not at all.
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
  - level: None
    verbs: [get, list, watch]
  - level: Request
    resources:
      - group: ""
        resources: [pods/binding]
  - level: Metadata
"""

KWOK_OPTIONS = """\
apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  manageAllNodes: true
  cidr: 10.128.0.0/9
  nodeIP: 10.127.0.1
  podPlayStageParallelism: 16
  nodePlayStageParallelism: 16
  nodeLeaseParallelism: 8
  nodeLeaseDurationSeconds: {lease_seconds}
---
"""


def compute_etcd_arguments(layout: Layout, ports: Ports) -> list[str]:
    """No fsync: this etcd is thrown away with the plane, so nothing needs to survive a power cut."""
    url = f"https://{LOOPBACK}:{ports.etcd}"
    pki = layout.pki
    return [
        "--name=local",
        f"--data-dir={layout.etcd}",
        f"--listen-client-urls={url}",
        f"--advertise-client-urls={url}",
        f"--listen-peer-urls=http://{LOOPBACK}:0",  # a single member has no peers
        f"--cert-file={pki / 'server.crt'}",
        f"--key-file={pki / 'server.key'}",
        f"--trusted-ca-file={pki / 'ca.crt'}",
        "--client-cert-auth",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=8589934592",
        "--snapshot-count=100000",
        "--log-level=warn",
    ]


def compute_apiserver_arguments(layout: Layout, ports: Ports) -> list[str]:
    """RBAC, priority and fairness and the default admission are on, as in production."""
    pki = layout.pki
    return [
        f"--etcd-servers=https://{LOOPBACK}:{ports.etcd}",
        f"--etcd-cafile={pki / 'ca.crt'}",
        f"--etcd-certfile={pki / 'etcd-client.crt'}",
        f"--etcd-keyfile={pki / 'etcd-client.key'}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.apiserver}",
        "--endpoint-reconciler-type=none",  # the default one refuses a loopback address
        f"--tls-cert-file={pki / 'server.crt'}",
        f"--tls-private-key-file={pki / 'server.key'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'service-account.pub'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--allow-privileged=true",
        f"--audit-policy-file={layout.audit_policy}",
        f"--audit-log-path={layout.audit_log}",
        "--audit-log-maxsize=100000",  # MB: tests read one file, so it must not be rotated
    ]


def compute_controller_manager_arguments(layout: Layout, *, node_lease_seconds: int) -> list[str]:
    """Many fake nodes at once need more requests a second than the default of 20."""
    pki = layout.pki
    grace_seconds = FAILURE_GRACE_SECONDS if node_lease_seconds else PATIENT_GRACE_SECONDS
    return [
        f"--kubeconfig={layout.kubeconfig('kube-controller-manager')}",
        "--secure-port=0",
        "--leader-elect=false",
        f"--service-account-private-key-file={pki / 'service-account.key'}",
        f"--root-ca-file={pki / 'ca.crt'}",
        "--use-service-account-credentials=true",  # else RBAC forbids it to take the taints of new nodes away
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        f"--node-monitor-grace-period={grace_seconds}s",
        "--controllers=*",
    ]


def compute_gate_arguments(feature_gates: Sequence[str]) -> list[str]:
    """Kubernetes' components have the same features, or some of them would drop what others write."""
    return [f"--feature-gates={','.join(f'{gate}=true' for gate in feature_gates)}"] if feature_gates else []


def compute_api_arguments(apis: Sequence[str]) -> list[str]:
    """APIs in beta are off by default."""
    return [f"--runtime-config={','.join(f'{api}=true' for api in apis)}"] if apis else []


def compute_kwok_arguments(layout: Layout) -> list[str]:
    """All options are in the file."""
    return [f"--kubeconfig={layout.kubeconfig('kwok')}", f"--config={layout.kwok_config}"]


def compute_scheduler_arguments(layout: Layout, ports: Ports) -> list[str]:
    """kube-scheduler as it comes, but for the limit on its own requests a second."""
    kubeconfig = layout.kubeconfig("kube-scheduler")
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={ports.scheduler}",
        f"--tls-cert-file={layout.pki / 'server.crt'}",
        f"--tls-private-key-file={layout.pki / 'server.key'}",
        "--leader-elect=false",
        "--kube-api-qps=100000",
        "--kube-api-burst=100000",
    ]
