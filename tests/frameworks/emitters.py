"""Operators that make groups of pods: where their sources are, how each is started, how its groups look.

Nothing of theirs is copied: CRDs, webhook configurations and samples are read from the modules that pin the programs.
What people set is in the page of each framework (docs/frameworks), which the exam applies as it stands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]

POD_GROUPS = (
    ("kuberay", "sigs.k8s.io/scheduler-plugins", "config/crd/bases/scheduling.x-k8s.io_podgroups.yaml"),
    ("lws", "sigs.k8s.io/lws", "test/integration/crd/volcano-podgroup.yaml"),
)
"""Our module that pins them, theirs, and the file of a CRD that several operators write to."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator of others runs. folder: for its files. webhooks, probes: ports of its own."""

    folder: Path
    kubeconfig: Path
    server: str
    webhooks: int
    probes: int

    @property
    def certificates(self) -> Path:
        """Where controller-runtime looks for a certificate below the folder for temporary files."""
        return self.folder / "k8s-webhook-server" / "serving-certs"


@dataclass(frozen=True, slots=True)
class Program:
    """An operator of others.

    module: of the sources. crds: folders of its CRDs. hooks: file of its webhook configurations. selectors: by webhook,
    the label that pods have for which it is asked, as the operator's own installation has it. start: arguments and a
    configuration file's content. settings: its environment.
    """

    name: str
    module: str
    crds: Sequence[str]
    start: Callable[[Place], tuple[list[str], Json | None]]
    hooks: str = ""
    selectors: Mapping[str, str] = field(default_factory=dict)
    settings: Callable[[Place], Mapping[str, str]] = lambda _: {}


def make_configuration(group: str, place: Place, **more: Any) -> Json:
    """Return a configuration file as JobSet and LeaderWorkerSet have it, with all servers on loopback."""
    return {
        "apiVersion": f"config.{group}/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"port": place.webhooks, "host": "127.0.0.1", "certDir": str(place.certificates)},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{place.probes}"},
        "metrics": {"bindAddress": "0"},
        **more,
    }


def start_jobset(place: Place) -> tuple[list[str], Json | None]:
    return ["--metrics-bind-address=0"], make_configuration("jobset.x-k8s.io", place)


def start_lws(place: Place, provider: str = "") -> tuple[list[str], Json | None]:
    """provider: whose PodGroups it makes, none by default."""
    more = {"gangSchedulingManagement": {"schedulerProvider": provider}} if provider else {}
    arguments = ["--metrics-bind-address=0", "--leader-elect=false"]
    return arguments, make_configuration("lws.x-k8s.io", place, **more)


def start_lws_with_volcano(place: Place) -> tuple[list[str], Json | None]:
    return start_lws(place, "volcano")


def start_kuberay(place: Place, scheduler: str = "scheduler-plugins") -> tuple[list[str], Json | None]:
    return [
        "--metrics-addr=0",
        f"--health-probe-bind-address=127.0.0.1:{place.probes}",
        "--enable-leader-election=false",
        f"--batch-scheduler={scheduler}",
    ], None


def start_kuberay_with_volcano(place: Place) -> tuple[list[str], Json | None]:
    return start_kuberay(place, "volcano")


def start_trainer(place: Place) -> tuple[list[str], Json | None]:
    return [], {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "certManagement": {"enable": False},
        "webhook": {"port": place.webhooks, "host": "127.0.0.1"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{place.probes}"},
        "metrics": {"bindAddress": "0"},
    }


def start_mpi(place: Place, scheduler: str = "fairbind") -> tuple[list[str], Json | None]:
    return [
        f"-kubeConfig={place.kubeconfig}",
        f"-gang-scheduling={scheduler}",
        "-lock-namespace=kube-system",
        "-kube-api-qps=200",
        "-kube-api-burst=400",
    ], None


def start_mpi_with_volcano(place: Place) -> tuple[list[str], Json | None]:
    return start_mpi(place, "volcano")


def start_spark(place: Place) -> tuple[list[str], Json | None]:
    return [
        "controller",
        "start",
        "--namespaces=",
        "--enable-batch-scheduler",
        "--kube-scheduler-names=fairbind",
        "--enable-ui-service=false",
        f"--health-probe-bind-address=127.0.0.1:{place.probes}",
    ], None


def start_spark_webhook(place: Place) -> tuple[list[str], Json | None]:
    return [
        "webhook",
        "start",
        "--namespaces=",
        f"--webhook-port={place.webhooks}",
        f"--webhook-cert-dir={place.certificates}",
        "--webhook-secret-namespace=kube-system",
        "--enable-cert-manager",
        f"--health-probe-bind-address=127.0.0.1:{place.probes}",
    ], None


def set_spark(place: Place) -> Mapping[str, str]:
    """Return where spark-submit is, and where an operator in a cluster finds the API server."""
    host, _, port = place.server.removeprefix("https://").rpartition(":")
    return {"SPARK_HOME": str(place.folder), "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}


JOBSET = Program(
    "jobset",
    "sigs.k8s.io/jobset",
    ("config/components/crd/bases",),
    start_jobset,
    "config/components/webhook/manifests.yaml",
    {"mpod.kb.io": "jobset.sigs.k8s.io/jobset-name", "vpod.kb.io": "jobset.sigs.k8s.io/jobset-name"},
)
LWS = Program(
    "lws",
    "sigs.k8s.io/lws",
    ("config/crd/bases",),
    start_lws,
    "config/webhook/manifests.yaml",
    {"mpod.kb.io": "leaderworkerset.sigs.k8s.io/name", "vpod.kb.io": "leaderworkerset.sigs.k8s.io/name"},
)
KUBERAY = Program("kuberay", "github.com/ray-project/kuberay/ray-operator", ("config/crd/bases",), start_kuberay)
TRAINER = Program(
    "trainer",
    "github.com/kubeflow/trainer/v2",
    ("manifests/base/crds",),
    start_trainer,
    "manifests/base/webhook/manifests.yaml",
)
MPI = Program("mpi-operator", "github.com/kubeflow/mpi-operator", ("manifests/base",), start_mpi)
SPARK = Program(
    "spark-operator", "github.com/kubeflow/spark-operator/v2", ("config/crd/bases",), start_spark, settings=set_spark
)
SPARK_WEBHOOK = Program(
    "spark-operator",
    "github.com/kubeflow/spark-operator/v2",
    ("config/crd/bases",),
    start_spark_webhook,
    "config/webhook/manifests.yaml",
    {"mutate-pod.sparkoperator.k8s.io": "sparkoperator.k8s.io/launched-by-spark-operator"},
)
PROGRAMS = (JOBSET, LWS, KUBERAY, TRAINER, MPI, SPARK)
SOURCES = (
    *((program.name, program.module) for program in PROGRAMS),
    *((module, path) for module, path, _ in POD_GROUPS),
)
"""Our modules and theirs, where something is read from."""
