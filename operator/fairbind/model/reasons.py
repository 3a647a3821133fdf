"""Why a server refuses a task, and why a task may not be placed at all: values that can be counted and compared.

A rejection is made by the part that refuses: a filter, the cycle, the reader of a task's description. It is put into
words only where people read it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Self


class RejectionKind(StrEnum):
    """What kind of reason a rejection is.

    one_more_server_could_help: whether a server could be added on which the task would run. Autoscalers buy machines
    for tasks that wait for such a reason, so a kind for which they would buy in vain must say False.
    """

    one_more_server_could_help: bool

    INSUFFICIENT = "insufficient", True
    """Too little is left of a resource. Subject: the resource."""
    PORT_CONFLICT = "port conflict", True
    """A port of the machine, or another exclusive key, is taken."""
    TAINT = "taint", True
    """The server keeps away every task that does not tolerate it. Subject: the taint."""
    SELECTOR = "selector", True
    """The server is not what the task's selector or affinity asks for."""
    ANTI_AFFINITY = "anti-affinity", True
    """A task that runs in the server's domain keeps this one away."""
    OWN_ANTI_AFFINITY = "own anti-affinity", True
    """The server's domain has a task that this one does not want to be with."""
    AFFINITY = "affinity", True
    """The server's domain has none of the tasks that this one must be with."""
    SPREAD = "spread", True
    """The server's domain would have too many more tasks than others. Subject: what is missing, if something is."""
    VOLUME_AFFINITY = "volume affinity", True
    """The server cannot reach a volume of the task."""
    VOLUME_ZONE = "volume zone", True
    """A volume of the task is in another zone or region."""
    VOLUME_LIMIT = "volume limit", True
    """The server would have more volumes attached than it takes."""
    VOLUME_DRIVER = "volume driver", True
    """The server lacks the driver of a volume of the task. Subject: the driver."""
    VOLUME_BINDING = "volume binding", True
    """The server reaches no volume that a claim of the task could have, and none can be made for it."""
    VOLUME_SPACE = "volume space", True
    """Too little storage is left where a volume for a claim of the task could be made for the server."""
    FEATURE = "feature", True
    """The server does not say that it has what the task needs of its software."""
    OUTSIDE = "outside", True
    """The server is none of those that the scheduler was told to use."""
    CORDONED = "cordoned", True
    """The server takes no new tasks for now."""
    NOT_READY = "not ready", True
    """The server does not work."""
    REFUSED = "refused", True
    """The server refused such tasks a moment ago, several in a row."""
    UNCLAIMED = "unclaimed", False
    """No tenant claims the task's namespace, and the policy refuses such tasks; blocks the task."""
    CLAIM = "claim", False
    """A volume or device that the task claims is not there yet; blocks the task. Subject: what of both."""
    VOLUME_IN_USE = "volume in use", False
    """A volume that one task at a time may use is in use: every server refuses the task; blocks the task."""
    NOT_SUPPORTED = "not supported", False
    """The task asks for something that the scheduler does not honour; blocks the task. Subject: the feature."""
    UNREADABLE = "unreadable", False
    """The task's description makes no sense; blocks the task."""
    AT_LIMIT = "at limit", False
    """The tenant would hold more there than its limit allows. Subject: of what, and whose limit."""
    KEPT_BACK = "kept back", True
    """Less would be free there than is kept for other tenants. Subject: of what, and whose it is."""
    GANG_INCOMPLETE = "gang incomplete", False
    """Too few members of the task's group exist, or the group itself does not; blocks the task. Subject: which, and
    how many."""
    LATER = "later", False
    """So many other tasks of the tenant, each to be placed in another way, come first; blocks the task for now."""

    def __new__(cls, word: str, one_more_server_could_help: bool) -> Self:  # noqa: FBT001  one of a kind's facts
        """Make a kind; one without an answer to whether a server could help cannot be made."""
        kind = str.__new__(cls, word)
        kind._value_ = word
        kind.one_more_server_could_help = one_more_server_could_help
        return kind

    # Rejections are counted in dicts, thousands of times a cycle; an enumeration's own hash runs Python code.
    __hash__ = str.__hash__


class Rejection(NamedTuple):
    """One reason. Ordered by kind, then subject.

    subject: what of the kind: the resource, taint or feature, in the words of the rejecting part; empty where the kind
    says it all. A named tuple, because it is compared and hashed thousands of times a cycle.
    """

    kind: RejectionKind
    subject: str = ""


Rejections = tuple[tuple[Rejection, int], ...]
"""(reason, number of servers), sorted."""
