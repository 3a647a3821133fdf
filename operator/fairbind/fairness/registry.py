"""Every mechanism by its id."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fairbind.fairness.asset_fairness import ASSET_FAIRNESS
from fairbind.fairness.drf import DRF
from fairbind.fairness.mechanism import Mechanism

_ALL = (DRF, ASSET_FAIRNESS)

MECHANISMS: Mapping[str, Mechanism] = MappingProxyType({mechanism.id: mechanism for mechanism in _ALL})
