from __future__ import annotations

import textwrap

import pytest

from fairbind.model.errors import InvalidProblemError
from importing.queues import read


def configuration(queues: str, partition: str = "") -> str:
    """A queues.yaml of one partition. queues: those below the root; partition: more of its fields."""
    below = textwrap.indent(textwrap.dedent(queues), " " * 8)
    return (
        f"partitions:\n  - name: default\n{textwrap.indent(textwrap.dedent(partition), ' ' * 4)}"
        f"    queues:\n    - name: root\n      submitacl: '*'\n      queues:\n{below}"
    )


TREE = configuration("""
    - name: Eng
      parent: true
      resources:
        guaranteed: {memory: 500G, vcore: 10}
        max: {memory: 800 G, vcore: 80, pods: 100}
      queues:
      - name: dev
        resources: {guaranteed: {vcore: 500m, nvidia.com/gpu: 2}}
        properties: {priority.offset: "-5"}
    - name: ops
""")


def test_a_tenant_is_named_by_its_path_and_vcore_is_cpu() -> None:
    tenants, notes = read("yunikorn", TREE)

    assert tenants == {
        "eng": {
            "guarantee": [{"resources": {"cpu": "10", "memory": "500G", "nvidia.com/gpu": "2"}}],
            "limit": [{"resources": {"cpu": "80", "memory": "800G", "pods": "100"}}],
        },
        "eng-dev": {
            "parent": "eng",
            "priority": -5,
            "guarantee": [{"resources": {"cpu": "500m", "nvidia.com/gpu": "2"}}],
        },
        "ops": {},
    }
    assert notes == []


def test_a_config_map_and_its_data_alone_are_read_too() -> None:
    inside = textwrap.indent(TREE, "    ")
    data = f"queues.yaml: |\n{inside}"
    config_map = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yunikorn-configs}\n"
        f"data:\n  log.level: '0'\n  queues.yaml: |\n{inside}"
    )

    assert read("yunikorn", config_map) == read("yunikorn", data) == read("yunikorn", TREE)


def test_users_with_limits_are_children_and_their_amounts_are_named() -> None:
    tenants, notes = read(
        "yunikorn",
        configuration("""
            - name: a
              maxapplications: 10
              limits:
              - limit: of people
                users: [ada, "*"]
                maxresources: {vcore: 3}
                maxapplications: 2
              - limit: of groups
                groups: [dev]
        """),
    )

    assert tenants == {"a": {"users": {"label": "yunikorn.apache.org/username"}}}
    assert notes == [
        "queue root.a: limits[0].maxresources: users of a Tenant share it equally, and none has a limit of its own",
        "queue root.a: limits[0].maxapplications: it counts applications; limit.pods counts pods",
        "queue root.a: limits[1].groups: fairbind knows no groups",
        "queue root.a: maxapplications: it counts applications; limit.pods counts pods",
    ]


@pytest.mark.parametrize(
    ("rule", "claiming"),
    [
        ("{name: tag, value: namespace, create: true}", {"ops": "ops"}),
        ("{name: Tag, value: namespace, parent: {name: fixed, value: root.eng}}", {"eng-dev": "dev"}),
        ("{name: tag, value: namespace, parent: {name: user}}", {}),
        ("{name: provided}", {}),
    ],
)
def test_queues_have_the_namespaces_of_their_names_where_pods_are_placed_so(
    rule: str, claiming: dict[str, str]
) -> None:
    queues = (
        "- name: eng\n  queues: [{name: dev}]\n- name: ops\n- {name: later, parent: true}\n- name: not_a_namespace\n"
    )
    tenants, notes = read("yunikorn", configuration(queues, f"placementrules: [{rule}]\n"))

    found = {name: spec["namespaces"] for name, spec in tenants.items() if "namespaces" in spec}
    assert found == {name: [namespace] for name, namespace in claiming.items()}
    told = [note for note in notes if "placementrules" in note]
    expected = "partition default: placementrules[0]: a pod belongs to the Tenant of its namespace"
    assert told == ([] if claiming else [expected])


