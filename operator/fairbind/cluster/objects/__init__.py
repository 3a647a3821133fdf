"""From the API's JSON to facts about pods, nodes and namespaces."""

from __future__ import annotations
