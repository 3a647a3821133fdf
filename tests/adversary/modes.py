"""The modes in which the operator is attacked: it places pods itself, or kube-scheduler does at its word.

Attacks and thefts write pods that name fairbind. In gate and extender mode these are kube-scheduler's, so that all of
them take the way that this mode is for. Pods that have a node already stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from e2e.api import Api
from e2e.objects import SCHEDULER_NAME
from e2e.test_admission import ENFORCED

if TYPE_CHECKING:
    from e2e.api import Json

BIND, GATE, EXTENDER = MODES = ("bind", "gate", "extender")
KUBE_SCHEDULER = "default-scheduler"
VALUES: dict[str, Json] = {
    BIND: {},
    GATE: {"mode": GATE},
    EXTENDER: {"mode": EXTENDER, "extender": {"tlsSecretName": "unused-without-the-operator", "ignorable": False}},
}
"""Values of the chart."""
LABELS: dict[str, dict[str, str]] = {GATE: ENFORCED}
"""Labels of namespaces whose pods take part."""


class TurningApi(Api):
    """An API server to which pods for fairbind are written as pods for kube-scheduler."""

    def post(self, path: str, body: object, **query: object) -> Any:
        """Create an object."""
        if path.endswith("/pods") and isinstance(body, dict):
            body = give_to_kube_scheduler(body)
        return super().post(path, body, **query)


def give_to_kube_scheduler(pod: Json) -> Json:
    """Return a pod for kube-scheduler in place of one that waits for fairbind."""
    spec = pod["spec"]
    if spec.get("schedulerName") != SCHEDULER_NAME or "nodeName" in spec:
        return pod
    return {**pod, "spec": {**spec, "schedulerName": KUBE_SCHEDULER}}
