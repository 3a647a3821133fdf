"""The cycle on whole tasks: who is next, which server fits best."""

from __future__ import annotations
