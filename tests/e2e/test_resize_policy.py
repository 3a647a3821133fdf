"""Requests of running pods grow only by the hand of who may change Tenants, when the chart's policy says so."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from e2e.conftest import remove
from e2e.members import RBAC, check_compiled, wait_allowed, wait_refused
from e2e.objects import make_name, make_pod
from e2e.workloads import SMALL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from e2e.api import Api
    from e2e.clusters import Cluster

ON = {"operator": {"enabled": False}, "admission": {"resize": {"enabled": True}}}
OFF = {"operator": {"enabled": False}}


def resize(api: Api, path: str, cpu: str) -> None:
    """Ask for other requests of a pod; nothing is changed."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    api.patch(f"{path}/resize", {"spec": {"containers": [container]}}, kind="strategic", dryRun="All")


def let_resize(api: Api, namespace: str) -> None:
    """Let the members of a namespace resize its pods, which the role `admin` does not."""
    base, name = f"/apis/{RBAC}/v1/namespaces/{namespace}", make_name("resize")
    rule = {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]}
    api.post(f"{base}/roles", {"metadata": {"name": name}, "rules": [rule]})
    bind = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": name},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": f"system:serviceaccounts:{namespace}"}],
    }
    api.post(f"{base}/rolebindings", bind)


@pytest.fixture
def path(cluster: Cluster, mine: str) -> Iterator[str]:
    """A pod of a member, where the policy is made."""
    pod = cluster.api.post(f"/api/v1/namespaces/{mine}/pods", make_pod(SMALL))
    cluster.install_chart(ON)
    let_resize(cluster.api, mine)
    yield f"/api/v1/namespaces/{mine}/pods/{pod['metadata']['name']}"
    remove(cluster.api, f"/api/v1/namespaces/{mine}/pods/{pod['metadata']['name']}")
    cluster.install_chart(OFF)


def test_a_member_may_let_a_pod_shrink_and_not_grow(member: Api, api: Api, path: str) -> None:
    wait_allowed(functools.partial(resize, member, path, "1"))
    wait_refused(functools.partial(resize, member, path, "1001m"), "only who may update tenants.fairbind.io")
    resize(member, path, "1000m")
    resize(member, path, "500m")
    resize(api, path, "2")
    member.patch(path, {"metadata": {"labels": {"a": "b"}}})
    check_compiled(api, "fairbind-resize")
