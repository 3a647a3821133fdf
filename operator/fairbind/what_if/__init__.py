"""Trials on a copy of a cluster: what would be decided if a weight, a node, a pod or the policy were another.

A trial lets the cache, pacing and the cycle decide about a snapshot file, on a virtual clock. It stands below the web
pages, the operator and the simulator, so that all of them can ask.
"""

from __future__ import annotations
