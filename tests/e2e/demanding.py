"""Pods whose wishes kube-scheduler sees to in its own way: volumes, devices, affinity and spread."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Self

from e2e.conftest import remove
from e2e.objects import make_name
from e2e.test_operator_volumes import LOCAL, PLACE, Storage
from e2e.turns import DEVICES, TWELVE_CORES, make_default
from e2e.workloads import create_pods, list_pods
from localplane.nodes import make_node

if TYPE_CHECKING:
    from types import TracebackType

    from e2e.api import Api, Json
    from e2e.conftest import MakeNodes

HOST = "kubernetes.io/hostname"
PODS = 8
"""So many pods `Demanding.create` makes of each tenant."""


class Demanding:
    """Two nodes of twelve cores, volumes and devices that are on one of them each; a context manager."""

    def __init__(self, api: Api, nodes: MakeNodes) -> None:
        self._api = api
        self._names = nodes(
            [make_node(make_name("n"), allocatable=TWELVE_CORES, labels={PLACE: place}) for place in ("here", "there")]
        )
        self._driver = f"{make_name('driver')}.example.com"
        self._storages: dict[str, Storage] = {}
        self._made: list[str] = []

    def __enter__(self) -> Self:
        selector = {"cel": {"expression": f"device.driver == '{self._driver}'"}}
        self._device_class = self._make("deviceclasses", {"selectors": [selector]})
        there = self._names[1]
        pool = {"name": there, "generation": 1, "resourceSliceCount": 1}
        devices = [{"name": f"d{number}"} for number in range(8)]
        self._make("resourceslices", {"driver": self._driver, "nodeName": there, "pool": pool, "devices": devices})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for path in self._made + [path for storage in self._storages.values() for path in storage.made]:
            remove(self._api, path)

    def create(self, team: str) -> None:
        """Create pods of a tenant: one with a volume, one with a device, two that keep apart, four that spread."""
        storage = self._storages[team] = Storage(self._api, team)
        storage.make_class("WaitForFirstConsumer", LOCAL)
        storage.make_volume("here")
        claim = {"name": "data", "persistentVolumeClaim": {"claimName": storage.make_claim()}}
        request = {"name": "one", "exactly": {"deviceClassName": self._device_class, "count": 1}}
        body = {"metadata": {"name": "device"}, "spec": {"devices": {"requests": [request]}}}
        self._api.post(f"{DEVICES}/namespaces/{team}/resourceclaims", body)
        device = {"name": "device", "resourceClaimName": "device"}
        term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "apart"}}}
        apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        spread = {
            "maxSkew": 1,
            "topologyKey": HOST,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "spread"}},
        }
        pods = [make_demanding("volume", volumes=[claim]), make_demanding("device", resourceClaims=[device])]
        pods += [make_demanding("apart", affinity=apart) for _ in range(2)]
        pods += [make_demanding("spread", topologySpreadConstraints=[spread]) for _ in range(4)]
        create_pods(self._api, team, pods)

    def check(self, team: str) -> None:
        """Check that all pods of a tenant that `create` made are where they may be."""
        by_app: dict[str, list[str]] = {}
        for pod in list_pods(self._api, team):
            by_app.setdefault(pod["metadata"].get("labels", {}).get("app", ""), []).append(
                pod["spec"].get("nodeName", "")
            )
        here, there = self._names
        assert by_app["volume"] == [here]
        assert by_app["device"] == [there]
        assert sorted(by_app["apart"]) == sorted(self._names)
        assert Counter(by_app["spread"]) == {here: 2, there: 2}
        claim = self._api.get(f"{DEVICES}/namespaces/{team}/resourceclaims/device")
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        assert result["driver"] == self._driver

    def _make(self, kind: str, spec: Json) -> str:
        name = make_name("device")
        self._api.post(f"{DEVICES}/{kind}", {"metadata": {"name": name}, "spec": spec})
        self._made.append(f"{DEVICES}/{kind}/{name}")
        return name


def make_demanding(app: str, **spec: Any) -> Json:
    return make_default(labels={"app": app}, **spec)
