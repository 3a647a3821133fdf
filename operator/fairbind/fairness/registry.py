"""Every mechanism by its id."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from fairbind.fairness.asset_fairness import ASSET_FAIRNESS
from fairbind.fairness.ceei import CEEI
from fairbind.fairness.drbf import DRBF
from fairbind.fairness.drf import DRF
from fairbind.fairness.drfh import DRFH
from fairbind.fairness.dynamic_drf import DYNAMIC_DRF
from fairbind.fairness.mechanism import Mechanism
from fairbind.fairness.tsf import TSF

_ALL = (
    DRF,
    DRFH,
    TSF,
    ASSET_FAIRNESS,
    CEEI,
    DYNAMIC_DRF,
    DRBF,
)

MECHANISMS: Mapping[str, Mechanism] = MappingProxyType({mechanism.id: mechanism for mechanism in _ALL})
