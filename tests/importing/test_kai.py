from __future__ import annotations

import pytest

from fairbind.model.errors import InvalidProblemError
from importing.queues import read

NONE = "{quota: 0, limit: -1, overQuotaWeight: 1}"
FREE = f"cpu: {NONE}, memory: {NONE}, gpu: {NONE}"


def queue(name: str, resources: str = FREE, spec: str = "") -> str:
    return (
        f"---\napiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata: {{name: {name}}}\n"
        f"spec: {{resources: {{{resources}}}, {spec}}}\n"
    )


def test_cpu_is_in_thousandths_memory_in_megabytes_and_gpus_are_whole() -> None:
    resources = (
        "cpu: {quota: 2500, limit: 4000, overQuotaWeight: 2}, memory: {quota: 4096, limit: 8192, overQuotaWeight: 2}, "
        "gpu: {quota: 2, limit: 4, overQuotaWeight: 2}"
    )
    tenants, notes = read("kai", queue("a", resources))

    assert tenants == {
        "a": {
            "weight": 2,
            "guarantee": [{"resources": {"cpu": "2500m", "memory": "4096M", "nvidia.com/gpu": "2"}}],
            "limit": [{"resources": {"cpu": "4", "memory": "8192M", "nvidia.com/gpu": "4"}}],
        }
    }
    assert notes == []


def test_minus_one_is_none_and_an_absent_limit_is_the_quota() -> None:
    resources = "cpu: {quota: -1, limit: -1}, memory: {quota: 10, limit: 0}, gpu: {quota: 3}"
    tenants, notes = read("kai", queue("a", resources) + queue("b", "cpu: {quota: -1}, memory: {}, gpu: {limit: 2}"))

    assert tenants["a"] == {
        "guarantee": [{"resources": {"memory": "10M", "nvidia.com/gpu": "3"}}],
        "limit": [{"resources": {"memory": "10M", "nvidia.com/gpu": "3"}}],
    }
    assert tenants["b"] == {"limit": [{"resources": {"memory": "0", "nvidia.com/gpu": "2"}}]}
    assert notes == []


def test_parts_of_a_gpu_are_whole_ones_and_named() -> None:
    tenants, notes = read("kai", queue("a", f"gpu: {{quota: 0.5, limit: -1}}, cpu: {NONE}, memory: {NONE}"))

    assert tenants == {"a": {"guarantee": [{"resources": {"nvidia.com/gpu": "1"}}]}}
    assert notes == ["Queue a: spec.resources.gpu.quota: 1 of nvidia.com/gpu is the nearest that can be written"]


def test_a_resource_that_a_queue_does_not_name_is_named() -> None:
    tenants, notes = read("kai", queue("a", f"gpu: {NONE}, cpu: {NONE}"))

    assert tenants == {"a": {}}
    assert notes == ["Queue a: spec.resources.memory: absent, so KAI lets the queue hold none; no limit is written"]


def test_a_quota_of_zero_is_none_and_no_sum_of_those_below() -> None:
    tenants, notes = read(
        "kai",
        queue("department")
        + queue("team", f"cpu: {NONE}, memory: {NONE}, gpu: {{quota: 2, limit: -1}}", "parentQueue: department"),
    )

    assert tenants == {
        "department": {},
        "team": {"parent": "department", "guarantee": [{"resources": {"nvidia.com/gpu": "2"}}]},
    }
    assert notes == []


def test_weights_that_differ_are_that_of_gpus_and_the_others_are_named() -> None:
    tenants, notes = read(
        "kai",
        queue(
            "a", FREE.replace("gpu: {quota: 0, limit: -1, overQuotaWeight: 1", "gpu: {limit: -1, overQuotaWeight: 3")
        ),
    )

    assert tenants == {"a": {"weight": 3}}
    reason = "the weight of gpu is written; spec.resourceWeights can have others"
    assert notes == [f"Queue a: spec.resources.{name}.overQuotaWeight: {reason}" for name in ("cpu", "memory")]


def test_priorities_are_written_where_siblings_differ() -> None:
    """KAI takes 100 where there is none."""
    tenants, _ = read(
        "kai",
        queue("top")
        + queue("a", spec="parentQueue: top, priority: 50")
        + queue("b", spec="parentQueue: top")
        + queue("c", spec="parentQueue: b"),
    )

    assert tenants == {
        "top": {},
        "a": {"parent": "top", "priority": 50},
        "b": {"parent": "top", "priority": 100},
        "c": {"parent": "b"},
    }


def test_the_longer_run_time_is_kept_and_the_other_named() -> None:
    tenants, notes = read(
        "kai",
        queue("a", spec="reclaimMinRuntime: 1m30s, preemptMinRuntime: 90s")
        + queue("b", spec="reclaimMinRuntime: 1.5h, preemptMinRuntime: 500ms")
        + queue("c", spec="preemptMinRuntime: 20.2s")
        + queue("d", spec="reclaimMinRuntime: '0'"),
    )

    assert {name: spec["minRuntimeSeconds"] for name, spec in tenants.items()} == {"a": 90, "b": 5400, "c": 21, "d": 0}
    assert notes == ["Queue b: spec.preemptMinRuntime: 0.5 s is the shorter of two; a Tenant has one, 5400 s"]


def test_what_has_no_counterpart_is_named() -> None:
    _, notes = read("kai", queue("a", f"{FREE}, tpu: {NONE}", "displayName: A"))

    assert notes == [
        "Queue a: spec.resources.tpu: no field that fairbind knows",
        "Queue a: spec.displayName: a Tenant has one name",
    ]


@pytest.mark.parametrize(
    ("resources", "spec", "message"),
    [
        ("cpu: {quota: -2}", "", "spec.resources.cpu.quota must be a number of 0 or more, or -1 for none, not -2"),
        ("cpu: {quota: -0.5}", "", "spec.resources.cpu.quota must be a number of 0 or more, or -1 for none, not -0.5"),
        ("cpu: {quota: x}", "", 'spec.resources.cpu.quota must be a number .*, not "x"'),
        ("cpu: 3", "", "spec.resources.cpu must be an object, not 3"),
        (FREE, "reclaimMinRuntime: 30", "spec.reclaimMinRuntime must be text, not 30"),
        (FREE, "reclaimMinRuntime: soon", 'spec.reclaimMinRuntime must be a duration of 0 .*, not "soon"'),
        (FREE, "reclaimMinRuntime: -3s", "spec.reclaimMinRuntime must be a duration of 0 "),
        (FREE, "reclaimMinRuntime: 999999999h", "spec.reclaimMinRuntime must be a duration of 0 to 2147483647 seconds"),
    ],
)
def test_invalid_values_are_refused_with_their_place(resources: str, spec: str, message: str) -> None:
    with pytest.raises(InvalidProblemError, match=f"file-1, document 1: Queue a: {message}"):
        read("kai", queue("a", resources, spec))
