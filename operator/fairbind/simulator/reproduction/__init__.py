"""The evaluations of the papers that fairbind's mechanisms come from, done again: `fairbind reproduce`.

Each figure is a function of a `Lab` that returns an `Outcome`: a table, what a picture of it shows, and what the paper
says beside what comes out here. Whole tasks run in the simulator, divisible ones in the exact library; nothing decides
here. `registry` lists papers and figures. A workload that a paper takes from a trace is made here from a seed, and the
outcome says so.
"""
