"""A virtual clock around the operator's own cache, pacing and cycle: what a policy would do with a workload.

Nothing here decides. A scenario says which objects come and go, `driver` tells the cache of them and lets pacing and
the cycle decide, and the rest is measured and written down.
"""

from __future__ import annotations
