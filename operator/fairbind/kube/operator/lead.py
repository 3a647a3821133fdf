"""Whether a replica may decide: it leads, has caught up, sees, and can have its decisions carried out."""

from __future__ import annotations

from fairbind.kube.operator.election import Election
from fairbind.kube.operator.sight import Sight
from fairbind.kube.writers.binder import Binder


class Lead:
    """The conditions of deciding.

    is_caught_up: whether all that was bound before this replica led is seen. is_ending: whether nothing new is decided
    any more. is_deferred: whether the loop was last told no, so that what woke it is still to be decided.
    """

    def __init__(self, elector: Election, binder: Binder, sight: Sight) -> None:
        self.is_caught_up = self.is_ending = self.is_deferred = False
        self.elector = elector
        self._binder = binder
        self._sight = sight

    def may_decide(self) -> bool:
        """Whether all conditions hold."""
        return (
            self.is_caught_up
            and not self.is_ending
            and self.elector.leading
            and not self._sight.is_blind()
            and not self._binder.is_held_back()
        )

    def answer_loop(self) -> bool:
        """Say whether the loop may decide, and remember a no: what woke the loop is still to be decided."""
        self.is_deferred = not self.may_decide()
        return not self.is_deferred
