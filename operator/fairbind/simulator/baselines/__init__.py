"""Baselines of the simulator: the rules of other schedulers by our reading, and a fit rule of the literature.

Each module is one rule. It says what the public documentation says, where that stands, and what of the scheduler is
left out: of preemption, quotas, gangs and hierarchies none plays a part here. A rule says who is next; the server is
the best fit for all of them, so that the rules are compared and not what they stand beside. The operator knows none.
"""
