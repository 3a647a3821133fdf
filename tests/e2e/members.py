"""People of a tenant: real identities with the rights that a namespace's administrator ordinarily has, and no more.

A member is a ServiceAccount in the tenant's first namespace with a token from the API server, bound by RoleBindings to
the ClusterRole `admin` in the tenant's namespaces. Nobody impersonates anybody here.
"""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING

from e2e.api import ApiError
from e2e.objects import make_name
from e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from e2e.api import Api, Json
    from e2e.clusters import Cluster

RBAC = "rbac.authorization.k8s.io"
FORBIDDEN = 403


@contextlib.contextmanager
def joined(cluster: Cluster, *namespaces: str) -> Iterator[Api]:
    """Give a client with the identity of a new administrator of these namespaces, who goes with them."""
    home, name = namespaces[0], make_name("member")
    cluster.api.post(f"/api/v1/namespaces/{home}/serviceaccounts", {"metadata": {"name": name}})
    for namespace in namespaces:
        bind_role(cluster.api, namespace, "admin", home, name)
    member = cluster.connect_as(cluster.service_account_kubeconfig(home, name))
    try:
        for namespace in namespaces:
            # the authorizer learns of a new binding a moment later
            wait_for(
                functools.partial(member.get, f"/api/v1/namespaces/{namespace}/pods"),
                describe=f"{name} to be let into {namespace}",
            )
        yield member
    finally:
        member.close()


def bind_role(api: Api, namespace: str, role: str, home: str, name: str, *, kind: str = "ClusterRole") -> None:
    """Give a ServiceAccount a role in a namespace."""
    api.post(f"/apis/{RBAC}/v1/namespaces/{namespace}/rolebindings", make_binding(role, home, name, kind=kind))


def make_binding(role: str, home: str, name: str, *, kind: str = "ClusterRole") -> Json:
    """Return a RoleBinding of a ServiceAccount to a role."""
    return {
        "apiVersion": f"{RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": make_name("binding")},
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": home}],
    }


def find_refusal(attempt: Callable[[], object]) -> ApiError | None:
    """Do something and return the API server's refusal, or None when it was done."""
    try:
        attempt()
    except ApiError as error:
        return error
    return None


def check_refused(attempt: Callable[[], object], *words: str, status: int = FORBIDDEN, what: str = "") -> None:
    """Do something that the API server must refuse with this status and these words."""
    refusal = find_refusal(attempt)
    assert refusal is not None, f"{what or 'it'} was not refused"
    assert refusal.status == status, f"{what}: {refusal}"
    missing = [word for word in words if word not in str(refusal)]
    assert not missing, f"{what}: {refusal} does not say {missing}"


def wait_refused(attempt: Callable[[], object], *words: str, status: int = FORBIDDEN) -> None:
    """Wait until the API server refuses it: a new policy or quota is obeyed a moment after it was made.

    attempt: without effect when it is let through, such as a dry run.
    """

    def is_refused() -> bool:
        check_refused(attempt, *words, status=status)
        return True

    wait_for(is_refused, describe=f"a refusal that says {words}")


def wait_allowed(attempt: Callable[[], object]) -> None:
    """Wait until the API server lets it through; attempt: as above."""

    def is_allowed() -> bool:
        refusal = find_refusal(attempt)
        assert refusal is None, f"refused: {refusal}"
        return True

    wait_for(is_allowed, describe="it to be let through")


def try_pod(api: Api, namespace: str, pod: Json) -> Json:
    """Ask the API server to admit a pod without making it, and return it as it would be made."""
    admitted: Json = api.post(f"/api/v1/namespaces/{namespace}/pods", pod, dryRun="All")
    return admitted


def check_compiled(api: Api, *policies: str) -> None:
    """Wait until the API server has checked the expressions of these policies, and fail when it found anything."""
    for name in policies:
        path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}"
        read = functools.partial(api.get, path)
        wait_for(lambda read=read: "typeChecking" in read().get("status", {}), describe=f"{name} to be checked")  # type: ignore[misc]
        found = read()["status"]["typeChecking"].get("expressionWarnings", [])
        assert not found, f"{name}: {found}"


def list_names(things: Sequence[Json]) -> list[str]:
    """Return the names of objects."""
    return [thing["metadata"]["name"] for thing in things]
