"""A measure of the whole cluster that a rule says as a fraction."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction

from fairbind.model.shares import KEY_BITS
from fairbind.scheduling.policies.levels import Progress
from fairbind.scheduling.policies.measures import ClusterMeasure


class FractionMeasure(ClusterMeasure):
    """See the module."""

    @abstractmethod
    def compute_exactly(self, progress: Progress, pool: int) -> Fraction:
        """Return the level of a tenant."""

    def compute_level(self, progress: Progress, pool: int) -> int:
        """Return the level of a tenant as whole keys are compared."""
        level = self.compute_exactly(progress, pool)
        return (level.numerator << KEY_BITS) // level.denominator

    def compute_share(self, progress: Progress, pool: int) -> float:
        """Return the level for people."""
        return float(self.compute_exactly(progress, pool))
