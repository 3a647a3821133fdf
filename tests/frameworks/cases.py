"""The frameworks of the exam: which operators each needs, which manifest people apply, how its groups look."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from frameworks.emitters import (
    JOBSET,
    KUBERAY,
    LWS,
    MPI,
    SPARK,
    SPARK_WEBHOOK,
    TRAINER,
    Program,
    start_kuberay_with_volcano,
    start_lws_with_volcano,
    start_mpi_with_volcano,
)
from frameworks.running import with_start
from localplane.tools import find_module_folder

Json = dict[str, Any]
PAGES = Path(__file__).resolve().parents[2] / "docs" / "frameworks"
FAIRBIND, PLUGINS, VOLCANO = "fairbind", "scheduler-plugins-scheduler", "volcano"
"""Names that pods have: ours, and those that operators write whatever the manifest says."""
PLUGINS_GROUPS, VOLCANO_GROUPS = "scheduling.x-k8s.io/v1alpha1", "scheduling.volcano.sh/v1beta1"
VOLCANO_MARK = ("annotations", "scheduling.k8s.io/group-name")


@dataclass(frozen=True, slots=True)
class Case:
    """A framework with one way to make its groups known.

    page: the page, and in it the manifest of the first YAML block. sample: the file of the operator's module that the
    manifest is made of; added: the paths at which the two differ. labels: those that name a pod's group, joined.
    size: pods of a group. minimum: of them, so many start together. groups: of one object. cpu: of each pod.
    scheduler: the name that the pods have. victim: labels of a member that is lost. mark: where a pod says its group,
    labels or annotations, and the key. pod_groups: path of the kind that says the group's minimum. changes: what is
    replaced in the page's manifest, where the page says so in words.
    """

    name: str
    page: str
    programs: tuple[Program, ...]
    labels: tuple[str, ...]
    size: int
    cpu_milli: int
    kind: str
    sample: str = ""
    added: frozenset[str] = frozenset()
    groups: int = 1
    minimum: int = 0
    scheduler: str = FAIRBIND
    victim: Mapping[str, str] = field(default_factory=dict)
    mark: tuple[str, str] = ("labels", "scheduling.x-k8s.io/pod-group")
    pod_groups: str = PLUGINS_GROUPS
    changes: tuple[tuple[str, str], ...] = ()

    def group_of(self, pod: Json) -> str | None:
        """Return the name of a pod's group, None of a pod of something else."""
        labels = pod["metadata"].get("labels") or {}
        found = [labels.get(label) for label in self.labels]
        return None if None in found else "/".join(map(str, found))

    def read_manifest(self) -> str:
        """Return what the page says to apply."""
        manifest = read_blocks(PAGES / f"{self.page}.md")[0]
        for old, new in self.changes:
            assert old in manifest
            manifest = manifest.replace(old, new)
        return manifest

    def read_sample(self) -> list[Json]:
        """Return what the operator's module has as a sample."""
        program = self.programs[-1]
        path = find_module_folder(program.name, program.module) / self.sample
        return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]

    def find_name(self) -> str:
        """Return the name of the object in the manifest that makes the pods."""
        documents = yaml.safe_load_all(self.read_manifest())
        return next(str(found["metadata"]["name"]) for found in documents if found and found["kind"] == self.kind)


def read_blocks(page: Path) -> list[str]:
    """Return the YAML of a page, block by block."""
    return re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def rename(manifest: str, old: str, new: str) -> str:
    """Return a manifest with another name of its object, wherever the name stands as a word of its own.

    >>> rename("name: pi, job: pi, image: mpi-pi", "pi", "pi-2")
    'name: pi-2, job: pi-2, image: mpi-pi'
    """
    return re.sub(rf"(?<![\w./-]){re.escape(old)}(?![\w./-])", new, manifest)


def end_at_once(manifest: Any) -> Any:
    """Return a manifest whose pods, or templates of pods, have no time to end.

    kwok ends pods by their names alone: with time to end, it would end those that an operator makes again under the
    same names.

    >>> end_at_once({"spec": [{"containers": []}]})
    {'spec': [{'containers': [], 'terminationGracePeriodSeconds': 0}]}
    """
    if isinstance(manifest, list):
        return [end_at_once(each) for each in manifest]
    if not isinstance(manifest, dict):
        return manifest
    below = {key: end_at_once(each) for key, each in manifest.items()}
    return {**below, "terminationGracePeriodSeconds": 0} if "containers" in below else below


