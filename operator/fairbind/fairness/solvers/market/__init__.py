"""Equilibria of a market in which tenants with budgets buy parts of servers.

`market` says what the conditions are. `interior_point` finds a point near an equilibrium, `market_active_set` solves
for the exact one, and `best_response` lets the servers answer in turn where those two lose their way.
Depends on `fairbind.fairness.problems`.
"""

from __future__ import annotations
