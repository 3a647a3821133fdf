"""The filters that say which nodes a pod may use, beside what is free there."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairbind.cluster.filters.anti_affinity import AntiAffinity
from fairbind.cluster.filters.node_eligibility import Eligibility
from fairbind.cluster.filters.topology import Topology
from fairbind.cluster.state.pod_images import PodImages
from fairbind.cluster.state.term_rotation import TermRotation


class PodFilters:
    """The filters. eligibility: what pods say of nodes. anti_affinity, topology: what they say of one another.

    rotation: whose pod terms are looked at. images: those of pods and nodes.
    """

    def __init__(self, find_namespace_labels: Callable[[str], Mapping[str, str]]) -> None:
        self.eligibility = Eligibility()
        self.images = PodImages(self.eligibility.images)
        self.anti_affinity = AntiAffinity(find_namespace_labels)
        self.topology = Topology(self.eligibility, self.anti_affinity, find_namespace_labels)
        self.rotation = TermRotation()
