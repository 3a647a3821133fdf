"""What the judge of the API server's audit log finds: who writes without leading, and pods that were bound twice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from e2e.audit import CREDENTIAL, check_bound_once, check_only_holders_write, read_bindings, read_writes


def write_log(path: Path, *lines: tuple[int, str, str], code: int = 200, query: str = "") -> Path:
    """Write a log. lines: the second, whose token, and which resource it wrote."""
    events = [
        {
            "stage": "ResponseComplete",
            "requestURI": f"/apis/{resource}{query}",
            "requestReceivedTimestamp": f"2026-01-01T10:00:{second:02}.000000Z",
            "stageTimestamp": f"2026-01-01T10:00:{second:02}.500000Z",
            "user": {"username": "fairbind", "extra": {CREDENTIAL: [credential]}},
            "objectRef": {
                **dict(zip(("resource", "subresource"), resource.split("/"), strict=False)),
                "namespace": "a",
                "name": "a",
            },
            "responseStatus": {"code": code},
        }
        for second, credential, resource in lines
    ]
    path.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events), encoding="utf-8")
    return path


def judge(path: Path) -> dict[str, int]:
    return dict(check_only_holders_write(read_writes(path, credentials=["one", "two"])))


def test_in_turn_everybody_may_write(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "log",
        (1, "one", "leases"),
        (2, "one", "pods/binding"),
        (3, "one", "tenants/status"),
        (9, "two", "leases"),
        (9, "one", "pods/binding"),  # received while the lease was being taken
        (10, "two", "events"),
        (11, "else", "events"),
    )

    assert judge(log) == {"pods/binding": 2, "tenants/status": 1, "events": 1}


@pytest.mark.parametrize("resource", ["pods/binding", "events", "tenants/status", "pods/status"])
def test_whoever_writes_without_leading_is_found(resource: str, tmp_path: Path) -> None:
    lines = [(1, "one", "leases"), (5, "two", "leases"), (6, "one", resource)]

    with pytest.raises(AssertionError, match="did not lead"):
        judge(write_log(tmp_path / "log", *lines))
    with pytest.raises(AssertionError, match="before anybody had led"):
        judge(write_log(tmp_path / "log", (1, "one", resource)))
    assert judge(write_log(tmp_path / "log", *lines, code=409)) == {}


def test_a_pod_that_was_bound_twice_is_found(tmp_path: Path) -> None:
    lines = [(1, "one", "pods/binding"), (2, "one", "pods/binding")]

    with pytest.raises(AssertionError, match="bound more than once"):
        check_bound_once(read_bindings(write_log(tmp_path / "log", *lines)))
    check_bound_once(read_bindings(write_log(tmp_path / "log", *lines, code=409)))


def test_a_dry_run_is_no_write(tmp_path: Path) -> None:
    lines = [(1, "one", "pods/binding"), (2, "one", "pods/binding")]
    log = write_log(tmp_path / "log", *lines, query="?dryRun=All&fieldManager=x")

    assert read_bindings(log) == []
    assert read_writes(log, credentials=["one"]) == []