def test_what_has_no_counterpart_is_named() -> None:
    queues = """
        - name: a
          submitacl: " dev"
          childtemplate: {maxapplications: 3}
          colour: red
          resources: {least: {vcore: 1}}
          properties: {application.sort.policy: fair, preemption.delay: 10s, x: "y"}
    """
    partition = """
        limits: [{limit: "", users: [ada], maxapplications: 3}]
        nodesortpolicy: {type: binpacking}
        preemption: {enabled: false}
    """
    text = configuration(queues, partition).replace(
        "submitacl: '*'\n",
        "submitacl: '*'\n      properties: {priority.offset: '1'}\n      resources: {max: {vcore: 1}}\n",
    )
    _, notes = read("yunikorn", text)

    assert [note.split(": ")[:2] for note in notes] == [
        ["partition default", "limits[0]"],
        ["partition default", "nodesortpolicy"],
        ["queue root", 'properties["priority.offset"]'],
        ["queue root", "resources"],
        ["queue root.a", "resources.least"],
        *(
            ["queue root.a", f"properties{name}"]
            for name in ('["application.sort.policy"]', '["preemption.delay"]', ".x")
        ),
        *(["queue root.a", name] for name in ("submitacl", "childtemplate", "colour")),
    ]


def test_names_that_no_tenant_may_have_and_names_that_meet_are_changed_and_named() -> None:
    queues = "- name: a_b\n- name: x\n  queues: [{name: y-z}]\n- name: x-y\n  queues: [{name: z}]\n"
    tenants, notes = read("yunikorn", configuration(queues))

    assert list(tenants) == ["a-b", "x", "x-y-z", "x-y", "x-y-z-2"]
    assert notes == [
        "queue root.a_b: name: a Tenant cannot be called a_b; it is a-b",
        "queue root.x-y.z: name: another Tenant is called x-y-z; this one is x-y-z-2",
    ]


def test_a_partition_without_a_root_and_several_partitions_are_read() -> None:
    text = "partitions:\n- name: default\n  queues: [{name: a}, {name: b}]\n- name: gpu\n  queues: [{name: a}]\n"

    assert list(read("yunikorn", text)[0]) == ["a", "b", "a-2"]


def test_priorities_beyond_those_of_a_tenant_are_the_nearest_ones() -> None:
    tenants, notes = read("yunikorn", configuration("- name: low\n  properties: {priority.offset: '-9999'}\n"))

    assert tenants == {"low": {"priority": -1000}}
    assert notes == [
        'queue root.low: properties["priority.offset"]: a Tenant\'s priority is from -1000 to 1000; -1000 is written'
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            configuration("- name: a\n  resources: {max: {vcore: many}}\n"),
            'file-1, document 1: queue root.a: resources.max.vcore must be a quantity of 0 or more, .* not "many"',
        ),
        (
            configuration("- name: a\n- name: A\n"),
            r"queues\[1\] must be a name|a name that no other queue beside it has",
        ),
        (configuration("- name: a.b\n"), 'name must be the name of a queue, without dots, not "a.b"'),
        (configuration("- {}\n"), "name must be the name of a queue, without dots, not null"),
        (configuration("- name: a\n  properties: {priority.offset: high}\n"), 'must be a whole number, not "high"'),
        ("partitions: [{name: p}, {name: p}]", "partition p must be there once"),
        ("partitions: 3", "configuration: partitions must be a list, not 3"),
        ("queues.yaml: '{'", "document 1, queues.yaml: must be YAML, but line 2"),
        (
            "kind: ConfigMap\nbinaryData: {queues.yaml.gz: ''}",
            "but holds ConfigMap with queues.yaml.gz, which must be unpacked",
        ),
        ("- 1", "must hold queues.yaml .*, but holds a list"),
    ],
)
def test_invalid_values_are_refused_with_their_place(text: str, message: str) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        read("yunikorn", text)
