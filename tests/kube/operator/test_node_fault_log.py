"""An operator is told once what of a node is left out, and again when it is so again."""

from __future__ import annotations

import pytest

from fairbind.kube.operator.node_fault_log import MOST_LINES, NodeFaultLog


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> NodeFaultLog:
    caplog.set_level("WARNING")
    return NodeFaultLog()


def test_each_fault_of_each_node_is_told_once(log: NodeFaultLog, caplog: pytest.LogCaptureFixture) -> None:
    log.follow({"b": "too many", "a": "too many", "c": "odd"}, ())
    log.follow({"b": "too many", "a": "too many", "c": "odd", "d": "odd"}, ())
    log.follow({"a": "odd"}, ())
    log.follow({"a": "odd", "b": "too many"}, ())
    assert caplog.messages == [
        "node a, b: too many",
        "node c: odd",
        "node d: odd",
        "node a: odd",
        "node b: too many",
    ]
    first = caplog.records[0].__dict__
    assert (first["node"], first["reason"]) == ("a, b", "too many")


def test_resources_that_are_left_out_are_told_once(log: NodeFaultLog, caplog: pytest.LogCaptureFixture) -> None:
    log.follow({}, ("x.com/a", "x.com/b"))
    log.follow({}, ("x.com/a", "x.com/b", "x.com/c"))
    log.follow({}, ())
    assert caplog.messages == [
        "nodes offer too many resources; no pod can be given x.com/a, x.com/b",
        "nodes offer too many resources; no pod can be given x.com/c",
    ]


def test_thousands_of_nodes_do_not_fill_the_log(log: NodeFaultLog, caplog: pytest.LogCaptureFixture) -> None:
    log.follow({f"n{n:04}": "too many" for n in range(5_000)} | {f"m{n}": f"odd {n}" for n in range(50)}, ())
    assert len(caplog.messages) == MOST_LINES + 1
    assert caplog.messages[-1] == f"nodes have {51 - MOST_LINES} more faults of other kinds"
    caplog.clear()
    NodeFaultLog().follow({f"n{n:04}": "too many" for n in range(5_000)}, ())
    assert caplog.messages == ["node n0000, n0001, n0002, n0003, n0004 and 4995 more: too many"]
