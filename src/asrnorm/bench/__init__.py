"""Speed benchmarks: each implementation beside a baseline measured in the same run.

Every suite has a function `run`, which yields the rows of one table at a time. It takes the name of a device (`cpu` or
`cuda`), `quick` (little work and few repeats, to see that everything runs) and most often `repeats` (timed rounds).
"""
