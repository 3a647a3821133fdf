"""Which nodes reach the volumes of a task: by the volumes' node affinity, then by their labels for zones and regions.

The zone labels are asked only of nodes that carry one of them: a cluster of one zone may have none. Volumes carry them
under the names of today or under the old ones; a node without the old label is asked for the one of today.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairbind.cluster.objects.volume_facts import OLD_REGION, OLD_ZONE, REGION, TOPOLOGY_LABELS, ZONE, VolumeTopology
from fairbind.model import Rejection, RejectionKind

OUT_OF_REACH = Rejection(RejectionKind.VOLUME_AFFINITY)
OTHER_ZONE = Rejection(RejectionKind.VOLUME_ZONE)

PRESENT_NAMES = {OLD_ZONE: ZONE, OLD_REGION: REGION}


def find_volume_refusal(topology: VolumeTopology, labels: Mapping[str, str]) -> Rejection | None:
    """Return why a node with these labels does not reach volumes, or None."""
    for terms in topology.affinities:
        if not any(term.is_met_by(labels, "") for term in terms):
            return OUT_OF_REACH
    if topology.zones and any(key in labels for key in TOPOLOGY_LABELS):
        for key, values in topology.zones:
            if labels.get(key, labels.get(PRESENT_NAMES.get(key, key))) not in values:
                return OTHER_ZONE
    return None
