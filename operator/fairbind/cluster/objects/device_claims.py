"""Which ResourceClaims must be there before another scheduler looks at a pod."""

from __future__ import annotations

from itertools import islice
from typing import NamedTuple

from fairbind.cluster.objects import wire

MAX_DEVICE_CLAIMS = 32
"""So many claims of a pod are looked at; of more, the scheduler that places it says what is missing."""


class DeviceClaimUse(NamedTuple):
    """A pod's use of a claim. name: by which the pod knows it. claim: its own name; empty: it is not made yet."""

    name: str
    claim: str


def find_device_claims(spec: wire.PodSpec, status: wire.PodStatus) -> tuple[DeviceClaimUse, ...]:
    """Return the claims of a pod, of which those that are made of templates are named in its status.

    A claim that is named in no way that is known here is left out, as is one that is said not to be necessary.
    """
    made = {each.name: each.resource_claim_name for each in status.resource_claim_statuses or ()}
    found = []
    for each in islice(spec.resource_claims or (), MAX_DEVICE_CLAIMS):
        if each.resource_claim_name:
            found.append(DeviceClaimUse(each.name, each.resource_claim_name))
        elif each.resource_claim_template_name and (claim := made.get(each.name, "")) is not None:
            found.append(DeviceClaimUse(each.name, claim))
    return tuple(found)
