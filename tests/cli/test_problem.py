"""The problem of a cluster, from a snapshot: what is written reads back as the same problem."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from fairbind.cli import main
from fairbind.cli.mechanisms.csv_problem import format_csv, read_csv
from fairbind.cli.mechanisms.writing import describe_problem
from fairbind.cli.problem import make_problem_of_cluster
from fairbind.fairness import Problem, compute_allocation, make_problem, parse_problem
from fairbind.model import PolicySettings, Tenant
from fairbind.model.errors import FairbindError
from scheduling.trees import build_tree_snapshot
from scheduling.worlds import build_class, build_placement, build_servers, build_snapshot

ARRAYS = ("capacity_kr", "count_k", "divisible_k", "alpha_k", "demand_ir", "weight_i", "tasks_i", "eligible_ik")


def test_a_snapshot_becomes_a_problem_with_cores() -> None:
    """The example of the DRF paper on three equal servers."""
    servers = build_servers({"s0": (3000, 6), "s1": (3000, 6), "s2": (3000, 6)})
    placement = build_placement(servers)
    classes = [build_class("ada", (1000, 4), placement, 9), build_class("ben", (3000, 1), placement, 9)]
    problem = make_problem_of_cluster(build_snapshot(servers, classes), PolicySettings("drf"))

    assert problem.count_k.tolist() == [3]
    assert problem.capacity_kr.tolist() == [[3.0, 6.0]]
    assert problem.demand_ir.tolist() == [[1.0, 4.0], [3.0, 1.0]]
    totals = compute_allocation(problem.pooled(), "drf").totals_i
    assert dict(zip(problem.tenant_names, totals.tolist(), strict=True)) == pytest.approx({"ada": 3, "ben": 2})


def test_a_tree_of_tenants_is_written_with_its_limits_in_cores() -> None:
    both = [({"cpu": 1000}, 9), ({"memory": 4}, 9)]
    tenants = [
        {"name": "team", "weight": 2, "limit": [{"resources": {"cpu": 4000}, "servers": ["s0"]}]},
        {"name": "ada", "parent": "team", "demands": both},
        {"name": "ben", "priority": 1, "demand": {"cpu": 1000}, "guarantee": [{"resources": {"cpu": 2000}}]},
    ]
    servers = [{"name": name, "capacity": {"cpu": 8000, "memory": 8}} for name in ("s0", "s1")]
    snapshot = build_tree_snapshot({"resources": ["cpu", "memory"], "servers": servers, "tenants": tenants})
    document = describe_problem(make_problem_of_cluster(snapshot, PolicySettings()))

    shown = {each["name"]: each for each in document["tenants"]}
    assert shown["team"]["limit"] == [{"resources": {"cpu": 4.0}, "servers": ["s0"]}]
    assert (shown["ada"]["parent"], shown["ada#1"]["parent"], shown["ada#2"]["parent"]) == ("team", "ada", "ada")
    assert (shown["ben"]["guarantee"], shown["ben"]["priority"]) == ([{"resources": {"cpu": 2.0}}], 1)
    assert compute_allocation(parse_problem(document), "drfh").totals_i.sum() == pytest.approx(16 + 4)


def test_a_tenant_with_several_kinds_of_pods_is_one_tenant_in_the_file_however_deep() -> None:
    """Its cores, of which it has all, count in its level, so that carl comes first with memory."""
    tenants = [
        {"name": "a"},
        *({"name": name, "parent": parent} for name, parent in zip("bcde", "abcd", strict=True)),
        {"name": "ada@e", "parent": "e", "demands": [({"cpu": 1000}, 100), ({"memory": 1}, 10)]},
        {"name": "carl", "demand": {"memory": 1}, "tasks": 10},
    ]
    servers = [{"name": "s", "capacity": {"cpu": 4000, "memory": 10}}]
    snapshot = build_tree_snapshot({"resources": ["cpu", "memory"], "servers": servers, "tenants": tenants})
    problem = make_problem_of_cluster(snapshot, PolicySettings())
    document = describe_problem(problem)

    again = parse_problem(document)
    for mechanism in ("drfh", "ps-dsf", "tsf"):
        totals = compute_allocation(again, mechanism).totals_i
        np.testing.assert_array_equal(totals, compute_allocation(problem, mechanism).totals_i)
    assert compute_allocation(again, "drfh").totals_i[again.tenant_names.index("carl")] > 9
    table = read_csv(format_csv(document), "p.csv").document
    assert [entry for entry in table["tenants"] if entry.get("mixed")] == [
        {"name": "ada@e", "parent": "e", "mixed": True}
    ]


def test_a_cluster_in_which_nobody_wants_anything_is_no_problem() -> None:
    empty = build_snapshot(build_servers({"s": (9, 18)}), [], tenants=[Tenant("a")])

    with pytest.raises(FairbindError, match="nothing to divide"):
        make_problem_of_cluster(empty, PolicySettings())


def make_full_problem() -> Problem:
    return make_problem(
        [[9.0, 18.0], [1.0, 0.0]],
        [[1.0, 4.0], [3.0, 0.0]],
        count_k=[3, 1],
        divisible_k=[True, False],
        alpha_k=[np.nan, 0.5],
        weight_i=[1, 2.5],
        tasks_i=[np.inf, 7],
        eligible_ik=[[True, True], [False, True]],
        resource_weight_ir=[[1, 1], [2, 1]],
        expected_tenants=4,
        is_pooled=True,
    )


def test_every_field_is_written_and_read_back() -> None:
    problem = make_full_problem()
    again = parse_problem(describe_problem(problem))

    for name in (*ARRAYS, "resource_weight_ir"):
        np.testing.assert_array_equal(getattr(again, name), getattr(problem, name))
    assert (again.resources, again.server_names, again.tenant_names) == (("r0", "r1"), ("s0", "s1"), ("t0", "t1"))
    assert (again.expected_tenants, again.is_pooled) == (4, True)


def write_kubeconfig(folder: Path, port: int) -> str:
    path = folder / "config"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
        f'clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{port}"}}}}]\nusers: [{{name: u, user: {{}}}}]\n'
    )
    return str(path)


class Forbidding(BaseHTTPRequestHandler):
    """An API server that knows the user and allows it nothing."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = json.dumps({"kind": "Status", "code": 403, "reason": "Forbidden", "message": "not for you"}).encode()
        self.send_response(403)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class QuietServer(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Say nothing: a client that was refused hangs up."""


@pytest.fixture
def forbidding_port() -> Iterator[int]:
    with QuietServer(("127.0.0.1", 0), Forbidding) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def be_refused(capsys: pytest.CaptureFixture[str], status: int, *words: str) -> str:
    """Return what the command says on one line of stderr."""
    assert main(["problem", *words]) == status
    shown = capsys.readouterr()
    assert shown.out == ""
    assert re.fullmatch(r"fairbind: [^\n]+\n", shown.err)
    return shown.err


def test_a_cluster_that_cannot_be_read_is_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], forbidding_port: int
) -> None:
    assert "127.0.0.1" in be_refused(capsys, 1, "--kubeconfig", write_kubeconfig(tmp_path, 1))
    assert "not for you" in be_refused(capsys, 1, "--kubeconfig", write_kubeconfig(tmp_path, forbidding_port))


def test_invalid_input_is_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = write_kubeconfig(tmp_path, 1)
    unreadable = tmp_path / "broken"
    unreadable.write_text("clusters: [")

    assert "elsewhere" in be_refused(capsys, 2, "--kubeconfig", config, "--context", "elsewhere")
    assert "/nonexistent/config" in be_refused(capsys, 2, "--kubeconfig", "/nonexistent/config")
    assert "broken" in be_refused(capsys, 2, "--kubeconfig", str(unreadable))
    assert "xml" in be_refused(capsys, 2, "--kubeconfig", config, "--output", "xml")
    assert "--namespace" in be_refused(capsys, 2, "--kubeconfig", config, "--namespace", "No Such Name")
