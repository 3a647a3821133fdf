"""Pods that wait because a ResourceClaim of theirs is not there.

A pod that another scheduler places is not looked at there before its claims are. So it waits for them here, unless the
API server does not serve claims at all, or not in a version that is known.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairbind.cluster.objects.device_facts import ResourceClaimFacts
from fairbind.cluster.objects.facts import PodFacts
from fairbind.cluster.objects.volume_facts import name_claim
from fairbind.cluster.state.claim_troubles import Trouble, find_device_claim_trouble
from fairbind.cluster.state.index import note_key
from fairbind.derived import Rotation


class ClaimWaits:
    """See the module. claims: all that are there, by key. pods_to_follow: those whose claims came or went."""

    def __init__(self, claims: Mapping[str, ResourceClaimFacts]) -> None:
        self._claims = claims
        self.is_served = False
        self._keys_of: dict[str, tuple[str, ...]] = {}
        self._pods_of: dict[str, dict[str, None]] = {}
        self.pods_to_follow = Rotation[str]()

    def note_listed(self, *, is_served: bool) -> None:
        """Note that all claims are known, or that the API server has no such objects."""
        if is_served != self.is_served:
            self.is_served = is_served
            self.pods_to_follow.add(self._keys_of)

    def note_claim(self, key: str) -> None:
        """Note that a claim came or went."""
        self.pods_to_follow.add(self._pods_of.get(key, {}))

    def follow(self, facts: PodFacts) -> None:
        """Take a pod, new or changed: it may wait for its claims."""
        if facts.device_claims or facts.uid in self._keys_of:
            self.forget(facts.uid)
            keys = tuple(name_claim(facts.namespace, use.claim) for use in facts.device_claims)
            if keys:
                self._keys_of[facts.uid] = keys
            for key in keys:
                note_key(self._pods_of, key, facts.uid, is_there=True)

    def forget(self, uid: str) -> None:
        """Let a pod go."""
        self.pods_to_follow.discard(uid)
        for key in self._keys_of.pop(uid, ()):
            note_key(self._pods_of, key, uid, is_there=False)

    def find_trouble(self, facts: PodFacts) -> Trouble | None:
        """Return why a pod of another scheduler waits for its claims; None when they are there or are not known."""
        if self.is_served:
            for use in facts.device_claims:
                if name_claim(facts.namespace, use.claim) not in self._claims:
                    return find_device_claim_trouble(use)
        return None

    def describe(self) -> object:
        """Return who has which claims, as plain comparable values."""
        return self._pods_of
