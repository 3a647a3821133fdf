"""Pods that need a feature of their kubelet, and nodes that declare it or do not."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.builders import Cluster, Json, make_node, make_pod, read_node, read_pod
from cluster.filters.test_topology import decide, list_reasons
from fairbind.cluster.objects.declared_features import MOUNT_OPTIONS, NEEDED, RESTART_ALL, USERS_ON_HOST_NETWORK

REFUSED = "node(s) didn't match Pod's required features"
RULE = {"restartPolicyRules": [{"action": "Restart"}, {"action": "RestartAllContainers"}]}
MOUNT = {"volumeMounts": [{"mountPath": "/a"}, {"mountPath": "/b", "bindMountOptions": ["nodev"]}]}
NEEDS: list[tuple[Json, str]] = [
    ({"containers": [{"name": "a"}, {"name": "b", **RULE}]}, RESTART_ALL),
    ({"initContainers": [{"name": "a", **RULE}]}, RESTART_ALL),
    ({"containers": [{"name": "a", **MOUNT}]}, MOUNT_OPTIONS),
    ({"initContainers": [{"name": "a", **MOUNT}]}, MOUNT_OPTIONS),
    ({"hostNetwork": True, "hostUsers": False}, USERS_ON_HOST_NETWORK),
]
NO_NEEDS: list[Json] = [
    {"containers": [{"name": "a", "restartPolicyRules": [{"action": "Restart"}], "volumeMounts": [{}]}]},
    {"hostNetwork": True, "hostUsers": True},
    {"hostNetwork": True},
    {"hostUsers": False},
    {},
]


def declare(name: str, *features: str, **options: Any) -> Json:
    node = make_node(name, **options)
    node["status"]["declaredFeatures"] = list(features)
    return node


@pytest.mark.parametrize(("spec", "feature"), NEEDS)
def test_a_pod_goes_only_where_its_feature_is_declared(spec: Json, feature: str) -> None:
    cluster = Cluster()
    others = (name for name in NEEDED if name != feature)
    cluster.add_nodes(declare("a"), declare("b", *others), declare("c", "Unknown", feature))
    cluster.add_pods(make_pod("x", **spec))

    assert cluster.find_eligible("uid-x") == {"c"}
    assert [bind.server for bind in decide(cluster).bindings] == ["c"]


def test_a_pod_may_need_two_and_have_constraints_that_do_not_matter_now() -> None:
    cluster = Cluster()
    cluster.add_nodes(declare("a", RESTART_ALL), declare("b", RESTART_ALL, USERS_ON_HOST_NETWORK))
    tolerations = [{"key": "no-node-has-it", "operator": "Exists"}]
    both = {**NEEDS[0][0], **NEEDS[4][0], "tolerations": tolerations}
    cluster.add_pods(make_pod("x", **both))

    assert cluster.find_eligible("uid-x") == {"b"}


@pytest.mark.parametrize("spec", NO_NEEDS)
def test_other_pods_need_none(spec: Json) -> None:
    assert read_pod(make_pod("x", **spec)).constraints.features == ()


def test_a_node_that_comes_to_declare_it_opens_and_one_that_does_not_any_more_closes() -> None:
    cluster = Cluster()
    cluster.add_nodes(declare("a", labels={"zone": "1"}), declare("b", labels={"zone": "2"}))
    cluster.add_pods(make_pod("x", hostNetwork=True, hostUsers=False, nodeSelector={"zone": "1"}))
    assert list_reasons(decide(cluster)) == {REFUSED: 1, "node(s) didn't match Pod's node affinity/selector": 1}
    changes = cluster.changes
    cluster.add_nodes(declare("a", USERS_ON_HOST_NETWORK, labels={"zone": "1"}))

    assert cluster.changes > changes
    assert cluster.find_eligible("uid-x") == {"a"}
    cluster.cache.check_consistent()
    cluster.add_nodes(declare("a", labels={"zone": "1"}))
    assert cluster.find_eligible("uid-x") == set()
    cluster.cache.check_consistent()


def test_features_on_which_no_pod_depends_are_not_kept() -> None:
    assert read_node(declare("a", "Unknown", RESTART_ALL, "InPlacePodResize")).features == (RESTART_ALL,)
