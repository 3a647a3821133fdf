"""Why a pod must wait for its claims, in kube-scheduler's words where it has some; no further node could help."""

from __future__ import annotations

from fairbind.cluster.objects.device_claims import DeviceClaimUse
from fairbind.cluster.objects.facts import PodFacts
from fairbind.cluster.objects.volume_facts import ClaimFacts, ClaimUse
from fairbind.model import Rejection, RejectionKind

MISSING = Rejection(RejectionKind.CLAIM, "pod claims a volume by a PersistentVolumeClaim that is not there")
LOST = Rejection(RejectionKind.CLAIM, "pod has a PersistentVolumeClaim whose volume is gone")
DELETED = Rejection(RejectionKind.CLAIM, "pod has a PersistentVolumeClaim that is being deleted")
NOT_OWN = Rejection(RejectionKind.CLAIM, "pod has an ephemeral volume whose claim was not created for it")
UNBOUND = Rejection(RejectionKind.CLAIM, "pod has unbound immediate PersistentVolumeClaims")
IN_USE = Rejection(RejectionKind.VOLUME_IN_USE)
SHARED = Rejection(RejectionKind.CLAIM, "pod has a PersistentVolumeClaim that is being bound for another pod")
NODE_GONE = Rejection(RejectionKind.CLAIM, "pod has a PersistentVolumeClaim for a node that does not exist")
RESTING = Rejection(RejectionKind.CLAIM, "pod has a PersistentVolumeClaim that could not be bound")
MANY = Rejection(RejectionKind.CLAIM, "pod waits until the claims of other pods of its tenant are bound")
NO_DEVICE_CLAIM = Rejection(RejectionKind.CLAIM, "pod claims devices by a ResourceClaim that is not there")

Trouble = tuple[Rejection, str]
"""Why a pod waits, as thousands may have it in common, and the very thing."""


def find_claim_trouble(facts: PodFacts, use: ClaimUse, claim: ClaimFacts | None) -> Trouble | None:
    """Return the trouble of a pod with one of its claims, even if no other pod uses that; None: it may be used."""
    if claim is None:
        text = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{use.name}"'
        return MISSING, text
    name = f'persistentvolumeclaim "{use.name}"'
    if claim.is_lost:
        return LOST, f'{name} bound to non-existent persistentvolume "{claim.volume}"'
    if claim.is_deleted:
        return DELETED, f"{name} is being deleted"
    if use.is_ephemeral and claim.owner != facts.uid:
        namespace = facts.namespace
        owner = f"pod {namespace}/{facts.name} (pod is not owner)"
        return NOT_OWN, f"PVC {namespace}/{use.name} was not created for {owner}"
    return None


def find_device_claim_trouble(use: DeviceClaimUse) -> Trouble:
    """Return the trouble of a pod with a ResourceClaim that is not there."""
    if use.claim:
        return NO_DEVICE_CLAIM, f'resourceclaim "{use.claim}" not found'
    return NO_DEVICE_CLAIM, f'waiting for resource claim controller to create the resourceclaim "{use.name}" of the pod'


def describe_node_gone(claim: ClaimFacts, node: str) -> Trouble:
    """Return the trouble of a claim for which a volume is to be made on a node that does not exist."""
    return NODE_GONE, f'persistentvolumeclaim "{claim.name}" waits for a volume on node "{node}", which does not exist'


def describe_rest(claim: ClaimFacts) -> Trouble:
    """Return the trouble of a claim that could not be bound a while ago."""
    return RESTING, f'persistentvolumeclaim "{claim.name}" could not be bound, and is tried again later'


def describe_shared(claim: ClaimFacts) -> Trouble:
    """Return the trouble of a claim that another pod's plan is about."""
    return SHARED, f'persistentvolumeclaim "{claim.name}" is being bound for another pod'
