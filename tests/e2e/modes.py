"""The operator's modes in whole systems: it places pods itself, or kube-scheduler does, at its word.

Programmes write pods that name fairbind. In gate and extender mode these are kube-scheduler's, so that all of them take
the way that this mode is for. Pods that have a node already stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from e2e.api import Api
from e2e.objects import SCHEDULER_NAME
from e2e.test_admission import ENFORCED
from localplane.extender import Extended

if TYPE_CHECKING:
    from pathlib import Path

    from e2e.api import Json
    from localplane.plane import ControlPlane

BIND, GATE, EXTENDER = MODES = ("bind", "gate", "extender")
KUBE_SCHEDULER = "default-scheduler"
COMPONENT = "kube-scheduler"
VALUES: dict[str, Json] = {
    BIND: {},
    GATE: {"mode": GATE},
    EXTENDER: {"mode": EXTENDER, "extender": {"tlsSecretName": "unused-without-the-operator", "ignorable": False}},
}
"""Values of the chart."""
SCHEDULERS = {BIND: SCHEDULER_NAME, GATE: KUBE_SCHEDULER, EXTENDER: KUBE_SCHEDULER}
"""Which scheduler pods name."""
LABELS: dict[str, dict[str, str]] = {GATE: ENFORCED}
"""Labels of namespaces whose pods take part."""


class TurningApi(Api):
    """An API server to which pods for fairbind are written as pods for kube-scheduler."""

    def post(self, path: str, body: object, **query: object) -> Any:
        """Create an object."""
        if path.endswith("/pods") and isinstance(body, dict):
            body = give_to_kube_scheduler(body)
        return super().post(path, body, **query)


APIS: dict[str, type[Api]] = {BIND: Api, GATE: TurningApi, EXTENDER: TurningApi}
"""Through which pods are written."""


def give_to_kube_scheduler(pod: Json) -> Json:
    """Return a pod for kube-scheduler in place of one that waits for fairbind."""
    spec = pod["spec"]
    if spec.get("schedulerName") != SCHEDULER_NAME or "nodeName" in spec:
        return pod
    return {**pod, "spec": {**spec, "schedulerName": KUBE_SCHEDULER}}


@dataclass(frozen=True, slots=True)
class OtherScheduler:
    """kube-scheduler as a mode needs it; in bind mode there is none. port: where it asks in extender mode."""

    plane: ControlPlane
    mode: str
    port: int
    extended: Extended | None

    @classmethod
    def make(cls, plane: ControlPlane, mode: str, folder: Path, port: int) -> OtherScheduler:
        """Write the certificates that it needs into a new folder."""
        if mode != EXTENDER:
            return cls(plane, mode, port, None)
        folder.mkdir()
        return cls(plane, mode, port, Extended.make(plane, folder))

    def compute_arguments(self, port: int) -> list[str]:
        """Return what an operator is started with. port: where it answers in extender mode."""
        if self.extended is not None:
            return self.extended.compute_arguments(port)
        return [f"--mode={self.mode}"]

    def start(self) -> None:
        """Start it, after the chart was installed in this mode."""
        if self.extended is not None:
            self.extended.start_scheduler(self.port)
        elif self.mode == GATE:
            self.plane.start_component(COMPONENT)

    def restart(self) -> None:
        """End it at once, if it runs, and start it again."""
        if self.mode != BIND:
            self.plane.stop_component(COMPONENT, kill=True)
            self.start()
