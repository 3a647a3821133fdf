from __future__ import annotations

import pytest

from fairbind.model.errors import InvalidProblemError
from importing.queues import read

API = "apiVersion: kueue.x-k8s.io/v1beta2\n"
NOMINAL = r"spec.resourceGroups\[0\].flavors\[0\].resources\[0\].nominalQuota"
FLAVORS = f"""
{API}kind: ResourceFlavor
metadata: {{name: h100}}
spec: {{nodeLabels: {{gpu: h100}}}}
---
{API}kind: ResourceFlavor
metadata: {{name: any}}
"""


def queue(name: str, *resources: str, cohort: str = "pool", spec: str = "") -> str:
    """A ClusterQueue; each resource is a flavour and a quota, such as ``h100 {name: nvidia.com/gpu, ...}``."""
    flavors = "".join(
        f"    - name: {flavor}\n      resources: [{quota}]\n"
        for flavor, _, quota in (each.partition(" ") for each in resources)
    )
    groups = f"  resourceGroups:\n  - coveredResources: []\n    flavors:\n{flavors}" if flavors else ""
    member = f"  cohortName: {cohort}\n" if cohort else ""
    head = f"---\n{API}kind: ClusterQueue\nmetadata: {{name: {name}}}\nspec:\n  queueingStrategy: BestEffortFIFO\n"
    return f"{head}{member}{groups}{spec}"


def local(name: str, namespace: str, target: str, spec: str = "") -> str:
    return (
        f"---\n{API}kind: LocalQueue\nmetadata: {{name: {name}, namespace: {namespace}}}\n"
        f"spec:\n  clusterQueue: {target}\n{spec}"
    )


def test_quotas_are_guarantees_on_the_nodes_of_their_flavours() -> None:
    tenants, notes = read(
        "kueue",
        FLAVORS
        + queue("a", "h100 {name: nvidia.com/gpu, nominalQuota: 8}", "any {name: cpu, nominalQuota: 1500m}")
        + queue("b", "any {name: memory, nominalQuota: 36Gi}", spec="  fairSharing: {weight: 500m}\n"),
    )

    assert tenants["a"] == {
        "parent": "pool",
        "guarantee": [
            {"resources": {"cpu": "1500m"}},
            {"nodes": {"matchLabels": {"gpu": "h100"}}, "resources": {"nvidia.com/gpu": "8"}},
        ],
    }
    assert tenants["b"] == {"parent": "pool", "weight": "0.5", "guarantee": [{"resources": {"memory": "36Gi"}}]}
    assert notes == []


def test_a_cohort_has_what_its_queues_have_with_its_own_quota_and_no_more_at_the_top() -> None:
    """Else a child's guarantee would count for nothing; and a Cohort without a parent borrows from no other."""
    cohort = f"""---
{API}kind: Cohort
metadata: {{name: pool}}
spec:
  parentName: all
  fairSharing: {{weight: 2}}
  resourceGroups: [{{flavors: [{{name: any, resources: [{{name: cpu, nominalQuota: 1, borrowingLimit: 3}}]}}]}}]
"""
    tenants, notes = read(
        "kueue",
        FLAVORS
        + queue("a", "any {name: cpu, nominalQuota: 4}")
        + queue("b", "any {name: cpu, nominalQuota: 5}")
        + cohort,
    )

    assert tenants["pool"] == {
        "parent": "all",
        "weight": 2,
        "guarantee": [{"resources": {"cpu": "10"}}],
        "limit": [{"resources": {"cpu": "13"}}],
    }
    assert tenants["all"] == {"guarantee": [{"resources": {"cpu": "10"}}], "limit": [{"resources": {"cpu": "10"}}]}
    assert list(tenants) == ["all", "pool", "a", "b"]
    assert notes == []


def test_a_borrowing_limit_is_a_limit_and_a_queue_without_a_cohort_borrows_nothing() -> None:
    tenants, _ = read(
        "kueue",
        FLAVORS
        + queue("a", "any {name: cpu, nominalQuota: 4, borrowingLimit: 2}, {name: pods, nominalQuota: 9}")
        + queue("alone", "any {name: pods, nominalQuota: 9}", cohort=""),
    )

    assert tenants["a"]["limit"] == [{"resources": {"cpu": "6"}}]
    assert tenants["alone"]["limit"] == [{"resources": {"pods": "9"}}]


