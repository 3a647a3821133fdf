"""Groups of submitted objects: with the marks that their operators make, all of a minimum starts, or none of it."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from cluster.builders import Json, make_namespace, make_node
from fairbind.cli import main
from fairbind.cluster.objects.captured import format_time
from fairbind.model import InvalidProblemError
from fairbind.what_if.answers import Submission, answer
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.snapshot_file import format_snapshot
from what_if.snapshots import make_snapshot, make_tenant, submit_to

NOW = 1767225600.0
META: Json = {"namespace": "a", "name": "x"}


def make_cluster(nodes: int) -> ListedObjects:
    """Nodes for four pods each."""
    listed = make_snapshot(
        nodes=[make_node(f"n{number}") for number in range(nodes)],
        tenants=[make_tenant("a")],
        namespaces=[make_namespace("a")],
    )
    listed.time = NOW
    return listed


def make_template(**meta: Any) -> Json:
    containers = [{"name": "node", "resources": {"requests": {"cpu": 1}}}]
    return {"metadata": meta, "spec": {"containers": containers}}


POD = make_template()
GANG = make_template(annotations={"fairbind.io/gang": "3"})
JOB: Json = {
    "kind": "Job",
    "apiVersion": "batch/v1",
    "metadata": {**META, "annotations": {"fairbind.io/gang": "all"}},
    "spec": {"parallelism": 6, "template": POD},
}
JOB_SET: Json = {
    "kind": "JobSet",
    "metadata": META,
    "spec": {
        "replicatedJobs": [{"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 3, "template": GANG}}}]
    },
}
KUEUE: Json = copy.deepcopy(JOB_SET)
KUEUE["spec"]["replicatedJobs"][0]["template"]["spec"]["template"] = make_template(
    labels={"kueue.x-k8s.io/pod-group-name": "g"}, annotations={"kueue.x-k8s.io/pod-group-total-count": "6"}
)
LWS: Json = {
    "kind": "LeaderWorkerSet",
    "metadata": META,
    "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "leaderTemplate": POD, "workerTemplate": POD}},
}
LWS_OF_ONE: Json = {
    "kind": "LeaderWorkerSet",
    "metadata": META,
    "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": POD}},
}
RAY: Json = {
    "kind": "RayCluster",
    "metadata": {**META, "labels": {"ray.io/gang-scheduling-enabled": "true"}},
    "spec": {"headGroupSpec": {"template": POD}, "workerGroupSpecs": [{"replicas": 5, "template": POD}]},
}
RAY_JOB: Json = {
    "kind": "RayJob",
    "metadata": RAY["metadata"],
    "spec": {"rayClusterSpec": RAY["spec"], "submitterPodTemplate": make_template()},
}
MPI: Json = {
    "kind": "MPIJob",
    "metadata": META,
    "spec": {"mpiReplicaSpecs": {"Launcher": {"template": POD}, "Worker": {"replicas": 5, "template": POD}}},
}
RUNTIME: Json = {
    "kind": "ClusterTrainingRuntime",
    "metadata": {"name": "torch"},
    "spec": {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "podGroupPolicy": {"coscheduling": {"scheduleTimeoutSeconds": 100}},
        "template": {
            "spec": {
                "replicatedJobs": [
                    {
                        "name": "node",
                        "template": {
                            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
                            "spec": {"template": POD},
                        },
                    }
                ]
            }
        },
    },
}
TRAIN_JOB: Json = {
    "kind": "TrainJob",
    "metadata": META,
    "spec": {"runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 6}},
}
X_POD_GROUP: Json = {
    "kind": "PodGroup",
    "apiVersion": "scheduling.x-k8s.io/v1alpha1",
    "metadata": {"name": "mine", "namespace": "a"},
    "spec": {"minMember": 6},
}
MARKED: Json = {
    "kind": "Job",
    "metadata": META,
    "spec": {"parallelism": 6, "template": make_template(labels={"scheduling.x-k8s.io/pod-group": "mine"})},
}
NATIVE: Json = copy.deepcopy(MARKED)
NATIVE["spec"]["template"] = {**POD, "spec": {**POD["spec"], "schedulingGroup": {"podGroupName": "mine"}}}
NATIVE_GROUP: Json = {
    **X_POD_GROUP,
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "spec": {"schedulingPolicy": {"gang": {"minCount": 6}}},
}

ONE_GROUP: list[tuple[list[Json], str]] = [
    ([JOB], "a/x (Job)"),
    ([KUEUE], "a/g (Kueue)"),
    ([RAY], "a/x"),
    ([MPI], "a/x"),
    ([RUNTIME, TRAIN_JOB], "a/x"),
    ([MARKED, X_POD_GROUP], "a/mine"),
    ([NATIVE, NATIVE_GROUP], "a/mine"),
]
TWO_GROUPS: list[tuple[Json, tuple[str, str]]] = [
    (JOB_SET, ("a/x-w-0 (Job)", "a/x-w-1 (Job)")),
    (LWS, ("a/x-0 (LeaderWorkerSet)", "a/x-1 (LeaderWorkerSet)")),
    (LWS_OF_ONE, ("a/x-0 (LeaderWorkerSet)", "a/x-1 (LeaderWorkerSet)")),
]


def submit(listed: ListedObjects, *manifests: Json, **run_times: list[float]) -> Submission:
    found = answer(listed, listed, submit_to(listed, *manifests), run_times).submission
    assert found is not None
    return found


def describe(found: Submission) -> list[tuple[str, int | None, int, int]]:
    return [(group.name, group.minimum, group.pods, group.starting) for group in found.groups]


@pytest.mark.parametrize(("manifests", "name"), ONE_GROUP, ids=lambda value: value if isinstance(value, str) else "")
def test_all_pods_of_all_templates_start_or_none(manifests: list[Json], name: str) -> None:
    fits, lacks = submit(make_cluster(2), *manifests), submit(make_cluster(1), *manifests)

    assert (fits.starts_now, len(fits.nodes), fits.pods) == (True, 6, 6)
    assert describe(fits) == [(name, 6, 6, 6)]
    assert (lacks.starts_now, len(lacks.nodes), lacks.pods) == (False, 0, 6)
    assert describe(lacks) == [(name, 6, 6, 0)]
    assert lacks.reason is not None
    assert lacks.change is not None


@pytest.mark.parametrize(("manifest", "names"), TWO_GROUPS, ids=["JobSet", "LWS", "LWS of one template"])
def test_each_replica_is_a_group_of_its_own(manifest: Json, names: tuple[str, str]) -> None:
    fits, lacks = submit(make_cluster(2), manifest), submit(make_cluster(1), manifest)

    assert (fits.starts_now, describe(fits)) == (True, [(name, 3, 3, 3) for name in names])
    assert (lacks.starts_now, len(lacks.nodes)) == (False, 3)
    assert sorted(starting for *_, starting in describe(lacks)) == [0, 3]


def test_the_submitter_of_a_ray_job_is_in_no_group() -> None:
    found = submit(make_cluster(2), RAY_JOB)

    assert (found.starts_now, found.pods, describe(found)) == (True, 7, [("a/x", 6, 6, 6)])


def test_without_a_mark_pods_of_a_ray_cluster_start_one_by_one() -> None:
    found = submit(make_cluster(1), {**RAY, "metadata": META})

    assert (len(found.nodes), found.groups) == (4, ())


def test_an_mpi_job_may_say_a_lower_minimum() -> None:
    manifest = copy.deepcopy(MPI)
    manifest["spec"]["runPolicy"] = {"schedulingPolicy": {"minAvailable": 3}}

    assert describe(submit(make_cluster(1), manifest)) == [("a/x", 3, 6, 4)]
    manifest["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"] = "3"
    with pytest.raises(InvalidProblemError, match=r"spec\.runPolicy\.schedulingPolicy\.minAvailable: must be a whole"):
        submit(make_cluster(1), manifest)


def test_a_group_without_its_pod_group_waits_for_it() -> None:
    found = submit(make_cluster(2), MARKED)

    assert (len(found.nodes), found.reason) == (0, "0/2 nodes are available: PodGroup a/mine does not exist.")
    assert describe(found) == [("a/mine", None, 6, 0)]


def test_the_wait_is_estimated_for_the_group() -> None:
    """One of the two nodes is full of pods that run for 100 s."""
    filler = {"kind": "Job", "metadata": {"namespace": "a", "name": "old"}, "spec": {"parallelism": 4, "template": POD}}
    listed = submit_to(make_cluster(2), filler).listed
    for pod in listed.pods:
        pod.spec.node_name, pod.status.start_time = "n0", format_time(NOW)
    found = submit(listed, JOB, a=[100.0])

    assert len(found.nodes) == 0
    assert found.wait is not None
    assert found.wait.median == pytest.approx(100)


@pytest.mark.parametrize(
    ("trainer", "nodes", "cpu"),
    [({}, 1, 1), ({"numNodes": 3}, 3, 1), ({"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "2"}}}, 2, 2)],
)
def test_a_train_job_has_the_nodes_that_it_or_its_runtime_says(trainer: Json, nodes: int, cpu: int) -> None:
    submitted = submit_to(make_cluster(2), RUNTIME, {**TRAIN_JOB, "spec": {**TRAIN_JOB["spec"], "trainer": trainer}})

    asked = [dict((pod.spec.containers or [])[0].resources.requests or {})["cpu"] for pod in submitted.pods]  # type: ignore[union-attr]
    assert asked == [str(cpu)] * nodes


def test_a_train_job_may_say_where_its_pods_may_go() -> None:
    override = {
        "targetJobs": [{"name": "node"}],
        "metadata": {"labels": {"team": "x"}},
        "spec": {"nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}]},
    }
    spec = {**TRAIN_JOB["spec"], "labels": {"all": "y"}, "podTemplateOverrides": [override]}
    (pod, *_) = submit_to(make_cluster(2), {**TRAIN_JOB, "spec": spec}, RUNTIME).pods

    assert pod.spec.node_selector == {"disk": "ssd"}
    assert [each.operator for each in pod.spec.tolerations or ()] == ["Exists"]
    assert (pod.metadata.labels or {}).items() >= {"team": "x", "all": "y"}.items()


def test_a_launcher_that_is_a_node_is_one_of_the_nodes() -> None:
    runtime = copy.deepcopy(RUNTIME)
    runtime["spec"]["mlPolicy"] = {"mpi": {"runLauncherAsNode": True}}
    (node,) = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    launcher = {**copy.deepcopy(node), "name": "launcher"}
    del node["template"]["metadata"]
    runtime["spec"]["template"]["spec"]["replicatedJobs"] = [launcher, node]

    assert describe(submit(make_cluster(2), runtime, TRAIN_JOB)) == [("a/x", 6, 6, 6)]


def test_a_train_job_without_its_runtime_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match=r'^spec\.runtimeRef: names the ClusterTrainingRuntime "torch"'):
        submit_to(make_cluster(2), TRAIN_JOB)
    other = {**RUNTIME, "kind": "TrainingRuntime"}
    with pytest.raises(InvalidProblemError, match=r"must be in the file$"):
        submit_to(make_cluster(2), other, TRAIN_JOB)


@pytest.mark.parametrize(
    ("manifest", "field", "value", "said"),
    [
        (
            JOB_SET,
            "startupPolicy",
            {"startupPolicyOrder": "InOrder"},
            "the order in which JobSet x creates its Jobs",
        ),
        (LWS, "startupPolicy", "LeaderReady", "that workers of LeaderWorkerSet x exist only once their leader does"),
        (
            MPI,
            "launcherCreationPolicy",
            "WaitForWorkersReady",
            "that the launcher of MPIJob x exists only once its workers run",
        ),
    ],
)
def test_an_order_of_creation_is_named_as_it_is_not_known_here(
    manifest: Json, field: str, value: object, said: str
) -> None:
    changed = copy.deepcopy(manifest)
    changed["spec"][field] = value

    assert said in submit(make_cluster(2), changed).not_applied
    assert said not in submit(make_cluster(2), manifest).not_applied


def test_the_terminal_says_how_many_groups_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster, manifest = tmp_path / "cluster.json", tmp_path / "lws.json"
    cluster.write_text(format_snapshot(make_cluster(1)), encoding="utf-8")
    manifest.write_text(json.dumps(LWS), encoding="utf-8")
    assert main(["what-if", str(cluster), "--submit", str(manifest)]) == 0
    shown = " ".join(capsys.readouterr().out.split())

    assert "Of 2 groups 1 start now. a/x-1 (LeaderWorkerSet) waits: 3 of its 3 pods must start together." in shown
