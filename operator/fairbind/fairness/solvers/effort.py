"""How much a solver may do before it gives up: a number of steps, so that equal problems have equal answers."""

from __future__ import annotations

from dataclasses import dataclass

from fairbind.model.errors import SolverError


@dataclass(slots=True, eq=False)
class Effort:
    """The steps that are left. Mutable."""

    left: float

    def spend(self, steps: float) -> None:
        """Count steps. Raises SolverError when none are left."""
        self.left -= steps
        if self.left < 0:
            raise SolverError("it takes more steps than it is given")
