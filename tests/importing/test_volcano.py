from __future__ import annotations

import pytest

from fairbind.model.errors import InvalidProblemError
from importing.queues import read


def queue(name: str, spec: str, annotations: str = "") -> str:
    meta = f"{{name: {name}, annotations: {{{annotations}}}}}"
    return f"---\napiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {meta}\nspec: {{{spec}}}\n"


def test_each_field_has_its_counterpart() -> None:
    tenants, notes = read(
        "volcano",
        queue("root", "weight: 1, reclaimable: true")
        + queue("eng", "parent: root, weight: 3, deserved: {cpu: 8, memory: 16Gi}")
        + queue(
            "dev",
            "parent: eng, priority: 5, deserved: {cpu: 2}, capability: {cpu: 4, pods: 10}, reclaimable: true, "
            "dequeueStrategy: traverse",
        ),
    )

    assert tenants == {
        "eng": {"weight": 3, "guarantee": [{"resources": {"cpu": "8", "memory": "16Gi"}}]},
        "dev": {
            "parent": "eng",
            "priority": 5,
            "guarantee": [{"resources": {"cpu": "2"}}],
            "limit": [{"resources": {"cpu": "4", "pods": "10"}}],
        },
    }
    assert notes == []


def test_a_guarantee_of_all_that_is_deserved_is_lending_never_and_a_part_is_named() -> None:
    tenants, notes = read(
        "volcano",
        queue("all", "deserved: {cpu: 8000m}, guarantee: {resource: {cpu: 8}}")
        + queue("part", "deserved: {cpu: 8, memory: 1Gi}, guarantee: {resource: {cpu: 8}}")
        + queue("only", "guarantee: {resource: {cpu: 8}}"),
    )

    assert tenants["all"] == tenants["only"] == {"guarantee": [{"resources": {"cpu": "8"}}], "lending": "Never"}
    assert tenants["part"] == {"guarantee": [{"resources": {"cpu": "8", "memory": "1Gi"}}]}
    assert notes == [
        "Queue part: spec.guarantee.resource: it is a part of deserved; a Tenant lends all of its guarantee or nothing"
    ]


def test_a_parent_that_says_nothing_is_guaranteed_what_its_children_are() -> None:
    tenants, notes = read(
        "volcano",
        queue("top", "deserved: {cpu: 3}")
        + queue("a", "parent: top, deserved: {cpu: 2, memory: 1Gi}")
        + queue("b", "parent: top, deserved: {cpu: 2}"),
    )

    assert tenants["top"]["guarantee"] == [{"resources": {"cpu": "3", "memory": "1Gi"}}]
    assert notes == ["Queue top: spec.deserved: 3 of cpu is less than the 4 of its children: theirs counts up to it"]


def test_a_parent_that_is_in_no_file_is_named() -> None:
    reason = "spec.parent: gone is in none of the files; none is written"
    assert read("volcano", queue("a", "parent: gone")) == ({"a": {}}, [f"Queue a: {reason}"])


def test_what_has_no_counterpart_is_named() -> None:
    spec = (
        "reclaimable: false, extendClusters: [{name: x}], dequeueStrategy: fifo, type: t, colour: red, "
        "affinity: {nodeGroupAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [g]}}"
    )
    tenants, notes = read(
        "volcano", queue("root", "capability: {cpu: 3}") + queue("a", spec, 'volcano.sh/hierarchy: "root/eng"')
    )

    assert tenants == {"a": {}}
    assert [note.split(": ")[:2] for note in notes] == [
        ["Queue root", "spec.capability"],
        *(
            ["Queue a", f"spec.{name}"]
            for name in ("reclaimable", "extendClusters", "dequeueStrategy", "type", "colour", "affinity")
        ),
        ["Queue a", 'metadata.annotations["volcano.sh/hierarchy"]'],
    ]
    assert notes[5] == "Queue a: spec.colour: no field that fairbind knows"


def test_weights_and_priorities_beyond_those_of_a_tenant_are_the_nearest_ones() -> None:
    tenants, notes = read("volcano", queue("a", "weight: 65535, priority: 5000"))

    assert tenants == {"a": {"weight": 1000, "priority": 1000}}
    assert notes == [
        "Queue a: spec.weight: a Tenant's weight is from 0.001 to 1000; 1000 is written",
        "Queue a: spec.priority: a Tenant's priority is from -1000 to 1000; 1000 is written",
    ]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("weight: -3", "Queue a: spec.weight must be a number of 0 or more, not -3"),
        ("weight: [3]", "Queue a: spec.weight must be a number of 0 or more, not a list"),
        ("priority: 1.5", "Queue a: spec.priority must be a whole number, not 1.5"),
        ("capability: {cpu: -1}", "Queue a: spec.capability.cpu must be a quantity of 0 or more, .*, not -1"),
        ("capability: {cpu: true}", "Queue a: spec.capability.cpu must be a quantity of 0 or more, .*, not true"),
        ("capability: [cpu]", "Queue a: spec.capability must be an object, not a list"),
        ("parent: 3", "Queue a: spec.parent must be text, not 3"),
        ("parent: a", "Queue a: its parents must not be a circle, but are a -> a"),
    ],
)
def test_invalid_values_are_refused_with_their_place(spec: str, message: str) -> None:
    with pytest.raises(InvalidProblemError, match=f"file-1, document 1: {message}"):
        read("volcano", queue("a", spec))
