"""The systems whose queues can be read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fairbind.importing.kai import read_kai
from fairbind.importing.kueue import read_kueue
from fairbind.importing.queues import Reader
from fairbind.importing.volcano import read_volcano
from fairbind.importing.yunikorn import read_yunikorn

READERS: Final[Mapping[str, Reader]] = {
    "kueue": read_kueue,
    "volcano": read_volcano,
    "yunikorn": read_yunikorn,
    "kai": read_kai,
}
