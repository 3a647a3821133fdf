"""A sweep: one scenario under every combination of policies, seeds, weights and sizes.

`grid` reads what people write and lists the cells. `cells` computes one and keeps those that are finished. `confidence`
says how sure the means over seeds are. `results` writes the tables.
"""
