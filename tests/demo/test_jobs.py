"""What the tenants ask of a kind cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
import yaml

from demo import jobs, workload
from demo.fakes import Clock
from demo.jobs import JOB_SIZE, JobStream, compute_cast, compute_site
from demo.workload import GPU, KIND_LABEL, MODEL_LABEL, Cast, Json
from fairbind.cluster.objects.quantity import parse_quantity
from kindcluster.cluster import CONFIG

TAINT = {"key": "fairbind.io/dedicated", "value": "research", "effect": "NoSchedule"}


def make_worker(shape: str, cpu: str, memory: str = "20Gi", taints: Sequence[Json] = ()) -> Json:
    model, gpus = jobs.GPUS.get(shape, ("", 0))
    labels = {jobs.SHAPE: shape, **({MODEL_LABEL: model} if gpus else {})}
    amounts = {"cpu": cpu, "memory": memory, "pods": "110", **({GPU: str(gpus)} if gpus else {})}
    return {
        "metadata": {"name": shape, "labels": labels},
        "spec": {"taints": list(taints)} if taints else {},
        "status": {"allocatable": amounts},
    }


def make_workers(cores: int) -> list[Json]:
    """Three workers as on a machine with so many cores."""
    return [
        make_worker("large", f"{1000 * cores - 100}m"),
        make_worker("small", f"{1000 * cores - 1200}m"),
        make_worker("special", f"{1000 * cores - 600}m", taints=[TAINT]),
    ]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cast() -> Cast:
    return compute_cast(make_workers(2))


@pytest.fixture
def stream(clock: Clock) -> JobStream:
    return JobStream(60.0, compute_site(make_workers(2)), clock)


def find_jobs(objects: Sequence[Json]) -> list[Json]:
    return [body for body in objects if body["kind"] == "Job"]


def count_pods(objects: Sequence[Json]) -> Counter[str]:
    """Return how many pods Jobs make, by kind."""
    counts: Counter[str] = Counter()
    for job in find_jobs(objects):
        assert job["spec"]["parallelism"] == job["spec"]["completions"]
        counts[job["spec"]["template"]["metadata"]["labels"][KIND_LABEL]] += job["spec"]["completions"]
    return counts


def sum_requests(objects: Sequence[Json], resource: str) -> Fraction:
    total = Fraction(0)
    for body in objects:
        [container] = body["spec"]["template"]["spec"]["containers"]
        pods = body["spec"].get("completions") or body["spec"]["replicas"]
        total += pods * parse_quantity(container["resources"]["requests"].get(resource, "0"))
    return total


def test_the_tenants_are_those_of_the_local_demo(cast: Cast) -> None:
    def describe(some: Cast) -> list[tuple[str, int, str, bool]]:
        return [(tenant.name, tenant.weight, tenant.parent, tenant.has_pods) for tenant in some.tenants]

    assert describe(cast) == describe(workload.CAST)
    assert cast.limited in cast.first
    assert cast.limited.name == workload.CAST.limited.name
    assert (cast.limited.guarantee, cast.limited.limit) == ({"T4": 3}, {"A100": 1})


@pytest.mark.parametrize("cores", [2, 4, 16, 128])
def test_first_pods_want_more_than_there_is_and_no_pod_more_than_a_node_has(cores: int, stream: JobStream) -> None:
    workers = make_workers(cores)
    cast = compute_cast(workers)
    total = sum(parse_quantity(worker["status"]["allocatable"]["cpu"]) for worker in workers)
    objects = [body for tenant in cast.first for body in stream.make_first(tenant, workload.FIRST_FILL)]
    assert sum_requests(find_jobs(objects), "cpu") > total
    largest = max(parse_quantity(kind.requests["cpu"]) for tenant in cast.tenants for kind in tenant.kinds)
    assert largest < Fraction(cores * 1000 - 1200, 1000)


def test_the_deployment_takes_less_than_its_owners_share(cast: Cast, stream: JobStream) -> None:
    [owner] = [tenant for tenant in cast.first if tenant.name == jobs.SITE_OWNER]
    site = next(body for body in stream.make_first(owner, 1) if body["kind"] == "Deployment")
    parent = next(tenant for tenant in cast.first if tenant.name == owner.parent)
    siblings = [tenant for tenant in cast.first if tenant.parent == owner.parent]
    share = parent.weight / sum(tenant.weight for tenant in cast.top)
    share *= owner.weight / sum(tenant.weight for tenant in siblings)
    total = sum(parse_quantity(worker["status"]["allocatable"]["cpu"]) for worker in make_workers(2))
    assert 0 < sum_requests([site], "cpu") < total * Fraction(share) * Fraction(3, 4)
    template = site["spec"]["template"]
    assert site["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    assert template["spec"]["containers"][0]["args"] == ["-sleep=0s"]
    others = [tenant for tenant in cast.tenants if tenant is not owner]
    assert all(len(find_jobs(made)) == len(made) for made in (stream.make_first(other, 1) for other in others))


def test_backlog_is_filled_up_and_no_further(cast: Cast, stream: JobStream, clock: Clock) -> None:
    for tenant in (tenant for tenant in cast.tenants if tenant.has_pods):
        usual = {kind.name: kind.backlog for kind in tenant.kinds}
        assert count_pods(stream.make_missing(tenant, {}, 5)) == {name: 5 * count for name, count in usual.items()}
        clock.now += jobs.POD_CREATION_SECONDS
        waiting = {(tenant.namespace, name): count for name, count in usual.items()}
        assert stream.make_missing(tenant, waiting) == []
        first = tenant.kinds[0]
        waiting[tenant.namespace, first.name] -= 1
        assert count_pods(stream.make_missing(tenant, waiting)) == {first.name: 1}


def test_pods_that_may_be_on_their_way_are_not_asked_for_again(cast: Cast, stream: JobStream, clock: Clock) -> None:
    shop = next(tenant for tenant in cast.first if tenant.name == jobs.SITE_OWNER)
    assert stream.make_missing(shop, {})
    clock.now += jobs.POD_CREATION_SECONDS / 2
    assert stream.make_missing(shop, {}) == []
    assert stream.make_missing(cast.late, {}), "others may ask"
    clock.now += jobs.POD_CREATION_SECONDS / 2
    assert stream.make_missing(shop, {})


def test_jobs_are_small_and_have_names_of_their_own(cast: Cast, stream: JobStream) -> None:
    made = find_jobs([body for tenant in cast.tenants for body in stream.make_first(tenant, 7)])
    assert max(job["spec"]["completions"] for job in made) == JOB_SIZE
    assert len({job["metadata"]["name"] for job in made}) == len(made) > 20
    namespaces = {tenant.namespace for tenant in cast.tenants if tenant.has_pods}
    assert {job["metadata"]["namespace"] for job in made} == namespaces


def test_jobs_end_soon_enough_to_see_shares_move(cast: Cast, stream: JobStream) -> None:
    def find_seconds(objects: Sequence[Json]) -> set[int]:
        words = [job["spec"]["template"]["spec"]["containers"][0]["args"][0] for job in find_jobs(objects)]
        return {int(word.removeprefix("-sleep=").removesuffix("s")) for word in words}

    seconds = find_seconds(stream.make_first(cast.first[0], 20))
    assert min(seconds) >= 2
    assert max(seconds) <= 60 * 0.3
    assert len(seconds) > 3
    stream.is_lasting = True
    assert find_seconds(stream.make_first(cast.late, 2)) == {0}


def test_pods_name_fairbind_and_may_go_where_their_tenant_may(cast: Cast, stream: JobStream) -> None:
    for tenant in cast.tenants:
        for body in stream.make_first(tenant, 2):
            spec: dict[str, Any] = body["spec"]["template"]["spec"]
            assert spec["schedulerName"] == "fairbind"
            assert [entry["key"] for entry in spec["tolerations"]] == [TAINT["key"]]
            resources = spec["containers"][0]["resources"]
            assert resources["limits"].get(GPU) == resources["requests"].get(GPU)


def test_gpus_are_where_nodes_of_the_configuration_are_and_too_few_for_the_limited() -> None:
    nodes = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["nodes"]
    shapes = {node.get("labels", {}).get(jobs.SHAPE) for node in nodes if node["role"] == "worker"}
    assert set(jobs.GPUS) <= shapes
    gpus = workload.count_gpus([make_worker(shape, "2") for shape in jobs.GPUS])
    limit = workload.promise(workload.CAST, [make_worker(shape, "2") for shape in jobs.GPUS]).limited.limit
    allowed = sum(min(count, limit.get(model, count)) for model, count in gpus.items()) / sum(gpus.values())
    limited = workload.CAST.limited
    free = sum(tenant.weight for tenant in workload.CAST.top if tenant.name != limited.name)
    assert allowed / limited.weight < 1 / free, "its level stays below theirs, also if they take every core"
