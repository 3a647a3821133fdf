"""Readers of published workload traces, and what makes a scenario of one.

`rows` reads files row by row; `openb`, `dlrm`, `google2011`, `bitbrains` and `own` know one format each; `tasks` holds
what all of them yield and the assumptions where a trace says nothing; `compose` writes the scenario.
"""