def test_flavours_with_the_same_nodes_are_added_up_and_limited_only_together() -> None:
    other = f"---\n{API}kind: ResourceFlavor\nmetadata: {{name: other}}\n"
    both = "any {name: cpu, nominalQuota: 4, borrowingLimit: 0}"
    limited, _ = read(
        "kueue", FLAVORS + other + queue("a", both, "other {name: cpu, nominalQuota: 2, borrowingLimit: 1}")
    )
    unlimited, _ = read("kueue", FLAVORS + other + queue("a", both, "other {name: cpu, nominalQuota: 2}"))

    assert limited["a"]["guarantee"] == unlimited["a"]["guarantee"] == [{"resources": {"cpu": "6"}}]
    assert limited["a"]["limit"] == [{"resources": {"cpu": "7"}}]
    assert "limit" not in unlimited["a"]


def test_lending_nothing_is_never_and_a_part_is_named() -> None:
    tenants, notes = read(
        "kueue",
        FLAVORS
        + queue("keeps", "any {name: cpu, nominalQuota: 4, lendingLimit: 0}, {name: memory, nominalQuota: 0}")
        + queue("half", "any {name: cpu, nominalQuota: 4, lendingLimit: 1}")
        + queue("one", "any {name: cpu, nominalQuota: 4, lendingLimit: 0}, {name: memory, nominalQuota: 1Gi}")
        + queue("lends", "any {name: cpu, nominalQuota: 4, lendingLimit: 4}"),
    )

    assert tenants["keeps"]["lending"] == "Never"
    assert [name for name, spec in tenants.items() if "lending" in spec] == ["keeps"]
    field = "spec.resourceGroups[0].flavors[0].resources[0].lendingLimit"
    reason = "it is a part of the queue's quotas; a Tenant lends all or nothing"
    assert notes == [f"ClusterQueue half: {field}: {reason}", f"ClusterQueue one: {field}: {reason}"]


def test_a_namespace_is_of_the_tenant_of_its_local_queue_and_of_two_to_one() -> None:
    tenants, notes = read(
        "kueue",
        queue("a")
        + queue("b")
        + local("default", "team-a", "a")
        + local("z", "team-a", "b")
        + local("x", "team-b", "b")
        + local("lost", "team-c", "gone"),
    )

    assert (tenants["a"]["namespaces"], tenants["b"]["namespaces"]) == (["team-a"], ["team-b"])
    assert "users" not in tenants["b"]
    taken = "namespace team-a is of one Tenant, that of ClusterQueue a, by LocalQueue team-a/default"
    lost = "ClusterQueue gone is in none of the files; the namespace has no Tenant"
    assert notes == [
        f"LocalQueue team-a/z: spec.clusterQueue: {taken}",
        f"LocalQueue team-c/lost: spec.clusterQueue: {lost}",
    ]


def test_a_local_queue_without_a_namespace_is_named() -> None:
    text = queue("a") + local("x", "team-a", "a").replace(", namespace: team-a", "")

    assert read("kueue", text)[1] == ["LocalQueue x: metadata.namespace: absent; add it to the Tenant"]


def test_several_local_queues_of_a_queue_are_its_users() -> None:
    tenants, notes = read(
        "kueue",
        queue("a") + local("ada", "team-a", "a") + local("bob", "team-a", "a", "  fairSharing: {weight: 2}\n"),
    )

    assert tenants["a"]["users"] == {"label": "kueue.x-k8s.io/queue-name"}
    assert notes == ["LocalQueue team-a/bob: spec.fairSharing: the users of a Tenant have equal weights"]


def test_the_older_version_calls_the_cohort_otherwise() -> None:
    text = queue("a").replace("v1beta2", "v1beta1")

    assert read("kueue", text.replace("cohortName", "cohort"))[0]["a"] == {"parent": "pool"}
    assert read("kueue", text) == ({"a": {}}, ["ClusterQueue a: spec.cohortName: no field that fairbind knows"])


def test_a_flavour_that_is_in_no_file_is_named_once() -> None:
    tenants, notes = read("kueue", queue("a", "gone {name: cpu, nominalQuota: 4}, {name: memory, nominalQuota: 1}"))

    assert tenants["a"]["guarantee"] == [{"resources": {"cpu": "4", "memory": "1"}}]
    assert notes == [
        "ResourceFlavor gone: spec.nodeLabels: it is in none of the files; its quotas are written for all nodes"
    ]


