"""The state of a cluster and the rules of the loop, without I/O: values in, values out, and time is an argument."""

from __future__ import annotations
