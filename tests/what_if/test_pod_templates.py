from __future__ import annotations

from typing import Any

import pytest

from cluster.builders import Json, make_node
from fairbind.model import InvalidProblemError
from fairbind.what_if.pod_templates import find_templates, split_documents
from what_if.snapshots import make_snapshot, submit_to

POD: Json = {"spec": {"containers": [{"name": "main"}]}}
EMPTY = make_snapshot(nodes=[make_node()], pods=[])


def make_job(parallelism: int | None, completions: int | None = None) -> Json:
    counts = {"parallelism": parallelism, "completions": completions}
    return {"spec": {**{name: count for name, count in counts.items() if count is not None}, "template": POD}}


def count(*documents: Json) -> int:
    return sum(template.count for template in find_templates(split_documents(documents)))


@pytest.mark.parametrize(
    ("kind", "spec", "expected"),
    [
        ("Deployment", {"replicas": 4, "template": POD}, 4),
        ("Deployment", {"template": POD}, 1),
        ("ReplicaSet", {"replicas": 2, "template": POD}, 2),
        ("StatefulSet", {"replicas": 3, "template": POD}, 3),
        ("Job", {"parallelism": 5, "completions": 9, "template": POD}, 5),
        ("Job", {"parallelism": 5, "completions": 2, "template": POD}, 2),
        ("Job", {"completions": 7, "template": POD}, 1),
        ("CronJob", {"jobTemplate": {"spec": {"parallelism": 2, "template": POD}}}, 2),
        (
            "JobSet",
            {"replicatedJobs": [{"replicas": 2, "template": make_job(4, 4)}, {"template": make_job(1)}]},
            2 * 4 + 1,
        ),
        ("JobSet", {"replicatedJobs": [{"replicas": 3, "template": make_job(8, 2)}]}, 3 * 2),
        (
            "RayCluster",
            {
                "headGroupSpec": {"template": POD},
                "workerGroupSpecs": [
                    {"replicas": 2, "numOfHosts": 4, "template": POD},
                    {"replicas": 0, "minReplicas": 1, "maxReplicas": 5, "template": POD},
                    {"replicas": 9, "minReplicas": 0, "maxReplicas": 3, "template": POD},
                ],
            },
            1 + 2 * 4 + 1 + 3,
        ),
        ("RayJob", {"rayClusterSpec": {"workerGroupSpecs": [{"replicas": 3, "numOfHosts": 2, "template": POD}]}}, 6),
        ("LeaderWorkerSet", {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "workerTemplate": POD}}, 2 * 4),
        (
            "LeaderWorkerSet",
            {"replicas": 2, "leaderWorkerTemplate": {"size": 4, "leaderTemplate": POD, "workerTemplate": POD}},
            2 * (1 + 3),
        ),
        ("LeaderWorkerSet", {"leaderWorkerTemplate": {"leaderTemplate": POD, "workerTemplate": POD}}, 1),
        (
            "PyTorchJob",
            {
                "pytorchReplicaSpecs": {
                    "Master": {"replicas": 1, "template": POD},
                    "Worker": {"replicas": 3, "template": POD},
                }
            },
            4,
        ),
        ("MPIJob", {"mpiReplicaSpecs": {"Launcher": {"template": POD}, "Worker": {"replicas": 6, "template": POD}}}, 7),
        ("Job", {"minAvailable": 3, "tasks": [{"replicas": 2, "template": POD}, {"replicas": 5, "template": POD}]}, 7),
        ("SparkApplication", {"driver": {"template": POD}, "executor": {"instances": 5, "template": POD}}, 6),
        ("Workload", {"podSets": [{"name": "a", "count": 3, "template": POD}, {"count": 2, "template": POD}]}, 5),
        (
            "PodCliqueSet",
            {"replicas": 2, "template": {"cliques": [{"spec": {"replicas": 3, "podSpec": POD["spec"]}}]}},
            6,
        ),
        ("AppWrapper", {"components": [{"template": {"kind": "Job", **make_job(4)}}, {"template": POD}]}, 5),
        ("Elasticsearch", {"nodeSets": [{"count": 3, "podTemplate": POD}, {"count": 2, "podTemplate": POD}]}, 5),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_counts_on_the_way_to_a_template_multiply(kind: str, spec: Json, expected: int) -> None:
    manifest = {"kind": kind, "metadata": {"name": "n"}, "spec": spec}

    assert count(manifest) == expected
    pods = submit_to(EMPTY, manifest).pods
    assert len({pod.metadata.uid for pod in pods}) == len({pod.metadata.name for pod in pods}) == expected
    assert {pod.spec.scheduler_name for pod in pods} == {"fairbind"}


@pytest.mark.parametrize("depth", range(1, 6))
def test_a_count_at_any_depth_multiplies(depth: int) -> None:
    """A kind that nothing here knows, with two of everything on each level."""
    inner: Json = {"replicas": 2, "template": POD}
    for level in range(depth):
        inner = {"replicas": 2, "parts": [{"sub": inner}, {"metadata": {"replicas": 9}}], "name": f"level-{level}"}

    assert count({"kind": "Nest", "spec": inner}) == 2 ** (depth + 1)


def test_a_pod_is_one_and_keeps_its_name() -> None:
    (pod,) = submit_to(EMPTY, {"kind": "Pod", "metadata": {"name": "web"}, **POD}).pods

    assert (pod.metadata.namespace, pod.metadata.name) == ("default", "web")


def test_counts_that_lead_to_no_pod_are_not_read() -> None:
    manifest = {"kind": "Odd", "spec": {"chart": {"replicas": "as many as you like"}, "run": {"template": POD}}}

    assert count(manifest) == 1


def test_all_documents_of_a_file_count() -> None:
    service = {"kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": []}}
    items = {"kind": "List", "items": [{"kind": "Job", "metadata": {"name": "j"}, **make_job(2)}, service]}
    deployment = {
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "b"},
        "spec": {"replicas": 3, "template": POD},
    }
    pods = submit_to(EMPTY, service, items, deployment).pods

    assert [(pod.metadata.namespace, pod.metadata.name) for pod in pods] == [
        *(("default", f"j-{number}") for number in range(2)),
        *(("b", f"web-{number}") for number in range(3)),
    ]


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ([{"kind": "Service"}, {"kind": "Job", **make_job(-1)}], r"documents\[1\]\.spec\.parallelism: must be a whole"),
        ([{"kind": "Service"}, "text"], r"documents\[1\]: must be a manifest"),
        ([{"kind": "List", "items": [7]}], r"items\[0\]: must be an object"),
        ([{"kind": "DaemonSet", "spec": {"template": POD}}], r"kind: must not be DaemonSet"),
        (
            [{"kind": "A", "spec": {"replicas": 400, "parts": [{"replicas": 400, "template": POD}]}}],
            r"manifest: .* 160000",
        ),
        ([{"kind": "Job", "metadata": 7, **make_job(1)}], r"metadata: must be an object"),
        ([{"kind": "Job", "metadata": {"namespace": 5}, **make_job(1)}], r"metadata\.namespace: must be text, not 5"),
    ],
)
def test_what_cannot_be_counted_is_named(documents: list[Any], said: str) -> None:
    with pytest.raises(InvalidProblemError, match=f"^{said}"):
        count(*documents)


def test_a_daemon_set_beside_others_is_left_out_and_named() -> None:
    found = submit_to(EMPTY, {"kind": "DaemonSet", "spec": {"template": POD}}, {"kind": "Job", **make_job(2)})

    assert len(found.pods) == 2
    assert any("DaemonSet in the file" in text for text in found.not_applied)
