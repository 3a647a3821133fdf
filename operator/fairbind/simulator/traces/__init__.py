"""Readers of published workload traces, and what makes a scenario of one.

`rows` reads files row by row. `openb`, `dlrm`, `google2011`, `bitbrains` and `own` know one format each and yield
tasks. `tasks` defines a task and applies the assumptions. `compose` writes the scenario.
"""
