"""docs/unschedulable.md: what its page says was tried, with the API server's own controllers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2e.objects import IMAGE, make_name, make_pod
from e2e.waiting import never, wait_for
from e2e.workloads import count_bound, create_pods, delete_pods, find_condition, find_waiting, list_pods

if TYPE_CHECKING:
    from e2e.api import Api, Json
    from e2e.conftest import StartOperator

pytestmark = [pytest.mark.local_plane, pytest.mark.usefixtures("node")]

PAGE = Path(__file__).parents[2] / "docs" / "unschedulable.md"
PATH = "spec.template.spec.schedulerName"
CORES = 12


def find_row(kind: str) -> str:
    """Return a row of the table of frameworks."""
    (row,) = re.findall(rf"^\| {kind} \|.*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return str(row)


def make_object(kind: str, version: str, name: str, *, restart: str, **spec: object) -> Json:
    """Return a Job or a Deployment of a pod that asks for a core; its scheduler stands where the page says."""
    assert f"`{PATH}`" in find_row(kind)
    requests = {"cpu": "1"}
    template: Json = {
        "metadata": {"labels": {"app": name}, "annotations": {"fairbind.io/run-seconds": "100000"}},
        "spec": {
            "restartPolicy": restart,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": IMAGE, "resources": {"requests": requests}}],
        },
    }
    made: Json = {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }
    *parents, field = PATH.split(".")
    place = made
    for parent in parents:
        place = place[parent]
    place[field] = "fairbind"
    return made


def fill(api: Api, namespace: str) -> list[str]:
    """Fill the node, so that whatever comes waits; return the pods that do."""
    names = create_pods(api, namespace, [make_pod({"cpu": str(CORES)})])
    wait_for(lambda: count_bound(api, namespace) == 1, describe="a full node")
    return names


def wait_unschedulable(api: Api, namespace: str) -> None:
    wait_for(
        lambda: [find_condition(pod).get("reason") for pod in find_waiting(api, namespace)] == ["Unschedulable"],
        describe="a pod that says that it waits",
    )


def find_conditions(api: Api, path: str) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition of an object."""
    conditions = api.get(path).get("status", {}).get("conditions") or []
    return {one["type"]: (one["status"], one.get("reason", "")) for one in conditions}


def test_a_job_fails_at_its_deadline_while_its_pod_waits(
    api: Api, mine: str, theirs: str, operator: StartOperator
) -> None:
    operator()
    fill(api, theirs)
    jobs, name = f"/apis/batch/v1/namespaces/{mine}/jobs", make_name("job")
    api.post(jobs, make_object("Job", "batch/v1", name, restart="Never", activeDeadlineSeconds=20))
    wait_unschedulable(api, mine)
    wait_for(
        lambda: find_conditions(api, f"{jobs}/{name}").get("Failed") == ("True", "DeadlineExceeded"),
        describe="the Job to fail",
    )
    assert count_bound(api, mine) == 0


def test_a_deployment_makes_no_progress_while_its_pod_waits_and_goes_on_afterwards(
    api: Api, mine: str, theirs: str, operator: StartOperator
) -> None:
    operator()
    filling = fill(api, theirs)
    deployments, name = f"/apis/apps/v1/namespaces/{mine}/deployments", make_name("web")
    spec: Json = {"selector": {"matchLabels": {"app": name}}, "progressDeadlineSeconds": 10}
    api.post(deployments, make_object("Deployment", "apps/v1", name, restart="Always", **spec))
    wait_unschedulable(api, mine)

    def find_progress() -> tuple[str, str]:
        return find_conditions(api, f"{deployments}/{name}").get("Progressing", ("", ""))

    wait_for(lambda: find_progress() == ("False", "ProgressDeadlineExceeded"), describe="no progress")
    delete_pods(api, theirs, filling)
    wait_for(lambda: count_bound(api, mine) == 1, describe="the pod to be bound")
    wait_for(lambda: find_progress()[0] == "True", describe="the Deployment to go on")


def test_a_job_that_a_queue_suspends_is_placed_when_it_is_resumed(api: Api, mine: str, operator: StartOperator) -> None:
    """As Kueue does it: it resumes the Job, and the pods come to the scheduler that they name."""
    operator()
    jobs, name = f"/apis/batch/v1/namespaces/{mine}/jobs", make_name("job")
    api.post(jobs, make_object("Job", "batch/v1", name, restart="Never", suspend=True, parallelism=2, completions=2))
    wait_for(lambda: "Suspended" in find_conditions(api, f"{jobs}/{name}"), describe="the Job to be suspended")
    never(lambda: list_pods(api, mine), 1.0, "a suspended Job has pods")
    api.patch(f"{jobs}/{name}", {"spec": {"suspend": False}})
    wait_for(lambda: count_bound(api, mine) == 2, describe="its pods to be bound")
