"""The one request that opens a pod's gate and narrows its nodes: the body of a strategic merge patch.

A pod that was narrowed cannot be widened, and what the other scheduler refuses there would wait for ever. So a pod is
narrowed to all nodes given, or not at all:

* Required node affinity is a list of terms of which one must hold. The API server lets each term of a gated pod have
  more expressions, and no term come or go, so the nodes are added to every term that is there. A term without any
  expression selects no node, and stays as it is.
* Nodes are named by the label `kubernetes.io/hostname`. (A field selector on `metadata.name` takes one value only.)
  Where it would not say which node is meant, a pod is not narrowed (`cache.host_names`).
* Where only some nodes must be avoided, because capacity is reserved there for others, those are named: nodes that come
  later will do.

UID and resource version stand in the body. The API server answers 409 when the pod has changed or was made again, and
422 for another UID with the version of now, which no honest reader can have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairbind.cluster.objects.facts import FAIRBIND_GATE, HOSTNAME

Json = dict[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def make_opening(
    uid: str,
    resource_version: str | None = None,
    affinity: Json | None = None,
    hosts: Sequence[str] | None = None,
    *,
    avoids: bool = False,
) -> Json:
    """Return the patch that opens the gate of a pod, and narrows it when `hosts` are given.

    resource_version: None: whatever has changed of the pod. affinity: `spec.affinity` as the API has it. hosts: see
    `Queries.find_hosts`; None leaves the nodes as they are. avoids: whether these are the nodes where it may not go.

    >>> make_opening("u")["spec"]
    {'schedulingGates': [{'name': 'fairbind.io/turn', '$patch': 'delete'}]}
    """
    spec: Json = {"schedulingGates": [{"name": FAIRBIND_GATE, "$patch": "delete"}]}
    if hosts is not None:
        required = ((affinity or {}).get("nodeAffinity") or {}).get(_REQUIRED)
        spec["affinity"] = {"nodeAffinity": {_REQUIRED: _narrow(required, hosts, avoids=avoids)}}
    version = {} if resource_version is None else {"resourceVersion": resource_version}
    return {"metadata": {"uid": uid, **version}, "spec": spec}


def _narrow(required: Json | None, hosts: Sequence[str], *, avoids: bool) -> Json:
    expression = {"key": HOSTNAME, "operator": "NotIn" if avoids else "In", "values": list(hosts)}
    if required is None:
        return {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeSelectorTerms": [_narrow_term(term, expression) for term in required["nodeSelectorTerms"]]}


def _narrow_term(term: Json, expression: Json) -> Json:
    if not term.get("matchExpressions") and not term.get("matchFields"):
        return term
    return {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), expression]}