def test_what_asks_for_something_else_is_named_and_defaults_are_not() -> None:
    silent = """
  stopPolicy: None
  namespaceSelector: {}
  flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: TryNextFlavor}
  preemption: {reclaimWithinCohort: Never, borrowWithinCohort: {policy: Never}, withinClusterQueue: Never}
"""
    told = """
  stopPolicy: Hold
  namespaceSelector: {matchLabels: {a: b}}
  flavorFungibility: {whenCanBorrow: TryNextFlavor}
  preemption: {reclaimWithinCohort: Any}
  admissionChecksStrategy: {admissionChecks: [{name: check}]}
  admissionScope: {admissionMode: UsageBasedAdmissionFairSharing}
"""
    strict = queue("a", spec=told).replace("BestEffortFIFO", "StrictFIFO")
    flavor = f"---\n{API}kind: ResourceFlavor\nmetadata: {{name: taints}}\nspec: {{nodeTaints: [{{key: a}}]}}\n"

    assert read("kueue", queue("a", spec=silent))[1] == []
    fields = [note.split(": ")[:2] for note in read("kueue", strict + flavor)[1]]
    assert fields == [
        ["ResourceFlavor taints", "spec.nodeTaints"],
        *(
            ["ClusterQueue a", f"spec.{name}"]
            for name in (
                "queueingStrategy", "stopPolicy", "namespaceSelector", "flavorFungibility", "preemption",
                "admissionChecksStrategy", "admissionScope",
            )
        ),
    ]  # fmt: skip


def test_a_weight_of_zero_is_the_least_one() -> None:
    tenants, notes = read("kueue", queue("a", spec="  fairSharing: {weight: 0}\n"))

    assert tenants["a"]["weight"] == "0.001"
    assert notes == [
        "ClusterQueue a: spec.fairSharing.weight: a Tenant's weight is from 0.001 to 1000; 0.001 is written"
    ]


def test_a_cohort_of_the_name_of_a_queue_has_another_one() -> None:
    tenants, notes = read("kueue", queue("pool") + queue("pool-2"))

    assert {name: spec.get("parent") for name, spec in tenants.items()} == {
        "pool-3": None, "pool": "pool-3", "pool-2": "pool-3",
    }  # fmt: skip
    assert notes == ["Cohort pool: name: another Tenant is called pool; this one is pool-3"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            queue("a", "any {name: cpu, nominalQuota: many}"),
            rf'file-1, document 1: ClusterQueue a: {NOMINAL} must be a quantity of 0 or more, .* not "many"',
        ),
        (queue("a", "any {name: cpu}"), "nominalQuota must be a quantity of 0 or more, .* not null"),
        (queue("a", "any {nominalQuota: 3}"), "name must be a name, not null"),
        (queue("a", "any {name: '!', nominalQuota: 3}"), 'must be the name of a resource, .* not "!"'),
        (queue("a", spec="  fairSharing: 3\n"), "spec.fairSharing must be an object, not 3"),
        (
            queue("a", spec="  resourceGroups: [{coveredResources: cpu}]\n"),
            r'spec.resourceGroups\[0\].coveredResources must be a list of names, not "cpu"',
        ),
        (queue("a", spec="  resourceGroups: {}\n"), "spec.resourceGroups must be a list, not {}"),
        (queue("a", cohort="'A B'"), 'spec.cohortName must be a name of small letters, digits, - and ., not "A B"'),
        (local("a", "A_B", "a"), 'metadata.namespace must be a namespace\'s name: .* not "A_B"'),
        (
            f"{API}kind: ResourceFlavor\nmetadata: {{name: f}}\nspec: {{nodeLabels: {{gpu: 1}}}}",
            "ResourceFlavor f: spec.nodeLabels.gpu must be the value of a label: text of at most 63 characters, not 1",
        ),
        (queue("a").replace("v1beta2", "v1alpha2"), 'apiVersion must be of version v1beta1 or v1beta2, not "v1alpha2"'),
    ],
)
def test_invalid_values_are_refused_with_their_place(text: str, message: str) -> None:
    with pytest.raises(InvalidProblemError, match=message):
        read("kueue", text)