def find_differences(left: object, right: object, path: str = "") -> set[str]:
    """Return the paths at which two manifests differ.

    >>> sorted(find_differences({"a": 1, "b": [{"c": 2}]}, {"b": [{"c": 3}], "d": 4}))
    ['.a', '.b.0.c', '.d']
    """
    if isinstance(left, dict) and isinstance(right, dict):
        return {
            found
            for key in left.keys() | right.keys()
            for found in find_differences(left.get(key), right.get(key), f"{path}.{key}")
        }
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        pairs = enumerate(zip(left, right, strict=True))
        return {found for number, (a, b) in pairs for found in find_differences(a, b, f"{path}.{number}")}
    return set() if left == right else {path}


GroupOf = Callable[[Json], str | None]
LWS_LABELS = ("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index")
LWS_SAMPLE = "config/samples/leaderworkerset_v1_leaderworkerset.yaml"
LWS_ADDED = frozenset({".spec.leaderWorkerTemplate.workerTemplate.spec.schedulerName"})
RAY_SAMPLE = "config/samples/ray-cluster.scheduler-plugins.yaml"
MPI_SAMPLE = "examples/v2beta1/pi/pi.yaml"
MPI_JOB, MPI_ROLE = "training.kubeflow.org/job-name", "training.kubeflow.org/job-role"
WORKER = {MPI_ROLE: "worker"}

CASES = (
    Case(
        "jobset",
        "jobset",
        (JOBSET,),
        ("jobset.sigs.k8s.io/jobset-name",),
        4,
        1000,
        "JobSet",
        mark=("labels", "kueue.x-k8s.io/pod-group-name"),
        pod_groups="",
    ),
    Case(
        "lws",
        "lws",
        (LWS,),
        LWS_LABELS,
        4,
        50,
        "LeaderWorkerSet",
        LWS_SAMPLE,
        LWS_ADDED,
        groups=3,
        mark=("labels", LWS_LABELS[1]),
        pod_groups="",
    ),
    Case(
        "lws-volcano",
        "lws",
        (with_start(LWS, start_lws_with_volcano),),
        LWS_LABELS,
        4,
        50,
        "LeaderWorkerSet",
        LWS_SAMPLE,
        LWS_ADDED,
        groups=3,
        mark=VOLCANO_MARK,
        pod_groups=VOLCANO_GROUPS,
    ),
    Case(
        "kuberay",
        "kuberay",
        (KUBERAY,),
        ("ray.io/cluster",),
        3,
        1000,
        "RayCluster",
        RAY_SAMPLE,
        scheduler=PLUGINS,
        victim={"ray.io/node-type": "worker"},
    ),
    Case(
        "kuberay-volcano",
        "kuberay",
        (with_start(KUBERAY, start_kuberay_with_volcano),),
        ("ray.io/cluster",),
        3,
        1000,
        "RayCluster",
        RAY_SAMPLE,
        scheduler=VOLCANO,
        mark=VOLCANO_MARK,
        pod_groups=VOLCANO_GROUPS,
        victim={"ray.io/node-type": "worker"},
    ),
    Case("trainer", "trainer", (JOBSET, TRAINER), ("jobset.sigs.k8s.io/jobset-name",), 3, 1000, "TrainJob"),
    Case(
        "trainer-volcano",
        "trainer",
        (JOBSET, TRAINER),
        ("jobset.sigs.k8s.io/jobset-name",),
        3,
        1000,
        "TrainJob",
        mark=VOLCANO_MARK,
        pod_groups=VOLCANO_GROUPS,
        changes=(("coscheduling:\n      scheduleTimeoutSeconds: 120", "volcano: {}"),),
    ),
    Case("mpi", "mpi-operator", (MPI,), (MPI_JOB,), 3, 1000, "MPIJob", MPI_SAMPLE, victim=WORKER),
    Case(
        "mpi-volcano",
        "mpi-operator",
        (with_start(MPI, start_mpi_with_volcano),),
        (MPI_JOB,),
        3,
        1000,
        "MPIJob",
        MPI_SAMPLE,
        scheduler=VOLCANO,
        mark=VOLCANO_MARK,
        pod_groups=VOLCANO_GROUPS,
        victim=WORKER,
    ),
)
SPARK_CASE = Case(
    "spark",
    "spark-operator",
    (SPARK_WEBHOOK, SPARK),
    ("sparkoperator.k8s.io/app-name",),
    3,
    1000,
    "SparkApplication",
    "examples/spark-pi-kube-scheduler.yaml",
    frozenset({".metadata.namespace", ".spec.batchScheduler"}),
    minimum=1,
)
