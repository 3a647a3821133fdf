"""The first decision, totals or classes of nodes: the page and the picture say what `fairbind advise` says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cluster.builders import Json, make_node, make_pod
from fairbind.what_if.advice import BY_CLASSES, BY_TOTALS, NOTICEABLE_LOSS, Loss, advise
from fairbind.what_if.listed_objects import ListedObjects
from fairness_table.workloads import GPU, make_pools, make_sizes
from house.tree import ROOT
from what_if.snapshots import make_snapshot, make_tenant
from what_if.test_advice import make_example

MORE_THAN_FIT = 200
TAINT = {"key": GPU, "effect": "NoSchedule"}
TOLERATIONS = [{"key": GPU, "operator": "Exists"}]
NODE = {"cpu": "32", "memory": "128Gi", "pods": "110"}
SMALL = {"cpu": "8", "memory": "16Gi", "pods": "110"}


def make_nodes(shape: str, count: int, allocatable: Json, **more: Any) -> list[Json]:
    return [
        make_node(f"{shape}-{number}", allocatable=allocatable, labels={"shape": shape}, **more)
        for number in range(count)
    ]


def make_cluster(nodes: list[Json], **requests: tuple[Json, Json]) -> ListedObjects:
    """Return a cluster with more pods of each tenant than fit. requests: also what else is in the spec of a pod."""
    pods = [
        make_pod(f"{tenant}-{number}", namespace=tenant, requests=amounts, **spec)
        for tenant, (amounts, spec) in requests.items()
        for number in range(MORE_THAN_FIT)
    ]
    return make_snapshot(nodes=nodes, pods=pods, tenants=[make_tenant(name) for name in requests])


def make_equal_nodes() -> ListedObjects:
    wanted = {"cpu": "1", "memory": "8Gi"}, {"cpu": "2", "memory": "1Gi"}
    return make_cluster(make_nodes("n", 5, NODE), a=(wanted[0], {}), b=(wanted[1], {}))


def make_two_models() -> ListedObjects:
    gpus = {**NODE, GPU: "8"}
    nodes = make_nodes("cpu", 4, NODE)
    for model in ("old", "new"):
        nodes += make_nodes(model, 2, gpus, taints=[TAINT])
    tied = {"nodeSelector": {"shape": "new"}, "tolerations": TOLERATIONS}
    return make_cluster(
        nodes,
        training=({"cpu": "6", "memory": "32Gi", GPU: "1"}, tied),
        inference=({"cpu": "2", "memory": "8Gi", GPU: "1"}, {"tolerations": TOLERATIONS}),
        web=({"cpu": "2", "memory": "4Gi"}, {}),
    )


def make_small_nodes() -> ListedObjects:
    nodes = make_nodes("large", 3, NODE) + make_nodes("small", 2, SMALL)
    wanted = {"cpu": "1", "memory": "2Gi"}
    return make_cluster(nodes, edge=(wanted, {"nodeSelector": {"shape": "small"}}), batch=(wanted, {}))


def make_workload(document: Json) -> ListedObjects:
    """Return the cluster of a workload of the fairness table."""
    nodes = [
        make_node(
            f"{shape['shape']}-{number}",
            allocatable={name: str(amount) for name, amount in shape["capacity"].items()},
            labels=shape.get("labels"),
        )
        for shape in document["cluster"]
        for number in range(shape["count"])
    ]
    requests = {}
    for entry in document["workload"]:
        pod = dict(entry["pod"])
        requests[entry["tenant"]] = {name: str(amount) for name, amount in pod.pop("requests").items()}, pod
    return make_cluster(nodes, **requests)


CLUSTERS: dict[str, Callable[[], ListedObjects]] = {
    "equal nodes": make_equal_nodes,
    "GPU nodes of two models behind a taint": make_two_models,
    "two small nodes": make_small_nodes,
    "[a tainted node with most of the memory]": make_example,
    "GPU nodes without a taint (`sizes`)": lambda: make_workload(make_sizes(0)),
    "pools without taints": lambda: make_workload(make_pools(0)),
}


def read_rows() -> Iterator[list[str]]:
    page = (ROOT / "docs" / "policies.md").read_text(encoding="utf-8")
    table = page.partition("| hurt by shares of totals |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


def show(losses: tuple[Loss, ...]) -> str:
    told = [
        f"`{loss.tenant}`: {loss.pods_by_totals:.1f} pods in place of {loss.pods_by_classes:.1f}" for loss in losses
    ]
    return "; ".join(told) or "no tenant"


def test_every_example_of_the_page_is_tried() -> None:
    rows = list(read_rows())

    assert [row[0].startswith(name) for row, name in zip(rows, CLUSTERS, strict=True)] == [True] * len(CLUSTERS)


@pytest.mark.parametrize("name", CLUSTERS)
def test_advise_says_what_the_page_says(name: str) -> None:
    [(_, hurt, recommended)] = [row for row in read_rows() if row[0].startswith(name)]
    found = advise(CLUSTERS[name]())

    assert show(found.losses) == hurt
    assert recommended == f"`{found.recommended}`"
    assert found.recommended == (BY_CLASSES if found.losses else BY_TOTALS)


def test_the_picture_lets_advise_decide_about_classes_of_nodes() -> None:
    picture = (ROOT / "docs" / "images" / "policies.svg").read_text(encoding="utf-8")
    words = re.findall(r">([^<>\n]+)</text>", picture)
    question = words.index("Do shares of totals hurt a tenant?")

    assert words[question + 1 : question + 4] == ["the command fairbind advise names it", "yes", BY_CLASSES]
    assert BY_TOTALS in words
    assert NOTICEABLE_LOSS == 0.2  # the page says: a fifth


@pytest.mark.parametrize(
    "page", ["README.md", "docs/policies.md", "docs/install.md", "docs/tasks.md", "charts/fairbind/templates/NOTES.txt"]
)
def test_who_is_told_to_install_ps_dsf_is_told_to_ask_first(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")

    assert "fairbind advise" in text
    assert not re.search(r"(nodes\s+differ|GPU\s+models|taints)\W[^.]{0,60}`?ps-dsf", text)
    assert not re.search(r"ps-dsf`?\s+if\s+your\s+nodes", text)
