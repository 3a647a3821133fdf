"""Every mechanism by its id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from fairbind.fairness.alpha_pf_vds import ALPHA_PF_VDS
from fairbind.fairness.asset_fairness import ASSET_FAIRNESS
from fairbind.fairness.ceei import CEEI
from fairbind.fairness.claims import CLAIMS
from fairbind.fairness.drbf import DRBF
from fairbind.fairness.drf import DRF
from fairbind.fairness.drfh import DRFH
from fairbind.fairness.dynamic_drf import DYNAMIC_DRF
from fairbind.fairness.mechanism import Mechanism
from fairbind.fairness.per_server_drf import PER_SERVER_DRF
from fairbind.fairness.ps_dsf import PS_DSF
from fairbind.fairness.tsf import TSF

_ALL = (
    DRF,
    DRFH,
    PER_SERVER_DRF,
    TSF,
    ASSET_FAIRNESS,
    CEEI,
    PS_DSF,
    ALPHA_PF_VDS,
    DYNAMIC_DRF,
    DRBF,
)

MECHANISMS: Mapping[str, Mechanism] = MappingProxyType(
    {mechanism.id: replace(mechanism, properties=CLAIMS[mechanism.id]) for mechanism in _ALL}
)
