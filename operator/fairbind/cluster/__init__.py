"""The rules of operation and the state of a cluster, without I/O: values in, values out, and time is an argument."""

from __future__ import annotations
