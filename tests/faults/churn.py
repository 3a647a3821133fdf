"""Pods that come, run and go without end, a little more of them than there is room for."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from typing import TYPE_CHECKING

import urllib3

from e2e.api import ApiError
from e2e.objects import make_name, make_pod
from e2e.waiting import PATIENCE_SECONDS
from faults.constraints import draw_constraints
from faults.groups import draw_members, get_group, make_successor
from faults.storage import LOCAL, MADE, make_claim

if TYPE_CHECKING:
    from e2e.api import Api, Json

SIZES = (
    {"cpu": "500m", "memory": "512Mi"},
    {"cpu": "1", "memory": "256Mi"},
    {"cpu": "250m", "memory": "1Gi"},
    {"cpu": "750m", "memory": "768Mi"},
)
SHORT_LIVES = 0.2
"""The part of the pods that end by themselves."""
CLAIMING, CLAIMING_NAME = 0.15, "claiming"
"""The part of the pods that have a claim. Half of these claims are left when their pod is deleted, and go later."""
GROUPS = 0.2
"""The part of what is made that is a group. It is deleted whole, or loses a pod in whose place another one comes."""
RELIST_STEPS = 50
TIMEOUT_SECONDS = 5.0


class Churn:
    """Creates and deletes pods in these namespaces from a thread of its own, while it is not paused."""

    def __init__(
        self, api: Api, namespaces: list[str], target: int, seed: int, per_second: float, *, groups: bool = False
    ) -> None:
        """api: is closed in the end. target: about so many pods there are. groups: whether some are in groups."""
        self._api = api
        self._namespaces = namespaces
        self._target = target
        self._random = random.Random(seed)
        self._pause_seconds = 1.0 / per_second
        self._groups = GROUPS if groups else 0.0
        self._alive: list[tuple[str, str]] = []
        self._group_of: dict[tuple[str, str], str] = {}
        self._step = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="churn", daemon=True)
        self.created = 0

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def pause(self) -> None:
        """Return once nothing is on its way; nothing more is done until `go_on`."""
        self._step.acquire()

    def go_on(self) -> None:
        """Go on after a pause, with the pods that there are: a fault may have taken some of them back."""
        with contextlib.suppress(ApiError, urllib3.exceptions.HTTPError):
            self._relist()
        self._step.release()

    def stop(self) -> None:
        """End; not while it is paused."""
        self._ended.set()
        self._thread.join(PATIENCE_SECONDS)
        self._api.close()

    def _run(self) -> None:
        steps = 0
        while not self._ended.is_set():
            with self._step, contextlib.suppress(ApiError, urllib3.exceptions.HTTPError):
                steps += 1
                if steps % RELIST_STEPS == 0:
                    self._relist()
                self._do_one()
            time.sleep(self._pause_seconds * self._random.uniform(0.5, 1.5))

    def _do_one(self) -> None:
        is_short = len(self._alive) < self._target * self._random.uniform(0.9, 1.1)
        if is_short:
            self._make_some(self._random.choice(self._namespaces))
            return
        namespace, name = self._random.choice(self._alive)
        if (namespace, name) not in self._group_of:
            if name.startswith(CLAIMING_NAME) and self._random.random() < 0.5:
                self._delete_claim(namespace, name)
            self._delete(namespace, name)
        elif self._random.random() < 0.5:
            self._replace(namespace, name)
        else:
            group = self._group_of[namespace, name]
            for each in [pod for pod, of in self._group_of.items() if pod[0] == namespace and of == group]:
                self._delete(*each)

    def _make_some(self, namespace: str) -> None:
        """Make a pod, or a group of them."""
        if self._random.random() < self._groups:
            for member in draw_members(self._random):
                self._create(namespace, member)
            return
        has_claim = self._random.random() < CLAIMING
        pod = self._draw_pod(CLAIMING_NAME if has_claim else "pod")
        if has_claim:
            self._give_claim(namespace, pod)
        self._create(namespace, pod)

    def _create(self, namespace: str, pod: Json) -> None:
        name = namespace, pod["metadata"]["name"]
        self._api.post(f"/api/v1/namespaces/{namespace}/pods", pod)
        self._alive.append(name)
        if group := get_group(pod):
            self._group_of[name] = group
        self.created += 1

    def _delete(self, namespace: str, name: str) -> None:
        self._alive.remove((namespace, name))
        self._group_of.pop((namespace, name), None)
        self._api.delete(f"/api/v1/namespaces/{namespace}/pods/{name}", {"gracePeriodSeconds": 0})

    def _replace(self, namespace: str, name: str) -> None:
        """Delete a pod of a group, and make another one at once, as a controller does."""
        lost = self._api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        self._delete(namespace, name)
        self._create(namespace, make_successor(lost))

    def _give_claim(self, namespace: str, pod: Json) -> None:
        """Make a claim with the pod's own name."""
        name = pod["metadata"]["name"]
        claim = make_claim(name, self._random.choice((LOCAL, MADE)))
        self._api.post(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", claim)
        pod["spec"]["volumes"] = [{"name": "disk", "persistentVolumeClaim": {"claimName": name}}]

    def _delete_claim(self, namespace: str, name: str) -> None:
        with contextlib.suppress(ApiError):  # a fault may have taken it back
            self._api.delete(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}")

    def _draw_pod(self, kind: str) -> Json:
        run_seconds = self._random.randint(1, 20) if self._random.random() < SHORT_LIVES else None
        labels, spec = draw_constraints(self._random)
        return make_pod(
            self._random.choice(SIZES), name=make_name(kind), run_seconds=run_seconds, labels=labels, **spec
        )

    def _relist(self) -> None:
        there = {
            (namespace, pod["metadata"]["name"]): get_group(pod)
            for namespace in self._namespaces
            for pod in self._api.items(f"/api/v1/namespaces/{namespace}/pods", resourceVersion="0")
        }
        self._alive = list(there)
        self._group_of = {pod: group for pod, group in there.items() if group}
        alive = set(self._alive)
        for namespace in self._namespaces:
            for claim in self._api.items(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"):
                if (namespace, claim["metadata"]["name"]) not in alive:
                    self._delete_claim(namespace, claim["metadata"]["name"])
