"""The command that prints the tree of tenants."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.builders import make_namespace, make_node, make_pod
from fairbind.cli import main
from fairbind.cli.tree import MOST_CHILDREN, describe_row, format_rows, list_rows
from fairbind.model.overview import ClusterOverview, TenantOverview
from fairbind.what_if.listed_objects import ListedObjects
from fairbind.what_if.snapshot_file import format_snapshot
from what_if.snapshots import make_snapshot, make_tenant, make_two_tenants


def make_one(name: str, parent: str | None = None, share: float = 0.0, **more: object) -> TenantOverview:
    given: dict[str, object] = {"allocated": {}, "running": 0, "pending": {}, **more}
    return TenantOverview(name, 1.0, share, None, share, parent=parent, **given)  # type: ignore[arg-type]


def make_overview(*tenants: TenantOverview, shown: tuple[TenantOverview, ...] = ()) -> ClusterOverview:
    return ClusterOverview({}, {}, 1, tenants, 1.0, shown=shown)


WEB, ZETA = make_one("ns/web"), make_one("zeta")
GUARANTEED = {"cpu": 2.0, "example.com/gpu": 4.0}
VA = make_one("va", "vis", 0.2, allocated={"cpu": 1.5}, guaranteed=GUARANTEED, fair_share=0.25)
RESEARCH, VIS = make_one("research", share=0.4, pending={"queued": 3}), make_one("vis", "research", 0.3)
TREE = make_overview(WEB, make_one("research", "research", 0.1), VA, ZETA, shown=(WEB, RESEARCH, VA, VIS, ZETA))


def test_tenants_stand_below_their_parents() -> None:
    assert [(row.tenant.name, row.depth) for row in list_rows(TREE)] == [
        ("ns/web", 0),
        ("research", 0),
        ("research", 1),
        ("vis", 1),
        ("va", 2),
        ("zeta", 0),
    ]


def test_the_table_indents_children_and_says_what_is_held_and_guaranteed() -> None:
    lines = format_rows("ps-dsf", list(list_rows(TREE, MOST_CHILDREN)))
    assert lines[0].startswith("Policy ps-dsf; dominant shares")
    first = [line.partition(" 1 ")[0].rstrip() for line in lines if " 1  " in line]
    assert first == ["ns/web", "research", "  research", "  vis", "    va", "zeta"]
    words = " ".join(" ".join(lines).split())
    assert "va 1 0.200 0.250 0 cpu 1500m (2), example.com/gpu 0 (4)" in words
    assert max(map(len, lines)) <= 80


def test_json_has_quantities() -> None:
    va = next(row.tenant for row in list_rows(TREE) if row.tenant.name == "va")
    assert describe_row(va) == {
        "name": "va",
        "parent": "vis",
        "weight": 1.0,
        "held": {"cpu": "1500m"},
        "guaranteed": {"cpu": "2", "example.com/gpu": "4"},
        "fairShare": 0.25,
        "waiting": 0,
    }


def test_of_many_children_those_are_shown_that_hold_most() -> None:
    many = [make_one(f"u{n:02}@a", "a", n / 100) for n in range(50)]
    overview = make_overview(*many, shown=(make_one("a"), *many))
    rows = list(list_rows(overview, MOST_CHILDREN))
    assert [row.tenant.name for row in rows[1:]] == [f"u{n}@a" for n in range(30, 50)]
    assert format_rows("drf", rows)[-1] == "and 30 more below a; -o json has all"
    assert len(list(list_rows(overview))) == 51


def make_cluster() -> ListedObjects:
    namespaces = ("research", "va", "vb")
    return make_snapshot(
        nodes=[make_node("n", allocatable={"cpu": "10", "memory": "10Gi", "pods": "110"})],
        namespaces=[make_namespace(name) for name in namespaces],
        pods=[
            make_pod("r", namespace="research", node="n", requests={"cpu": "1"}),
            make_pod("a", namespace="va", node="n", requests={"cpu": "2"}),
            make_pod("b", namespace="vb", requests={"cpu": "3"}, labels={"user": "x"}),
            make_pod("c", namespace="vb", requests={"cpu": "3"}),
        ],
        tenants=[
            make_tenant("research", weight=2, limit=[{"resources": {"cpu": "9"}}]),
            make_tenant("va", parent="research", guarantee=[{"resources": {"cpu": "4"}}]),
            make_tenant("vb", parent="research", users={"label": "user"}),
        ],
    )


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "cluster.json"
    path.write_text(format_snapshot(make_cluster()), encoding="utf-8")
    return str(path)


def test_a_snapshot_is_shown_as_a_tree(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tree", file, "-o", "json"]) == 0
    tenants = json.loads(capsys.readouterr().out)["tenants"]
    assert [(one["name"], one["parent"], one["held"].get("cpu"), one["waiting"]) for one in tenants] == [
        ("research", None, "3", 2),
        ("research", "research", "1", 0),
        ("va", "research", "2", 0),
        ("vb", "research", None, 2),
        ("@vb", "vb", None, 1),
        ("x@vb", "vb", None, 1),
    ]
    assert [one["weight"] for one in tenants] == [2.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    assert [one["guaranteed"].get("cpu") for one in tenants] == [None, None, "4", None, None, None]
    assert [one["fairShare"] for one in tenants] == pytest.approx([0.9, 0.1, 0.2, 0.6, 0.3, 0.3])

    assert main(["tree", file]) == 0
    assert "  va" in capsys.readouterr().out


def test_a_file_that_says_no_tree_is_a_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(format_snapshot(make_two_tenants()), encoding="utf-8")
    assert main(["tree", str(path), "-o", "json"]) == 0
    tenants = json.loads(capsys.readouterr().out)["tenants"]
    assert [(one["name"], one["parent"]) for one in tenants] == [("a", None), ("b", None)]
    assert all(one["fairShare"] is not None for one in tenants)
