"""The registry of all mechanisms by id: the only place that lists them.

Whatever depends on the mechanism is a field of its entry (see `mechanism`); no code compares ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from fairbind.fairness.mechanisms.alpha_pf_vds import ALPHA_PF_VDS
from fairbind.fairness.mechanisms.asset_fairness import ASSET_FAIRNESS
from fairbind.fairness.mechanisms.ceei import CEEI
from fairbind.fairness.mechanisms.drbf import DRBF
from fairbind.fairness.mechanisms.drf import DRF
from fairbind.fairness.mechanisms.drfh import DRFH
from fairbind.fairness.mechanisms.dynamic_drf import DYNAMIC_DRF
from fairbind.fairness.mechanisms.guarantees import GUARANTEES
from fairbind.fairness.mechanisms.mechanism import Mechanism
from fairbind.fairness.mechanisms.per_server_drf import PER_SERVER_DRF
from fairbind.fairness.mechanisms.ps_dsf import PS_DSF
from fairbind.fairness.mechanisms.tsf import TSF

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


def make_registry(mechanisms: Iterable[Mechanism]) -> Mapping[str, Mechanism]:
    """Return the mechanisms by their ids, in their order. Raises ValueError when two have the same id."""
    by_id: dict[str, Mechanism] = {}
    for mechanism in mechanisms:
        if mechanism.id in by_id:
            raise ValueError(f"two mechanisms have the id {mechanism.id!r}")
        by_id[mechanism.id] = mechanism
    return MappingProxyType(by_id)


MECHANISMS: Mapping[str, Mechanism] = make_registry(
    replace(mechanism, properties=GUARANTEES[mechanism.id]) for mechanism in _ALL
)
