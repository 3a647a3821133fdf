"""What the churn's pods ask of other pods and of volumes, and what keeps one of them from a node, judged again.

Hard constraints are few kinds, each simple enough to be judged from the API's objects alone: apart from others of a
group on each node, together with others of a group in a zone, and a claim whose volume is on one node.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from e2e.checks import is_held
from faults.storage import HOSTNAME, LOCAL, find_node, name_claim

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable, Mapping

    from e2e.api import Json
    from e2e.checks import View

ZONE = "topology.kubernetes.io/zone"
APART, TOGETHER = "apart", "together"
GROUPS = ("1", "2")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def draw_constraints(draw: random.Random) -> tuple[dict[str, str], Json]:
    """Return the labels of a pod, and what is added to its spec; most pods have neither."""
    group = draw.choice(GROUPS)
    match draw.choice(("", "", "", APART, TOGETHER, "soft")):
        case "apart":
            return {APART: group}, {"affinity": {"podAntiAffinity": {REQUIRED: [_select(APART, group, HOSTNAME)]}}}
        case "together":
            return {TOGETHER: group}, {"affinity": {"podAffinity": {REQUIRED: [_select(TOGETHER, group, ZONE)]}}}
        case "soft":
            spread = _select("soft", group, ZONE) | {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"}
            weighted = {"weight": 10, "podAffinityTerm": _select("soft", group, HOSTNAME)}
            affinity = {"podAntiAffinity": {PREFERRED: [weighted]}}
            return {"soft": group}, {"affinity": affinity, "topologySpreadConstraints": [spread]}
    return {}, {}


def _select(key: str, value: str, topology_key: str) -> Json:
    return {"topologyKey": topology_key, "labelSelector": {"matchLabels": {key: value}}}


def find_claims(pod: Json) -> list[str]:
    """Return the claims of a pod, as `name_claim` does."""
    volumes = pod["spec"].get("volumes") or ()
    claims = (volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume)
    return [f"{pod['metadata']['namespace']}/{claim}" for claim in claims]


def get_group(pod: Json, kind: str) -> tuple[str, str] | None:
    """Return the group of a kind that a pod is in; groups are of one namespace."""
    value = (pod["metadata"].get("labels") or {}).get(kind)
    return None if value is None else (pod["metadata"]["namespace"], value)


@dataclass(slots=True)
class Constraints:
    """What constraints say at one moment."""

    apart: Counter[tuple[str, tuple[str, str]]]
    zones: dict[tuple[str, str], set[str]]
    claims: Mapping[str, Json]
    volumes: Mapping[str, Json]
    free: set[str]

    @classmethod
    def read(cls, view: View, claims: Iterable[Json], volumes: Iterable[Json]) -> Constraints:
        """Read what there is. free: the nodes with a volume that no claim has."""
        by_name = {volume["metadata"]["name"]: volume for volume in volumes}
        made = cls(Counter(), {}, {name_claim(claim["metadata"]): claim for claim in claims}, by_name, set())
        for pod in filter(is_held, view.pods):
            node = pod["spec"]["nodeName"]
            if (group := get_group(pod, APART)) is not None:
                made.apart[node, group] += 1
            if (group := get_group(pod, TOGETHER)) is not None and node in view.nodes:
                made.zones.setdefault(group, set()).add(view.nodes[node]["metadata"]["labels"][ZONE])
        for volume in by_name.values():
            is_free = volume["status"].get("phase") == "Available" and not volume["spec"].get("claimRef")
            if is_free and volume["spec"]["storageClassName"] == LOCAL:
                made.free.add(find_node(volume))
        return made

    def find_objections(self, pod: Json, node: Json) -> list[str]:
        """Return what of these constraints keeps a pod that waits from a node."""
        name, found = node["metadata"]["name"], []
        if (group := get_group(pod, APART)) is not None and self.apart[name, group]:
            found.append("one of its group is there")
        zones = self.zones.get(group) if (group := get_group(pod, TOGETHER)) is not None else None
        if zones and node["metadata"]["labels"][ZONE] not in zones:
            found.append("none of its group is in the zone")
        found += [f"{claim}: no volume" for claim in find_claims(pod) if not self._reaches(claim, name)]
        return found

    def _reaches(self, name: str, node: str) -> bool:
        claim = self.claims.get(name)
        if claim is None or claim["metadata"].get("deletionTimestamp"):
            return False
        volume = self.volumes.get(claim["spec"].get("volumeName", ""))
        if volume is not None:
            return find_node(volume) == node
        return claim["spec"]["storageClassName"] != LOCAL or node in self.free

    def find_broken(self) -> list[str]:
        """Return groups of which two pods are on one node."""
        return [f"{count} of {group} on {node}" for (node, group), count in sorted(self.apart.items()) if count > 1]

    def find_elsewhere(self, pods: Iterable[Json]) -> list[str]:
        """Return pods that are not where the volumes of their claims are."""
        found = []
        for pod in filter(is_held, pods):
            for name in find_claims(pod):
                claim = self.claims.get(name)
                volume = None if claim is None else self.volumes.get(claim["spec"].get("volumeName", ""))
                if claim is not None and (volume is None or find_node(volume) != pod["spec"]["nodeName"]):
                    where = "no volume" if volume is None else f"a volume on {find_node(volume)}"
                    found.append(f"{name} of a pod on {pod['spec']['nodeName']} has {where}")
        return found
